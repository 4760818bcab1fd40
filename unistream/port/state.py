"""Keyed state as operators see it. One suite holds every backend to it: tests/contract.

    restore ── StateTable / RestoredFiles of the key groups of this subtask
    open    ── state(descriptor): handles; there is no current key yet
    rows    ── keys_of(batch) ─► keys ── set_current(key) ─► handles          row by row
             └─ column(descriptor).get(keys) / .put(keys, values)             a batch at a time
    barrier ── snapshot() ─► KeyedSnapshot, read in the background, then released

Names and types are declared (`unistream.model.state`), so that a snapshot is a table that anyone can read.
What a handle is given takes the one form of its type at once (`unistream.model.state_values`), which is what
comes back then and after a restore, by whichever backend; what does not fit is a UserCodeError.

A key is what `keys_of` gives for a row: hashable, equal for equal keys, and otherwise the backend's own
affair (a number, a tuple, encoded bytes). The columns behind it come from `declare_keys`, from the first
batch given to `keys_of`, or from what was restored, whichever is first; from then on they are fixed.

Timers are not here: the operator keeps them by key, and hands them over in `OperatorSnapshot.timers`
(StateTable of kind TIMERS, read in the background); they come back in `OperatorState.keyed` by their name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

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
    """Stands for the current key where there is none: whoever looks it up, or encodes it, is told."""

    def __hash__(self) -> int:
        return self._refuse()

    def __add__(self, other: object) -> int:
        return self._refuse()

    def _refuse(self) -> int:
        raise RuntimeError(
            "there is no current key here (open(), a broadcast element); "
            "use state in process_element or on_timer"
        )


NO_KEY: Final = NoKey()


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


Places: TypeAlias = npt.NDArray[np.int64]
"""Row -> position in `keys`: whose a value is. None in its place: there is one value for each key."""


class AppendingColumnState(Protocol):
    """Reducing and aggregating state, many keys at a time. `keys`, here and below, are distinct."""

    def get(self, keys: Sequence[object], type: pa.DataType | None = None) -> pa.Array:
        """The reduced values, of their declared type or of `type`; or the aggregate's results, of `type` or
        of what they look like. Null where nothing was added."""

    def add(self, keys: Sequence[object], values: pa.Array, places: Places | None = None) -> None:
        """Adds the values of a key in their order; null adds nothing."""

    def merge(self, keys: Sequence[object], accumulators: pa.Array, places: Places | None = None) -> None:
        """Adds what was aggregated elsewhere, by the aggregate's `merge`; null adds nothing. For reducing
        state the same as `add`."""

    def clear(self, keys: Sequence[object]) -> None: ...


class ListColumnState(Protocol):
    """A list state, many keys at a time."""

    def get(self, keys: Sequence[object]) -> pa.ListArray:
        """A list per key, in the order in which its elements were added; an empty one, not null, if there are
        none."""

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
        """Sets entries; null removes one. An entry that comes twice keeps its last value.

        Raises:
            ValueError: a key of an entry is null.
        """

    def remove(self, keys: Sequence[object], map_keys: pa.Array, places: Places | None = None) -> None: ...

    def entries(self, keys: Sequence[object]) -> pa.RecordBatch:
        """All entries: GROUP_COLUMN (int64, position in `keys`, ascending), MAP_KEY_COLUMN, VALUE_COLUMN;
        those of one key in no order that is promised."""

    def clear(self, keys: Sequence[object]) -> None: ...


class KeyedStateBackend(Protocol):
    """Keyed state of one operator of one subtask. Used by the task's thread only, but for snapshots."""

    def declare_keys(self, schema: pa.Schema) -> None:
        """Names and types of the key columns, where they are known before the first batch. Again with the
        same ones: nothing happens. A dictionary counts as the type of its values.

        Raises:
            ConfigError: the key columns are others already (declared, seen or restored); or one has a name
                that a table of state has for a column of its own.
        """

    def keys_of(self, keys: pa.RecordBatch) -> Sequence[Any]:
        """One opaque, hashable key for each row; `keys` has just the key columns, in order.

        Raises:
            ConfigError: as `declare_keys`.
        """

    def values_of(self, key: Any) -> KeyTuple:
        """What `keys_of` was given for that key: one value per key column. By any thread."""

    def set_current(self, key: Any) -> None:
        """The key, from `keys_of`, that all state handles refer to from now on; `NO_KEY`: none, so that using
        a handle is a RuntimeError."""

    def state(self, descriptor: StateDescriptor) -> Any:
        """The handle of a state: ValueState, ListState, MapState or AppendingState by the descriptor's class.
        The same object for an equal descriptor. May be asked for when there is no current key yet; using
        the handle is then a RuntimeError.

        Raises:
            ConfigError: declared twice with different types; or what was stored under this name has a type
                that cannot be converted (a wider number and an added nullable field can).
        """

    def column(self, descriptor: StateDescriptor) -> Any:
        """The same state as `state(descriptor)`, a batch at a time: ColumnState, ListColumnState,
        MapColumnState or AppendingColumnState by the descriptor's class. Values that are not of the declared
        type, and would not be the same as one of it, are a UserCodeError.

        Raises:
            ConfigError: as `state`; or it is pickled.
        """

    def keys(self, name: str) -> Iterator[KeyTuple]:
        """Keys that have a live value of that state, as of now."""

    def snapshot(self, checkpoint_id: CheckpointId) -> KeyedSnapshot:
        """What there is now; later changes do not show in it. Takes little time, however much there is."""

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        """Takes over what was stored, of the key groups of this subtask, before the first `state`; several
        parts of one name are merged.

        Raises:
            ConfigError: this backend cannot read that kind of files; pickled state that is not allowed.
        """

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """That snapshot is durable: its files may be referred to by the next ones."""

    def close(self) -> None: ...
