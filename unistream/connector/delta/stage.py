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

from unistream.base.errors import CorruptSnapshot
from unistream.base.os_failures import failure
from unistream.connector.common import StageFiles, Upsert, decode_formatted

COMMITTABLE_FORMAT: Final = 3  # since 2: upsert; since 3: overwrite
STATS_COLUMNS_MAX: Final = 32  # delta.dataSkippingNumIndexedCols
STATS_CHARS_MAX: Final = 32  # longer texts have no bounds
ROW_GROUP_ROWS: Final = 1 << 20


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
    """Reads a stored committable. Raises CorruptSnapshot: it is unreadable."""
    what = "a committable of a Delta sink"
    return decode_formatted(_DECODER, content, what=what, expected=COMMITTABLE_FORMAT, least=1)


@contextmanager
def reading_staged(stage: StageFiles) -> Iterator[None]:
    """Raises Unreachable: staged rows cannot be read."""
    try:
        yield
    except OSError as error:
        raise failure(f"staged rows of table {stage.root} cannot be read", error) from error


def write_parquet(file: Any, table: pa.Table) -> None:
    """The bytes of a data file."""
    with parquet_writer(file, table.schema) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


def parquet_writer(file: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Opens the writer of a data file."""
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        coerce_timestamps="us",
        store_schema=False,  # readers use the table's schema
    )


def statistics(table: pa.Table) -> str:
    """See `Statistics`."""
    found = Statistics()
    found.add(table)
    return found.text()


class Statistics:
    """numRecords, minValues, maxValues and nullCount of the first columns of a file, as Delta's JSON.

    Bounds that are not exact for every reader are omitted: of nested values, bytes, booleans, decimals, long
    texts, and floats with NaN or infinity.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._nulls: dict[str, int] = {}
        self._bounds: dict[str, tuple[Any, Any] | None] = {}  # None: not exact

    @staticmethod
    def of_rows(rows: int) -> str:
        """The statistics of a file of which no more is known than its number of rows."""
        return json.dumps({"numRecords": rows})

    def add(self, table: pa.Table) -> None:
        """The next rows of the file."""
        self.rows += table.num_rows
        for name in table.schema.names[:STATS_COLUMNS_MAX]:
            column = table.column(name)
            if pa.types.is_nested(column.type):
                continue
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if column.null_count == len(column):
                continue
            low, high = _bounds(column) or (None, None)
            known = self._bounds.get(name, (low, high))
            if known is None or low is None:
                self._bounds[name] = None
            else:
                self._bounds[name] = min(known[0], low), max(known[1], high)

    def text(self) -> str:
        exact = {name: found for name, found in self._bounds.items() if found is not None}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: low for name, (low, _) in exact.items()},
                "maxValues": {name: high for name, (_, high) in exact.items()},
                "nullCount": self._nulls,
            }
        )


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
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
