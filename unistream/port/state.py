"""Keyed state as operators see it. One suite holds every backend to it: tests/contract.

    restore ── StateTable / RestoredFiles of the key groups of this subtask
    open    ── state(descriptor): handles; there is no current key yet
    rows    ── keys_of(batch) ─► keys ── set_current(key) ─► handles          row by row
             └─ column(descriptor).get(keys) / .put(keys, values)             a batch at a time
    barrier ── snapshot() ─► KeyedSnapshot, read in the background, then released

Names and types are declared (`unistream.model.state`), so that any tool can read a snapshot's tables. A
handle brings each value into the one form of its type (`unistream.model.columns.state_values`), in which
every backend returns it, also after a restore; a value that does not fit is a UserCodeError.

A key is the result of `keys_of` for a row: hashable, equal for equal keys, and otherwise internal to the
backend (a number, a tuple, encoded bytes). Its columns are fixed by `declare_keys`, by the first batch given
to `keys_of`, or by restored state, whichever is first.

Timers are not here: the operator keeps them by key, and passes them in `OperatorSnapshot.timers` (StateTable
of kind TIMERS, read in the background); they are restored in `OperatorState.keyed` by their name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.keyed_snapshot import KeyedSnapshot, RestoredFiles, StateTable
from unistream.model.state import StateDescriptor

KeyTuple = tuple[object, ...]
"""One Python value per key column, in the order of the key."""

GROUP_COLUMN: Final = "group"


class NoKey:
    """The current key where there is none: looking it up, or encoding it, is an error."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError(
            "there is no current key here (open(), a broadcast element); "
            "use state in process_element or on_timer"
        )

    __hash__ = __add__ = __len__ = __getitem__ = _refuse


NO_KEY: Final = NoKey()


class CurrentKey:
    """The key, as `keys_of` returned it, that all handles of a backend refer to."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Any = NO_KEY


class ValueState(Protocol):
    """One value of the current key."""

    def value(self) -> Any:
        """The value, or None."""

    def update(self, value: Any) -> None:
        """Sets it; None removes it."""

    def clear(self) -> None: ...


class ListState(Protocol):
    """A list of the current key. The result of `get` does not change later; the caller must not change it."""

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
        """The items as of now, in no defined order: the map may change meanwhile."""

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
        """Sets the values; null removes. A key that occurs twice keeps its last value."""


Places: TypeAlias = npt.NDArray[np.int64]
"""Row -> position of its key in `keys`. None instead: there is one value for each key."""


class AppendingColumnState(Protocol):
    """Reducing and aggregating state, many keys at a time. `keys`, here and below, are distinct."""

    def get(self, keys: Sequence[object], type: pa.DataType | None = None) -> pa.Array:
        """The reduced values, of their declared type or of `type`; or the aggregate's results, of `type` or
        of an inferred type. Null where nothing was added."""

    def add(self, keys: Sequence[object], values: pa.Array, places: Places | None = None) -> None:
        """Adds the values of a key in their order; null adds nothing."""

    def merge(self, keys: Sequence[object], accumulators: pa.Array, places: Places | None = None) -> None:
        """Adds accumulators by the aggregate's `merge`; null adds nothing. For reducing state the same as
        `add`."""

    def clear(self, keys: Sequence[object]) -> None: ...


class ListColumnState(Protocol):
    """A list state, many keys at a time."""

    def get(self, keys: Sequence[object]) -> pa.ListArray:
        """A list per key, in the order in which its elements were added; empty, not null, if it has none."""

    def add(self, keys: Sequence[object], values: pa.Array, places: Places | None = None) -> None:
        """Appends the values of a key in their order; null appends nothing."""

    def put(self, keys: Sequence[object], lists: pa.Array) -> None:
        """Replaces the lists; null and empty ones remove, and null elements are left out."""

    def clear(self, keys: Sequence[object]) -> None: ...


class MapColumnState(Protocol):
    """A map state, many keys at a time."""

    def get(self, keys: Sequence[object], map_keys: pa.Array, places: Places | None = None) -> pa.Array:
        """One value for each of `map_keys`; null where there is none, and under null."""

    def put(
        self, keys: Sequence[object], map_keys: pa.Array, values: pa.Array, places: Places | None = None
    ) -> None:
        """Sets entries; null removes one. An entry that occurs twice keeps its last value.

        Raises:
            ValueError: a key of an entry is null.
        """

    def remove(self, keys: Sequence[object], map_keys: pa.Array, places: Places | None = None) -> None: ...

    def entries(self, keys: Sequence[object]) -> pa.RecordBatch:
        """All entries: GROUP_COLUMN (int64, position in `keys`, ascending), MAP_KEY_COLUMN, VALUE_COLUMN;
        those of one key in no defined order."""

    def clear(self, keys: Sequence[object]) -> None: ...


@runtime_checkable
class ForgetsKeys(Protocol):
    """A backend that holds a few keys of a bounded job at a time."""

    def forget_keys(self) -> None:
        """Removes the values of all keys, in all states. Handles stay as they are."""


class KeyedStateBackend(Protocol):
    """Keyed state of one operator of one subtask. Used by the task's thread only, except for snapshots."""

    def declare_keys(self, schema: pa.Schema) -> None:
        """Names and types of the key columns, if known before the first batch. May be repeated with the same
        columns. A dictionary counts as the type of its values.

        Raises:
            ConfigError: other key columns were declared, seen or restored; or a name is reserved.
        """

    def keys_of(self, keys: pa.RecordBatch) -> Sequence[Any]:
        """One opaque, hashable key for each row; `keys` has only the key columns, in order.

        Raises:
            ConfigError: as `declare_keys`.
        """

    def values_of(self, key: Any) -> KeyTuple:
        """The values of that key: one per key column. By any thread."""

    def set_current(self, key: Any) -> None:
        """The key, from `keys_of`, that all state handles refer to from now on; with `NO_KEY` using a handle
        is a RuntimeError."""

    def state(self, descriptor: StateDescriptor) -> Any:
        """The handle of a state: ValueState, ListState, MapState or AppendingState by the descriptor's class.
        The same object for an equal descriptor. Without a current key the handle can be made, but using it is
        a RuntimeError.

        Raises:
            ConfigError: declared twice with different types; or the stored state of this name has a type that
                cannot be converted (a wider number and an added nullable field can).
        """

    def column(self, descriptor: StateDescriptor) -> Any:
        """The same state as `state(descriptor)`, a batch at a time: ColumnState, ListColumnState,
        MapColumnState or AppendingColumnState by the descriptor's class. Values that do not fit the declared
        type without a change are a UserCodeError.

        Raises:
            ConfigError: as `state`; or it is pickled.
        """

    def keys(self, name: str) -> Iterator[KeyTuple]:
        """Keys that have a live value of that state, as of now."""

    def snapshot(self, checkpoint_id: CheckpointId) -> KeyedSnapshot:
        """The current state, without later changes. Takes little time, whatever its size."""

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        """Takes over stored state of the key groups of this subtask, before the first `state`; several parts
        of one name are merged.

        Raises:
            ConfigError: this backend cannot read that kind of files; pickled state that is not allowed.
        """

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """That snapshot is durable: its files may be referred to by the next ones."""

    def close(self) -> None: ...
