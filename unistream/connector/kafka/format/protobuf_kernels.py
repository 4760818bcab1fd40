"""Compiled loops of `unistream.connector.kafka.format.protobuf`; see `connector.kafka.record.kernels`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from unistream.connector.common import Int64s, UInt8s
from unistream.connector.common.compiled import compiled, inner, spliced
from unistream.connector.common.varint_kernels import varint
from unistream.connector.kafka.format.protobuf_schema import (
    EIGHT,
    FOUR,
    MESSAGE,
    PATH_MAX,
    SIZED,
    VARINT,
    ZIGZAG,
)

SKIPPED: Final = -1
TAG_END: Final = 1 << 32


@spliced
def _unsigned(data: UInt8s, pos: int, end: int) -> tuple[Any, int]:
    """Reads a number of variable length: (64 bits, next position); position -1: it exceeds `end` or 10
    bytes."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while pos < end and shift < 70:
        byte = data[pos]
        pos += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(value), pos
        shift += np.uint64(7)
    return np.int64(0), -1


@compiled("u1[:] i8[:] i8[:] i8[:,:] i8[:] >i8[:,:] >i8[:,:] >u1[:,:] >u1[:] >i8[:,:] >i8[:,:] >i8[:,:]")
def parse(
    data: UInt8s,
    starts: Int64s,
    lengths: Int64s,
    fields: Int64s,
    first: Int64s,
    values: Int64s,
    sizes: Int64s,
    valid: UInt8s,
    bad: UInt8s,
    cursors: Int64s,
    elements: Int64s,
    stack: Int64s,
) -> None:
    """Fills values (numbers, bits, places of bytes), sizes (of bytes) and valid, each [slot, row]; bad: 1 if
    a record is no message. Of a field that is written twice the last one counts. Repeated ones take two runs:
    with `cursors` [list, row] of 0 and no `elements` it counts them; with the places of the first ones it
    fills `elements` (values, sizes). Both move the cursors. `stack`: two rows of `DEPTH_MAX` and 2."""
    ends, messages = stack[0], stack[1]
    for row in range(len(starts)):
        pos = starts[row]
        depth = -1 if bad[row] else 0  # of the first run
        ends[0] = pos + lengths[row]
        messages[0] = 0
        while depth >= 0:
            end = ends[depth]
            if pos == end:
                depth -= 1
                continue
            tag, pos = _unsigned(data, pos, end)
            wire = tag & 7
            found = -1
            if pos >= 0:
                found = _place(fields, first[messages[depth]], first[messages[depth] + 1], tag >> 3, wire)
            value, size, pos = _field(data, pos, end, wire)
            if pos < 0 or tag < 8 or tag >= TAG_END or found < SKIPPED:
                bad[row] = 1
                break
            if found == SKIPPED:
                continue
            if fields[found, 5] >= 0:
                if not _taken(data, fields, found, row, wire, value, size, cursors, elements):
                    bad[row] = 1
                    break
                continue
            slot = fields[found, 3]
            values[slot, row] = _unfolded(value) if fields[found, 2] == ZIGZAG else value
            sizes[slot, row] = size
            valid[slot, row] = 1
            if fields[found, 2] == MESSAGE:
                depth += 1
                pos = value
                ends[depth] = value + size
                messages[depth] = fields[found, 4]


@spliced
def _unfolded(value: Any) -> Any:
    return np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1)


@inner
def _place(fields: Int64s, low: int, high: int, number: int, wire: int) -> int:
    """Finds a field in the table: -1: it is none of these, -2: it has another wire type."""
    for at in range(low, high):
        if fields[at, 0] == number:
            packed = fields[at, 5] >= 0 and wire == SIZED  # a text or a message is SIZED anyway
            return at if fields[at, 1] == wire or packed else -2
    return SKIPPED


@inner
def _taken(
    data: UInt8s,
    fields: Int64s,
    found: int,
    row: int,
    wire: int,
    value: Any,
    size: Any,
    cursors: Int64s,
    elements: Int64s,
) -> bool:
    """Takes one element of a repeated field, or all numbers of a packed one. False: these are none."""
    filling, folded, of = elements.shape[1] > 0, fields[found, 2] == ZIGZAG, fields[found, 5]
    at = cursors[of, row]
    if wire == fields[found, 1]:
        if filling:
            elements[0, at] = _unfolded(value) if folded else value
            elements[1, at] = size
        cursors[of, row] = at + 1
        return True
    pos, end = value, value + size
    while pos < end:
        number, _, pos = _field(data, pos, end, fields[found, 1])
        if pos < 0:
            return False
        if filling:
            elements[0, at] = _unfolded(number) if folded else number
            elements[1, at] = 0
        at += 1
    cursors[of, row] = at
    return True


@inner
def _field(data: UInt8s, pos: int, end: int, wire: int) -> tuple[Any, Any, int]:
    """Reads the value of a field: (value or place, size, next position); position -1: it does not fit, or is
    a group."""
    zero = np.int64(0)
    if pos < 0:
        return zero, zero, -1
    if wire == VARINT:
        value, pos = _unsigned(data, pos, end)
        return value, zero, pos
    if wire == SIZED:
        size, start = _unsigned(data, pos, end)
        if start < 0 or size < 0 or size > end - start:
            return zero, zero, -1
        return np.int64(start), size, start + size
    width = 8 if wire == EIGHT else 4
    if wire not in (EIGHT, FOUR) or width > end - pos:
        return zero, zero, -1
    bits = np.uint64(0)
    for i in range(width):
        bits |= np.uint64(data[pos + i]) << np.uint64(8 * i)
    return np.int64(bits), zero, pos + width


@compiled("u1[:] i8[:] i8[:] >i8[:,:] >i8[:]")
def message_paths(data: UInt8s, starts: Int64s, lengths: Int64s, paths: Int64s, sizes: Int64s) -> None:
    """Which message of its schema each record is: [row, depth], -1 behind the last; sizes: bytes of that, -1:
    there is none."""
    for row in range(len(starts)):
        end = starts[row] + lengths[row]
        count, pos = varint(data, starts[row], end)
        sizes[row] = -1
        if pos < 0 or count < 0 or count > PATH_MAX:
            continue
        if count == 0:
            paths[row, 0] = 0
        for i in range(count):
            paths[row, i], pos = varint(data, pos, end)
            if pos < 0 or paths[row, i] < 0:
                pos = -1
                break
        if pos >= 0:
            sizes[row] = pos - starts[row]
