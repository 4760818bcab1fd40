"""The Python form of values in state: the form in which a restore returns them.

    conformer(name, type)       a value      ─► its form; UserCodeError if the type cannot hold it
    key_conformer(name, type)   a map's key  ─► the same, and equal keys in one form

A snapshot stores Arrow values, and a restore converts them to Python objects. So that a function never sees a
difference between a value that it has put and a restored one, every backend converts values to that form at
once: a tuple becomes a list, 1 of a float64 becomes 1.0, Decimal("1.5") of decimal128(10, 2) becomes
Decimal("1.50"). What Arrow would drop, truncate or reinterpret silently is refused: a field that a struct
does not declare, microseconds of a timestamp[ms], a zone of a timestamp without one, the order of a set.

    the value has exactly the class of the form, and fits   itself, after a check of its class or range
    a container                                             a new one with its elements in their form
    anything else                                           to Arrow and back; refused unless equal

Floats of fewer bits are rounded as by Arrow; whole numbers are accepted as times and timestamps, in the
type's unit. Nulls inside a value stay null if the type allows it.

As keys of maps (docs/guide/state.md, "What is equal as a key") -0.0 is 0.0 and every NaN the same object;
timestamps with a zone are in UTC, because in one zone Python compares the two times as equal that are an hour
apart when the clocks are set back.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import UserCodeError
from unistream.model.columns.arrow_layouts import is_list
from unistream.model.columns.state_leaves import Conform, Guard, Misfit, integer_range, is_utf8, leaf, shown

_NAN: Final = float("nan")


def conformer(name: str, kind: pa.DataType) -> Conform:
    """A function that converts the values of a state to their form, or raises UserCodeError. None stays None.

    Args:
        name: Name of the state, for the message.
        kind: Type of a value, which `refused_type` does not refuse.

    >>> conformer("point", pa.struct({"x": pa.float64(), "y": pa.float64()}))({"x": 1})
    {'x': 1.0, 'y': None}
    """
    return _build(kind, lambda inner: _named(inner, f"state {name!r} was given a value", kind))


def key_conformer(name: str, kind: pa.DataType) -> Conform:
    """A function that converts the keys of a map state, as `conformer` does values. None stays None: it is
    not a key, but may be looked up.

    >>> key_conformer("shares", pa.float64())(-0.0), key_conformer("prices", pa.decimal128(4, 2))(3)
    (0.0, Decimal('3.00'))
    """
    conform = _build(kind, lambda inner: _named(inner, f"map state {name!r} was given a key", kind))
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_floating(plain):  # -0.0 + 0.0 is 0.0
        return lambda key: None if (k := conform(key)) is None else _NAN if math.isnan(k) else k + 0.0
    if pa.types.is_timestamp(plain) and plain.tz is not None:
        return lambda key: None if (k := conform(key)) is None else k.astimezone(datetime.UTC)
    return conform


def form(kind: pa.DataType) -> Conform:
    """A function that converts values of `kind` to their form, or raises Misfit. None stays None.

    >>> form(pa.list_(pa.float64()))((1, 2.5))
    [1.0, 2.5]
    """
    return _build(kind)


def refused_type(kind: pa.DataType) -> str | None:
    """Why a state cannot have values of this type, and what to declare instead; None: it can.

    >>> refused_type(pa.struct({"seen_at": pa.time64("ns")}))
    'time64[ns]: a time of Python has no nanoseconds; declare time64[us]'
    """
    if pa.types.is_dictionary(kind):
        inner = refused_type(kind.value_type)
        return inner or (None if _is_made(kind) else f"{kind}: declare {kind.value_type}")
    if isinstance(kind, pa.BaseExtensionType):
        return f"{kind}: declare the type that it is stored as, {kind.storage_type}"
    if pa.types.is_time(kind) and kind.unit == "ns":
        return f"{kind}: a time of Python has no nanoseconds; declare time64[us]"
    if pa.types.is_struct(kind) and len({field.name for field in kind}) < kind.num_fields:
        return f"{kind}: two fields have one name; rename one"
    if pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind) or pa.types.is_interval(kind):
        return f"{kind}: declare a struct, or the types that it is made of"
    for number in range(kind.num_fields):
        inner = refused_type(kind.field(number).type)
        if inner is not None:
            return inner
    return None


def refused_key_type(kind: pa.DataType) -> str | None:
    """Why a map state cannot have keys of this type, with what to declare; None: it can."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(plain) or pa.types.is_null(plain):
        return f"{kind}: declare a number, a text or another type without types inside"
    return refused_type(kind)


def _is_made(kind: pa.DataType) -> bool:
    """Whether Arrow converts Python objects to it."""
    try:
        pa.array([None], kind)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _located(conform: Conform, values: Iterable[tuple[str, Any]]) -> Misfit | None:
    """The first of `values` that does not fit, with its place."""
    for place, value in values:
        try:
            conform(value)
        except Misfit as misfit:
            found = misfit.inside(place)
            found.__cause__ = misfit.__cause__
            return found
    return None


def _named(inner: Conform, subject: str, kind: pa.DataType) -> Conform:
    """`inner`, whose refusals name the state."""

    def named(value: Any) -> Any:
        try:
            return inner(value)
        except Misfit as misfit:
            raise UserCodeError(
                f"{subject} that is not of its declared type {kind}: {misfit}"
            ) from misfit.__cause__

    return named


