"""Letters of a table, as one form whatever wrote them: operators, a Kafka source or a file source."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.base.extras import require
from unistream.base.limits import KIB
from unistream.base.object_stores import delta_options, file_system
from unistream.base.os_failures import failure
from unistream.base.parquet_files import parquet_file, parquet_schema
from unistream.connector.common import NULL_PARTITION, table_of_objects
from unistream.port.dead_letters import LETTER_SCHEMA

_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("ms", tz="UTC")
_BYTES: Final = frozenset({"row_ipc", "raw", "key"})
_TIMES: Final = frozenset({"event_time", "time", "timestamp"})
_JSON: Final = ".jsonl"  # of a FileSink
_END_BYTES: Final = 64 * KIB  # of a Parquet file: with what is said of its columns and row groups


@dataclass(frozen=True, slots=True)
class Letters:
    """All letters of a table.

    Attributes:
        rows: In the columns of `LETTER_SCHEMA`; those of a source have no `row_ipc` and no ids of jobs.
        records: Of a source: each as it has sent it. None: they are of operators.
    """

    rows: pa.Table
    records: pa.Table | None = None


def absolute(uri: str) -> str:
    return uri if "://" in uri else os.path.abspath(uri)


def letters_in(rows: pa.Table, name: str) -> Letters:
    """`rows`: all of a table, called `name`. Raises ConfigError: it has no dead letters."""
    for columns, form in _SOURCES.items():
        if set(columns) <= set(rows.schema.names):
            rows = _plain(rows, {*columns, "timestamp", "key", "headers"}, name)
            return Letters(form(rows).select(LETTER_SCHEMA.names), rows)
    _check_columns(rows.schema.names, name)
    rows = _plain(rows.select(LETTER_SCHEMA.names), LETTER_SCHEMA.names, name)
    return Letters(rows.cast(LETTER_SCHEMA))


def letters_at(uri: str) -> Letters:
    """The letters of the table there. One that has none is refused by its columns, before its rows are read.
    Raises ConfigError, Unreachable: as `rows_at`."""
    names = _column_names(uri)
    if names is not None and not any(set(columns) <= set(names) for columns in _SOURCES):
        _check_columns(names, uri)
    return letters_in(rows_at(uri), uri)


def _check_columns(names: Sequence[str], name: str) -> None:
    missing = [column for column in LETTER_SCHEMA.names if column not in names]
    if missing:
        raise ConfigError(
            f"{name} is no table of dead letters: it has no column {', '.join(missing[:3])}; its columns are "
            f"{', '.join(names[:20])}"
        )


def _column_names(uri: str) -> list[str] | None:
    """The columns of a Delta table, or of the first Parquet file of a folder; None: only its rows say what
    they have."""
    system, inner = file_system(uri)
    try:
        if not system.isdir(inner):
            return None
        if system.exists(f"{inner}/_delta_log"):
            require("delta", "a Delta table")
            from unistream.connector.delta import read_column_names

            return read_column_names(uri, delta_options(uri, {}))
        root = inner.rstrip("/") + "/"
        names = [path.removeprefix(root) for path in sorted(system.find(inner))]
        first = next((name for name in names if not _is_hidden(name) and not name.endswith(_JSON)), None)
        if first is None:
            return None
        return [*parquet_schema(_end(system, root + first)).names, *_partition(first)]
    except pa.ArrowInvalid:
        return None  # it is said where it is read
    except OSError as error:
        raise failure(f"{uri} could not be read", error) from error


def _end(system: fsspec.AbstractFileSystem, path: str) -> pa.BufferReader:
    """The end of a Parquet file, which says what columns it has; of a short one, or one with many, all of
    it."""
    content = system.cat_file(path, start=-_END_BYTES) if system.size(path) > _END_BYTES else b""
    needed = int.from_bytes(content[-8:-4], "little") + 8
    return pa.BufferReader(content if 8 < needed <= len(content) else system.cat_file(path))


def _plain(rows: pa.Table, own: Collection[str], name: str) -> pa.Table:
    """The columns `own` in the types that letters have, whatever their table has for them; others are the
    user's. Raises ConfigError."""
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.string_view(): pa.string()}
    rows = rows.cast(pa.schema([field.with_type(plain.get(field.type, field.type)) for field in rows.schema]))
    for at, field in enumerate(rows.schema):
        try:
            read = _reader(field.name, field.type) if field.name in own else None
            if read is not None:
                rows = rows.set_column(at, field.name, read(rows[field.name]))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{name} is no table of dead letters: column {field.name!r}: {error}"
            ) from error
    return rows


def _reader(name: str, kind: pa.DataType) -> Callable[[pa.ChunkedArray], pa.Array | pa.ChunkedArray] | None:
    """A function that turns a column into its own type: JSON has bytes and times as text, headers of Kafka
    are bytes. None: it can be taken as it is."""
    if name == "headers":
        return _headers if pa.types.is_list(kind) and not _has_bytes(kind.value_type) else None
    if kind == pa.string():
        return _bytes if name in _BYTES else _times if name in _TIMES else None
    return None if name in _BYTES or kind != pa.binary() else lambda column: column.cast(_TEXT)


