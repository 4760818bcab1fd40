"""Columns whose values are in the names of folders, as Hive and Spark have them: ``year=2013/month=1/a.csv``.
Pure.

    a path that the user gives    its own folders are no columns: he has chosen them
    below it                      each folder ``name=value`` is a column; names and values are percent-decoded
    __HIVE_DEFAULT_PARTITION__    null

A type that is not given is inferred only where the value has one text: whole numbers, days and times.
``month=01`` is text, since 1 would be another folder; so are all values, if one is none of these. Parquet
files of a `FileSink` say which types the columns had.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common import NULL_PARTITION, text_times

REMEMBERED: Final = b"unistream.partition_by"  # in the footer of a Parquet file: a schema of these columns
_FOLDER: Final = re.compile(r"([^=/]+)=([^/]*)")
_INFERRED: Final = (
    (pa.int64(), re.compile(r"0|-?[1-9]\d{0,18}")),
    (pa.date32(), re.compile(r"\d{4}-\d\d-\d\d")),
    (pa.timestamp("us"), re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")),
)
_DURATION: Final = re.compile(r"(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")

Values = Mapping[str, str | None]
"""The values of the columns in the names of the folders of one file, in their order; None: null."""


class Folders:
    """Reads the values in a path. `given`: the parts without wildcards of the paths of a source; None: names
    of folders are no columns."""

    def __init__(self, given: Iterable[str] | None) -> None:
        self._roots = None if given is None else sorted(map(without_scheme, given), key=len, reverse=True)

    def values(self, path: str) -> Values:
        """
        Raises:
            ConfigError: a column is there twice, or is not UTF-8.

        >>> Folders(["/lake/zone=1"]).values("/lake/zone=1/at=a%2Fb/day=__HIVE_DEFAULT_PARTITION__/a.csv")
        {'at': 'a/b', 'day': None}
        """
        if self._roots is None:
            return {}
        name = without_scheme(path)
        root = next((root for root in self._roots if name == root or name.startswith(f"{root}/")), "")
        found: dict[str, str | None] = {}
        for column, value in named_in(name[len(root) :]):
            if column in found:
                raise ConfigError(f"file {path}: two of its folders name column {column!r}")
            found[column] = value
        return found


def without_scheme(path: str) -> str:
    return (path.partition("://")[2] or path).strip("/")


def named_in(inner: str) -> list[tuple[str, str | None]]:
    """Columns and values in the names of the folders of a file.

    >>> named_in("year=2013/month=1/part-0.parquet")
    [('year', '2013'), ('month', '1')]
    """
    folders = [m for part in inner.split("/")[:-1] if (m := _FOLDER.fullmatch(part))]
    return [(_decoded(m[1]), None if m[2] == NULL_PARTITION else _decoded(m[2])) for m in folders]


def _decoded(text: str) -> str:
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the name of a folder has {text!r}, which is not UTF-8: {error}") from error


def lost_columns(given: Iterable[str], found: Iterable[str]) -> list[str]:
    """Columns in the folders that a user has given, if he has given several that differ there: the rows of
    all would be mixed.

    Args:
        given: The parts without wildcards of his paths.
        found: Files.
    """
    roots = sorted(map(without_scheme, given), key=len, reverse=True)
    named: set[tuple[tuple[str, str | None], ...]] = set()
    for name in map(without_scheme, found):
        root = next((root for root in roots if name == root or name.startswith(f"{root}/")), "")
        named.add(tuple(named_in(name if name == root else f"{root}/")))
    if len(named) < 2:
        return []
    return list(dict.fromkeys(column for values in sorted(named, key=str) for column, _ in values))


def check_alike(found: Sequence[tuple[str, Values]], columns: Iterable[str] | None = None) -> None:
    """Raises ConfigError if one file is in a folder of a column, and another one is in none.

    Args:
        found: Files and their values.
        columns: Those that are read; None: all.
    """
    wanted = None if columns is None else set(columns)
    names = [[name for name in values if wanted is None or name in wanted] for _, values in found]
    for (path, _), own in zip(found, names, strict=True):
        if set(own) != set(names[0]):
            raise ConfigError(
                f"folders name different columns: {found[0][0]} is in {_shown(names[0])}, and {path} in "
                f"{_shown(own)}; read each kind of folder with a source of its own, or leave such columns "
                "out with columns=[…] or partitions=False"
            )


def _shown(names: Sequence[str]) -> str:
    return "/".join(f"{name}=…" for name in names) or "no such folder"


def check_not_in_file(path: str, columns: Iterable[str], in_file: Iterable[str]) -> None:
    """Raises ConfigError for a column of the folders that the file has too."""
    twice = sorted(set(columns) & set(in_file))
    if twice:
        raise ConfigError(
            f"file {path} has a column {twice[0]!r}, and its folder {twice[0]}=… says what it is as well; "
            "leave it out with columns=[…], or read that of the files with partitions=False"
        )


# --- types ----------------------------------------------------------------------------------------


def inferred(found: Sequence[Values], remembered: pa.Schema | None = None) -> pa.Schema:
    """The columns of all these files. `remembered`: what the writer of one of them knew."""
    fields = []
    for name in found[0] if found else ():
        texts = {values[name] for values in found}
        if remembered is not None and name in remembered.names:
            fields.append(remembered.field(name))
        else:
            fields.append(pa.field(name, _type_of(texts)))
    return pa.schema(fields)


def _type_of(texts: Iterable[str | None]) -> pa.DataType:
    """
    >>> [str(_type_of(texts)) for texts in (["1", None], ["1", "01"], ["2026-01-01"], ["2026-02-30"], [None])]
    ['int64', 'string', 'date32[day]', 'string', 'string']
    """
    values = [text for text in texts if text is not None]
    for kind, form in _INFERRED:
        if values and all(form.fullmatch(text) and _is_one(text, kind) for text in values):
            return kind
    return pa.string()


def _is_one(text: str, kind: pa.DataType) -> bool:
    try:
        _parsed(text, kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


def remember(schema: pa.Schema, columns: Iterable[str]) -> dict[bytes, bytes]:
    """The entry by which the footer of a Parquet file without these columns remembers their types."""
    kept = pa.schema([schema.field(name).remove_metadata() for name in columns])
    return {REMEMBERED: base64.b64encode(kept.serialize())} if len(kept) else {}


def remembered_in(metadata: Mapping[bytes, bytes] | None) -> pa.Schema | None:
    """The reverse; None: it is no file of ours, or cannot be read."""
    content = (metadata or {}).get(REMEMBERED)
    try:
        return None if content is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(content)))
    except (ValueError, OSError):
        return None


# --- values ---------------------------------------------------------------------------------------


def constants(path: str, values: Values, schema: pa.Schema) -> dict[str, pa.Array]:
    """The columns of `schema` that the folders of the file name, each as an array of its one value.

    Raises:
        ConfigError: a value is none of its type, or null where none may be.
    """
    return {
        field.name: _constant(path, values[field.name], field) for field in schema if field.name in values
    }


def _constant(path: str, text: str | None, field: pa.Field) -> pa.Array[Any]:
    if text is None:
        if not field.nullable:
            raise ConfigError(
                f"file {path}: column {field.name!r} is null in the name of its folder, and is declared as "
                "never null"
            )
        return pa.nulls(1, field.type)
    try:
        return _parsed(text, field.type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise ConfigError(
            f"file {path}: {text!r} in the name of its folder is no {field.type}, which column "
            f"{field.name!r} is; give its type with schema=, or text if it has values of several kinds"
        ) from error


def _parsed(text: str, kind: pa.DataType) -> pa.Array[Any]:
    """One value. Raises ArrowException, ValueError, OverflowError."""
    if pa.types.is_dictionary(kind):
        return _parsed(text, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_timestamp(kind):
        exact = pa.timestamp("ns" if kind.unit == "ns" else "us", kind.tz)
        return text_times.parsed(pa.chunked_array([[text]]), exact, "").combine_chunks().cast(kind)
    if pa.types.is_date64(kind):
        return pa.array([text]).cast(pa.date32()).cast(kind)
    if pa.types.is_time(kind):
        return pa.array([_clock(text)], pa.time64("us")).cast(kind)
    if pa.types.is_duration(kind):
        return pa.array([_duration(text)], pa.duration("us")).cast(kind)
    if pa.types.is_float16(kind):
        return pa.array([text]).cast(pa.float64()).cast(kind)
    return pa.array([text]).cast(kind)


def _clock(text: str) -> dt.time:
    if len(text) > len("00:00:00.000000"):
        raise ValueError(f"{text!r} is no time of a day in microseconds")
    return dt.time.fromisoformat(text)


def _duration(text: str) -> dt.timedelta:
    """Reads a duration as Python writes it. Raises ValueError: it is none."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    microseconds = int((found[5] or "0").ljust(6, "0"))
    return dt.timedelta(days, seconds, microseconds, minutes=minutes, hours=hours)
