"""Pieces of one buffer of bytes: where each begins, and how long it is.

The loops over the bytes are compiled (`compiled`, `span_kernels`), and read many of them at once: so a buffer
has `PADDING` bytes behind its content.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.connector.common.buffers import PADDING, Int64s, UInt8s
from unistream.connector.common.machine_code import loops

_LINE_BYTES: Final = 64  # most lines have more; for others there is a second look


def span_kernels() -> SimpleNamespace:
    """The compiled loops."""
    return loops("unistream.connector.common.span_kernels")


def binary_array(data: UInt8s, starts: Int64s, lengths: Int64s) -> pa.Array[Any]:
    """A copy of the pieces as `pa.large_binary()`; null where the length is below 0.

    >>> from unistream.connector.common.buffers import padded
    >>> binary_array(padded(b"abcd"), np.array([1, 0, 2]), np.array([2, -1, 0])).to_pylist()
    [b'bc', None, b'']
    """
    bounds = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=bounds[1:])
    out = np.empty(int(bounds[-1]) + PADDING, np.uint8)
    span_kernels().gather(data, starts, lengths, bounds, out)
    valid = pa.array(lengths >= 0).buffers()[1] if (lengths < 0).any() else None
    buffers = [valid, pa.py_buffer(bounds), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)


def line_spans(data: UInt8s, size: int) -> tuple[Int64s, Int64s]:
    r"""Finds the lines in the first `size` bytes: (starts, lengths), without their ends; no lines of blanks.

    >>> from unistream.connector.common.buffers import padded
    >>> line_spans(padded(b"ab\n\r\n c"), 7)
    (array([0, 5]), array([2, 2]))
    """
    room = size // _LINE_BYTES + 1
    while True:
        starts, lengths = np.empty(room, np.int64), np.empty(room, np.int64)
        used = span_kernels().find_lines(data, size, starts, lengths)
        if used >= 0:
            return starts[:used], lengths[:used]
        room *= 4
