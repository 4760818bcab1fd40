"""Compiled loop of `unistream.connector.common.json_maps`: an object as a list of its names and values."""

from __future__ import annotations

from typing import Final

import numpy as np

from unistream.connector.common.buffers import PADDING, Int64s, UInt8s
from unistream.connector.common.compiled import (
    address_of,
    byte_at,
    compiled,
    copy_bytes,
    inner,
    number_at,
    same_bytes,
    set_byte,
    set_number,
)
from unistream.connector.common.json_codes import MAP_NAMES_MAX
from unistream.connector.common.json_scan_kernels import (
    CLOSE_OBJECT,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    nested_end,
    scalar_end,
    string_end,
    value_start,
)
from unistream.connector.common.span_kernels import after_blanks

_BEFORE_KEY: Final = np.frombuffer(b'{"key":' + bytes(PADDING), np.uint8)
_BEFORE_VALUE: Final = np.frombuffer(b',"value":' + bytes(PADDING), np.uint8)


@compiled("u1[:] i8[:] i8[:] >u1[:] >i8[:] >u1[:] >u1[:] >i8[:]")
def rewrite_objects(
    data: UInt8s,
    starts: Int64s,
    lengths: Int64s,
    out: UInt8s,
    bounds: Int64s,
    done: UInt8s,
    stack: UInt8s,
    names: Int64s,
) -> None:
    """Value k of padded `data` is written to ``out[bounds[k]:bounds[k + 1]]``, which has room for
    `MAP_GROWTH` times as much and `PADDING`. Not ``done[k]``: nothing is written, as it is no object, or has
    a name twice, or with an escape, or more than `MAP_NAMES_MAX` of them. `stack`: a byte for each bracket
    that may be open; `names`: two numbers for each name."""
    places = address_of(stack), address_of(names), address_of(_BEFORE_KEY), address_of(_BEFORE_VALUE)
    base, first = address_of(data), address_of(out)
    to = first
    for row in range(len(starts)):
        at = base + starts[row]
        found = _rewrite(at, at + lengths[row], to, places)
        done[row] = found > 0
        to = max(to, found)
        bounds[row + 1] = to - first


@inner
def _rewrite(at: int, end: int, to: int, places: tuple[int, ...]) -> int:
    """Writes an object as a list; where its text ends; 0: there is none."""
    stack, names, before_key, before_value = places
    at = after_blanks(at, end)
    if at >= end or byte_at(at) != OPEN_OBJECT:
        return 0
    set_byte(to, np.uint8(OPEN_ARRAY))
    to += 1
    at = after_blanks(at + 1, end)
    count = 0
    while at < end and byte_at(at) != CLOSE_OBJECT:
        if count > 0:
            if byte_at(at) != COMMA:
                return 0
            set_byte(to, np.uint8(COMMA))
            to += 1
            at = after_blanks(at + 1, end)
        if count == MAP_NAMES_MAX or at >= end or byte_at(at) != QUOTE:
            return 0
        close, escaped, _ = string_end(at + 1, end)
        if close < 0 or escaped or _is_among(at, close + 1 - at, names, count):
            return 0
        set_number(names, 2 * count, at)
        set_number(names, 2 * count + 1, close + 1 - at)
        copy_bytes(before_key, 7, to)
        copy_bytes(at, close + 1 - at, to + 7)
        to += 7 + close + 1 - at
        copy_bytes(before_value, 9, to)
        to += 9
        begin = value_start(close + 1, end)
        if begin < 0:
            return 0
        is_nested = byte_at(begin) == OPEN_OBJECT or byte_at(begin) == OPEN_ARRAY
        at = nested_end(begin, end, stack) if is_nested else scalar_end(begin, end)
        if at < 0:
            return 0
        copy_bytes(begin, at - begin, to)
        to += at - begin
        set_byte(to, np.uint8(CLOSE_OBJECT))
        to += 1
        count += 1
        at = after_blanks(at, end)
    if at >= end or after_blanks(at + 1, end) < end:
        return 0
    set_byte(to, np.uint8(0x5D))
    return to + 1


@inner
def _is_among(at: int, size: int, names: int, count: int) -> bool:
    for other in range(count):
        if number_at(names, 2 * other + 1) == size and same_bytes(at, number_at(names, 2 * other), size):
            return True
    return False
