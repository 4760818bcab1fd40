"""Compiled loops of `unistream.connector.kafka.record.records`: the framing of records.

They use only arrays, and check every length. See `unistream.connector.common.compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unistream.connector.common import Int64s, UInt8s
from unistream.connector.common.compiled import compiled, inner, spliced
from unistream.connector.common.varint_kernels import varint

# a batch's framing: rows of the matrix that `frame_batches` fills
OFFSET, TIMESTAMP, KEY_START, KEY_LENGTH, VALUE_START, VALUE_LENGTH = range(6)


@spliced
def _sized(data: UInt8s, pos: int, end: int) -> tuple[Any, Any, int]:
    """Reads length-prefixed bytes: (start, length, next position); next -1: they do not fit before `end`."""
    length, start = varint(data, pos, end)
    if start < 0 or length < -1 or length > end - start:
        return np.int64(0), np.int64(0), -1
    if length < 0:
        return start, np.int64(-1), start
    return start, length, start + length


@inner
def _record(data: UInt8s, pos: int, limit: int, row: int, out: Int64s) -> Any:
    """Frames one record into out[:, row] (offset and time still relative); the next position or -1."""
    size, pos = varint(data, pos, limit)
    if pos < 0 or size < 1 or size > limit - pos:
        return -1
    end = pos + size
    time_delta, pos = varint(data, pos + 1, end)  # 1: attributes, unused
    if pos < 0:
        return -1
    offset_delta, pos = varint(data, pos, end)
    if pos < 0:
        return -1
    key_start, key_length, pos = _sized(data, pos, end)
    if pos < 0:
        return -1
    value_start, value_length, pos = _sized(data, pos, end)
    if pos < 0:
        return -1
    out[OFFSET, row] = offset_delta
    out[TIMESTAMP, row] = time_delta
    out[KEY_START, row] = key_start
    out[KEY_LENGTH, row] = key_length
    out[VALUE_START, row] = value_start
    out[VALUE_LENGTH, row] = value_length
    return end  # headers are not read


@compiled("u1[:] i8[:] i8[:,:] >i8[:,:]")
def frame_batches(data: UInt8s, ends: Int64s, heads: Int64s, out: Int64s) -> int:
    """Frames all batches; -1, or the index of the first one that is broken."""
    row = 0
    pos = 0
    for batch in range(len(ends)):
        count, base_offset, first_time, append_time = heads[batch]
        for _ in range(count):
            pos = _record(data, pos, ends[batch], row, out)
            if pos < 0:
                return batch
            out[OFFSET, row] += base_offset
            out[TIMESTAMP, row] = append_time if append_time >= 0 else out[TIMESTAMP, row] + first_time
            row += 1
        if pos != ends[batch]:
            return batch
    return -1
