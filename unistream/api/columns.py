"""Columns that a user declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.column_names import refused_names
from unistream.port.source import check_tag

Columns: TypeAlias = Mapping[str, pa.DataType]
Returns: TypeAlias = pa.Schema | Columns | None


def as_schema(returns: Returns, what: str = "returns=") -> pa.Schema | None:
    """A schema from a schema or from name -> type. Raises ConfigError, naming `what`, for anything else."""
    if returns is None or isinstance(returns, pa.Schema):
        if returns is not None:
            why = refused_names(returns.names)
            if why is not None:
                raise ConfigError(f"{what} has {why}")
        return returns
    try:
        return pa.schema(list(returns.items()))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{what} takes a pyarrow.Schema, or Arrow types by column like {{'n': pa.int64()}}: {error}"
        ) from error


def side_schemas(side_outputs: Mapping[str, Returns] | None) -> dict[str, pa.Schema]:
    """Schemas by tag. Raises ConfigError for anything else."""
    if not isinstance(side_outputs, Mapping | None):
        raise ConfigError(
            "side_outputs= takes the columns of each side output by its tag, like {'late': {'n': pa.int64()}}"
        )
    found = {}
    for tag, columns in (side_outputs or {}).items():
        check_tag(tag, "side_outputs=")
        schema = as_schema(columns, f"side_outputs= of {tag!r}")
        if schema is not None:
            found[tag] = schema
    return found
