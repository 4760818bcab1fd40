"""Keyed state as operators see it. One suite holds every backend to it: tests/contract.

    operator ── keys_of(batch) ─► keys ── set_current(key) ─► state handles          row by row
             └─ column(descriptor).get(keys) / .put(keys, values)                    a batch at a time
    barrier ── snapshot() ─► KeyedSnapshot, read in the background, then released
    restore ── RestoredTable / RestoredFiles of the key groups of this subtask

Names and types are declared (`unistream.model.state`), so that a snapshot is a table that anyone can read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.keyed_snapshot import KeyedSnapshot, RestoredFiles, StateTable
from unistream.model.state import StateDescriptor

KeyTuple = tuple[object, ...]
"""One Python value per key column, in the order of the key."""


class ValueState(Protocol):
    """One value of the current key."""

    def value(self) -> Any:
        """The value, or None."""

    def update(self, value: Any) -> None:
        """Sets it; None removes it."""

    def clear(self) -> None: ...


class ListState(Protocol):
    """A list of the current key. What `get` returns is not changed by later calls, nor by the caller."""

    def get(self) -> Sequence[Any]:
        """The elements in the order in which they were added; empty if there are none."""

    def add(self, value: Any) -> None: ...

    def add_all(self, values: Iterable[Any]) -> None: ...

    def update(self, values: Iterable[Any]) -> None:
        """Replaces all elements."""

    def clear(self) -> None: ...


class MapState(Protocol):
    """A map of the current key."""

    def get(self, key: Any) -> Any:
        """The value under `key`, or None."""

    def put(self, key: Any, value: Any) -> None:
        """None removes the entry."""

    def remove(self, key: Any) -> None: ...

    def contains(self, key: Any) -> bool: ...

    def items(self) -> Iterator[tuple[Any, Any]]:
        """As of now, in no order that is promised: the map may be changed meanwhile."""

    def is_empty(self) -> bool: ...

    def clear(self) -> None: ...


class AppendingState(Protocol):
    """Reducing and aggregating state of the current key."""

    def get(self) -> Any:
        """The reduced value, or the aggregate's result; None if nothing was added."""

    def add(self, value: Any) -> None: ...

    def clear(self) -> None: ...


class ColumnState(Protocol):
    """A value state, many keys at a time."""

    def get(self, keys: Sequence[object]) -> pa.Array:
        """One value per key, null where there is none. `keys` come from `keys_of`."""

    def put(self, keys: Sequence[object], values: pa.Array) -> None:
        """Sets the values; null removes. A key that comes twice keeps its last value."""


class KeyedStateBackend(Protocol):
    """Keyed state of one operator of one subtask. Used by the task's thread only, but for snapshots."""

    def keys_of(self, keys: pa.RecordBatch) -> Sequence[Any]:
        """One opaque, hashable key for each row; `keys` has just the key columns, in order."""

    def set_current(self, key: Any) -> None:
        """The key, from `keys_of`, that all state handles refer to from now on."""

    def state(self, descriptor: StateDescriptor) -> Any:
        """The handle of a state: ValueState, ListState, MapState or AppendingState by the descriptor's class.
        The same object for an equal descriptor.

        Raises:
            ConfigError: declared twice with different types; or what was stored under this name has a type
                that cannot be converted (a wider number and an added nullable field can).
        """

    def column(self, descriptor: StateDescriptor) -> ColumnState:
        """The same state as `state(descriptor)` of a value, a batch at a time."""

    def keys(self, name: str) -> Iterator[KeyTuple]:
        """Keys that have a live value of that state, as of now."""

    def snapshot(self, checkpoint_id: CheckpointId) -> KeyedSnapshot:
        """What there is now; later changes do not show in it. Takes little time, however much there is."""

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        """Takes over what was stored, of the key groups of this subtask, before the first `state`."""

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """That snapshot is durable: its files may be referred to by the next ones."""

    def close(self) -> None: ...


class StateBackend(Protocol):
    """The former port, until its last user is gone."""

    def value_state(self, name: str, key_schema: pa.Schema, value_type: pa.DataType) -> Any: ...

    def snapshot(self) -> dict[str, pa.Table]: ...

    def restore(self, tables: dict[str, list[pa.Table]]) -> None: ...

    def close(self) -> None: ...
