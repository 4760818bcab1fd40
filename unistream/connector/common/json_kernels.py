"""Compiled loops that read JSON objects, one per row, into columns: one pass over the bytes.

A value that they do not decide (nested ones that are wanted, numbers of many digits, odd forms of time) is
left as a piece of text: UNDECIDED. Positions are addresses (see `compiled`). Each function returns the one
behind what it has read, or minus the verdict.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from unistream.connector.common.buffers import Int64s, UInt8s
from unistream.connector.common.compiled import (
    WORD,
    address_of,
    byte_at,
    compiled,
    inlined,
    inner,
    number_at,
    same_bytes,
    set_byte,
    set_number,
)
from unistream.connector.common.json_codes import (
    ABSENT,
    ANY,
    ASCII,
    BOOLEAN,
    BYTES,
    COLUMN,
    DATE,
    DIGITS,
    ESCAPED,
    FIELDS_REMEMBERED,
    FLOAT,
    GOOD,
    INTEGER,
    KIND,
    LEAST,
    MISFIT,
    MOST,
    NOT_AN_OBJECT,
    NULL,
    OTHER_TYPE,
    PARTS_REMEMBERED,
    PLACE,
    SET,
    SIZE,
    START,
    SYNTAX,
    TEXT,
    TIME,
    TRAILING,
    TRAITS,
    TWICE,
    UNDECIDED,
    USED,
    VERDICT,
    WIDE,
)
from unistream.connector.common.json_scan_kernels import (
    CLOSE_OBJECT,
    COMMA,
    MINUS,
    NO_WORD,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    WORD_FALSE,
    WORD_INFINITY,
    WORD_NULL,
    WORD_TRUE,
    is_digit,
    nested_end,
    number_end,
    string_end,
    value_start,
    word_end,
)
from unistream.connector.common.json_text_kernels import unescape
from unistream.connector.common.json_time_kernels import READ, UNSURE, date_of, time_of
from unistream.connector.common.span_kernels import after_blanks

UNKNOWN: Final = -1  # a field that no column has
DIGITS_MAX: Final = 19  # of a mantissa that fits 64 bits, whatever they are
DIGITS_OF_UINT64: Final = 20
SMALL_EXPONENT: Final = 30  # no float with it is too large, not even of 32 bits
POWERS: Final = 10.0 ** np.arange(23)
INFINITE, NOT_A_NUMBER = np.float64("inf"), np.float64("nan")


@compiled("u1[:] i8[:] i8[:] u1[:] i8[:,:] >i8[:,:] >i8[:,:] >u1[:,:] >i8[:,:] >i8[:] >u1[:]")
def read_rows(
    data: UInt8s,
    starts: Int64s,
    lengths: Int64s,
    names: UInt8s,
    table: Int64s,
    values: Int64s,
    sizes: Int64s,
    states: UInt8s,
    notes: Int64s,
    memory: Int64s,
    scratch: UInt8s,
) -> None:
    """Reads row k, ``data[starts[k]:starts[k] + lengths[k]]``, see `json_codes`.

    Args:
        data: The bytes, padded.
        starts: Where row k begins.
        lengths: Its bytes.
        names: Of the columns.
        table: One row for each column.
        values: (columns, rows): a value as bits, if it is used; of text, and of what is undecided, where it
            begins. The others are not filled.
        sizes: (columns, rows): of text, and of what is undecided, in bytes. The others are not filled.
        states: (columns, rows), ABSENT at first.
        notes: (NOTES, rows): of a good row the verdict only.
        memory: `FIELDS_REMEMBERED` times `PARTS_REMEMBERED` zeros.
        scratch: At least as long as a row, and `PADDING`: of brackets that are open, or of an unescaped name.
    """
    for place in range(FIELDS_REMEMBERED):
        memory[place * PARTS_REMEMBERED] = place if place < len(table) else UNKNOWN
    known = address_of(names), address_of(table), len(table), address_of(memory), address_of(scratch)
    cells = address_of(values), address_of(sizes), address_of(states), len(starts)
    base = address_of(data)
    for row in range(len(starts)):
        start, end = base + starts[row], base + starts[row] + lengths[row]
        at, column, place, size = _read_object(start, end, row, base, known, cells)
        if at >= 0 and after_blanks(at, end) < end:
            at = -TRAILING
        notes[VERDICT, row] = GOOD if at >= 0 else -at
        if at < 0:
            notes[COLUMN, row], notes[PLACE, row], notes[BYTES, row] = column, place - base, size


@inlined
def _read_object(
    at: int, end: int, row: int, base: int, known: tuple[int, ...], cells: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """Reads an object: (position behind it, or minus the verdict; the column to blame; the bytes to blame:
    where, how many)."""
    at = after_blanks(at, end)
    if at >= end or byte_at(at) != OPEN_OBJECT:
        return -NOT_AN_OBJECT, 0, base, 0
    at = after_blanks(at + 1, end)
    if at < end and byte_at(at) == CLOSE_OBJECT:
        return at + 1, 0, base, 0
    nth = 0
    while True:
        at, column = _read_key(at, end, nth % FIELDS_REMEMBERED, known)
        if at < 0:
            return at, 0, base, 0
        begin = at
        at, value, size, state = _read_value(at, end, known[1] + WORD * TRAITS * column, column, known[4])
        if column != UNKNOWN:
            cell = column * cells[3] + row
            if at >= 0 and byte_at(cells[2] + cell) != ABSENT:
                at = -TWICE
            if at < 0:
                return at, column, begin, size
            used = number_at(known[1], column * TRAITS + USED) != 0
            if state == ASCII and not used:
                state = SET  # nothing is left to do with it; what is not written takes no time
            if used or state >= ASCII:
                set_number(cells[0], cell, value - base if state >= ASCII else value)
                if state >= ASCII:
                    set_number(cells[1], cell, size)
            set_byte(cells[2] + cell, np.uint8(state))
        elif at < 0:
            return at, 0, begin, 0
        nth += 1
        at = after_blanks(at, end)
        if at >= end:
            return -TRAILING, 0, base, 0
        if byte_at(at) == CLOSE_OBJECT:
            return at + 1, 0, base, 0
        if byte_at(at) != COMMA:
            return -SYNTAX, 0, at, 0
        at = after_blanks(at + 1, end)


@inlined
def _read_key(at: int, end: int, place: int, known: tuple[int, ...]) -> tuple[int, int]:
    """Reads a key: (where its value begins, which column). Rows mostly have the same fields in the same
    order."""
    if at >= end:
        return -TRAILING, UNKNOWN
    if byte_at(at) != QUOTE:
        return -SYNTAX, UNKNOWN
    at += 1
    names, table, _, memory, _ = known
    remembered = memory + WORD * PARTS_REMEMBERED * place
    column = number_at(remembered, 0)
    if column != UNKNOWN:
        name = names + number_at(table, column * TRAITS + START)
        size = number_at(table, column * TRAITS + SIZE)
    else:
        name, size = number_at(remembered, 1), number_at(remembered, 2)
    if at + size >= end or name == 0 or byte_at(at + size) != QUOTE or not same_bytes(at, name, size):
        size, column = _search_key(at, end, remembered, known)
        if size < 0:
            return size, UNKNOWN
    return value_start(at + size + 1, end), column


@inner
def _search_key(at: int, end: int, remembered: int, known: tuple[int, ...]) -> tuple[int, int]:
    """Looks a key up: (bytes of the key, which column), and remembers it for the next row."""
    close, escaped, _ = string_end(at, end)
    if close < 0:
        return close, UNKNOWN
    size = close - at
    if escaped:
        text = known[4]
        return size, _column_named(text, unescape(at, close, text) - text, known)
    column = _column_named(at, size, known)
    set_number(remembered, 0, column)
    set_number(remembered, 1, at)
    set_number(remembered, 2, size)
    return size, column


@inner
def _column_named(at: int, size: int, known: tuple[int, ...]) -> int:
    names, table, width, _, _ = known
    for column in range(width):
        traits = column * TRAITS
        if number_at(table, traits + SIZE) == size and same_bytes(
            at, names + number_at(table, traits + START), size
        ):
            return column
    return UNKNOWN


@inlined
def _read_value(at: int, end: int, traits: int, column: int, stack: int) -> tuple[int, int, int, int]:
    """Reads a value: (position behind it, or minus the verdict; value, or where it begins; size; state)."""
    kind = number_at(traits, KIND) if column != UNKNOWN else ANY
    byte = byte_at(at)
    if byte == QUOTE:
        return _read_string(at, end, kind, traits)
    if is_digit(byte) or (byte == MINUS and at + 1 < end and is_digit(byte_at(at + 1))):
        return _read_float(at, end, traits) if kind == FLOAT else _read_integer(at, end, kind, traits)
    if byte == OPEN_OBJECT or byte == OPEN_ARRAY:
        return _left(at, nested_end(at, end, stack), kind)
    return _read_word(at, end, kind)


@inlined
def _left(begin: int, end: int, kind: int) -> tuple[int, int, int, int]:
    """A value of a JSON type that other kinds of columns do not have."""
    if end >= 0 and kind != ANY:
        return -OTHER_TYPE, 0, 0, ABSENT
    return end, begin, end - begin, UNDECIDED


@inlined
def _read_string(at: int, end: int, kind: int, traits: int) -> tuple[int, int, int, int]:
    close, escaped, wide = string_end(at + 1, end)
    if close < 0:
        return close, 0, 0, ABSENT
    if kind == TEXT:
        return close + 1, at + 1, close - at - 1, ESCAPED if escaped else (WIDE if wide else ASCII)
    if kind == TIME or kind == DATE:
        if kind == TIME:
            value, known = time_of(at + 1, close, number_at(traits, DIGITS))
        else:
            value, known = date_of(at + 1, close)
        if known == UNSURE or escaped:
            return close + 1, at, close + 1 - at, UNDECIDED
        return close + 1 if known == READ else -MISFIT, value, close + 1 - at, SET
    return _left(at, close + 1, kind)


@inlined
def _read_float(at: int, end: int, traits: int) -> tuple[int, int, int, int]:
    """Reads a float, which is exact, as one operation on two exact numbers is (Clinger 1990); otherwise
    undecided."""
    begin = at
    negative = byte_at(at) == MINUS
    at, mantissa, digits, exponent, _ = number_end(at + 1 if negative else at, end)
    if at < 0:
        return at, 0, 0, ABSENT
    largest = number_at(traits, DIGITS)
    exact = digits <= DIGITS_MAX and mantissa <= np.uint64(number_at(traits, MOST))
    if not exact or exponent < -largest or exponent > largest:
        undecided = number_at(traits, USED) != 0 or digits + exponent > SMALL_EXPONENT
        return at, begin, at - begin, UNDECIDED if undecided else SET
    value = np.float64(np.int64(mantissa))
    value = value * POWERS[exponent] if exponent >= 0 else value / POWERS[-exponent]
    return at, np.float64(-value if negative else value).view(np.int64), 0, SET


@inlined
def _read_integer(at: int, end: int, kind: int, traits: int) -> tuple[int, int, int, int]:
    begin = at
    negative = byte_at(at) == MINUS
    at, mantissa, digits, _, integral = number_end(at + 1 if negative else at, end)
    if at < 0:
        return at, 0, 0, ABSENT
    if kind == INTEGER or kind == TIME or kind == DATE:
        limit = np.uint64(number_at(traits, LEAST if negative else MOST))
        if integral and digits <= DIGITS_MAX and mantissa <= limit:
            bits = np.int64(mantissa)
            return at, -bits if negative else bits, 0, SET
        unsure = integral and digits == DIGITS_OF_UINT64 and not negative and kind == INTEGER
        return at if unsure else -MISFIT, begin, at - begin, UNDECIDED
    return _left(begin, at, kind)


@inner
def _read_word(at: int, end: int, kind: int) -> tuple[int, int, int, int]:
    """Reads one of null, true, false, NaN, Infinity."""
    begin = at
    negative = byte_at(at) == MINUS
    at, word = word_end(at + 1 if negative else at, end)
    if word == NO_WORD or (negative and word <= WORD_FALSE):
        return -SYNTAX, 0, 0, ABSENT
    if word == WORD_NULL:
        return at, 0, 0, NULL
    if kind == BOOLEAN and word <= WORD_FALSE:
        return at, 1 if word == WORD_TRUE else 0, 0, SET
    if kind == FLOAT and word > WORD_FALSE:
        value = INFINITE if word == WORD_INFINITY else NOT_A_NUMBER
        return at, np.float64(-value if negative else value).view(np.int64), 0, SET
    if word > WORD_FALSE and (kind == INTEGER or kind == TIME or kind == DATE):
        return -MISFIT, 0, at - begin, ABSENT
    return _left(begin, at, kind)
