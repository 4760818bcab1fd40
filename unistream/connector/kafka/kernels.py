"""Compiled loops of `unistream.connector.kafka.records`: the only place with a loop over bytes.

numba compiles them at their first call and caches the machine code. They release the interpreter lock, use
only arrays, and check every length. Importing numba takes most of a second; only the reading thread does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
import numpy as np

from unistream.connector.kafka.records import (
    CONTROL_CHARACTER,
    GOOD,
    NOT_AN_OBJECT,
    TOMBSTONE,
    TRAILING,
    Int64s,
    UInt8s,
)

F = TypeVar("F", bound=Callable[..., Any])

compiled: Callable[[F], F] = numba.njit(cache=True, nogil=True)
inlined: Callable[[F], F] = numba.njit(cache=True, nogil=True, inline="always")

# a batch's framing: rows of the matrix that `frame_batches` fills
OFFSET, TIMESTAMP, KEY_START, KEY_LENGTH, VALUE_START, VALUE_LENGTH = range(6)


@inlined
def _varint(data: UInt8s, pos: int, end: int) -> tuple[Any, int]:
    """(value, next position); position -1: it exceeds `end` or 10 bytes."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while pos < end and shift < 70:
        byte = data[pos]
        pos += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), pos
        shift += np.uint64(7)
    return np.int64(0), -1


@inlined
def _sized(data: UInt8s, pos: int, end: int) -> tuple[Any, Any, int]:
    """(start, length, next position) of length-prefixed bytes; next -1: they do not fit before `end`."""
    length, start = _varint(data, pos, end)
    if start < 0 or length < -1 or length > end - start:
        return np.int64(0), np.int64(0), -1
    if length < 0:
        return start, np.int64(-1), start
    return start, length, start + length


@compiled
def _record(data: UInt8s, pos: int, limit: int, row: int, out: Int64s) -> Any:
    """Frames one record into out[:, row] (offset and time still relative); the next position or -1."""
    size, pos = _varint(data, pos, limit)
    if pos < 0 or size < 1 or size > limit - pos:
        return -1
    end = pos + size
    time_delta, pos = _varint(data, pos + 1, end)  # 1: attributes, unused
    if pos < 0:
        return -1
    offset_delta, pos = _varint(data, pos, end)
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


@compiled
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


# classes of bytes: the low three bits outside of strings, the next two bits inside
PLAIN, QUOTE, OPEN, CLOSE, LINE_END = range(5)
ENDS_STRING, ESCAPES, CONTROL = 1, 2, 3
OUTSIDE, INSIDE_SHIFT = 0b111, 3  # measured: a mask for both makes it twice as slow
BLANKS: Final = (0x20, 0x0A, 0x0D, 0x09)


def _classes() -> UInt8s:
    classes = np.zeros(256, dtype=np.uint8)
    for characters, kind in ((b'"', QUOTE), (b"{[", OPEN), (b"}]", CLOSE), (b"\r\n", LINE_END)):
        classes[list(characters)] = kind
    classes[0x22] |= ENDS_STRING << INSIDE_SHIFT
    classes[0x5C] |= ESCAPES << INSIDE_SHIFT
    classes[:0x20] |= CONTROL << INSIDE_SHIFT
    return classes


CLASSES: Final = _classes()


@inlined
def _trim(data: UInt8s, start: int, end: int) -> tuple[int, int]:
    """Without blanks (JSON's four) at both ends."""
    while start < end and data[start] <= 0x20 and data[start] in BLANKS:
        start += 1
    while end > start and data[end - 1] <= 0x20 and data[end - 1] in BLANKS:
        end -= 1
    return start, end


@inlined
def _string_end(data: UInt8s, at: int, end: int, classes: UInt8s) -> int:
    """Position after the closing quote; minus the verdict if there is none."""
    while at < end:
        kind = classes[data[at]] >> INSIDE_SHIFT
        at += 1
        if kind == PLAIN:
            continue
        if kind == ENDS_STRING:
            return at
        if kind == CONTROL:
            return -CONTROL_CHARACTER
        if at < end and data[at] >= 0x20:  # escaped, whatever it is
            at += 1
    return -TRAILING


@compiled
def _verdict(data: UInt8s, start: int, end: int, classes: UInt8s) -> tuple[int, bool]:
    """(verdict on data[start:end], whether it has line ends between its parts).

    With exactly one top-level object per line, line k is row k, whatever the parser does with empty lines,
    several values in one line, or a bare null.
    """
    line_ends = False
    if start == end or data[start] != 0x7B:
        return NOT_AN_OBJECT, line_ends
    depth = 0
    at = start
    while at < end:
        kind = classes[data[at]] & OUTSIDE
        at += 1
        if kind == PLAIN:
            continue
        if kind == QUOTE:
            at = _string_end(data, at, end, classes)
            if at < 0:
                return -at, line_ends
        elif kind == OPEN:
            depth += 1
        elif kind == LINE_END:
            line_ends = True
        else:
            depth -= 1
            if depth <= 0 and at < end:
                return TRAILING, line_ends
    return (GOOD if depth == 0 else TRAILING), line_ends


@compiled
def write_json_lines(  # noqa: PLR0917  (compiled: by position)
    data: UInt8s,
    starts: Int64s,
    lengths: Int64s,
    classes: UInt8s,
    text: UInt8s,
    bounds: Int64s,
    verdicts: UInt8s,
) -> int:
    """Fills text, bounds and verdicts; the number of lines."""
    used = 0
    to = 0
    for row in range(len(starts)):
        if lengths[row] < 0:
            verdicts[row] = TOMBSTONE
            continue
        start, end = _trim(data, starts[row], starts[row] + lengths[row])
        verdict, line_ends = _verdict(data, start, end, classes)
        verdicts[row] = verdict
        if verdict != GOOD:
            continue
        text[to : to + end - start] = data[start:end]
        if line_ends:  # none is inside a string: there it would be a control character
            for i in range(to, to + end - start):
                if text[i] == 0x0A or text[i] == 0x0D:
                    text[i] = 0x20
        to += end - start
        text[to] = 0x0A
        to += 1
        used += 1
        bounds[used] = to
    return used


@compiled
def gather(data: UInt8s, starts: Int64s, lengths: Int64s, bounds: Int64s, out: UInt8s) -> None:
    for row in range(len(starts)):
        to = bounds[row]
        if lengths[row] > 0:
            out[to : to + lengths[row]] = data[starts[row] : starts[row] + lengths[row]]
