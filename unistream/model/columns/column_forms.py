"""Python values as a column of a declared type: exactly these values, or the first one that does not fit.

The rule is that of `model.state_values`: a value that would change is refused. Rows that a function emits
have the same rule as state, but come in columns, which have a fast path:

    values that are all of the type's own class   their classes are checked, and Arrow builds the column
    timestamps, times of day, durations           built in microseconds, then cast, which refuses to truncate
    lists, dicts                                  their elements are a column again
    anything else                                 each value is converted to its form (`state_values.form`)
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.numpy_types import numpy_type
from unistream.model.columns.state_leaves import Misfit
from unistream.model.columns.state_values import form

Quick = Callable[[Sequence[Any]], pa.Array | None]
Make = Callable[[pa.DataType], Quick | None]

_ARROW_REFUSES: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, KeyError)
_ZONE: Final = attrgetter("tzinfo")


class ValueRefused(Exception):
    """The first value of a column that does not fit, and why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class ColumnForm:
    """Builds columns of one type.

    Args:
        kind: Of the column.
        nullable: False: None is refused.

    >>> ColumnForm(pa.int64()).column([1, None, 2.0]).to_pylist()
    [1, None, 2]
    >>> ColumnForm(pa.string()).column(["a", b"b"])
    Traceback (most recent call last):
    unistream.model.columns.column_forms.ValueRefused: b'b' (bytes) would come back as 'b' (str); convert it \
first, or declare a type that holds it
    """

    def __init__(self, kind: pa.DataType, *, nullable: bool = True) -> None:
        self._kind = kind
        self._nullable = nullable
        self._stored = _storage(kind)
        self._form = form(self._stored)
        self._quick = _quick(self._stored)

    def column(self, values: Sequence[Any]) -> pa.Array:
        """The values.

        Raises:
            ValueRefused: the type cannot hold one.
        """
        made = _at_once(self._quick, values)
        if made is None:
            made = self._one_by_one(values)
        if not self._nullable and made.null_count:
            row = int(pc.index(made.is_null(), pa.scalar(value=True)).as_py())
            raise ValueRefused(row, "it is None, and is declared not nullable")
        return made if self._stored.equals(self._kind) else pa.ExtensionArray.from_storage(self._kind, made)

    def _one_by_one(self, values: Sequence[Any]) -> pa.Array:
        made: list[Any] = []
        try:
            for value in values:
                made.append(self._form(value))
        except Misfit as misfit:
            raise ValueRefused(len(made), str(misfit)) from misfit.__cause__
        try:
            return pa.array(made, self._stored)
        except _ARROW_REFUSES as error:
            raise ValueRefused(0, str(error)) from error


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type to build: for an extension type with nested types its storage type."""
    if isinstance(kind, pa.BaseExtensionType) and pa.types.is_nested(kind.storage_type):
        return kind.storage_type
    return kind


# --- the fast path --------------------------------------------------------------------------------


def _at_once(quick: Quick | None, values: Sequence[Any]) -> pa.Array | None:
    try:
        return None if quick is None else quick(values)
    except _ARROW_REFUSES:
        return None  # which of them, and why, is found one by one


def _quick(kind: pa.DataType) -> Quick | None:
    """A function that builds a column, or returns None if a value may not fit; None: there is no fast
    path."""
    return next((make(kind) for applies, make in _QUICK if applies(kind)), None)


def _are(values: Sequence[Any], *classes: type) -> bool:
    """All of them are exactly of these classes, or None."""
    return {NoneType, *classes}.issuperset(map(type, values))


def _of(*classes: type) -> Make:
    """Arrow stores each object of exactly these classes unchanged, or refuses it."""
    fitting = {NoneType, *classes}

    def make(kind: pa.DataType) -> Quick:
        return lambda values: _stored(values, kind, set(map(type, values)), fitting)

    return make


def _numbers(known: type, *others: type) -> Make:
    """Builds columns of numbers of 64 bits as `_of` does. Where all are `known`, numpy is half as fast again;
    it has no None."""
    fitting = {NoneType, known, *others}

    def make(kind: pa.DataType) -> Quick:
        dtype = numpy_type(kind)

        def made(values: Sequence[Any]) -> pa.Array | None:
            classes = list(map(type, values))
            if classes.count(known) == len(values):  # half the time of a set of them
                return pa.array(np.fromiter(values, dtype, len(values)))
            return _stored(values, kind, set(classes), fitting)

        return made

    return make


def _stored(
    values: Sequence[Any], kind: pa.DataType, classes: set[type], fitting: set[type]
) -> pa.Array | None:
    """`classes`: of the values. None: there are others than `fitting`, numpy's numbers apart."""
    if classes <= fitting:
        return pa.array(values, kind)
    plain = _without_numpy(values)
    return pa.array(plain, kind) if fitting.issuperset(map(type, plain)) else None


