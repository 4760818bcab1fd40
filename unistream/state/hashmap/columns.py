"""Every kind of state in memory, many keys at a time.

    value                            slots (`columns.Column`), or over a handle where rows came first
    reducing by a known function     slots, folded in numpy (`folds.FoldedColumn`)
    reducing, aggregating            rows by key, folded in Python (`folds`)
    list, map                        rows by key, through the row handle with each key as the current one

Whole columns become Python objects and back at once; for each key there is one lookup in a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import pyarrow as pa

from unistream.model.columns.state_values import conformer
from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from unistream.port.state import CurrentKey, Places
from unistream.state.common import containers
from unistream.state.common.columns import Column, array_of, check_count, conformed, python_values
from unistream.state.common.folds import AggregatingColumn, FoldedColumn, ReducingColumn, by_key, fold_of
from unistream.state.common.lifetime import Lifetime
from unistream.state.hashmap.rows import CopyOnWriteStateMap
from unistream.state.hashmap.ttl import live_cell, seen_cell


def is_in_slots(descriptor: StateDescriptor) -> bool:
    """A state of this kind is stored as a column, if it is first used a batch at a time."""
    return descriptor.kind is StateKind.VALUE or fold_of(descriptor) is not None


def make_column(
    descriptor: StateDescriptor,
    store: CopyOnWriteStateMap | Column,
    handle: Any,
    current: CurrentKey,
    life: Lifetime | None,
) -> Any:
    """The result of `KeyedStateBackend.column`; `handle`: that of `store`, if it has rows."""
    if isinstance(store, Column):
        return _over_slots(descriptor, store)
    if isinstance(descriptor, ReducingStateDescriptor):
        return ReducingColumn(descriptor, RowCells(store, life))
    if isinstance(descriptor, AggregatingStateDescriptor):
        return AggregatingColumn(descriptor, RowCells(store, life))
    if isinstance(descriptor, MapStateDescriptor):
        return HeapMapColumn(descriptor, handle, current)
    if descriptor.kind is StateKind.LIST:
        return HeapListColumn(descriptor, handle, current, store, life)
    return RowColumn(descriptor, handle, current)


def make_slot_handle(descriptor: StateDescriptor, store: Column, current: CurrentKey) -> Any:
    """The handle of the current key over a column."""
    over = _over_slots(descriptor, store)
    return (SlotValue if over is store else SlotReducing)(descriptor, over, current)


def _over_slots(descriptor: StateDescriptor, store: Column) -> Column | FoldedColumn:
    fold = fold_of(descriptor)
    if fold is None:
        return store
    assert isinstance(descriptor, ReducingStateDescriptor), "nothing else is folded"
    return FoldedColumn(descriptor, store, fold)


class _SlotHandle:
    """A handle over a column, for a state that is used both ways. Slower than either."""

    def __init__(self, descriptor: StateDescriptor, column: Any, current: CurrentKey) -> None:
        self._name, self._type = descriptor.name, descriptor.type
        self._conform = conformer(descriptor.name, descriptor.type)
        self._column = column
        self._current = current

    def _read(self) -> Any:
        return python_values(self._name, self._column.get((self._current.key,)))[0]

    def _array(self, value: Any) -> pa.Array:
        return array_of(self._name, [self._conform(value)], self._type)


class SlotValue(_SlotHandle):
    """A `port.state.ValueState` over a slot of a column."""

    def value(self) -> Any:
        return self._read()

    def update(self, value: Any) -> None:
        self._column.put((self._current.key,), self._array(value))

    def clear(self) -> None:
        self.update(None)


class SlotReducing(_SlotHandle):
    """A `port.state.AppendingState` over a slot of a column."""

    def get(self) -> Any:
        return self._read()

    def add(self, value: Any) -> None:
        self._column.add((self._current.key,), self._array(value))

    def clear(self) -> None:
        self._column.clear((self._current.key,))


class RowCells:
    """`folds.Cells` of rows by key."""

    def __init__(self, rows: CopyOnWriteStateMap, life: Lifetime | None) -> None:
        self._state = rows
        self._life = life

    def seen(self, keys: Sequence[Any]) -> list[Any]:
        state, life = self._state, self._life
        return state.owned_all(keys) if life is None else [seen_cell(state, key, life) for key in keys]

    def live(self, keys: Sequence[Any]) -> list[Any]:
        state, life = self._state, self._life
        return state.owned_all(keys) if life is None else [live_cell(state, key, life) for key in keys]

    def write(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        rows, conform = self._state.rows, self._state.conform
        values = [conform(value) for value in values]
        removed = [key for key, value in zip(keys, values, strict=True) if value is None]
        if self._life is None:
            rows.update(zip(keys, values, strict=True))
        else:
            expiry = self._life.expiry()
            rows.update(zip(keys, zip(values, repeat(expiry), strict=False), strict=True))
        for key in removed:
            del rows[key]


class _Turns:
    """One handle, used for one key after the other."""

    def __init__(self, descriptor: StateDescriptor, handle: Any, current: CurrentKey) -> None:
        self._descriptor = descriptor
        self._name = descriptor.name
        self._handle = handle
        self._current = current

    def clear(self, keys: Sequence[object]) -> None:
        for handle in self._turns(keys):
            handle.clear()

    def _turns(self, keys: Iterable[Any]) -> Iterator[Any]:
        """The handle, with each of `keys` as the current key; restores the current key at the end."""
        before = self._current.key
        try:
            for key in keys:
                self._current.key = key
                yield self._handle
        finally:
            self._current.key = before


class RowColumn(_Turns):
    """`port.state.ColumnState`, for a state that was first used row by row."""

    def get(self, keys: Sequence[object]) -> pa.Array:
        return pa.array([handle.value() for handle in self._turns(keys)], self._descriptor.type)

    def put(self, keys: Sequence[object], values: pa.Array) -> None:
        check_count(self._name, values, len(keys))
        given = python_values(self._name, conformed(self._name, values, self._descriptor.type))
        for handle, value in zip(self._turns(keys), given, strict=True):
            handle.update(value)


class HeapListColumn(_Turns):
    """A `port.state.ListColumnState` over rows in memory."""

    def __init__(
        self,
        descriptor: StateDescriptor,
        handle: Any,
        current: CurrentKey,
        rows: CopyOnWriteStateMap,
        life: Lifetime | None,
    ) -> None:
        super().__init__(descriptor, handle, current)
        self._state = rows
        self._life = life

    def get(self, keys: Sequence[object]) -> pa.ListArray:
        return containers.lists_of(self._descriptor, [handle.get() for handle in self._turns(keys)])

    def add(self, keys: Sequence[object], values: pa.Array, places: Places | None = None) -> None:
        values = conformed(self._name, values, self._descriptor.type)
        given = by_key(self._name, keys, values, places)
        if self._life is not None:
            given = replace(given, values=list(zip(given.values, repeat(self._life.expiry()), strict=False)))
        rows, owned = self._state.rows, self._state.owned_all(given.keys)
        for key, found, new in zip(given.keys, owned, given, strict=True):
            if found is None:
                rows[key] = new
            else:
                found.extend(new)

    def put(self, keys: Sequence[object], lists: pa.Array) -> None:
        values, places = containers.flattened(self._descriptor, keys, lists)
        self.clear(keys)
        self.add(keys, values, places)


class HeapMapColumn(_Turns):
    """A `port.state.MapColumnState` over rows in memory."""

    _descriptor: MapStateDescriptor

    def get(self, keys: Sequence[object], map_keys: pa.Array, places: Places | None = None) -> pa.Array:
        owners, wanted = containers.entry_keys(self._descriptor, keys, map_keys, places)
        turns = zip(self._turns(owners), wanted, strict=True)
        return array_of(self._name, [handle.get(key) for handle, key in turns], self._descriptor.type)

    def put(
        self, keys: Sequence[object], map_keys: pa.Array, values: pa.Array, places: Places | None = None
    ) -> None:
        containers.refuse_null(map_keys)
        owners, given = containers.entry_keys(self._descriptor, keys, map_keys, places)
        new = containers.entry_values(self._descriptor, values, len(given))
        for handle, key, value in zip(self._turns(owners), given, new, strict=True):
            handle.put(key, value)

    def remove(self, keys: Sequence[object], map_keys: pa.Array, places: Places | None = None) -> None:
        owners, removed = containers.entry_keys(self._descriptor, keys, map_keys, places)
        for handle, key in zip(self._turns(owners), removed, strict=True):
            handle.remove(key)

    def entries(self, keys: Sequence[object]) -> pa.RecordBatch:
        return containers.entries_of(self._descriptor, [list(handle.items()) for handle in self._turns(keys)])
