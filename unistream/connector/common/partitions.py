"""Rows by the values of partition columns, and the folders of these values as Hive names them."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.path_names import NAME_BYTES_MAX

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
FOLDER_CHARS_MAX: Final = 120  # of an encoded value that readers take from a log; longer ones are cut
_ENCODED: Final = frozenset("\"#%'*/:=?\\{[]^")  # in the name of a column, by Hive and Spark
_ENCODED_BYTES: Final = 3  # at most, of a byte
_SHOWN: Final = 60  # characters of a value in a message

PartitionKey = tuple[str | None, ...]


def value_text(value: object) -> str | None:
    """A partition value in the Delta protocol; text as it is. Times with a zone are in UTC."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            utc = value if value.tzinfo is None else value.astimezone(dt.UTC)
            return utc.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return format(value, "f")  # `str` writes some as 0E-10
        case _:
            return str(value)


def partition_text(value: object) -> str | None:
    """The text of a value in a table, where the empty text is null, as the Delta protocol says."""
    return value_text(value) or None


def by_partition(
    records: pa.RecordBatch,
    partition_by: tuple[str, ...],
) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """The rows of each partition value, without the partition columns, in their order."""
    if not partition_by:
        yield (), records
        return
    rest = records.drop_columns(list(partition_by))
    columns = [records.column(name) for name in partition_by]
    for row, rows in by_values(rest, columns):
        yield tuple(partition_text(column[row].as_py()) for column in columns), rows


def by_values(records: pa.RecordBatch, columns: Sequence[pa.Array]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each combination of values, in their order, with the number of the first one. `columns`: at
    least one, of as many values as there are rows."""
    group = np.zeros(records.num_rows, np.int64)
    for column in columns:
        codes = pc.dictionary_encode(column, null_encoding="encode")
        numbers = codes.indices.to_numpy(zero_copy_only=False)
        # renumbered after each column, so that the product cannot overflow
        _, group = np.unique(group * len(codes.dictionary) + numbers, return_inverse=True)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group)).tolist()
    sorted_rows = records.take(pa.array(order))
    start = 0
    for end in ends:
        yield int(order[start]), sorted_rows.slice(start, end - start)
        start = end


def partition_folder(values: Mapping[str, str | None]) -> str:
    """The folder of a partition of a table, such as ``origin=JFK/day=2013-01-01/``; values are
    percent-encoded, long ones truncated and hashed. Readers of a table take the values from its log."""
    return "".join(
        f"{_encoded(name)}={NULL_PARTITION if value is None else _encoded(value)}/"
        for name, value in values.items()
    )


def _encoded(text: str) -> str:
    encoded = urllib.parse.quote(text, safe="").replace(
        "~", "%7E"
    )  # OPTIMIZE of deltalake finds none with "~"
    if len(encoded) > FOLDER_CHARS_MAX:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{encoded[:FOLDER_CHARS_MAX].rstrip('%')}-{digest}"
    return encoded


# --- folders that alone have the values -----------------------------------------------------------


def value_folder(column: str, value: str | None) -> str:
    """The folder of one value, such as ``origin=JFK/``: from this name readers (Spark, DuckDB, pyarrow) take
    the value. See `folder_misfit`.

    >>> value_folder("seen_at", "a/b c"), value_folder("seen_at", None)
    ('seen_at=a%2Fb%20c/', 'seen_at=__HIVE_DEFAULT_PARTITION__/')
    """
    text = NULL_PARTITION if value is None else urllib.parse.quote(value, safe="")
    return f"{folder_name(column)}={text}/"


def folder_name(column: str) -> str:
    """The column as Hive and Spark spell it in the name of a folder: readers take it back from there, but
    DuckDB only if nothing in it has to be encoded.

    >>> folder_name("größe b"), folder_name("a/b")
    ('größe b', 'a%2Fb')
    """
    return "".join(
        f"%{ord(one):02X}" if one in _ENCODED or one < " " or one == "\x7f" else one for one in column
    )


def folder_misfit(column: str, value: str | None) -> str | None:
    """Why readers would not get this value back from its folder, as a clause; None: they do.

    >>> folder_misfit("k", "")
    "'' in 'k' names no folder: readers would take it for a null"
    """
    if value is None:
        return None
    if value in ("", NULL_PARTITION):
        return f"{value!r} in {column!r} names no folder: readers would take it for a null"
    size = len(value_folder(column, value).encode()) - 1
    if size > NAME_BYTES_MAX:
        shown = repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
        return (
            f"{shown} in {column!r} names no folder: that would have {size} of at most {NAME_BYTES_MAX} bytes"
        )
    return None


def without_folder(column: str, values: pa.Array) -> pa.Array[Any] | None:
    """Which texts name no folder, see `folder_misfit`; None: all do, as a rule without looking at each.

    >>> without_folder("k", pa.array(["a", "", None, "x" * 300])).to_pylist()
    [False, True, False, True]
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        of_values = without_folder(column, values.dictionary)
        return None if of_values is None else of_values.take(values.indices)
    if not any(is_text(kind) for is_text in (pa.types.is_string, pa.types.is_large_string)):
        return None
    room = NAME_BYTES_MAX - len(value_folder(column, "").encode())
    suspects = pc.or_(
        pc.greater(pc.binary_length(values), room // _ENCODED_BYTES),
        pc.is_in(values, pa.array(["", NULL_PARTITION], kind)),
    )
    if not pc.any(suspects).as_py():
        return None
    bad = [
        bool(suspect) and folder_misfit(column, value) is not None
        for suspect, value in zip(suspects.to_pylist(), values.to_pylist(), strict=True)
    ]
    return pa.array(bad) if any(bad) else None
