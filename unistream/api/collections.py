"""Rows of the program itself as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.columns.column_forms import ValueRefused
from unistream.model.columns.column_names import refused_names
from unistream.operator.common import table_of


def collected(rows: Iterable[Mapping[str, Any]] | pa.Table, schema: pa.Schema | None) -> pa.Table:
    """The rows of `Environment.from_collection`.

    Raises:
        ConfigError: they are no rows, or one of them does not fit.
    """
    if isinstance(rows, pa.Table | pa.RecordBatch):
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        if schema is not None and not table.schema.equals(schema):
            raise ConfigError(
                "from_collection: the table's columns are not those of schema=; leave schema= out, or pass "
                "table.cast(schema)"
            )
        _check_names(table.schema.names)
        return table
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise ConfigError(
            f"from_collection takes dicts, one for each row, or a pyarrow.Table, not {type(rows).__name__}"
        )
    if schema is not None:
        _check_names(schema.names)
    try:
        return table_of(list(rows), schema)
    except ValueRefused as refused:
        raise ConfigError(f"from_collection was given {refused.reason}; row {refused.position}") from refused


def _check_names(names: Sequence[str]) -> None:
    why = refused_names(names)
    if why is not None:
        raise ConfigError(f"from_collection was given rows with {why}")
