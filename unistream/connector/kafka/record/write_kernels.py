"""Compiled loops of `unistream.connector.kafka.record.batches`; see `kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from unistream.connector.common import Int64s, UInt8s
from unistream.connector.common.compiled import address_of, compiled, copy_exactly, spliced


@spliced
def _varint_size(value: Any) -> int:
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while zigzag >= np.uint64(0x80):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@spliced
def _put_varint(out: UInt8s, to: int, value: Any) -> int:
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    while zigzag >= np.uint64(0x80):
        out[to] = np.uint8(zigzag & np.uint64(0x7F)) | np.uint8(0x80)
        zigzag >>= np.uint64(7)
        to += 1
    out[to] = np.uint8(zigzag)
    return to + 1


@spliced
def _put(out: UInt8s, to: int, data: UInt8s, start: Any, length: Any) -> int:
    """Writes length-prefixed bytes; length -1: null."""
    to = _put_varint(out, to, length)
    if length > 0:
        copy_exactly(address_of(data) + start, length, address_of(out) + to)
        to += length
    return to


@compiled("i8[:] u1[:] i8[:] i8[:] u1[:] i8[:] i8[:] u1[:] i8[:] i8[:] i8 >u1[:]")
def put_records(
    times: Int64s,
    keys: UInt8s,
    key_starts: Int64s,
    key_lengths: Int64s,
    values: UInt8s,
    value_starts: Int64s,
    value_lengths: Int64s,
    headers: UInt8s,
    header_starts: Int64s,
    header_lengths: Int64s,
    header_count: int,
    out: UInt8s,
) -> int:
    """Fills `out`; the number of bytes. `times`: relative; `headers`: encoded, `header_count` in each row."""
    to = 0
    count = np.int64(header_count)
    for row in range(len(times)):
        offset = np.int64(row)
        key, value = key_lengths[row], value_lengths[row]
        size = 1 + _varint_size(times[row]) + _varint_size(offset) + _varint_size(key) + _varint_size(value)
        size += max(key, 0) + max(value, 0) + _varint_size(count)
        if header_count:
            size += header_lengths[row]
        to = _put_varint(out, to, np.int64(size))
        out[to] = 0  # attributes
        to = _put_varint(out, to + 1, times[row])
        to = _put_varint(out, to, offset)
        to = _put(out, to, keys, key_starts[row], key)
        to = _put(out, to, values, value_starts[row], value)
        to = _put_varint(out, to, count)
        if header_count:
            length, start = header_lengths[row], header_starts[row]
            copy_exactly(address_of(headers) + start, length, address_of(out) + to)
            to += length
    return to


@compiled("u1[:] i8[:] u1[:] u1[:] i8[:] i8[:] >u1[:] >i8[:]")
def add_header(
    former: UInt8s,
    former_bounds: Int64s,
    name: UInt8s,
    values: UInt8s,
    starts: Int64s,
    lengths: Int64s,
    out: UInt8s,
    bounds: Int64s,
) -> None:
    """Appends a header, encoded, to those of each row."""
    to = 0
    for row in range(len(starts)):
        begin, end = former_bounds[row], former_bounds[row + 1]
        copy_exactly(address_of(former) + begin, end - begin, address_of(out) + to)
        to += end - begin
        to = _put(out, to, name, 0, np.int64(len(name)))
        to = _put(out, to, values, starts[row], lengths[row])
        bounds[row + 1] = to


@compiled("u1[:] i8[:] i8[:] >i8[:]")
def murmur2(data: UInt8s, starts: Int64s, lengths: Int64s, out: Int64s) -> None:
    """The hash of Kafka's clients, as they use it: without its sign. -1: there is no key."""
    m = np.uint32(0x5BD1E995)
    for row in range(len(starts)):
        length = lengths[row]
        if length < 0:
            out[row] = -1
            continue
        start = starts[row]
        h = np.uint32(0x9747B28C) ^ np.uint32(length)
        whole = length // 4
        for block in range(whole):
            at = start + block * 4
            k = (
                np.uint32(data[at])
                | (np.uint32(data[at + 1]) << np.uint32(8))
                | (np.uint32(data[at + 2]) << np.uint32(16))
                | (np.uint32(data[at + 3]) << np.uint32(24))
            )
            k = np.uint32(k * m)
            k ^= k >> np.uint32(24)
            k = np.uint32(k * m)
            h = np.uint32(np.uint32(h * m) ^ k)
        at, rest = start + whole * 4, length - whole * 4
        if rest > 2:
            h ^= np.uint32(data[at + 2]) << np.uint32(16)
        if rest > 1:
            h ^= np.uint32(data[at + 1]) << np.uint32(8)
        if rest > 0:
            h = np.uint32((h ^ np.uint32(data[at])) * m)
        h ^= h >> np.uint32(13)
        h = np.uint32(h * m)
        h ^= h >> np.uint32(15)
        out[row] = np.int64(h & np.uint32(0x7FFFFFFF))