def _without_numpy(values: Sequence[Any]) -> list[Any]:
    """The values with numpy's numbers converted to Python's."""
    return [one.item() if isinstance(one, np.number | np.bool_) else one for one in values]


def _short_float(kind: pa.DataType) -> Quick:
    def made(values: Sequence[Any]) -> pa.Array | None:
        plain = values if _are(values, float) else _without_numpy(values)
        if not _are(plain, float):
            return None
        exact = pa.array(plain, pa.float64())
        rounded = exact.cast(kind, safe=False)
        return rounded if pc.is_inf(rounded.cast(pa.float64())).equals(pc.is_inf(exact)) else None

    return made


def _timed(known: type, exact: Callable[[pa.DataType], pa.DataType], *, zoned: bool) -> Make:
    """Builds columns of times as type `exact` in microseconds, the unit of Python's objects, and casts
    them."""

    def make(kind: pa.DataType) -> Quick:
        with_zone, fine = getattr(kind, "tz", None) is not None, exact(kind)

        def made(values: Sequence[Any]) -> pa.Array | None:
            if not _are(values, known):
                return None
            if zoned:
                zones = {_ZONE(value) for value in values if value is not None}
                if any((zone is not None) != with_zone for zone in zones):
                    return None
            found = pa.array(values, fine)
            return found if fine.equals(kind) else found.cast(kind)

        return made

    return make


def _encoded(kind: pa.DictionaryType) -> Quick | None:
    plain = _quick(kind.value_type)
    if plain is None:
        return None
    return lambda values: pa.array(values, kind) if plain(values) is not None else None


# --- types with types inside ----------------------------------------------------------------------


def _struct(kind: pa.StructType) -> Quick | None:
    inside = [(itemgetter(field.name), _quick(field.type), field.nullable) for field in kind]
    if not inside or any(quick is None for _, quick, _ in inside):
        return None
    nothing = dict.fromkeys(kind.names)

    def made(values: Sequence[Any]) -> pa.Array | None:
        if not _are(values, dict):
            return None
        rows = [nothing if row is None else row for row in values]
        if set(map(len, rows)) - {len(nothing)}:
            return None
        columns = []
        for value_of, quick, nullable in inside:
            assert quick is not None
            column = quick(list(map(value_of, rows)))
            if column is None or (column.null_count and not nullable):
                return None
            columns.append(column)
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=_mask(values))

    return made


def _list(kind: pa.DataType) -> Quick | None:
    inside, nullable = _quick(kind.value_type), kind.value_field.nullable
    if inside is None:
        return None
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray

    def made(values: Sequence[Any]) -> pa.Array | None:
        if not _are(values, list):
            return None
        elements = inside(list(chain.from_iterable(filter(None, values))))
        if elements is None or (elements.null_count and not nullable):
            return None
        return make.from_arrays(_offsets(kind, values), elements, type=kind, mask=_mask(values))

    return made


def _map(kind: pa.MapType) -> Quick | None:
    keys_of, items_of, nullable = _quick(kind.key_type), _quick(kind.item_type), kind.item_field.nullable
    if keys_of is None or items_of is None:
        return None

    def made(values: Sequence[Any]) -> pa.Array | None:
        if not _are(values, dict) or None in values:
            return None
        keys = keys_of(list(chain.from_iterable(values)))
        items = items_of(list(chain.from_iterable(map(dict.values, values))))
        if keys is None or items is None or keys.null_count or (items.null_count and not nullable):
            return None
        return pa.MapArray.from_arrays(_offsets(kind, values), keys, items, type=kind)

    return made


def _offsets(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    wide = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])).cast(wide)


def _mask(values: Sequence[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values]) if None in values else None


_QUICK: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Quick | None]], ...]] = (
    (pa.types.is_dictionary, _encoded),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_large_list, _list),
    (pa.types.is_null, _of()),
    (pa.types.is_int64, _numbers(int)),
    (pa.types.is_integer, _of(int)),
    (pa.types.is_float64, _numbers(float, int)),
    (pa.types.is_floating, _short_float),
    (pa.types.is_boolean, _of(bool)),
    (pa.types.is_string, _of(str)),
    (pa.types.is_large_string, _of(str)),
    (pa.types.is_string_view, _of(str)),
    (pa.types.is_binary, _of(bytes)),
    (pa.types.is_large_binary, _of(bytes)),
    (pa.types.is_fixed_size_binary, _of(bytes)),
    (pa.types.is_decimal, _of(decimal.Decimal)),
    (pa.types.is_date, _of(datetime.date)),
    (
        pa.types.is_timestamp,
        _timed(datetime.datetime, lambda kind: pa.timestamp("us", kind.tz), zoned=True),
    ),
    (pa.types.is_time, _timed(datetime.time, lambda _: pa.time64("us"), zoned=True)),
    (pa.types.is_duration, _timed(datetime.timedelta, lambda _: pa.duration("us"), zoned=False)),
)
