"""Handles of the current key over the column families of a state: `port.state` row by row.

What has expired is removed when it is touched (or by `rocksdb_sweep`), as in `unistream.state.hashmap.ttl`,
whose rules are these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from unistream.model.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from unistream.state.common import Lifetime, elements
from unistream.state.rocksdb.api import rows_from
from unistream.state.rocksdb.keys import GROUP_BYTES
from unistream.state.rocksdb.shards import Families
from unistream.state.rocksdb.values import NUMBER_BYTES, TIME_BYTES, Layout, expiry_of, stamped


class _NoKey:
    """Stands for the current key where there is none: whoever looks it up is told."""

    def __get__(self, holder: object, owner: type) -> Any:
        raise RuntimeError("there is no current key in open(); use state in process_element or on_timer")


class CurrentBytes:
    """The encoded key that all handles of a backend refer to."""

    key: Any = _NoKey()  # an attribute of the object hides it from the first key on


def make_handle(
    descriptor: StateDescriptor,
    layout: Layout,
    families: Families,
    current: CurrentBytes,
    *,
    life: Lifetime | None,
    numbers: Iterator[int],
) -> Any:
    """The handle that `port.state` promises for a descriptor."""
    if isinstance(descriptor, ListStateDescriptor):
        return ListHandle(layout, families, current, life, numbers)
    if isinstance(descriptor, MapStateDescriptor):
        return MapHandle(layout, families, current, life)
    if isinstance(descriptor, ReducingStateDescriptor):
        return ReducingHandle(layout, families, current, life, descriptor.reduce)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return AggregatingHandle(layout, families, current, life, descriptor.aggregate)
    return (
        ValueHandle(layout, families, current)
        if life is None
        else TtlValueHandle(layout, families, current, life)
    )


class ValueHandle:
    """`port.state.ValueState` without a time to live."""

    __slots__ = ("_current", "_dump", "_families", "_load")

    def __init__(self, layout: Layout, families: Families, current: CurrentBytes) -> None:
        self._families = families
        self._current = current
        self._dump = layout.dump
        self._load = layout.load

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

    def clear(self) -> None:
        key = self._current.key
        del self._families[key[:GROUP_BYTES]][key]


class _Cells:
    """Reading and writing single cells, with or without a time to live."""

    __slots__ = ("_current", "_dump", "_families", "_life", "_load")

    def __init__(
        self, layout: Layout, families: Families, current: CurrentBytes, life: Lifetime | None
    ) -> None:
        self._families = families
        self._current = current
        self._life = life
        self._dump = layout.dump
        self._load = layout.load

    def _read(self, key: bytes) -> Any:
        """As a reader sees it, which may make it live longer or remove it."""
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
        """As a writer sees it."""
        stored, life = self._families[key[:GROUP_BYTES]].get(key), self._life
        if stored is None or life is None:
            return None if stored is None else self._load(stored)
        return None if expiry_of(stored) <= life.now() else self._load(stored[TIME_BYTES:])

    def _write(self, key: bytes, value: Any) -> None:
        """None removes."""
        if value is None:
            self._delete(key)
        else:
            self._store(key, self._dump(value))

    def _store(self, key: bytes, stored: bytes) -> None:
        self._families[key[:GROUP_BYTES]][key] = (
            stored if self._life is None else stamped(self._life.expiry(), stored)
        )

    def _delete(self, key: bytes) -> None:
        del self._families[key[:GROUP_BYTES]][key]

    def _rows(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose keys begin with a whole key of the operator."""
        return rows_from(self._families[prefix[:GROUP_BYTES]], prefix)

    def _remove_all(self, prefix: bytes) -> None:
        family = self._families[prefix[:GROUP_BYTES]]
        for key, _ in list(rows_from(family, prefix)):
            del family[key]


class TtlValueHandle(_Cells):
    """`port.state.ValueState`."""

    __slots__ = ()

    def value(self) -> Any:
        return self._read(self._current.key)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._write(self._current.key, value)

    def clear(self) -> None:
        self._delete(self._current.key)


class ReducingHandle(_Cells):
    """`port.state.AppendingState` of a reducing state."""

    __slots__ = ("_reduce",)

    def __init__(
        self,
        layout: Layout,
        families: Families,
        current: CurrentBytes,
        life: Lifetime | None,
        reduce: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(layout, families, current, life)
        self._reduce = reduce

    def get(self) -> Any:
        return self._read(self._current.key)

    def add(self, value: Any) -> None:
        key = self._current.key
        found = self._live(key)
        self._write(key, value if found is None else self._reduce(found, value))

    def clear(self) -> None:
        self._delete(self._current.key)


class AggregatingHandle(_Cells):
    """`port.state.AppendingState` of an aggregating state."""

    __slots__ = ("_aggregate",)

    def __init__(
        self,
        layout: Layout,
        families: Families,
        current: CurrentBytes,
        life: Lifetime | None,
        aggregate: AggregateFunction,
    ) -> None:
        super().__init__(layout, families, current, life)
        self._aggregate = aggregate

    def get(self) -> Any:
        found = self._read(self._current.key)
        return None if found is None else self._aggregate.get_result(found)

    def add(self, value: Any) -> None:
        key = self._current.key
        found = self._live(key)
        if found is None:
            found = self._aggregate.create_accumulator()
        self._write(key, self._aggregate.add(value, found))

    def clear(self) -> None:
        self._delete(self._current.key)


class ListHandle(_Cells):
    """`port.state.ListState`: a row per element, so that adding one rewrites nothing."""

    __slots__ = ("_numbers",)

    def __init__(
        self,
        layout: Layout,
        families: Families,
        current: CurrentBytes,
        life: Lifetime | None,
        numbers: Iterator[int],
    ) -> None:
        super().__init__(layout, families, current, life)
        self._numbers = numbers

    def get(self) -> Sequence[Any]:
        found = self._rows(self._current.key)
        life = self._life
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
        self._remove_all(self._current.key)


class MapHandle(_Cells):
    """`port.state.MapState`: a row per entry."""

    __slots__ = ("_dump_key", "_load_key")

    def __init__(
        self, layout: Layout, families: Families, current: CurrentBytes, life: Lifetime | None
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
        life, prefix = self._life, self._current.key
        size = len(prefix)
        found = self._rows(prefix)  # sees what there is when it begins
        if life is None:
            return iter([(self._load_key(key[size:]), self._load(stored)) for key, stored in found])
        seen = [(key, self._seen(key, stored, life)) for key, stored in list(found)]
        return iter([(self._load_key(key[size:]), value) for key, value in seen if value is not None])

    def is_empty(self) -> bool:
        life = self._life
        found = self._rows(self._current.key)
        if life is None:
            return next(found, None) is None
        now = life.now()
        return not any(expiry_of(stored) > now for _, stored in found)

    def clear(self) -> None:
        self._remove_all(self._current.key)
