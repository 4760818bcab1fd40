"""Compiled loops of `unistream.connector.common.spans`."""

from __future__ import annotations

from typing import Final

import numpy as np

from unistream.connector.common.buffers import Int64s, UInt8s
from unistream.connector.common.compiled import (
    LANES,
    NOTHING,
    ONE,
    address_of,
    byte_at,
    compiled,
    copy_bytes,
    first_bit,
    inlined,
    lanes_equal,
)

LINE_END: Final = np.uint8(0x0A)


@inlined
def is_blank(byte: int) -> bool:
    """Whether a byte is one of JSON's four blanks."""
    return byte <= 0x20 and (byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09)


@inlined
def after_blanks(at: int, end: int) -> int:
    while at < end and is_blank(byte_at(at)):
        at += 1
    return at


@compiled("u1[:] i8[:] i8[:] i8[:] >u1[:]")
def gather(data: UInt8s, starts: Int64s, lengths: Int64s, bounds: Int64s, out: UInt8s) -> None:
    """Copies piece k to ``out[bounds[k]:bounds[k + 1]]``, in order; `out` is padded."""
    base, to = address_of(data), address_of(out)
    for k in range(len(starts)):
        copy_bytes(base + starts[k], lengths[k], to + bounds[k])


@compiled("u1[:] i8 >i8[:] >i8[:]")
def find_lines(data: UInt8s, size: int, starts: Int64s, lengths: Int64s) -> int:
    """Fills both; the number of lines that are not blank, or minus 1: there are more than fit."""
    used = 0
    base = address_of(data)
    start, at, end = base, base, base + size
    while at < end:
        line_ends = lanes_equal(at, LINE_END)
        while line_ends != NOTHING:
            found = at + first_bit(line_ends)
            if found >= end:  # behind the content there may be anything
                break
            if after_blanks(start, found) < found:
                if used == len(starts):
                    return -1
                starts[used], lengths[used] = start - base, found - start
                used += 1
            start = found + 1
            line_ends &= line_ends - ONE
        at += LANES
    if after_blanks(start, end) < end:
        if used == len(starts):
            return -1
        starts[used], lengths[used] = start - base, end - start
        used += 1
    return used
