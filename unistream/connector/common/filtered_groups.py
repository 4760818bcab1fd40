"""Which row groups of a Parquet file may have rows that a filter selects, by the statistics in its footer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unistream.connector.common.row_filter import (
    ColumnStatistics,
    RowFilter,
    filter_columns,
    lenient,
    may_select,
)


def constant_bounds(value: Any) -> ColumnStatistics:
    """The bounds of a column that has this value in all rows."""
    return ColumnStatistics(least=value, greatest=value, nulls=int(value is None), rows=1)


def filtered_groups(
    metadata: pq.FileMetaData,
    groups: range,
    row_filter: RowFilter,
    *,
    begun: bool,
    stored: Mapping[str, str],
    constants: Mapping[str, Any],
) -> list[int]:
    """Selects those of `groups` that may have selected rows.

    Args:
        metadata: The footer of the file.
        groups: Numbers of row groups.
        row_filter: Names columns of the rows.
        begun: Rows of the first one were returned already. It stays, since a position counts its rows.
        stored: Column of the rows -> its name in the file, if that has it.
        constants: Columns that have the same value in all rows, whatever the file has.
    """
    kinds = {term.column: term.kind for group in row_filter for term in group}
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    at = {
        name: paths.index(stored[name])
        for name in filter_columns(row_filter)
        if name in stored and paths.count(stored[name]) == 1
    }

    def bounds(group: int, name: str) -> ColumnStatistics:
        if name in constants:
            return constant_bounds(constants[name])
        row_group = metadata.row_group(group)
        statistics = row_group.column(at[name]).statistics if name in at else None
        if statistics is None:
            return ColumnStatistics()
        return ColumnStatistics(
            least=_bound(statistics, "min", kinds[name]),
            greatest=_bound(statistics, "max", kinds[name]),
            nulls=statistics.null_count if statistics.has_null_count else None,
            rows=row_group.num_rows,
        )

    return [
        group
        for group in groups
        if (group == groups.start and begun) or may_select(row_filter, partial(bounds, group))
    ]


def _bound(statistics: Any, name: str, kind: pa.DataType) -> Any:
    try:
        return lenient(getattr(statistics, name), kind) if statistics.has_min_max else None
    except (ValueError, OverflowError):  # a time before the year 1 or after 9999
        return None
