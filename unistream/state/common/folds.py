"""Reducing and aggregating state, many keys at a time.

    add(keys, values, places)
      a user's function     rows by key ─► per key: the stored value, folded with each row ─► written back
      a known one           rows by key, folded in numpy ─► with the stored values of all keys ─► written

A function of two values is called in Python, once per row. Those in `_KNOWN` have the same result on columns,
in any order; where the two would differ (a sum that overflows its type, a NaN, whose position counts) the
rows are folded one by one after all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.model.columns.arrow_layouts import filtered, taken
from unistream.model.columns.column_values import column_values
from unistream.model.state import AggregatingStateDescriptor, ReducingStateDescriptor, StateDescriptor
from unistream.port.state import Places
from unistream.state.common.columns import (
    array_of,
    check_count,
    conformed,
    python_values,
    storage_type,
    stored_numbers,
    to_array,
)

Fold = np.ufunc


class Cells(Protocol):
    """One Python value for each of many keys."""

    def seen(self, keys: Sequence[Any]) -> list[Any]:
        """The values as a reader sees them, which may renew or remove them; None where there is none."""

    def live(self, keys: Sequence[Any]) -> list[Any]:
        """The values as a writer sees them; they may be changed in place."""

    def write(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Writes one value for each key; None removes."""


class NumberColumn(Protocol):
    """One number for each of many keys, as an array; `port.state.ColumnState` with a writer's view."""

    def get(self, keys: Sequence[Any]) -> pa.Array: ...

    def live(self, keys: Sequence[Any]) -> pa.Array: ...

    def put(self, keys: Sequence[Any], values: pa.Array) -> None: ...


class ReducingColumn:
    """`port.state.AppendingColumnState` with a user's function of two values."""

    def __init__(self, descriptor: ReducingStateDescriptor, cells: Cells) -> None:
        self._descriptor = descriptor
        self._cells = cells

    def get(self, keys: Sequence[object], type: pa.DataType | None = None) -> pa.Array:
        found = array_of(self._descriptor.name, self._cells.seen(keys), self._descriptor.type)
        return found if type is None else found.cast(type)

    def add(self, keys: Sequence[object], values: pa.Array, places: Places | None = None) -> None:
        values = conformed(self._descriptor.name, values, self._descriptor.type)
        given = by_key(self._descriptor.name, keys, values, places)
        found = self._cells.live(given.keys)
        self._cells.write(given.keys, given.folded(self._descriptor.reduce, found))

    merge = add

    def clear(self, keys: Sequence[object]) -> None:
        self._cells.write(keys, [None] * len(keys))


class FoldedColumn:
    """Reducing state whose function numpy has, many keys at a time."""

    def __init__(self, descriptor: ReducingStateDescriptor, numbers: NumberColumn, fold: Fold) -> None:
        storage = storage_type(descriptor.type)
        assert storage is not None, "fold_of says so"
        self._descriptor = descriptor
        self._numbers = numbers
        self._fold = fold
        self._storage: pa.DataType = storage
        self._pairs = ReducingColumn(descriptor, _NumberCells(descriptor, numbers))

    def get(self, keys: Sequence[object], type: pa.DataType | None = None) -> pa.Array:
        found = self._numbers.get(keys)
        return found if type is None else found.cast(type)

    def add(self, keys: Sequence[object], values: pa.Array, places: Places | None = None) -> None:
        given = conformed(self._descriptor.name, values, self._descriptor.type)
        present, at = sorted_rows(self._descriptor.name, keys, given, places)
        if len(at) == 0:
            return
        rows = stored_numbers(present, self._storage)
        live = self._numbers.live(keys)
        old = stored_numbers(live, self._storage)
        if not _is_exact(self._fold, rows, old):
            self._pairs.add(keys, given, places)
            return
        starts = _starts(at)
        touched = at[starts]
        there = live.is_valid().to_numpy(zero_copy_only=False)[touched]
        with np.errstate(all="ignore"):  # as in Python: too large a float is infinite
            added = self._fold.reduceat(rows, starts).astype(rows.dtype)
            new = np.where(there, self._fold(old[touched], added), added)
        array = to_array(new, np.ones(len(new), np.bool_), self._storage, self._descriptor.type)
        self._numbers.put(keys if len(touched) == len(keys) else [keys[n] for n in touched.tolist()], array)

    merge = add

    def clear(self, keys: Sequence[object]) -> None:
        self._numbers.put(keys, pa.nulls(len(keys), self._descriptor.type))


class AggregatingColumn:
    """`port.state.AppendingColumnState` with a user's aggregate."""

    def __init__(self, descriptor: AggregatingStateDescriptor, cells: Cells) -> None:
        self._descriptor = descriptor
        self._cells = cells

    def get(self, keys: Sequence[object], type: pa.DataType | None = None) -> pa.Array:
        result = self._descriptor.aggregate.get_result
        found = [None if one is None else result(one) for one in self._cells.seen(keys)]
        return pa.array(found) if type is None else array_of(self._descriptor.name, found, type)

    def add(self, keys: Sequence[object], values: pa.Array, places: Places | None = None) -> None:
        aggregate = self._descriptor.aggregate
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        given = by_key(self._descriptor.name, keys, values, places)
        add, made = aggregate.add, []
        for old, of_key in zip(self._cells.live(given.keys), given, strict=True):
            accumulator = aggregate.create_accumulator() if old is None else old
            for value in of_key:
                accumulator = add(value, accumulator)
            made.append(accumulator)
        self._cells.write(given.keys, made)

    def merge(self, keys: Sequence[object], accumulators: pa.Array, places: Places | None = None) -> None:
        accumulators = conformed(self._descriptor.name, accumulators, self._descriptor.type)
        given = by_key(self._descriptor.name, keys, accumulators, places)
        found = self._cells.live(given.keys)
        self._cells.write(given.keys, given.folded(self._descriptor.aggregate.merge, found))

    def clear(self, keys: Sequence[object]) -> None:
        self._cells.write(keys, [None] * len(keys))


