"""Data files of a Delta table before they are committed: paths, bytes, statistics, committables.

A staged file lies where it will stay, in the table's folder; readers do not see it because no commit
names it. What a crash leaves behind, `vacuum` removes.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from unistream.base import durable_files
from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable
from unistream.connector.common import decode_formatted

COMMITTABLE_FORMAT: Final = 1
STATS_COLUMNS_MAX: Final = 32  # delta.dataSkippingNumIndexedCols
STATS_CHARS_MAX: Final = 32  # longer texts have no bounds
ROW_GROUP_ROWS: Final = 1 << 20


class DeltaFile(msgspec.Struct, frozen=True, kw_only=True):
    """One closed data file. `path`: below the table, as on the file system. `stats`: Delta's JSON."""

    path: str
    size: int
    rows: int
    partition_values: dict[str, str | None]
    stats: str
    modification_ms: int


class DeltaCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask staged for one checkpoint. `schema`: the stored one, as Arrow IPC. `create`: the
    table may be made for it, if there is none."""

    table_uri: str
    schema: bytes
    partition_by: tuple[str, ...]
    files: tuple[DeltaFile, ...]
    checkpoint_id: int
    subtask: int
    create: bool = True
    format: int = COMMITTABLE_FORMAT


_DECODER: Final = msgspec.msgpack.Decoder(DeltaCommittable)


def encode_committable(committable: DeltaCommittable) -> bytes:
    return msgspec.msgpack.encode(committable)


def decode_committable(content: bytes) -> DeltaCommittable:
    """Raises CorruptSnapshot for anything else, or another format."""
    return decode_formatted(_DECODER, content, sink="Delta", expected=COMMITTABLE_FORMAT)


# --- files ----------------------------------------------------------------------------------------


class Stage:
    """Writes, looks up and removes data files below one table.

    Args:
        table_uri: Absolute local path or URL.
        options: Of the fsspec file system; not used for local tables.
    """

    def __init__(self, table_uri: str, options: Mapping[str, Any]) -> None:
        try:
            self._system, root = fsspec.core.url_to_fs(table_uri, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise ConfigError(f"table {table_uri}: cannot use this file system: {error}") from error
        self._root = root.rstrip("/")
        self._local = isinstance(self._system, LocalFileSystem)
        self._uri = table_uri

    def write(self, path: str, table: pa.Table) -> tuple[int, int]:
        """A durable Parquet file -> (bytes, time of modification in ms).

        Raises:
            ConfigError: no right to write there.
            Unreachable: the storage failed; what was written of it is removed.
        """
        full = f"{self._root}/{path}"
        try:
            if self._local:
                return _write_local(full, table, self._root)
            with self._system.open(full, "wb") as file:
                _write_parquet(file, table)
            found = self._system.info(full)
            modified = found.get("LastModified") or found.get("created") or dt.datetime.now(dt.UTC)
            return int(found["size"]), int(modified.timestamp() * 1000)
        except PermissionError as error:
            raise ConfigError(f"table {self._uri}: no right to write {path}: {error}") from error
        except OSError as error:
            self.remove(path)
            raise Unreachable(f"table {self._uri}: could not write {path}: {error}") from error

    def size(self, path: str) -> int | None:
        """Bytes, or None if there is no such file. Raises Unreachable."""
        try:
            return int(self._system.info(f"{self._root}/{path}")["size"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreachable(f"table {self._uri}: could not look up {path}: {error}") from error

    def remove(self, path: str) -> None:
        """Best effort: what stays is not in the table, and `vacuum` removes it."""
        try:
            self._system.rm_file(f"{self._root}/{path}")
        except OSError:
            return


def _write_local(full: str, table: pa.Table, root: str) -> tuple[int, int]:
    folder = os.path.dirname(full)
    durable_files.make_folders(folder)
    with open(full, "xb") as file:
        _write_parquet(file, table)
        file.flush()
        os.fsync(file.fileno())
        status = os.fstat(file.fileno())
    durable_files.sync_folders(folder, root)
    return status.st_size, status.st_mtime_ns // 1_000_000


def _write_parquet(file: Any, table: pa.Table) -> None:
    pq.write_table(
        table,
        file,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        coerce_timestamps="us",
        store_schema=False,  # a reader of the table goes by the table's schema
    )


# --- statistics -----------------------------------------------------------------------------------


def statistics(table: pa.Table) -> str:
    """numRecords, minValues, maxValues and nullCount of the first columns, as Delta's JSON.

    Bounds are left out where they would not be exact for every reader: nested values, bytes, booleans,
    decimals, long texts, and floats with NaN or infinity.
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
    if low is None or high is None or _too_long(low) or _too_long(high):
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


def _too_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > STATS_CHARS_MAX


def schema_to_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


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