def _bytes(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([_decoded(text) for text in column.to_pylist()], pa.binary())


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us", tz="UTC")).cast(_TIME)


def _has_bytes(header: pa.DataType) -> bool:
    return pa.types.is_struct(header) and header.field("value").type not in (pa.string(), pa.null())


def _headers(column: pa.ChunkedArray) -> pa.Array:
    rows = [
        None if row is None else [{"key": one["key"], "value": _decoded(one["value"])} for one in row]
        for row in column.to_pylist()
    ]
    return pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def rows_at(uri: str) -> pa.Table:
    """All rows of a Delta table, or of the Parquet or JSON files of a folder. Raises ConfigError: there is
    neither; Unreachable."""
    system, inner = file_system(uri)
    try:
        if not system.isdir(inner):
            raise ConfigError(f"there is no table or folder at {uri}")
        if system.exists(f"{inner}/_delta_log"):
            require("delta", "a Delta table")
            from unistream.connector.delta import read_table

            return read_table(uri, delta_options(uri, {}))
        root = inner.rstrip("/") + "/"
        names = [path.removeprefix(root) for path in sorted(system.find(inner))]
        names = [name for name in names if not _is_hidden(name)]
        lines = [line for name in names if name.endswith(_JSON) for line in _lines(system, root, name)]
        parts = [_file(system, root, name) for name in names if not name.endswith(_JSON)]
        parts += [table_of_objects(lines, uri)] if lines else []
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{uri} is neither a Delta table nor a folder of Parquet or JSON files, which is what can be "
            f"read here: {str(error).splitlines()[0]}"
        ) from error
    except OSError as error:
        raise failure(f"{uri} could not be read", error) from error
    return pa.concat_tables(parts) if parts else pa.table({})


def _file(system: fsspec.AbstractFileSystem, root: str, name: str) -> pa.Table:
    """The rows of a file, with the columns that are in the names of its folders."""
    rows = parquet_file(pa.BufferReader(system.cat_file(root + name))).read(use_threads=False)
    for column, value in _partition(name).items():
        constant = pa.array([value] * rows.num_rows, _TEXT)
        rows = rows.append_column(column, constant.cast(LETTER_SCHEMA.field(column).type))
    names = [column for column in LETTER_SCHEMA.names if column in rows.schema.names]
    return rows.select(names) if len(names) == len(LETTER_SCHEMA) else rows


def _lines(system: fsspec.AbstractFileSystem, root: str, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a file of JSON lines, with the columns that are in the names of its folders. Raises
    ConfigError: one is no object."""
    for number, line in enumerate(system.cat_file(root + name).splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=dict[str, Any]) | _partition(name)
        except UNDECODABLE as error:
            raise ConfigError(f"{root}{name}, line {number}: {error}") from error


def _partition(name: str) -> dict[str, str | None]:
    """The columns of letters that are in the folders of a file."""
    pairs = (folder.partition("=") for folder in name.split("/")[:-1])
    return {
        column: None if value == NULL_PARTITION else unquote(value)
        for column, is_one, value in pairs
        if is_one and column in LETTER_SCHEMA.names
    }


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


# --- letters of sources -----------------------------------------------------------------------------


def _of_kafka(rows: pa.Table) -> pa.Table:
    place = _joined("/", rows["topic"], rows["partition"], rows["offset"])
    return _of_source(rows, place, rows["topic"], rows["timestamp"])


def _of_files(rows: pa.Table) -> pa.Table:
    place = _joined(":", rows["path"], rows["byte"])
    return _of_source(rows, place, rows["path"], pa.nulls(rows.num_rows, _TIME))


def _joined(by: str, *columns: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(column.cast(_TEXT) for column in columns), by)


def _of_source(
    rows: pa.Table, place: pa.ChunkedArray, operator: pa.ChunkedArray, time: pa.ChunkedArray | pa.Array
) -> pa.Table:
    contents = [raw or b"" for raw in rows["raw"].to_pylist()]  # a tombstone whose key is bad has none
    known: Mapping[str, pa.ChunkedArray | pa.Array] = {
        "letter": pa.array(_ids(place.to_pylist(), contents), _TEXT),
        "row": pa.array([raw.decode(errors="replace") for raw in contents], _TEXT),
        "error": rows["reason"],
        "error_type": pa.array(["bad record"] * rows.num_rows, _TEXT),
        "operator": operator,
        "operator_uid": operator,
        "attempt": pa.array([1] * rows.num_rows, pa.int32()),
        "time": time,
    }
    columns = [
        known[f.name].cast(f.type) if f.name in known else pa.nulls(rows.num_rows, f.type)
        for f in LETTER_SCHEMA
    ]
    return pa.table(columns, schema=LETTER_SCHEMA)


def _ids(places: Sequence[str], contents: Sequence[bytes]) -> Iterator[str]:
    """The place, and a digest of what is there: a file may be rewritten, a topic be made again. Equal
    ones, of a file that was read twice, have numbers; which of them has which does not matter.

    >>> list(_ids(["a:0", "a:9", "a:0", "a:0"], [b"x", b"x", b"x", b"y"]))
    ['a:0~b1ba07e5', 'a:9~b1ba07e5', 'a:0~b1ba07e5#2', 'a:0~65945879']
    """
    seen: Counter[str] = Counter()
    for place, content in zip(places, contents, strict=True):
        one = f"{place}~{hashlib.blake2b(content, digest_size=4).hexdigest()}"
        seen[one] += 1
        yield one if seen[one] == 1 else f"{one}#{seen[one]}"


_SOURCES: Final[Mapping[tuple[str, ...], Callable[[pa.Table], pa.Table]]] = {
    ("topic", "partition", "offset", "reason", "raw"): _of_kafka,
    ("path", "line", "byte", "reason", "raw"): _of_files,
}