class _NumberCells:
    """`Cells` of an array."""

    def __init__(self, descriptor: StateDescriptor, numbers: NumberColumn) -> None:
        self._descriptor = descriptor
        self._numbers = numbers

    def seen(self, keys: Sequence[Any]) -> list[Any]:
        return column_values(self._numbers.get(keys))

    def live(self, keys: Sequence[Any]) -> list[Any]:
        return column_values(self._numbers.live(keys))

    def write(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        self._numbers.put(keys, array_of(self._descriptor.name, values, self._descriptor.type))


# --- functions that numpy has ---------------------------------------------------------------------

_KNOWN: Final[tuple[tuple[Callable[..., Any], Fold], ...]] = (
    (operator.add, np.add),
    (min, np.minimum),
    (max, np.maximum),
    (operator.or_, np.bitwise_or),
    (operator.and_, np.bitwise_and),
    *((fold, fold) for fold in (np.add, np.minimum, np.maximum, np.bitwise_or, np.bitwise_and)),
)


def fold_of(descriptor: StateDescriptor) -> Fold | None:
    """The ufunc for the function of a reducing state; None: numpy has none for values of this type.

    >>> fold_of(ReducingStateDescriptor("s", pa.int64(), reduce=max))
    <ufunc 'maximum'>
    >>> fold_of(ReducingStateDescriptor("s", pa.string(), reduce=max)) is None
    True
    """
    if not isinstance(descriptor, ReducingStateDescriptor) or descriptor.options.pickled:
        return None
    fold = next((fold for known, fold in _KNOWN if known is descriptor.reduce), None)
    kind = descriptor.type
    if fold is None or storage_type(kind) is None:
        return None
    if fold is np.add:  # Python adds a float32 in double precision
        return fold if pa.types.is_integer(kind) or pa.types.is_float64(kind) else None
    if fold in (np.bitwise_or, np.bitwise_and):
        return fold if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else None
    return fold


def _is_exact(fold: Fold, rows: npt.NDArray[Any], old: npt.NDArray[Any]) -> bool:
    """The result is that of folding one by one (of floats, except for rounding)."""
    whole = np.issubdtype(rows.dtype, np.integer)
    if fold is np.add and whole:
        return _largest(rows) * len(rows) + _largest(old) <= int(np.iinfo(rows.dtype).max)
    if fold is not np.add and np.issubdtype(rows.dtype, np.floating):
        return not (np.isnan(rows).any() or np.isnan(old).any())
    return True


def _largest(numbers: npt.NDArray[Any]) -> int:
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) if len(numbers) else 0


# --- rows by key ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValuesByKey:
    """Keys with the values that arrived for them; iterates over lists of values, one per key.

    The lists are made on demand: many small ones at once trigger the garbage collector, which goes through
    all state.

    Attributes:
        keys: Each once.
        values: Key after key, those of a key in their order.
        edges: Where each key's values begin, and where the last one's end.
    """

    keys: Sequence[Any]
    values: list[Any]
    edges: list[int]

    def __iter__(self) -> Iterator[list[Any]]:
        values = self.values
        return (values[start:stop] for start, stop in pairwise(self.edges))

    def folded(self, fold: Callable[[Any, Any], Any], found: Sequence[Any]) -> list[Any]:
        """Folds the values of each key with its `found` value, if any."""
        if len(self.values) == len(self.keys):
            pairs = zip(found, self.values, strict=True)
            return [value if old is None else fold(old, value) for old, value in pairs]
        return [
            reduce(fold, of_key) if old is None else reduce(fold, of_key, old)
            for old, of_key in zip(found, self, strict=True)
        ]


def by_key(name: str, keys: Sequence[Any], values: pa.Array, places: Places | None) -> ValuesByKey:
    """Rows of the keys, without nulls.

    >>> rows = by_key("s", ["a", "b"], pa.array([1, 2, None, 3]), np.array([1, 0, 0, 1]))
    >>> rows.keys, list(rows)
    (['a', 'b'], [[2], [1, 3]])
    """
    present, at = sorted_rows(name, keys, values, places)
    if len(at) == 0:
        return ValuesByKey([], [], [0])
    found, starts = python_values(name, present), _starts(at)
    if len(starts) == len(keys):
        return ValuesByKey(keys, found, [*starts.tolist(), len(at)])
    return ValuesByKey([keys[place] for place in at[starts].tolist()], found, [*starts.tolist(), len(at)])


def sorted_rows(
    name: str, keys: Sequence[Any], values: pa.Array, places: Places | None
) -> tuple[pa.Array, Places]:
    """The values that are not null and their places, key after key, those of a key in their order."""
    if places is None:
        check_count(name, values, len(keys))
        places = np.arange(len(keys), dtype=np.int64)
    else:
        check_count(name, values, len(places), "rows")
    if values.null_count:
        there = values.is_valid().to_numpy(zero_copy_only=False)
        values, places = filtered(values, there), places[there]
    if len(places) > 1 and (places[1:] < places[:-1]).any():
        order = np.argsort(places, kind="stable")
        values, places = taken(values, order), places[order]
    return values, places


def _starts(at: Places) -> npt.NDArray[np.int64]:
    """Where in a sorted column each value begins."""
    return np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
