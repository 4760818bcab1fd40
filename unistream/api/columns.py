"""Columns of side outputs that a user declares."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.columns.given_schema import Returns, as_schema
from unistream.port.source import check_tag


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
