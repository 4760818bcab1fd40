"""Compiled loops that find the end of a JSON value and check it: strings, numbers, words, nested values.

Positions are addresses (see `compiled`). Each returns the one behind the value, or minus the verdict. The
grammar is RFC 8259's, and `NaN`, `Infinity`, `Inf`, with or without a sign, which many programs write.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from unistream.connector.common.compiled import (
    FIRST_BYTES,
    HIGH_BITS,
    LANES,
    NOTHING,
    WORD,
    below_first,
    byte_at,
    first_bit,
    inlined,
    inner,
    lanes_below,
    lanes_equal,
    lanes_not_ascii,
    load8,
    set_byte,
)
from unistream.connector.common.json_codes import BAD_ESCAPE, CONTROL_CHARACTER, HALF_A_PAIR, SYNTAX, TRAILING
from unistream.connector.common.span_kernels import after_blanks

QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, DOT = 0x22, 0x5C, 0x2C, 0x3A, 0x2D, 0x2B, 0x2E
OPEN_OBJECT, OPEN_ARRAY, TO_ITS_CLOSE = 0x7B, 0x5B, 2
CLOSE_OBJECT = OPEN_OBJECT + TO_ITS_CLOSE
ZERO, NINE = 0x30, 0x39
SURROGATES, LOW_SURROGATES, BEHIND_SURROGATES = 0xD800, 0xDC00, 0xE000

QUOTE_BYTE, BACKSLASH_BYTE, BLANK_BYTE = np.uint8(QUOTE), np.uint8(BACKSLASH), np.uint8(0x20)

# words
NO_WORD, WORD_NULL, WORD_TRUE, WORD_FALSE, WORD_NAN, WORD_INFINITY = range(6)
_TEXTS: Final = np.array(
    [int.from_bytes(text, "little") for text in (b"null", b"true", b"false", b"NaN", b"Infinity", b"Inf")],
    np.uint64,
)
_LENGTHS: Final = np.array([4, 4, 5, 3, 8, 3], np.int64)
_MEANINGS: Final = np.array(
    [WORD_NULL, WORD_TRUE, WORD_FALSE, WORD_NAN, WORD_INFINITY, WORD_INFINITY], np.int64
)

EXPONENT_MAX: Final = 100_000_000  # an exponent is not counted any further
TEN, HUNDRED, TEN_THOUSAND = np.uint64(10), np.uint64(100), np.uint64(10_000)
POWERS_OF_TEN: Final = np.array([10**n for n in range(WORD + 1)], np.uint64)

ZEROS: Final = np.uint64(0x3030303030303030)
ABOVE_NINE: Final = np.uint64(0x7676767676767676)  # added to more than 9 it sets the high bit
PAIRS, FOURS, EIGHT = (np.uint64(mask) for mask in (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0xFFFFFFFF))


@inlined
def is_digit(byte: int) -> bool:
    return byte >= ZERO and byte <= NINE


@inlined
def string_end(at: int, end: int) -> tuple[int, bool, bool]:
    """Scans a string from behind the opening quote: (position of the closing one, it has escapes, it may be
    no ASCII)."""
    result = np.int64(-TRAILING)
    escaped = False
    wide = NOTHING
    while at < end:
        marks = lanes_equal(at, QUOTE_BYTE) | lanes_equal(at, BACKSLASH_BYTE) | lanes_below(at, BLANK_BYTE)
        wide |= lanes_not_ascii(at) & below_first(marks)
        if marks == NOTHING:
            at += LANES
            continue
        at += first_bit(marks)
        if at >= end:
            break
        if byte_at(at) == QUOTE:
            result = np.int64(at)
            break
        if byte_at(at) != BACKSLASH:
            result = np.int64(-CONTROL_CHARACTER)
            break
        escaped = True
        at = escape_end(at, end)
        if at < 0:
            result = np.int64(at)
            break
    return result, escaped, wide != NOTHING


@inner
def escape_end(at: int, end: int) -> int:
    r"""Finds the end of an escape from its backslash. ``\u`` and a surrogate must be followed by its other
    half."""
    if at + 1 >= end:
        return -TRAILING
    kind = byte_at(at + 1)
    if kind != 0x75:  # u
        known = kind in (QUOTE, BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74)
        return at + 2 if known else -BAD_ESCAPE
    first = hex4(at + 2, end)
    if first < 0:
        return -BAD_ESCAPE
    if first < SURROGATES or first >= BEHIND_SURROGATES:
        return at + 6
    if first >= LOW_SURROGATES or at + 12 > end or byte_at(at + 6) != BACKSLASH or byte_at(at + 7) != 0x75:
        return -HALF_A_PAIR
    second = hex4(at + 8, end)
    return at + 12 if second >= LOW_SURROGATES and second < BEHIND_SURROGATES else -HALF_A_PAIR


@inner
def hex4(at: int, end: int) -> int:
    """The number that four hexadecimal digits are; -1: they are not."""
    if at + 4 > end:
        return -1
    found = 0
    for i in range(at, at + 4):
        byte = np.int64(byte_at(i))
        if is_digit(byte):
            found = found * 16 + byte - ZERO
            continue
        byte |= 0x20  # lower case
        if byte < 0x61 or byte > 0x66:
            return -1
        found = found * 16 + byte - 0x61 + 10
    return found


@inlined
def number_end(at: int, end: int) -> tuple[int, np.uint64, int, int, bool]:
    """Scans a number from its first digit: (position behind it, mantissa, its digits, exponent, is written as
    an integer).

    The mantissa is right up to 19 digits.
    """
    mantissa = NOTHING
    first = at
    if byte_at(at) == ZERO:
        at += 1
    else:
        at, mantissa = _digits_end(at, end, mantissa)
    digits = at - first
    exponent = 0
    integral = True
    if digits == 0:
        at = -SYNTAX
    elif at < end and (byte_at(at) == DOT or (byte_at(at) | 0x20) == 0x65):
        integral = False
        if byte_at(at) == DOT:
            at += 1
            first = at
            at, mantissa = _digits_end(at, end, mantissa)
            exponent = first - at
            digits -= exponent
            if exponent == 0:
                at = -SYNTAX
        if at > 0 and at < end and (byte_at(at) | 0x20) == 0x65:
            at, written = exponent_end(at + 1, end)
            exponent += written
    return at, mantissa, digits, exponent, integral


@inlined
def _digits_end(at: int, end: int, number: np.uint64) -> tuple[int, np.uint64]:
    """Scans digits: (position behind the digits, `number` with these behind it)."""
    while True:
        size, digits = _eight_digits(at, end)
        number = number * POWERS_OF_TEN[size] + digits
        at += size
        if size < WORD:
            return at, number


@inlined
def _eight_digits(at: int, end: int) -> tuple[int, np.uint64]:
    """(how many digits come, at most eight; their number). Without a branch for each: how many there are can
    hardly be foreseen. Neighbours are put together, three times (Lemire, Quickly parsing eight digits)."""
    word = load8(at) ^ ZEROS
    others = ((word + ABOVE_NINE) | word) & HIGH_BITS  # right up to the first: a carry may set those behind
    size = min(first_bit(others) >> 3 if others != NOTHING else WORD, end - at)
    if size <= 0:
        return 0, NOTHING
    word <<= np.uint64(8 * (WORD - size))  # zeros in front
    word = (word * TEN + (word >> np.uint64(8))) & PAIRS
    word = (word * HUNDRED + (word >> np.uint64(16))) & FOURS
    return size, (word * TEN_THOUSAND + (word >> np.uint64(32))) & EIGHT


@inner
def exponent_end(at: int, end: int) -> tuple[int, int]:
    """Scans an exponent from behind the e: (position behind it, exponent)."""
    negative = False
    if at < end and (byte_at(at) == MINUS or byte_at(at) == PLUS):
        negative = byte_at(at) == MINUS
        at += 1
    first = at
    exponent = 0
    while at < end and is_digit(byte_at(at)):
        exponent = min(exponent * 10 + np.int64(byte_at(at) - ZERO), EXPONENT_MAX)
        at += 1
    if at == first:
        return -SYNTAX, 0
    return at, -exponent if negative else exponent


@inner
def word_end(at: int, end: int) -> tuple[int, int]:
    """Scans a word: (position behind it, which word)."""
    word = load8(at)
    for k in range(len(_TEXTS)):
        if at + _LENGTHS[k] <= end and (word & FIRST_BYTES[_LENGTHS[k]]) == _TEXTS[k]:
            return at + _LENGTHS[k], _MEANINGS[k]
    return -SYNTAX, NO_WORD


@inner
def scalar_end(at: int, end: int) -> int:
    """The position behind a value that is neither an object nor an array."""
    byte = byte_at(at)
    if byte == QUOTE:
        close, _, _ = string_end(at + 1, end)
        return close if close < 0 else close + 1
    signed = byte == MINUS
    if signed:
        at += 1
        if at >= end:
            return -SYNTAX
        byte = byte_at(at)
    if is_digit(byte):
        behind, _, _, _, _ = number_end(at, end)
        return behind
    behind, word = word_end(at, end)
    return -SYNTAX if signed and word < WORD_NAN else behind


@inner
def nested_end(at: int, end: int, stack: int) -> int:
    """Finds the end of a nested value from its opening bracket. `stack`: address of a byte for each bracket
    that may be open."""
    set_byte(stack, byte_at(at))
    depth = 1
    at += 1
    is_empty = True  # nothing has come behind the last opening bracket
    while True:
        at = after_blanks(at, end)
        if at >= end:
            return -TRAILING
        if is_empty and byte_at(at) == byte_at(stack + depth - 1) + TO_ITS_CLOSE:
            depth -= 1
            at += 1
        else:
            if byte_at(stack + depth - 1) == OPEN_OBJECT:
                at = key_end(at, end)
                if at < 0:
                    return at
            if byte_at(at) == OPEN_OBJECT or byte_at(at) == OPEN_ARRAY:
                set_byte(stack + depth, byte_at(at))
                depth += 1
                at += 1
                is_empty = True
                continue
            at = scalar_end(at, end)
            if at < 0:
                return at
        is_empty = False
        at, depth = _closed(at, end, stack, depth)
        if at < 0 or depth == 0:
            return at


@inner
def _closed(at: int, end: int, stack: int, depth: int) -> tuple[int, int]:
    """Passes the brackets that close behind a value: (position behind a comma, or behind the last bracket;
    depth there)."""
    while depth > 0:
        at = after_blanks(at, end)
        if at >= end:
            return -TRAILING, depth
        if byte_at(at) == COMMA:
            return at + 1, depth
        if byte_at(at) != byte_at(stack + depth - 1) + TO_ITS_CLOSE:
            return -SYNTAX, depth
        depth -= 1
        at += 1
    return at, depth


@inner
def key_end(at: int, end: int) -> int:
    """Passes a key and its colon; returns where its value begins."""
    if byte_at(at) != QUOTE:
        return -SYNTAX
    close, _, _ = string_end(at + 1, end)
    if close < 0:
        return close
    return value_start(close + 1, end)


@inlined
def value_start(at: int, end: int) -> int:
    """Passes the colon behind a key; returns where its value begins."""
    at = after_blanks(at, end)
    if at < end and byte_at(at) == COLON:
        at = after_blanks(at + 1, end)
        if at >= end:
            at = -TRAILING
    else:
        at = -SYNTAX if at < end else -TRAILING
    return at