def _build(kind: pa.DataType, guard: Guard = lambda inner: inner) -> Conform:
    """`guard` wraps what may raise, and nothing on the fast path."""
    if pa.types.is_dictionary(kind):
        return _build(kind.value_type, guard)
    if pa.types.is_struct(kind):
        return _struct(kind, guard)
    if pa.types.is_map(kind):
        return guard(_map(kind))
    if is_list(kind):
        return guard(_list(kind))
    return leaf(kind, guard)


# --- types with types inside ----------------------------------------------------------------------


def _struct(kind: pa.StructType, guard: Guard) -> Conform:
    fields = [(field.name, _build(field.type)) for field in kind]
    required = [field.name for field in kind if not field.nullable]
    row = guard(_any_row(fields, required))
    return row if required else _whole_row(fields, row)


def _whole_row(fields: list[tuple[str, Conform]], otherwise: Conform) -> Conform:
    """The fast path: a dict with exactly the declared fields."""
    size = len(fields)

    def row(value: Any) -> Any:
        if type(value) is not dict or len(value) != size:
            return otherwise(value)
        made = {}
        try:
            for name, conform in fields:  # twice as fast as a comprehension
                made[name] = conform(value[name])
        except (KeyError, Misfit):
            return otherwise(value)  # says why not
        return made

    return row


def _any_row(fields: list[tuple[str, Conform]], required: list[str]) -> Conform:
    names = [name for name, _ in fields]

    def row(value: Any) -> Any:
        if value is None:
            return None
        given = _completed(value if type(value) is dict else _as_dict(value), names)
        for name, conform in fields:
            found = _located(conform, [(f"field {name!r}", given[name])])
            if found is not None:
                raise found from found.__cause__
        made = {name: conform(given[name]) for name, conform in fields}
        for name in required:
            if made[name] is None:
                raise Misfit(f"field {name!r} is missing or None, and is declared not nullable")
        return made

    return row


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, pa.StructScalar):
        found: dict[Any, Any] = value.as_py()
        return found
    if isinstance(value, Mapping):
        return dict(value)
    raise Misfit(f"{shown(value)} is no dict; give one with a value for each field")


def _completed(given: dict[Any, Any], names: Sequence[str]) -> dict[Any, Any]:
    """The value with None for fields that it lacks. Raises Misfit: it has one that the type does not."""
    unknown = given.keys() - names
    if unknown:
        raise Misfit(
            f"it has a field {min(unknown, key=repr)!r}, which the type does not; declare it, or leave it out"
        )
    return {**dict.fromkeys(names), **given}


def _list(kind: pa.DataType) -> Conform:
    conform, alike = _build(kind.value_type), _alike(kind.value_type)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    nullable = kind.value_field.nullable

    def elements(value: Any) -> Any:
        if value is None:
            return None
        given = value if type(value) is list else _as_list(value)
        if size is not None and len(given) != size:
            raise Misfit(f"it has {len(given)} elements, and the type has {size}")
        if alike is not None and alike(given):
            return given.copy()
        try:
            made = [conform(one) for one in given]
        except Misfit as misfit:
            places = ((f"element {place}", one) for place, one in enumerate(given))
            raise _located(conform, places) or misfit from misfit.__cause__
        if not nullable and any(one is None for one in made):
            raise Misfit("an element is None, and elements are declared not nullable")
        return made

    return elements


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        found: list[Any] = value.tolist() if value.dtype.kind in "biuf" else list(value)
        return found
    if isinstance(value, pa.ListScalar | pa.Array | pa.ChunkedArray):
        plain = value.as_py() if isinstance(value, pa.Scalar) else value.to_pylist()
        return list(plain)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return list(value)
    order = "; its order would be lost: give sorted(…)" if isinstance(value, set | frozenset) else ""
    raise Misfit(f"{shown(value)} is no list{order}")


def _alike(kind: pa.DataType) -> Callable[[list[Any]], bool] | None:
    """A check whether all elements are in their form, without a call for each; None: there is none."""
    if pa.types.is_float64(kind):
        return lambda given: set(map(type, given)) == {float}
    if pa.types.is_boolean(kind):
        return lambda given: set(map(type, given)) == {bool}
    if pa.types.is_integer(kind):
        low, high = integer_range(kind)
        return lambda given: set(map(type, given)) == {int} and low <= min(given) and max(given) <= high
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda given: set(map(type, given)) == {str} and is_utf8("".join(given))
    return None


def _map(kind: pa.MapType) -> Conform:
    key_of, item_of = _build(kind.key_type), _build(kind.item_type)
    nullable = kind.item_field.nullable

    def entries(value: Any) -> Any:
        if value is None:
            return None
        given = _as_pairs(value)
        try:
            made = [(key_of(key), item_of(item)) for key, item in given]
        except Misfit as misfit:
            keys = _located(key_of, ((f"key {key!r}", key) for key, _ in given))
            items = _located(item_of, ((f"value of {key!r}", item) for key, item in given))
            raise keys or items or misfit from misfit.__cause__
        for key, item in made:
            if key is None:
                raise Misfit("a key is None")
            if item is None and not nullable:
                raise Misfit(f"the value of {key!r} is None, and values are declared not nullable")
        return made

    return entries


def _as_pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, pa.MapScalar):
        return list(value.as_py())
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in value
    ):
        return [(key, item) for key, item in value]
    raise Misfit(f"{shown(value)} is neither a dict nor a list of pairs (key, value)")
