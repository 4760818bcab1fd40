"""Parts of files as splits: which row groups of a Parquet file are one, and their rows in batches.

    unit    what is decoded at once: a row group, or some MB of whole lines at a byte offset
    chunk   at most 65,536 rows of a unit, with the position that follows them

A restored split is decoded again from its unit, without the rows that were already returned. Event times of
row groups are in the statistics of the footer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.limits import BATCH_ROWS_MAX, MIB
from unistream.model.columns.event_time import event_times

ROW_GROUP_BYTES_MAX: Final = 128 * MIB  # decoded; a larger one is decoded in pieces, which is slower


class PositionedFileSplit(Protocol):
    """A part of a file; a frozen `msgspec.Struct`. `unit` and `skip` are its position: the unit to read from,
    and how many of its rows were already returned."""

    @property
    def unit(self) -> int: ...
    @property
    def skip(self) -> int: ...


P = TypeVar("P")  # a split, with its position
U = TypeVar("U", bound=PositionedFileSplit)


@dataclass(frozen=True, slots=True)
class RowChunk(Generic[P]):
    """n <= BATCH_ROWS_MAX rows; `next` is the split with the position after them. n may be 0 if there are
    dead letters, or skipped records."""

    records: pa.RecordBatch
    next: P
    dead_letters: pa.RecordBatch | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class UnitRows:
    """Rows of unit `at` from its row `base` on; `following`: the next unit; None: more rows of this one.
    `dead_letters` and `skipped` are of the whole unit: they come with its last rows, so that a split that is
    restored before those has them once."""

    table: pa.Table
    at: int
    base: int
    following: int | None
    dead_letters: pa.RecordBatch | None = None
    skipped: int = 0

    @property
    def has_failures(self) -> bool:
        return self.dead_letters is not None or self.skipped > 0


def chunks(split: U, units: Iterable[UnitRows]) -> Iterator[RowChunk[U]]:
    """The rows of the units after the position of the split."""
    skip = split.skip
    for unit in units:
        seen = min(skip, unit.table.num_rows)
        skip -= seen
        yield from _chunks(split, unit, seen)


def _chunks(split: U, unit: UnitRows, seen: int) -> Iterator[RowChunk[U]]:
    """Divides the rows after the first `seen` into even slices."""
    table = unit.table.slice(seen).combine_chunks()
    if not table.num_rows:
        if unit.has_failures and unit.following is not None:
            nothing = [pa.array([], field.type) for field in table.schema]
            none = pa.RecordBatch.from_arrays(nothing, schema=table.schema)
            yield RowChunk(none, _at(split, unit.following, 0), unit.dead_letters, unit.skipped)
        return
    parts = -(-table.num_rows // BATCH_ROWS_MAX)
    for records in table.to_batches(-(-table.num_rows // parts)):
        seen += records.num_rows
        if seen == unit.table.num_rows and unit.following is not None:
            yield RowChunk(records, _at(split, unit.following, 0), unit.dead_letters, unit.skipped)
        else:
            yield RowChunk(records, _at(split, unit.at, unit.base + seen))


def _at(split: U, unit: int, skip: int) -> U:
    return msgspec.structs.replace(split, unit=unit, skip=skip)  # type: ignore[type-var]


def row_groups(parquet: pq.ParquetFile, groups: Iterable[int], columns: Sequence[str]) -> Iterator[UnitRows]:
    """The rows of row groups, on the calling thread only: a job is parallel by its subtasks."""
    for group in groups:
        if parquet.metadata.row_group(group).total_byte_size <= ROW_GROUP_BYTES_MAX:
            table = parquet.read_row_group(group, columns=list(columns), use_threads=False)
            yield UnitRows(table, group, 0, group + 1)
            continue
        base = 0
        for records in parquet.iter_batches(
            BATCH_ROWS_MAX, row_groups=[group], columns=list(columns), use_threads=False
        ):
            yield UnitRows(pa.Table.from_batches([records]), group, base, None)
            base += records.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupRange:
    """Adjacent row groups that are one split. `length`: their compressed bytes. `least`: their first event
    time, in ms; None: not known."""

    start: int
    stop: int
    length: int
    rows: int
    least: int | None


def row_group_ranges(
    metadata: pq.FileMetaData, split_bytes: int, column: str, declared: str
) -> list[RowGroupRange]:
    """Puts adjacent row groups of at least `split_bytes` (compressed) together. If `column` has event
    times, only groups that are known to follow each other in time are together. See `time_ranges` for the
    last two."""
    ranges = time_ranges(metadata, column, declared)
    group_ranges: list[RowGroupRange] = []
    start = collected = rows = 0
    for group in range(metadata.num_row_groups):
        collected += _compressed_size(metadata.row_group(group))
        rows += metadata.row_group(group).num_rows
        is_last = group + 1 == metadata.num_row_groups
        if collected >= split_bytes or is_last or (column and not _follows(ranges, group)):
            first = ranges[start]
            least = None if first is None else first.least
            group_ranges.append(
                RowGroupRange(start=start, stop=group + 1, length=collected, rows=rows, least=least)
            )
            start, collected, rows = group + 1, 0, 0
    return group_ranges


def _compressed_size(row_group: pq.RowGroupMetaData) -> int:
    return sum(row_group.column(column).total_compressed_size for column in range(row_group.num_columns))


# --- event times ----------------------------------------------------------------------------------

_UNITS: Final = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


@dataclass(frozen=True, slots=True)
class EventTimeBounds:
    """Bounds of the event times of some rows, in ms."""

    least: int
    greatest: int


def time_ranges(metadata: pq.FileMetaData, column: str, declared: str) -> list[EventTimeBounds | None]:
    """The range of event times in each row group; None: not known.

    Args:
        metadata: The footer of the file.
        column: The column of the event times; empty: there is none.
        declared: The column's Arrow type in the rows of the source. If the file has another one, its values
            are converted when they are read, and nothing is known here.
    """
    unknown: list[EventTimeBounds | None] = [None] * metadata.num_row_groups
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


def _time_range(statistics: Any) -> EventTimeBounds | None:
    """The range of times in one row group. The units are those of Parquet, which has no seconds, and not
    those of Arrow."""
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
    return EventTimeBounds(*event_times(values).to_pylist())


def _follows(ranges: list[EventTimeBounds | None], group: int) -> bool:
    """The row group after `group` has no earlier rows."""
    one, following = ranges[group], ranges[group + 1]
    return one is not None and following is not None and one.greatest <= following.least
