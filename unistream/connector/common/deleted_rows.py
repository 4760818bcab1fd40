"""Rows of a file that were deleted: by their places, also as bytes that travel with a split.

They are marked where units are decoded, and left out of chunks: a position in a split counts all rows of a
row group.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DELETED: Final = "#deleted"
"""A column next to those of the rows, while they are decoded."""


def first_rows(metadata: pq.FileMetaData) -> np.ndarray[Any, Any]:
    """The place of the first row of each row group in its file."""
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return np.cumsum([0, *sizes])


def marks(places: np.ndarray[Any, Any], first: int, rows: int) -> np.ndarray[Any, Any]:
    """True at those of `rows` rows, of which the first is at `first`, that are in `places` (sorted).

    >>> marks(np.array([1, 4, 9]), 3, 3).tolist()
    [False, True, False]
    """
    found = np.zeros(rows, dtype=bool)
    low, high = np.searchsorted(places, [first, first + rows])
    found[places[low:high] - first] = True
    return found


def without_deleted(records: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are not marked; all, if nothing is."""
    at = records.schema.get_field_index(DELETED)
    return records if at < 0 else records.filter(pc.invert(records.column(at)))


def packed(deleted: np.ndarray[Any, Any]) -> bytes:
    """True for each row that was deleted, as bytes; empty: none.

    >>> unpacked(packed(np.array([False, True, False, True]))).tolist()
    [1, 3]
    """
    return zlib.compress(np.packbits(deleted, bitorder="little").tobytes()) if deleted.any() else b""


def unpacked(data: bytes) -> np.ndarray[Any, Any]:
    """The places of the rows."""
    bits = np.frombuffer(zlib.decompress(data) if data else b"", np.uint8)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little"))
