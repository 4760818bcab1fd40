"""State in a dict by key, and the handles of the current key over it.

    CopyOnWriteStateMap.rows       key -> value, list, dict or accumulator; changed by the task's thread alone
    CopyOnWriteStateMap.freeze()   a shallow copy of the dict, for a snapshot to read in the background

Until a frozen copy is released, both share their values. So a container (a list, a map's dict, a value of a
nested type) is copied before its first change: afterwards the live dict holds another object than the frozen
one. A number or a text needs none of this.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from unistream.model.columns.state_leaves import Conform
from unistream.port.state import CurrentKey
from unistream.state.common.containers import elements


class CopyOnWriteStateMap:
    """One state's rows by key, and the copies that snapshots still read (Flink's class of that name).

    Args:
        copies: Copies a value, deeply enough for what is changed in place.
        conform: Brings a value into its form (`model.state_values`).
        conform_key: The same for a map's keys; None: it is not a map.
        nested: A value can be changed in place by a user.
    """

    __slots__ = ("_copies", "_frozen", "_tokens", "conform", "conform_key", "nested", "rows")

    def __init__(
        self, copies: Callable[[Any], Any], conform: Conform, conform_key: Conform | None, *, nested: bool
    ) -> None:
        self.rows: dict[Any, Any] = {}
        self.conform = conform
        self.conform_key = conform_key or conform
        self.nested = nested
        self._copies = copies
        self._frozen: dict[int, dict[Any, Any]] = {}
        self._tokens = itertools.count()

    def freeze(self) -> tuple[int, dict[Any, Any]]:
        """The current rows, and a token for `thaw` when they were read."""
        token, frozen = next(self._tokens), self.rows.copy()
        self._frozen[token] = frozen
        return token, frozen

    def thaw(self, token: int) -> None:
        """Drops a copy that is no longer read; called by any thread. Twice is fine."""
        self._frozen.pop(token, None)

    def owned(self, key: Any) -> Any:
        """The value of `key`, or None; it may be changed in place."""
        found = self.rows.get(key)
        if found is None or not self._frozen:
            return found
        if any(frozen.get(key) is found for frozen in list(self._frozen.values())):
            found = self.rows[key] = self._copies(found)
        return found

    def extend(self, key: Any, added: list[Any]) -> None:
        """Adds elements to the list of `key`, which exists if it has any; `added` may become it."""
        found = self.owned(key)
        if found is not None:
            found.extend(added)
        elif added:
            self.rows[key] = added

    def owned_all(self, keys: Sequence[Any]) -> list[Any]:
        """The values of many keys."""
        if self._frozen:
            return [self.owned(key) for key in keys]
        get = self.rows.get
        return [get(key) for key in keys]


class HeapState:
    """The base of all handles. `fold`: the function of a reducing or aggregating state."""

    __slots__ = ("_conform", "_current", "_fold", "_nested", "_rows", "_state")

    def __init__(self, state: CopyOnWriteStateMap, current: CurrentKey, fold: Any = None) -> None:
        self._fold = fold
        self._nested = state.nested
        self._state = state
        self._rows = state.rows
        self._conform = state.conform
        self._current = current

    def clear(self) -> None:
        self._rows.pop(self._current.key, None)


class HeapValueState(HeapState):
    """`port.state.ValueState` of values that cannot be changed in place."""

    __slots__ = ()

    def value(self) -> Any:
        return self._rows.get(self._current.key)

    def update(self, value: Any) -> None:
        if value is None:
            self._rows.pop(self._current.key, None)
        else:
            self._rows[self._current.key] = self._conform(value)


class HeapNestedValueState(HeapValueState):
    """`port.state.ValueState` of values that a user may change in place before `update`."""

    __slots__ = ()

    def value(self) -> Any:
        return self._state.owned(self._current.key)


class HeapListState(HeapState):
    """A `port.state.ListState` over rows in memory."""

    __slots__ = ()

    def get(self) -> Sequence[Any]:
        key = self._current.key
        found = self._state.owned(key) if self._nested else self._rows.get(key)
        return () if found is None else tuple(found)

    def add(self, value: Any) -> None:
        if value is None:
            raise ValueError("a list has no element None")
        given, key = self._conform(value), self._current.key
        found = self._state.owned(key)
        if found is None:
            self._rows[key] = [given]
        else:
            found.append(given)

    def add_all(self, values: Iterable[Any]) -> None:
        self._state.extend(self._current.key, conformed(self._conform, values))

    def update(self, values: Iterable[Any]) -> None:
        replaced = conformed(self._conform, values)
        if replaced:
            self._rows[self._current.key] = replaced
        else:
            self.clear()


def conformed(conform: Conform, values: Iterable[Any]) -> list[Any]:
    return [conform(value) for value in elements(values)]


class HeapMapState(HeapState):
    """A `port.state.MapState` over rows in memory."""

    __slots__ = ("_conform_key",)

    def __init__(self, state: CopyOnWriteStateMap, current: CurrentKey, fold: Any = None) -> None:
        super().__init__(state, current, fold)
        self._conform_key = state.conform_key

    def _read(self) -> Any:
        key = self._current.key
        return self._state.owned(key) if self._nested else self._rows.get(key)

    def get(self, key: Any) -> Any:
        given, found = self._conform_key(key), self._read()
        return None if found is None else found.get(given)

    def put(self, key: Any, value: Any) -> None:
        if value is None:
            self.remove(key)
            return
        if key is None:
            raise ValueError("a map has no key None")
        own, given = self._conform_key(key), self._conform(value)
        found = self._state.owned(self._current.key)
        if found is None:
            self._rows[self._current.key] = {own: given}
        else:
            found[own] = given

    def remove(self, key: Any) -> None:
        given, found = self._conform_key(key), self._state.owned(self._current.key)
        if found is not None:
            found.pop(given, None)
            if not found:
                del self._rows[self._current.key]

    def contains(self, key: Any) -> bool:
        given, found = self._conform_key(key), self._rows.get(self._current.key)
        return found is not None and given in found

    def items(self) -> Iterator[tuple[Any, Any]]:
        found = self._read()
        return iter(()) if found is None else iter(list(found.items()))

    def is_empty(self) -> bool:
        return self._current.key not in self._rows


class HeapReducingState(HeapState):
    """`port.state.AppendingState` of a reducing state."""

    __slots__ = ()

    def get(self) -> Any:
        return self._state.owned(self._current.key)

    def add(self, value: Any) -> None:
        key = self._current.key
        found = self._state.owned(key)
        made = value if found is None else self._fold(found, value)
        if made is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = self._conform(made)


class HeapAggregatingState(HeapState):
    """`port.state.AppendingState` of an aggregating state."""

    __slots__ = ()

    def get(self) -> Any:
        found = self._state.owned(self._current.key)
        return None if found is None else self._fold.get_result(found)

    def add(self, value: Any) -> None:
        key = self._current.key
        found = self._state.owned(key)
        if found is None:
            found = self._fold.create_accumulator()
        made = self._fold.add(value, found)
        if made is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = self._conform(made)
