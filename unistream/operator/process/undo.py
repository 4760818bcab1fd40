"""Takes back what a call of a user's function has changed in state and timers, when the call fails.

Only for operators with `on_error`, whose functions get these forms of handles, lists and timers. Each notes
how to undo a change just before it; nothing is noted outside of a call (`Undo.active`), as in timers.

What a function keeps elsewhere, such as in attributes of its own, is not known here, and stays as it is. A
value whose change is undone has the time to live of a value that was just written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import ListMode
from unistream.model.state import OperatorListDescriptor, StateDescriptor
from unistream.operator.process.list_state import OperatorList
from unistream.operator.process.timer_table import KeyedTimers


class Undo:
    """The steps back of one call.

    Attributes:
        active: A call is running, so changes are noted.
    """

    def __init__(self) -> None:
        self.active = False
        self._steps: list[tuple[Callable[[Any], object], Any]] = []

    def begin(self) -> None:
        self.active = True

    def end(self) -> None:
        """The call has succeeded."""
        self.active = False
        if self._steps:
            self._steps.clear()

    def roll_back(self) -> None:
        """The call has failed; the current key is still its own."""
        self.active = False
        while self._steps:
            step, argument = self._steps.pop()
            step(argument)

    def note(self, step: Callable[[Any], object], argument: Any) -> None:
        """`step(argument)` undoes a change. (A closure for each change would take longer to make.)"""
        self._steps.append((step, argument))


def check_undoable(descriptor: StateDescriptor) -> None:
    """Raises ConfigError for aggregating state, of which only the result can be read."""
    if descriptor.kind not in _FORMS:
        raise ConfigError(
            f"state {descriptor.name!r} is aggregating state, which cannot be taken back when a row fails: "
            'use reducing or value state, or on_error="fail"'
        )


def undoable(handle: Any, descriptor: StateDescriptor, undo: Undo) -> Any:
    """The handle with undo. Raises ConfigError: see `check_undoable`."""
    check_undoable(descriptor)
    nested = bool(descriptor.options.pickled or pa.types.is_nested(descriptor.type))
    return _FORMS[descriptor.kind](handle, undo, deepcopy if nested else _same)


def _same(value: Any) -> Any:
    return value


class _Handle:
    """`copies`: values that a user may change in place are handed out as copies."""

    __slots__ = ("_copies", "_handle", "_undo")

    def __init__(self, handle: Any, undo: Undo, copies: Callable[[Any], Any]) -> None:
        self._handle = handle
        self._undo = undo
        self._copies = copies


class UndoableValue(_Handle):
    """A `port.state.ValueState` whose changes can be taken back."""

    __slots__ = ("value",)

    def __init__(self, handle: Any, undo: Undo, copies: Callable[[Any], Any]) -> None:
        super().__init__(handle, undo, copies)
        self.value = handle.value if copies is _same else lambda: copies(handle.value())

    def update(self, value: Any) -> None:
        handle = self._handle
        if self._undo.active:
            self._undo.note(handle.update, handle.value())
        handle.update(value)

    def clear(self) -> None:
        self.update(None)


class UndoableList(_Handle):
    """`port.state.ListState`. A change reads the list before."""

    __slots__ = ()

    def get(self) -> Sequence[Any]:
        found: Sequence[Any] = self._copies(self._handle.get())
        return found

    def add(self, value: Any) -> None:
        self._noted()
        self._handle.add(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._noted()
        self._handle.add_all(values)

    def update(self, values: Iterable[Any]) -> None:
        self._noted()
        self._handle.update(values)

    def clear(self) -> None:
        self._noted()
        self._handle.clear()

    def _noted(self) -> None:
        if self._undo.active:
            self._undo.note(self._handle.update, self._handle.get())


class UndoableMap(_Handle):
    """A `port.state.MapState` whose changes can be taken back."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        return self._copies(self._handle.get(key))

    def put(self, key: Any, value: Any) -> None:
        self._noted(key)
        self._handle.put(key, value)

    def remove(self, key: Any) -> None:
        self._noted(key)
        self._handle.remove(key)

    def contains(self, key: Any) -> bool:
        return bool(self._handle.contains(key))

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter([(key, self._copies(value)) for key, value in self._handle.items()])

    def is_empty(self) -> bool:
        return bool(self._handle.is_empty())

    def clear(self) -> None:
        if self._undo.active:
            self._undo.note(self._put_all, list(self._handle.items()))
        self._handle.clear()

    def _noted(self, key: Any) -> None:
        if self._undo.active and key is not None:
            self._undo.note(self._put_all, [(key, self._handle.get(key))])

    def _put_all(self, entries: list[tuple[Any, Any]]) -> None:
        for key, value in entries:
            self._handle.put(key, value)


class UndoableReducing(_Handle):
    """`port.state.AppendingState` of a reducing state, whose accumulator is its value."""

    __slots__ = ()

    def get(self) -> Any:
        return self._copies(self._handle.get())

    def add(self, value: Any) -> None:
        self._noted()
        self._handle.add(value)

    def clear(self) -> None:
        self._noted()
        self._handle.clear()

    def _noted(self) -> None:
        if self._undo.active:
            self._undo.note(self._put, self._copies(self._handle.get()))

    def _put(self, value: Any) -> None:
        self._handle.clear()
        if value is not None:
            self._handle.add(value)


_FORMS: dict[StateKind, type[_Handle]] = {
    StateKind.VALUE: UndoableValue,
    StateKind.LIST: UndoableList,
    StateKind.MAP: UndoableMap,
    StateKind.REDUCING: UndoableReducing,
}


class UndoableTimers(KeyedTimers):
    """Timers whose registration and deletion can be undone: until the next call of `earliest`, which there is
    none of inside of a call of a function."""

    def __init__(self, undo: Undo) -> None:
        super().__init__()
        self._undo = undo

    def register(self, timestamp: int, key: Any) -> None:
        if self._undo.active and (timestamp, key) not in self._live:
            self._undo.note(self._forget, (timestamp, key))
        super().register(timestamp, key)

    def delete(self, timestamp: int, key: Any) -> None:
        number = self._live.get((timestamp, key))
        if self._undo.active and number is not None:
            self._undo.note(self._live.update, {(timestamp, key): number})
        super().delete(timestamp, key)

    def _forget(self, timer: tuple[int, Any]) -> None:
        self._live.pop(timer, None)


class UndoableOperatorList(OperatorList):
    """A list of a function without keys."""

    def __init__(
        self,
        descriptor: OperatorListDescriptor,
        restored: Iterable[bytes],
        stored_mode: ListMode | None,
        *,
        undo: Undo,
    ) -> None:
        super().__init__(descriptor, restored, stored_mode)
        self._undo = undo

    def add(self, value: Any) -> None:
        self._note()
        super().add(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._note()
        super().add_all(values)

    def update(self, values: Iterable[Any]) -> None:
        self._note()
        super().update(values)

    def clear(self) -> None:
        self._note()
        super().clear()

    def _note(self) -> None:
        if self._undo.active:
            self._undo.note(self._go_back, (self._elements, len(self._elements)))

    def _go_back(self, former: tuple[list[Any], int]) -> None:
        """A list only grows in place; otherwise another one takes its place."""
        elements, size = former
        del elements[size:]
        self._elements = elements
