"""The Python form of values of one Arrow type without nested types (see `model.state_values`).

the value has exactly the class of the form, and fits   itself, after a check of its class or range
anything else                                           to Arrow and back; refused unless equal
"""

from __future__ import annotations

import datetime
import decimal
import math
import reprlib
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

Conform = Callable[[Any], Any]
Guard = Callable[[Conform], Conform]

_SHORT: Final = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 80
_DOUBLE_EXACT: Final = 2**53  # up to here each whole number is a float
_DURATION_DAYS_MAX: Final = 106_751_990  # whole days of 2**63 microseconds, less one
_STEPS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


class Misfit(Exception):
    """A value that the type cannot hold. `where`: from the outside in."""

    def __init__(self, reason: str, where: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = where

    def inside(self, place: str) -> Misfit:
        return Misfit(self.reason, (place, *self.where))

    def __str__(self) -> str:
        return ": ".join((", ".join(self.where), self.reason)) if self.where else self.reason


def shown(value: Any) -> str:
    return f"{_SHORT.repr(value)} ({type(value).__name__})"


def leaf(kind: pa.DataType, guard: Guard) -> Conform:
    """A function that converts values of `kind` to their form, or raises Misfit. None stays None.

    `guard` wraps what may raise, and nothing on the fast path.
    """
    through_arrow = guard(_through_arrow(kind))
    for applies, make in _LEAVES:
        if applies(kind):
            return make(kind, _plain_first(make(kind, through_arrow), through_arrow))
    return through_arrow


def _plain_first(short: Conform, otherwise: Conform) -> Conform:
    """Converts numpy's numbers to Python's, which is faster than through Arrow."""

    def plain_first(value: Any) -> Any:
        if isinstance(value, np.number | np.bool_) and type(plain := value.item()) is not type(value):
            return short(plain)
        return otherwise(value)

    return plain_first


# --- the fast path --------------------------------------------------------------------------------


def _class_alone(kind: type) -> Callable[[pa.DataType, Conform], Conform]:
    """Any object of exactly this class is of the type."""

    def make(_: pa.DataType, otherwise: Conform) -> Conform:
        return lambda value: value if type(value) is kind else otherwise(value)

    return make


def _integer(kind: pa.DataType, otherwise: Conform) -> Conform:
    low, high = integer_range(kind)

    def integer(value: Any) -> Any:
        return value if type(value) is int and low <= value <= high else otherwise(value)

    return integer


def integer_range(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def _double(_: pa.DataType, otherwise: Conform) -> Conform:
    def double(value: Any) -> Any:
        if type(value) is float:
            return value
        if type(value) is int and -_DOUBLE_EXACT <= value <= _DOUBLE_EXACT:
            return float(value)
        return otherwise(value)

    return double


def _short_float(kind: pa.DataType, otherwise: Conform) -> Conform:
    form = struct.Struct("<f" if kind.bit_width == 32 else "<e")
    pack, unpack = form.pack, form.unpack

    def rounded(value: Any) -> Any:
        if type(value) is float:
            try:
                return unpack(pack(value))[0]
            except OverflowError:
                pass  # refused below, with the reason
        return otherwise(value)

    return rounded


def _text(_: pa.DataType, otherwise: Conform) -> Conform:
    def text(value: Any) -> Any:
        return value if type(value) is str and (value.isascii() or is_utf8(value)) else otherwise(value)

    return text


def is_utf8(text: str) -> bool:
    """It contains no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sized_bytes(kind: pa.DataType, otherwise: Conform) -> Conform:
    width = kind.byte_width
    return lambda value: value if type(value) is bytes and len(value) == width else otherwise(value)


def _decimal(kind: pa.DataType, otherwise: Conform) -> Conform:
    if kind.scale < 0:
        return otherwise
    quantum, zero = decimal.Decimal((0, (1,), -kind.scale)), decimal.Decimal((0, (0,), -kind.scale))
    traps = [decimal.Inexact, decimal.InvalidOperation]
    exact = decimal.Context(prec=kind.precision, traps=traps, Emin=-999_999, Emax=999_999)

    def number(value: Any) -> Any:
        if type(value) is not decimal.Decimal or not value.is_finite():
            return otherwise(value)
        try:
            return value.quantize(quantum, context=exact) if value else zero
        except (decimal.Inexact, decimal.InvalidOperation):
            return otherwise(value)

    return number


def _moment(kind: pa.DataType, otherwise: Conform) -> Conform:
    zone = pa.scalar(0, kind).as_py().tzinfo
    if kind.unit == "ns" or kind.tz not in (None, "UTC"):
        return otherwise
    step = _STEPS[kind.unit]

    def moment(value: Any) -> Any:
        if type(value) is datetime.datetime and value.tzinfo is zone and not value.fold:
            return value if value.microsecond % step == 0 else otherwise(value)
        return otherwise(value)

    return moment


def _time_of_day(kind: pa.DataType, otherwise: Conform) -> Conform:
    step = _STEPS[kind.unit]

    def time(value: Any) -> Any:
        if type(value) is datetime.time and value.tzinfo is None and not value.fold:
            return value if value.microsecond % step == 0 else otherwise(value)
        return otherwise(value)

    return time


def _duration(kind: pa.DataType, otherwise: Conform) -> Conform:
    if kind.unit == "ns":
        return otherwise
    step = _STEPS[kind.unit]

    def duration(value: Any) -> Any:
        if type(value) is not datetime.timedelta or value.microseconds % step:
            return otherwise(value)
        return value if abs(value.days) <= _DURATION_DAYS_MAX else otherwise(value)

    return duration


_LEAVES: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Conform], Conform]], ...]
] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_float64, _double),
    (pa.types.is_floating, _short_float),
    (pa.types.is_boolean, _class_alone(bool)),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_string_view, _text),
    (pa.types.is_fixed_size_binary, _sized_bytes),
    (pa.types.is_binary, _class_alone(bytes)),
    (pa.types.is_large_binary, _class_alone(bytes)),
    (pa.types.is_binary_view, _class_alone(bytes)),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_date, _class_alone(datetime.date)),
    (pa.types.is_time, _time_of_day),
    (pa.types.is_duration, _duration),
)


# --- through Arrow --------------------------------------------------------------------------------


def _through_arrow(kind: pa.DataType) -> Conform:
    def through_arrow(value: Any) -> Any:
        if value is None:
            return None
        given = _plain(value)
        try:
            made = pa.array([given], kind)
            back = made.to_pylist()[0]
            fits = back is not None and _is_same(given, back, made)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise Misfit(f"{shown(value)}: {error}") from error
        if not fits:
            raise Misfit(f"{shown(value)} would come back as {shown(back)}; {_advice(given, kind)}")
        return back

    return through_arrow


def _plain(value: Any) -> Any:
    """A Python object for one of numpy's or Arrow's."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.datetime64 | np.timedelta64):
        whole = value.astype(f"{'M8' if isinstance(value, np.datetime64) else 'm8'}[us]")
        item = whole.item() if whole == value else value
        return value if isinstance(item, int) else item  # for finer units numpy has only the number
    return value.item() if isinstance(value, np.generic) else value


def _is_same(given: Any, back: Any, made: pa.Array) -> bool:
    """Whether the value survived the round trip."""
    kind = made.type
    if pa.types.is_floating(kind):
        return isinstance(given, int | float) and (math.isfinite(back) or not math.isfinite(given))
    if pa.types.is_temporal(kind) and isinstance(given, int) and not isinstance(given, bool):
        return bool(pa.array([back], kind).equals(made))
    if isinstance(given, datetime.datetime) and isinstance(back, datetime.datetime):
        if (given.tzinfo is None) != (back.tzinfo is None):
            return False
        if back.tzinfo is not None:  # for repeated local times Python compares zones as unequal
            return bool(given.astimezone(datetime.UTC) == back.astimezone(datetime.UTC))
    return bool(back == given)


def _advice(given: Any, kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        zoned = getattr(given, "tzinfo", None) is not None
        if isinstance(given, datetime.datetime) and not pa.types.is_timestamp(kind):
            return "give its date() or its time()"
        if isinstance(given, datetime.datetime) and zoned != (kind.tz is not None):
            return "a time must have a time zone if the type has one, and none otherwise"
        return "declare a finer unit, or round it first"
    return "convert it first, or declare a type that holds it"
