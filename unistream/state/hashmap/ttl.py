"""Handles of states with a time to live: each value is stored as a pair (value, when it expires in ms).

An expired value is removed when it is touched, or by `sweep`; `RETURN_IF_NOT_CLEANED_UP` returns it that one
time. It expires at the last write (or read, if reads count) + the time to live, that moment included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from unistream.port.state import CurrentKey
from unistream.state.common.lifetime import Lifetime
from unistream.state.hashmap.rows import CopyOnWriteStateMap, HeapState, conformed

Cell = tuple[Any, int]


def seen_cell(state: CopyOnWriteStateMap, key: Any, life: Lifetime) -> Any:
    """The value of a key as a reader sees it, or None; renews or removes it."""
    cell: Cell | None = state.owned(key)
    if cell is None:
        return None
    if cell[1] <= life.now():
        del state.rows[key]
        return cell[0] if life.shows_expired else None
    if life.on_read:
        state.rows[key] = (cell[0], life.expiry())
    return cell[0]


def live_cell(state: CopyOnWriteStateMap, key: Any, life: Lifetime) -> Any:
    """The value of a key as a writer sees it, or None."""
    cell: Cell | None = state.owned(key)
    return None if cell is None or cell[1] <= life.now() else cell[0]


class HeapTtlState(HeapState):
    """The base of handles with a time to live."""

    __slots__ = ("_life",)

    def __init__(
        self, state: CopyOnWriteStateMap, current: CurrentKey, life: Lifetime, fold: Any = None
    ) -> None:
        super().__init__(state, current, fold)
        self._life = life

    def _put(self, value: Any) -> None:
        """Sets the value of the current key, which lives from now; None removes."""
        if value is None:
            self.clear()
        else:
            self._rows[self._current.key] = (self._conform(value), self._life.expiry())


class HeapTtlValueState(HeapTtlState):
    """A `port.state.ValueState` whose value expires."""

    __slots__ = ()

    def value(self) -> Any:
        return seen_cell(self._state, self._current.key, self._life)

    def update(self, value: Any) -> None:
        self._put(value)


class HeapTtlReducingState(HeapTtlState):
    """`port.state.AppendingState` of a reducing state."""

    __slots__ = ()

    def get(self) -> Any:
        return seen_cell(self._state, self._current.key, self._life)

    def add(self, value: Any) -> None:
        found = live_cell(self._state, self._current.key, self._life)
        self._put(value if found is None else self._fold(found, value))


class HeapTtlAggregatingState(HeapTtlState):
    """`port.state.AppendingState` of an aggregating state."""

    __slots__ = ()

    def get(self) -> Any:
        found = seen_cell(self._state, self._current.key, self._life)
        return None if found is None else self._fold.get_result(found)

    def add(self, value: Any) -> None:
        found = live_cell(self._state, self._current.key, self._life)
        self._put(self._fold.add(value, self._fold.create_accumulator() if found is None else found))


class HeapTtlListState(HeapTtlState):
    """`port.state.ListState`; each element expires by itself."""

    __slots__ = ()

    def get(self) -> Sequence[Any]:
        key, life = self._current.key, self._life
        cells: list[Cell] | None = self._state.owned(key)
        if cells is None:
            return ()
        now = life.now()
        live = [cell for cell in cells if cell[1] > now]
        if not live:
            del self._rows[key]
        elif life.on_read:
            expiry = life.expiry()
            self._rows[key] = [(value, expiry) for value, _ in live]
        elif len(live) < len(cells):
            self._rows[key] = live
        return tuple(value for value, _ in (cells if life.shows_expired else live))

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        expiry = self._life.expiry()
        cells = [(value, expiry) for value in conformed(self._conform, values)]
        self._state.extend(self._current.key, cells)

    def update(self, values: Iterable[Any]) -> None:
        replaced = conformed(self._conform, values)
        self.clear()
        self.add_all(replaced)


class HeapTtlMapState(HeapTtlState):
    """`port.state.MapState`; each entry expires by itself."""

    __slots__ = ("_conform_key",)

    def __init__(
        self, state: CopyOnWriteStateMap, current: CurrentKey, life: Lifetime, fold: Any = None
    ) -> None:
        super().__init__(state, current, life, fold)
        self._conform_key = state.conform_key

    def get(self, key: Any) -> Any:
        key = self._conform_key(key)
        found: dict[Any, Cell] | None = self._state.owned(self._current.key)
        cell = None if found is None else found.get(key)
        if found is None or cell is None:
            return None
        if cell[1] <= self._life.now():
            self._drop(found, [key])
            return cell[0] if self._life.shows_expired else None
        if self._life.on_read:
            found[key] = (cell[0], self._life.expiry())
        return cell[0]

    def put(self, key: Any, value: Any) -> None:
        if value is None:
            self.remove(key)
            return
        if key is None:
            raise ValueError("a map has no key None")
        key = self._conform_key(key)
        found = self._state.owned(self._current.key)
        cell = (self._conform(value), self._life.expiry())
        if found is None:
            self._rows[self._current.key] = {key: cell}
        else:
            found[key] = cell

    def remove(self, key: Any) -> None:
        given, found = self._conform_key(key), self._state.owned(self._current.key)
        if found is not None:
            self._drop(found, [given])

    def contains(self, key: Any) -> bool:
        return self.get(key) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        found: dict[Any, Cell] | None = self._state.owned(self._current.key)
        if found is None:
            return iter(())
        now = self._life.now()
        seen = [(key, cell[0]) for key, cell in found.items() if cell[1] > now or self._life.shows_expired]
        expired = [key for key, cell in found.items() if cell[1] <= now]
        if self._life.on_read:
            expiry = self._life.expiry()
            found.update({key: (cell[0], expiry) for key, cell in found.items() if cell[1] > now})
        self._drop(found, expired)
        return iter(seen)

    def is_empty(self) -> bool:
        found: dict[Any, Cell] | None = self._rows.get(self._current.key)
        if found is None:
            return True
        now = self._life.now()
        return not any(expires > now for _, expires in found.values())

    def _drop(self, found: dict[Any, Cell], keys: Iterable[Any]) -> None:
        for key in keys:
            found.pop(key, None)
        if not found:
            self._rows.pop(self._current.key, None)
