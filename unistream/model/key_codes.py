"""Distinct keys of rows, as small numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def distinct(keys: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[Any]]:
    """The distinct rows of `keys` in the order of their first occurrence, and the position of each row in
    them.

    >>> found, groups = distinct(pa.record_batch({"k": ["b", "a", "b"]}))
    >>> found.column(0).to_pylist(), groups.tolist()
    (['b', 'a'], [0, 1, 0])
    """
    if keys.num_columns == 1:
        encoded = _encoded(keys.column(0))
        return pa.RecordBatch.from_arrays(
            [encoded.dictionary], names=keys.schema.names
        ), encoded.indices.to_numpy()
    code = key_codes(keys.columns)
    first = np.full(int(code.max()) + 1 if len(code) else 0, len(code), np.int64)
    np.minimum.at(first, code, np.arange(len(code)))
    return keys.take(pa.array(first)), code


def key_codes(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """The number of each row's value among the distinct ones, in the order of their first occurrence."""
    code: npt.NDArray[np.int64] | None = None
    for column in columns:
        encoded = _encoded(column)
        own = encoded.indices.to_numpy().astype(np.int64)
        if code is None:
            code = own
            continue
        together = pa.array(code * max(1, len(encoded.dictionary)) + own).dictionary_encode()
        code = together.indices.to_numpy().astype(
            np.int64
        )  # small numbers again: the product cannot overflow
    assert code is not None, "a key has columns"
    return code


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.dictionary_encode(null_encoding="encode")
