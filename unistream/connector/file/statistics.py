"""Event times of row groups, from the statistics in the footer of a Parquet file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unistream.model.event_time import event_times

_UNITS: Final = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Bounds of the event times of some rows, in ms."""

    least: int
    greatest: int


def time_ranges(metadata: pq.FileMetaData, column: str, declared: str) -> list[TimeRange | None]:
    """Of each row group; None: not known.

    Args:
        metadata: The footer of the file.
        column: The column of the event times; empty: there is none.
        declared: The column's Arrow type in the rows of the source. If the file has another one, its values
            are converted when they are read, and nothing is known here.
    """
    unknown: list[TimeRange | None] = [None] * metadata.num_row_groups
    schema = metadata.schema.to_arrow_schema()
    field = schema.get_field_index(column)
    if field < 0 or str(schema.field(field).type) != declared:
        return unknown
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    if paths.count(column) != 1:
        return unknown
    at = paths.index(column)
    return [
        _time_range(metadata.row_group(group).column(at).statistics)
        for group in range(metadata.num_row_groups)
    ]


def _time_range(statistics: Any) -> TimeRange | None:
    """Of one row group. The units are those of Parquet, which has no seconds, and not those of Arrow."""
    if statistics is None or not statistics.has_min_max or statistics.physical_type not in ("INT32", "INT64"):
        return None
    raw = [statistics.min_raw, statistics.max_raw]
    logical = json.loads(statistics.logical_type.to_json())
    match logical.get("Type"):
        case "Timestamp":
            values = pa.array(raw, pa.int64()).view(pa.timestamp(_UNITS[logical["timeUnit"]]))
        case "Date":
            values = pa.array(raw, pa.int32()).view(pa.date32())
        case "None" | "Int" if statistics.physical_type == "INT64":
            values = pa.array(raw, pa.int64())
        case _:
            return None
    return TimeRange(*event_times(values).to_pylist())
