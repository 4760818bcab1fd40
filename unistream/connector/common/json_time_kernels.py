"""Compiled loops that read times and dates in the forms of ISO 8601 that arrow reads, too."""

from __future__ import annotations

import numpy as np

from unistream.connector.common.compiled import byte_at, inlined, inner
from unistream.connector.common.json_scan_kernels import MINUS, PLUS, ZERO, is_digit

READ, MISREAD, UNSURE = range(3)  # UNSURE: arrow decides

DATE_SIZE, MINUTES_SIZE, SECONDS_SIZE = 10, 16, 19  # of "2026-01-31", and with a time to minutes, to seconds
NANOSECOND_DIGITS = 9
NO_NUMBER = -100_000  # below 0, whatever is added


@inlined
def _two(at: int) -> int:
    """The number of two digits; below 0 if one is none."""
    high, low = np.int64(byte_at(at)) - ZERO, np.int64(byte_at(at + 1)) - ZERO
    return high * 10 + low if high >= 0 and high <= 9 and low >= 0 and low <= 9 else NO_NUMBER


@inner
def date_of(at: int, end: int) -> tuple[int, int]:
    """Reads a date: (days since 1970, whether it could be read)."""
    if end - at != DATE_SIZE:
        return 0, MISREAD if end - at < DATE_SIZE else UNSURE
    return _days(at)


@inlined
def _days(at: int) -> tuple[int, int]:
    """The days since 1970 of a date in the proleptic Gregorian calendar: Howard Hinnant's
    `days_from_civil`."""
    year = _two(at) * 100 + _two(at + 2)
    month, day = _two(at + 5), _two(at + 8)
    known = year >= 0 and byte_at(at + 4) == MINUS and byte_at(at + 7) == MINUS
    known = known and month >= 1 and month <= 12 and day >= 1 and day <= _days_of_month(year, month)
    early = month <= 2
    year -= early
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (9 if early else -3)) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days, READ if known else MISREAD


@inlined
def _days_of_month(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 30 + ((month + (month >> 3)) & 1)
    return days if month != 2 else (29 if leap else 28)


@inner
def time_of(at: int, end: int, digits: int) -> tuple[int, int]:
    """Reads a time: (time since 1970 in units of ``10 ** -digits`` seconds, whether it could be read).

    Read: ``2026-01-31``, and behind ``T`` or a blank ``05:15``, ``05:15:00`` or, with at most `digits`
    digits, ``05:15:00.25``; then nothing, ``Z``, or behind a time with seconds ``+01:00`` or ``+0100``.
    """
    size = end - at
    if size < DATE_SIZE:
        return 0, MISREAD
    days, known = _days(at)
    if known != READ:
        return 0, MISREAD
    if size == DATE_SIZE:
        return _in_units(days * 86_400, digits, 0), READ if digits < NANOSECOND_DIGITS else UNSURE
    if (
        size < MINUTES_SIZE
        or (byte_at(at + 10) != 0x54 and byte_at(at + 10) != 0x20)
        or byte_at(at + 13) != 0x3A
    ):
        return 0, UNSURE
    hours, minutes, seconds = _two(at + 11), _two(at + 14), 0
    place = at + MINUTES_SIZE
    fraction, written = 0, 0
    with_seconds = size >= SECONDS_SIZE and byte_at(place) == 0x3A
    if with_seconds:
        seconds = _two(at + 17)
        place = at + SECONDS_SIZE
        if place < end and byte_at(place) == 0x2E:
            place += 1
            while place < end and is_digit(byte_at(place)):
                fraction = fraction * 10 + np.int64(byte_at(place)) - ZERO
                written += 1
                place += 1
            if written == 0 or written > digits:
                return 0, MISREAD if place == end and written > 0 else UNSURE
    if hours < 0 or minutes < 0 or seconds < 0 or hours > 23 or minutes > 59 or seconds > 59:
        return 0, UNSURE
    shift, known = _zone(place, end, with_seconds)
    for _ in range(digits - written):
        fraction *= 10
    whole = days * 86_400 + hours * 3_600 + minutes * 60 + seconds - shift
    return _in_units(whole, digits, fraction), known if digits < NANOSECOND_DIGITS else UNSURE


@inlined
def _in_units(seconds: int, digits: int, fraction: int) -> int:
    for _ in range(digits):
        seconds *= 10
    return seconds + fraction


@inlined
def _zone(at: int, end: int, with_seconds: bool) -> tuple[int, int]:
    """Reads a zone: (seconds ahead of UTC, whether it could be read)."""
    if at == end:
        return 0, READ
    if byte_at(at) == 0x5A and at + 1 == end:
        return 0, READ
    size = end - at
    if not with_seconds or (byte_at(at) != PLUS and byte_at(at) != MINUS) or (size != 5 and size != 6):
        return 0, UNSURE
    if size == 6 and byte_at(at + 3) != 0x3A:
        return 0, UNSURE
    hours, minutes = _two(at + 1), _two(end - 2)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return 0, UNSURE
    shift = hours * 3_600 + minutes * 60
    return -shift if byte_at(at) == MINUS else shift, READ
