"""Handles of the current key over the column families of a state: `port.state` row by row.

An expired value is removed when it is touched (or by `sweep`), by the rules of `state.hashmap.ttl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from unistream.model.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from unistream.port.state import CurrentKey
from unistream.state.common.containers import elements
from unistream.state.common.lifetime import Lifetime
from unistream.state.rocksdb.api import rows_from
from unistream.state.rocksdb.keys import GROUP_BYTES
from unistream.state.rocksdb.shards import Families
from unistream.state.rocksdb.values import NUMBER_BYTES, TIME_BYTES, StateLayout, expiry_of, stamped


def make_handle(
    descriptor: StateDescriptor,
    layout: StateLayout,
    families: Families,
    current: CurrentKey,
    *,
    life: Lifetime | None,
    numbers: Iterator[int],
) -> Any:
    """ValueState, ListState, MapState or AppendingState of `port.state`."""
    match descriptor:
        case ListStateDescriptor():
            return RocksDbListState(layout, families, current, life, numbers)
        case MapStateDescriptor():
            return RocksDbMapState(layout, families, current, life)
        case ReducingStateDescriptor():
            return RocksDbReducingState(layout, families, current, life, descriptor.reduce)
        case AggregatingStateDescriptor():
            return RocksDbAggregatingState(layout, families, current, life, descriptor.aggregate)
    return (RocksDbValueState if life is None else RocksDbTtlValueState)(layout, families, current, life)


class _Cells:
    """Reads and writes single cells, with or without a time to live.

    `fold`: the function of a reducing or aggregating state.
    """

    __slots__ = ("_current", "_dump", "_families", "_fold", "_life", "_load")

    def __init__(
        self,
        layout: StateLayout,
        families: Families,
        current: CurrentKey,
        life: Lifetime | None,
        fold: Any = None,
    ) -> None:
        self._families = families
        self._current = current
        self._life = life
        self._fold = fold
        self._dump = layout.dump
        self._load = layout.load

    def clear(self) -> None:
        self._delete(self._current.key)

    def _read(self, key: bytes) -> Any:
        """The value of a cell as a reader sees it, which may renew or remove it."""
        stored, life = self._families[key[:GROUP_BYTES]].get(key), self._life
        if stored is None:
            return None
        return self._load(stored) if life is None else self._seen(key, stored, life)

    def _seen(self, key: bytes, stored: bytes, life: Lifetime) -> Any:
        value = stored[TIME_BYTES:]
        if expiry_of(stored) <= life.now():
            self._delete(key)
            return self._load(value) if life.shows_expired else None
        if life.on_read:
            self._families[key[:GROUP_BYTES]][key] = stamped(life.expiry(), value)
        return self._load(value)

    def _live(self, key: bytes) -> Any:
        """The value of a cell as a writer sees it."""
        stored, life = self._families[key[:GROUP_BYTES]].get(key), self._life
        if stored is None or life is None:
            return None if stored is None else self._load(stored)
        return None if expiry_of(stored) <= life.now() else self._load(stored[TIME_BYTES:])

    def _write(self, key: bytes, value: Any) -> None:
        """Writes the value of a cell; None removes."""
        if value is None:
            self._delete(key)
        else:
            self._store(key, self._dump(value))

    def _store(self, key: bytes, stored: bytes) -> None:
        life = self._life
        cell = stored if life is None else stamped(life.expiry(), stored)
        self._families[key[:GROUP_BYTES]][key] = cell

    def _delete(self, key: bytes) -> None:
        del self._families[key[:GROUP_BYTES]][key]

    def _rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose keys begin with the current key, as of now."""
        prefix = self._current.key
        return rows_from(self._families[prefix[:GROUP_BYTES]], prefix)

    def _remove_rows(self) -> None:
        family = self._families[self._current.key[:GROUP_BYTES]]
        for key, _ in list(self._rows()):
            del family[key]


