"""Data files of a Delta table before they are committed: bytes, statistics, committables.

A staged file is written to its final path in the table's folder; readers do not see it before a commit names
it. `vacuum` removes those that a crash leaves behind.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unistream.base.errors import CorruptSnapshot, Unreachable
from unistream.connector.common import StageFiles, decode_formatted

COMMITTABLE_FORMAT: Final = 3  # since 2: upsert; since 3: overwrite
STATS_COLUMNS_MAX: Final = 32  # delta.dataSkippingNumIndexedCols
STATS_CHARS_MAX: Final = 32  # longer texts have no bounds
ROW_GROUP_ROWS: Final = 1 << 20


class Upsert(msgspec.Struct, frozen=True, kw_only=True):
    """How staged rows replace others.

    Attributes:
        key: Columns; a row replaces the one that has the same values in them.
        deletes: The staged rows have a column that says which of them only delete the other.
    """

    key: tuple[str, ...]
    deletes: bool = False


class DeltaFile(msgspec.Struct, frozen=True, kw_only=True):
    """A closed data file. `path`: relative to the table, not encoded. `stats`: Delta's JSON."""

    path: str
    size: int
    rows: int
    partition_values: dict[str, str | None]
    stats: str
    modification_ms: int


class DeltaCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask staged for one checkpoint. `schema`: the stored one, as Arrow IPC. `create`: a missing
    table may be created for it. `upsert`: the files are not for the table, but merged into it. `overwrite`:
    nor are they, and their rows replace what is in their partitions."""

    table_uri: str
    schema: bytes
    partition_by: tuple[str, ...]
    files: tuple[DeltaFile, ...]
    checkpoint_id: int
    subtask: int
    create: bool = True
    upsert: Upsert | None = None
    overwrite: bool = False
    format: int = COMMITTABLE_FORMAT

    @property
    def goes_in_whole(self) -> bool:
        """A staged file becomes one of the table."""
        return self.upsert is None and not self.overwrite


_DECODER: Final = msgspec.msgpack.Decoder(DeltaCommittable)


def decode_committable(content: bytes) -> DeltaCommittable:
    """Raises CorruptSnapshot."""
    what = "a committable of a Delta sink"
    return decode_formatted(_DECODER, content, what=what, expected=COMMITTABLE_FORMAT, least=1)


@contextmanager
def reading_staged(stage: StageFiles) -> Iterator[None]:
    """Raises Unreachable: staged rows cannot be read."""
    try:
        yield
    except OSError as error:
        raise Unreachable(f"staged rows of table {stage.root} cannot be read: {error}") from error


def write_parquet(file: Any, table: pa.Table) -> None:
    """The bytes of a data file."""
    pq.write_table(
        table,
        file,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        coerce_timestamps="us",
        store_schema=False,  # readers use the table's schema
    )


def statistics(table: pa.Table) -> str:
    """numRecords, minValues, maxValues and nullCount of the first columns, as Delta's JSON.

    Bounds that are not exact for every reader are omitted: of nested values, bytes, booleans, decimals, long
    texts, and floats with NaN or infinity.
    """
    minima: dict[str, object] = {}
    maxima: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for name in table.schema.names[:STATS_COLUMNS_MAX]:
        column = table.column(name)
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        bounds = _bounds(column)
        if bounds is not None:
            minima[name], maxima[name] = bounds
    return json.dumps(
        {"numRecords": table.num_rows, "minValues": minima, "maxValues": maxima, "nullCount": nulls}
    )


def _bounds(column: pa.ChunkedArray) -> tuple[object, object] | None:
    kind = column.type
    if pa.types.is_floating(kind):
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            return None
    elif not (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    ):
        return None
    try:
        found = pc.min_max(column).as_py()
    except (OverflowError, ValueError):  # a time before the year 1 or after 9999
        return None
    low, high = _stat(found["min"]), _stat(found["max"])
    if any(one is None or (isinstance(one, str) and len(one) > STATS_CHARS_MAX) for one in (low, high)):
        return None
    return low, high


def _stat(value: object) -> object:
    match value:
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + (
                "Z" if value.tzinfo else ""
            )
        case dt.date():
            return value.isoformat()
        case _:
            return value


def schema_from_bytes(content: bytes) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(content))
    except pa.ArrowInvalid as error:
        raise CorruptSnapshot(
            f"the schema in a committable of a Delta sink is unreadable: {error}"
        ) from error


def split_columns(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """The schema of the data files: without the partition columns."""
    return pa.schema([field for field in schema if field.name not in partition_by])
