"""Batches from a user's function, in memory that the function cannot change afterwards.

pyarrow makes an array from a numpy array without a copy, so a function that changes its numpy array would
change emitted rows. Such memory cannot be distinguished from what Arrow has computed. So columns in writable
memory are copied, except for the function's input, and texts and bytes, which numpy never shares with Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

_NEVER_SHARED = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_null,
)


def addresses(batches: Iterable[pa.RecordBatch | pa.Array | None]) -> frozenset[int]:
    """The addresses of a function's input."""
    return frozenset(
        buffer.address
        for given in batches
        if given is not None
        for column in (given.columns if isinstance(given, pa.RecordBatch) else (given,))
        for buffer in column.buffers()
        if buffer is not None
    )


def owned(records: pa.RecordBatch, known: frozenset[int]) -> pa.RecordBatch:
    """The same rows in memory of their own.

    Args:
        records: What a function returned or emitted.
        known: The addresses of its input, which is immutable.

    >>> import numpy as np
    >>> numbers = np.array([1, 2])
    >>> mine = owned(pa.record_batch({"n": pa.array(numbers)}), frozenset())
    >>> numbers[0] = 5
    >>> mine.to_pydict()
    {'n': [1, 2]}
    """
    columns = [owned_array(column, known) for column in records.columns]
    if all(new is old for new, old in zip(columns, records.columns, strict=True)):
        return records
    return pa.RecordBatch.from_arrays(columns, schema=records.schema)


def owned_array(column: pa.Array, known: frozenset[int]) -> pa.Array:
    """The same values in memory of their own."""
    if any(applies(column.type) for applies in _NEVER_SHARED):
        return column
    if all(one is None or not one.is_mutable or one.address in known for one in column.buffers()):
        return column
    return pa.concat_arrays([column, column.slice(0, 0)])
