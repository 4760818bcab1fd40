"""Compiled loops over the text of JSON: unescaped, gathered, and checked to be UTF-8."""

from __future__ import annotations

from typing import Final

import numpy as np

from unistream.connector.common.buffers import Int64s, UInt8s
from unistream.connector.common.compiled import (
    HIGH_BITS,
    NOTHING,
    WORD,
    address_of,
    byte_at,
    compiled,
    copy_bytes,
    inner,
    load8,
    set_byte,
)
from unistream.connector.common.json_codes import ASCII, ESCAPED
from unistream.connector.common.json_scan_kernels import BACKSLASH, LOW_SURROGATES, SURROGATES, hex4

_SHORT: Final = np.zeros(256, np.uint8)
for _kind, _byte in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _SHORT[_kind] = _byte


@inner
def unescape(at: int, end: int, to: int) -> int:
    """Writes a checked string to `to`; where its text ends there. Positions are addresses."""
    while at < end:
        byte = byte_at(at)
        if byte != BACKSLASH:
            set_byte(to, byte)
            to += 1
            at += 1
        elif byte_at(at + 1) != 0x75:  # u
            set_byte(to, _SHORT[byte_at(at + 1)])
            to += 1
            at += 2
        else:
            point = hex4(at + 2, end)
            at += 6
            if point >= SURROGATES and point < LOW_SURROGATES:
                point = 0x10000 + ((point - SURROGATES) << 10) + hex4(at + 2, end) - LOW_SURROGATES
                at += 6
            to = _write_utf8(point, to)
    return to


@inner
def _write_utf8(point: int, to: int) -> int:
    if point < 0x80:
        set_byte(to, np.uint8(point))
        return to + 1
    more = 1 if point < 0x800 else (2 if point < 0x10000 else 3)
    set_byte(to, np.uint8(((0xF0 << (3 - more)) & 0xFF) | (point >> (6 * more))))
    for i in range(1, more + 1):
        set_byte(to + i, np.uint8(0x80 | ((point >> (6 * (more - i))) & 0x3F)))
    return to + more + 1


@compiled("u1[:] i8[:] i8[:] u1[:] >i8[:] >u1[:]")
def gather_text(
    data: UInt8s, starts: Int64s, lengths: Int64s, states: UInt8s, bounds: Int64s, out: UInt8s
) -> None:
    """Writes the text of each row to `out`, padded, and fills `bounds`."""
    base, first = address_of(data), address_of(out)
    to = first
    for row in range(len(starts)):
        state = states[row]
        at = base + starts[row]
        if state == ESCAPED:
            to = unescape(at, at + lengths[row], to)
        elif state >= ASCII:
            copy_bytes(at, lengths[row], to)
            to += lengths[row]
        bounds[row + 1] = to - first


@compiled("u1[:] i8[:] >u1[:]")
def find_not_utf8(text: UInt8s, bounds: Int64s, wrong: UInt8s) -> None:
    """Sets ``wrong[k]`` of each piece of padded `text` that is not UTF-8."""
    base = address_of(text)
    for k in range(len(bounds) - 1):
        at, end = base + bounds[k], base + bounds[k + 1]
        while at < end:
            if at + WORD <= end and (load8(at) & HIGH_BITS) == NOTHING:
                at += WORD
                continue
            size = _utf8_size(at, end)
            if size == 0:
                wrong[k] = 1
                break
            at += size


@inner
def _utf8_size(at: int, end: int) -> int:
    """How many bytes the character has; 0: it is none (RFC 3629: neither too long, nor a surrogate, nor too
    large)."""
    first = byte_at(at)
    if first < 0x80:
        return 1
    size = 2 if first >= 0xC2 and first < 0xE0 else (3 if first >= 0xE0 and first < 0xF0 else 4)
    if first < 0xC2 or first > 0xF4 or at + size > end:
        return 0
    for i in range(at + 1, at + size):
        if byte_at(i) & 0xC0 != 0x80:
            return 0
    second = byte_at(at + 1)
    too_long = (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90)
    too_large = (first == 0xED and second > 0x9F) or (first == 0xF4 and second > 0x8F)
    return 0 if too_long or too_large else size
