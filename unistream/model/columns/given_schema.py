"""Columns that a user declares: as a schema, or as types by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.columns.column_names import refused_names

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
