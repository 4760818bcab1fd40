"""Batches that a user's function gives away: in memory that nobody else writes to, no null where none may be.

pyarrow makes an array of numpy's numbers without a copy, so a function that goes on to change its numpy array
would change rows that are on their way. Nothing tells such memory from what Arrow has computed. So columns
whose memory can be written to are copied, except for those that were handed to the function, and texts and
bytes, which numpy never shares with Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from unistream.operator.common.base import BaseOperator

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
    """Where the memory of what is handed to a function lies."""
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
        records: What a function gives away.
        known: Memory that it was handed, and that stays as it is.

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
    """The same of one column."""
    if any(applies(column.type) for applies in _NEVER_SHARED):
        return column
    if all(one is None or not one.is_mutable or one.address in known for one in column.buffers()):
        return column
    return pa.concat_arrays([column, column.slice(0, 0)])


def check_nulls(operator: BaseOperator, what: str, records: pa.RecordBatch) -> None:
    """Raises UserCodeError for a null in a column that is declared not nullable; `what` says whose it is."""
    for field, column in zip(records.schema, records.columns, strict=True):
        if not field.nullable and column.null_count:
            row = int(pc.index(column.is_null(), pa.scalar(value=True)).as_py())
            raise operator.user_error(
                f"{what} null in column {field.name!r}, which is declared not nullable;", None, row
            )
