"""Rows by the values of partition columns, and the folders of these values as Hive names them."""

from __future__ import annotations

import datetime as dt
import hashlib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
FOLDER_CHARS_MAX: Final = 120  # of an encoded value; file systems end at 255 bytes

PartitionKey = tuple[str | None, ...]


def by_partition(
    records: pa.RecordBatch, partition_by: tuple[str, ...]
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
    """``origin=JFK/day=2013-01-01/``; values are percent-encoded, long ones truncated and hashed. Readers of
    a table take the values from its log."""
    return "".join(
        f"{_encoded(name)}={NULL_PARTITION if value is None else _encoded(value)}/"
        for name, value in values.items()
    )


def _encoded(text: str) -> str:
    encoded = urllib.parse.quote(text, safe="")
    if len(encoded) > FOLDER_CHARS_MAX:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{encoded[:FOLDER_CHARS_MAX].rstrip('%')}~{digest}"
    return encoded


def partition_text(value: object) -> str | None:
    """A partition value in the Delta protocol, where the empty text is null."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)
