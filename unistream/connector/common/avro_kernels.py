"""Compiled loops of `unistream.connector.common.avro_columns`; see `unistream.connector.common.compiled`.

A schema without lists, maps and unions of several types is a list of operations, the same for each record:
see `unistream.connector.common.avro_schema.Flat`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from unistream.connector.common.avro_schema import (
    ALONE,
    BLOB,
    BOOLEAN,
    DOUBLE,
    FIXED,
    FLOAT,
    NULL,
    NULL_FIRST,
    RECORD,
    REQUIRED,
    VARINT,
)
from unistream.connector.common.buffers import Int64s, UInt8s
from unistream.connector.common.compiled import compiled, inner
from unistream.connector.common.varint_kernels import varint

DECIMAL_BYTES: Final = 16


@compiled("u1[:] i8[:] i8[:] i8[:,:] >i8[:,:] >i8[:,:] >u1[:,:] >u1[:]")
def decode(
    data: UInt8s,
    starts: Int64s,
    lengths: Int64s,
    operations: Int64s,
    values: Int64s,
    sizes: Int64s,
    valid: UInt8s,
    bad: UInt8s,
) -> None:
    """Fills values (numbers; places of bytes), sizes (of bytes) and valid, each [slot, row]; bad: 1 if a
    record is not of this schema."""
    for row in range(len(starts)):
        end = starts[row] + lengths[row]
        if _record(data, starts[row], end, operations, row, values, sizes, valid) != end:
            bad[row] = 1


@compiled("u1[:] i8[:] i8[:] i8[:,:] >i8[:,:] >i8[:,:] >u1[:,:]")
def decode_blocks(
    data: UInt8s,
    bounds: Int64s,
    counts: Int64s,
    operations: Int64s,
    values: Int64s,
    sizes: Int64s,
    valid: UInt8s,
) -> int:
    """Decodes, as `decode`, records one behind the other, so many between two bounds each. Returns -1, or the
    first row that is no record; the last one of its block, if that does not end behind it."""
    row = 0
    for block in range(len(counts)):
        pos, end = bounds[block], bounds[block + 1]
        for _ in range(counts[block]):
            pos = _record(data, pos, end, operations, row, values, sizes, valid)
            if pos < 0:
                return row
            row += 1
        if pos != end:
            return max(0, row - 1)
    return -1


@inner
def _record(
    data: UInt8s,
    pos: int,
    end: int,
    operations: Int64s,
    row: int,
    values: Int64s,
    sizes: Int64s,
    valid: UInt8s,
) -> int:
    """Reads a record: the place behind it; -1: there is none."""
    at = 0
    while at < len(operations):
        kind, null, argument, slot = operations[at]
        at += 1
        if null != REQUIRED:
            branch, pos = varint(data, pos, end)
            if pos < 0 or branch < 0 or branch > (0 if null == ALONE else 1):
                return -1
            if null != ALONE and branch == (0 if null == NULL_FIRST else 1):
                if kind == RECORD:
                    at += argument
                continue
        value, size, pos = _value(data, pos, end, kind, argument)
        if pos < 0:
            return -1
        if slot >= 0:
            values[slot, row] = value
            sizes[slot, row] = size
            valid[slot, row] = 1
    return pos


@inner
def _value(data: UInt8s, pos: int, end: int, kind: int, argument: int) -> tuple[Any, Any, int]:
    """Reads a value: (value, size, next position); position -1: it does not fit."""
    zero = np.int64(0)
    if kind == VARINT:
        value, pos = varint(data, pos, end)
        return value, zero, pos
    if kind == BLOB:
        size, start = varint(data, pos, end)
        if start < 0 or size < 0 or size > end - start:
            return zero, zero, -1
        return np.int64(start), size, start + size
    if kind in (NULL, RECORD):
        return zero, zero, pos
    width = 1 if kind == BOOLEAN else 4 if kind == FLOAT else 8 if kind == DOUBLE else argument
    if width > end - pos:
        return zero, zero, -1
    if kind == FIXED:
        return np.int64(pos), np.int64(argument), pos + argument
    bits = np.uint64(0)
    for i in range(width):
        bits |= np.uint64(data[pos + i]) << np.uint64(8 * i)
    if kind == BOOLEAN and bits > 1:
        return zero, zero, -1
    return np.int64(bits), zero, pos + width


@compiled("u1[:] i8[:] i8[:] u1[:] >u1[:,:] >u1[:]")
def decimals(data: UInt8s, starts: Int64s, sizes: Int64s, valid: UInt8s, out: UInt8s, bad: UInt8s) -> None:
    """Turns big-endian numbers of any length into little-endian ones of 16 bytes; bad: 1 if one needs
    more."""
    for row in range(len(starts)):
        if not valid[row]:
            continue
        size = sizes[row]
        sign = 0xFF if size > 0 and data[starts[row]] >= 0x80 else 0
        for i in range(DECIMAL_BYTES):
            out[row, i] = data[starts[row] + size - 1 - i] if i < size else sign
        for i in range(size - DECIMAL_BYTES):
            if data[starts[row] + i] != sign:
                bad[row] = 1
        if size > DECIMAL_BYTES and (out[row, DECIMAL_BYTES - 1] >= 0x80) != (sign == 0xFF):
            bad[row] = 1