class RocksDbValueState(_Cells):
    """`port.state.ValueState` without a time to live."""

    __slots__ = ()

    def value(self) -> Any:
        key = self._current.key
        stored = self._families[key[:GROUP_BYTES]].get(key)
        return None if stored is None else self._load(stored)

    def update(self, value: Any) -> None:
        key = self._current.key
        if value is None:
            del self._families[key[:GROUP_BYTES]][key]
        else:
            self._families[key[:GROUP_BYTES]][key] = self._dump(value)


class RocksDbTtlValueState(_Cells):
    """A `port.state.ValueState` with a time to live."""

    __slots__ = ()

    def value(self) -> Any:
        return self._read(self._current.key)

    def update(self, value: Any) -> None:
        self._write(self._current.key, value)


class RocksDbReducingState(_Cells):
    """`port.state.AppendingState` of a reducing state."""

    __slots__ = ()

    def get(self) -> Any:
        return self._read(self._current.key)

    def add(self, value: Any) -> None:
        key = self._current.key
        found = self._live(key)
        self._write(key, value if found is None else self._fold(found, value))


class RocksDbAggregatingState(_Cells):
    """`port.state.AppendingState` of an aggregating state."""

    __slots__ = ()

    def get(self) -> Any:
        found = self._read(self._current.key)
        return None if found is None else self._fold.get_result(found)

    def add(self, value: Any) -> None:
        key = self._current.key
        found = self._live(key)
        self._write(key, self._fold.add(value, self._fold.create_accumulator() if found is None else found))


class RocksDbListState(_Cells):
    """`port.state.ListState`: a row per element, so that adding one rewrites nothing."""

    __slots__ = ("_numbers",)

    def __init__(
        self,
        layout: StateLayout,
        families: Families,
        current: CurrentKey,
        life: Lifetime | None,
        numbers: Iterator[int],
    ) -> None:
        super().__init__(layout, families, current, life)
        self._numbers = numbers

    def get(self) -> Sequence[Any]:
        found, life = self._rows(), self._life
        if life is None:
            return tuple([self._load(stored) for _, stored in found])
        seen = [self._seen(key, stored, life) for key, stored in list(found)]
        return tuple([value for value in seen if value is not None])

    def add(self, value: Any) -> None:
        if value is None:
            raise ValueError("a list has no element None")
        self._append(self._dump(value))

    def add_all(self, values: Iterable[Any]) -> None:
        for stored in [self._dump(value) for value in elements(values)]:
            self._append(stored)

    def update(self, values: Iterable[Any]) -> None:
        made = [self._dump(value) for value in elements(values)]
        self.clear()
        for stored in made:
            self._append(stored)

    def _append(self, stored: bytes) -> None:
        self._store(self._current.key + next(self._numbers).to_bytes(NUMBER_BYTES, "big"), stored)

    def clear(self) -> None:
        self._remove_rows()


class RocksDbMapState(_Cells):
    """`port.state.MapState`: a row per entry."""

    __slots__ = ("_dump_key", "_load_key")

    def __init__(
        self, layout: StateLayout, families: Families, current: CurrentKey, life: Lifetime | None
    ) -> None:
        super().__init__(layout, families, current, life)
        self._dump_key = layout.dump_key
        self._load_key = layout.load_key

    def get(self, key: Any) -> Any:
        return self._read(self._current.key + self._dump_key(key))

    def put(self, key: Any, value: Any) -> None:
        if value is None:
            self.remove(key)
        elif key is None:
            raise ValueError("a map has no key None")
        else:
            self._write(self._current.key + self._dump_key(key), value)

    def remove(self, key: Any) -> None:
        self._delete(self._current.key + self._dump_key(key))

    def contains(self, key: Any) -> bool:
        return self.get(key) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        life, size = self._life, len(self._current.key)
        if life is None:
            return iter([(self._load_key(key[size:]), self._load(stored)) for key, stored in self._rows()])
        seen = [(key, self._seen(key, stored, life)) for key, stored in list(self._rows())]
        return iter([(self._load_key(key[size:]), value) for key, value in seen if value is not None])

    def is_empty(self) -> bool:
        life, found = self._life, self._rows()
        if life is None:
            return next(found, None) is None
        now = life.now()
        return not any(expiry_of(stored) > now for _, stored in found)

    def clear(self) -> None:
        self._remove_rows()
