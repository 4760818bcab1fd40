"""Values as bytes and back: msgpack of what `model.state_values` makes of them.

Types that msgpack lacks, or stores incompletely:

    times and durations in nanoseconds   their number, as Arrow stores it
    timestamps with a zone               in UTC; loaded in the zone of the type
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any, Final, TypedDict

import msgspec
import pyarrow as pa

Dump = Callable[[Any], bytes]
Load = Callable[[bytes], Any]
_Change = Callable[[Any], Any]


def dumper(kind: pa.DataType) -> Dump:
    """Values in their form (`model.state_values`) -> bytes; equal values to equal bytes."""
    encode: Dump = msgspec.msgpack.Encoder().encode
    lower = _deep(kind, _lowered)
    return encode if lower is None else lambda value: encode(lower(value))


def loader(kind: pa.DataType) -> Load:
    """The bytes of a `dumper` -> the value."""
    decode, lift = _decoder(kind), _deep(kind, _lifted)
    return decode if lift is None else lambda stored: lift(decode(stored))


def _decoder(kind: pa.DataType) -> Load:
    wanted = _python_type(kind)
    if wanted is Any:
        return msgspec.msgpack.Decoder().decode
    typed = msgspec.msgpack.Decoder(wanted | None if wanted is not None else wanted)
    plain = msgspec.msgpack.Decoder()

    def load(stored: bytes) -> Any:
        try:
            return typed.decode(stored)
        except msgspec.ValidationError:
            return plain.decode(stored)  # of an older version, which did not convert values

    return load


def _python_type(kind: pa.DataType) -> Any:
    """The type that msgspec must decode to; Any where msgpack's own types are right."""
    for test, wanted in _SPECIAL:
        if test(kind):
            return wanted
    if pa.types.is_dictionary(kind):
        return _python_type(kind.value_type)
    if pa.types.is_map(kind):
        key, item = _python_type(kind.key_type), _python_type(kind.item_type)
        return list[tuple[key | None, item | None]]  # type: ignore[valid-type]  # made at run time
    if pa.types.is_struct(kind):
        fields = {field.name: _python_type(field.type) for field in kind}
        if all(inner is Any for inner in fields.values()):
            return Any
        made = {name: inner | None for name, inner in fields.items()}
        return TypedDict("Row", made, total=False)  # type: ignore[operator]  # made of the declared fields
    if pa.types.is_nested(kind):
        inner = _python_type(kind.value_type)
        return Any if inner is Any else list[inner | None]  # type: ignore[valid-type]
    return Any


_SPECIAL: Final[tuple[tuple[Callable[[pa.DataType], bool], Any], ...]] = (
    (pa.types.is_timestamp, datetime.datetime | int),
    (pa.types.is_date, datetime.date | int),
    (pa.types.is_time, datetime.time | int),
    (pa.types.is_duration, datetime.timedelta | int),
    (pa.types.is_decimal, decimal.Decimal),
)


# --- types that msgpack lacks ---------------------------------------------------------------------


def _deep(kind: pa.DataType, change: Callable[[pa.DataType], _Change | None]) -> _Change | None:
    """`change` for each type without inner types, applied to a whole value; None: nothing changes."""
    if pa.types.is_dictionary(kind):
        return _deep(kind.value_type, change)
    if pa.types.is_struct(kind):
        inner = {field.name: _deep(field.type, change) for field in kind}
        changed = {name: found for name, found in inner.items() if found is not None}
        return _of_fields(changed) if changed else None
    if pa.types.is_map(kind):
        changes = _deep(kind.key_type, change), _deep(kind.item_type, change)
        if changes == (None, None):
            return None
        key, item = (found or _same for found in changes)
        return _unless_none(lambda pairs: [(key(one), item(other)) for one, other in pairs])
    if pa.types.is_nested(kind):
        element = _deep(kind.value_type, change)
        return None if element is None else _unless_none(lambda items: [element(one) for one in items])
    found = change(kind)
    return None if found is None else _unless_none(found)


def _of_fields(changed: dict[str, _Change]) -> _Change:
    def row(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: change(value[name]) for name, change in changed.items() if name in value}}

    return row


def _unless_none(change: _Change) -> _Change:
    return lambda value: None if value is None else change(value)


def _same(value: Any) -> Any:
    return value


def _lowered(kind: pa.DataType) -> _Change | None:
    """A change of values of this type to a type of msgpack; None: it has them as they are."""
    return (lambda value: pa.scalar(value, kind).value) if _in_nanoseconds(kind) else None


def _lifted(kind: pa.DataType) -> _Change | None:
    """A change of what msgpack gives back to values of this type; None: they are those already."""
    if _in_nanoseconds(kind):
        return lambda stored: pa.scalar(stored, kind).as_py()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        zone = pa.scalar(0, kind).as_py().tzinfo
        return lambda stored: stored.astimezone(zone)
    return None


def _in_nanoseconds(kind: pa.DataType) -> bool:
    return bool((pa.types.is_timestamp(kind) or pa.types.is_duration(kind)) and kind.unit == "ns")
