"""Keyed state in memory: a dict by key for each state, or columns where a function works on batches.

    state(descriptor)    first ─► CopyOnWriteStateMap (a dict), with a handle of the current key
    column(descriptor)   first ─► Column (an array, by slot of the key), or a CopyOnWriteStateMap (of lists,
                                  maps, aggregates)
    the other one afterwards   ─► the same storage through an adapter
    snapshot()                 ─► shallow copies, made at once; their tables are made in the background
    keys_of, notify_complete   ─► remove some of the rows that snapshots found expired (`sweep`)

Restored state stays in stored tables until it is requested, and is part of every snapshot as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.keyed_snapshot import FileSet, RestoredFiles, StateKind, StateTable
from unistream.model.state import StateDescriptor, check_declarations
from unistream.port.state import CurrentKey, KeyTuple
from unistream.state.common import pickled
from unistream.state.common.columns import COMPACT_SLOTS_MIN, Column, check_column
from unistream.state.common.groups import groups_in, in_group_order, of_groups, without_groups
from unistream.state.common.key_codec import KeyCodec
from unistream.state.common.lifetime import lifetime_of
from unistream.state.common.migration import check_fits, key_schema_of
from unistream.state.common.slot_index import SlotIndex, SlotKeys
from unistream.state.hashmap.columns import is_in_slots, make_column, make_slot_handle
from unistream.state.hashmap.handles import make_handle, make_rows
from unistream.state.hashmap.rows import CopyOnWriteStateMap
from unistream.state.hashmap.sweep import RowSweep, expired_keys, live_batch
from unistream.state.hashmap.tables import FrozenColumn, FrozenRows, load_column, load_rows


@dataclass(slots=True)
class _RegisteredState:
    """A requested state. `store`: its values; `sweep`: for rows with a time to live."""

    descriptor: StateDescriptor
    store: CopyOnWriteStateMap | Column
    handle: Any
    column: Any = None
    sweep: RowSweep | None = None


class HashMapStateBackend:
    """`port.state.KeyedStateBackend`: everything in memory, every snapshot complete.

    Args:
        key_groups: (first, last) of this subtask; other rows are skipped on restore.
        max_parallelism: Number of key groups of the operator.
        clock: For times to live.
        allow_pickled: Whether pickled state may be restored.
    """

    def __init__(
        self, *, key_groups: tuple[int, int], max_parallelism: int, clock: Clock, allow_pickled: bool = False
    ) -> None:
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._allow_pickled = allow_pickled
        self._current = CurrentKey()
        self._codec: KeyCodec | None = None
        self._states: dict[str, _RegisteredState] = {}
        self._sweeps: list[RowSweep] = []
        self._restored: dict[str, list[StateTable]] = {}
        self._index = SlotIndex(self._column_of)

    # --- keys ------------------------------------------------------------------------------------

    def declare_keys(self, schema: pa.Schema) -> None:
        if self._codec is None:
            self._codec = KeyCodec(schema)
        else:
            self._codec.check(schema)

    def keys_of(self, keys: pa.RecordBatch) -> Sequence[Any]:
        if self._codec is None:
            self._codec = KeyCodec(keys.schema)
        for sweep in self._sweeps:
            sweep.step(keys.num_rows)
        return SlotKeys(self._codec.encode(keys), self._codec.column_of(keys))

    def values_of(self, key: Any) -> KeyTuple:
        assert self._codec is not None, "a key comes from keys_of"
        return self._codec.values_of(key)

    def set_current(self, key: Any) -> None:
        self._current.key = key

    def keys(self, name: str) -> Iterator[KeyTuple]:
        """The keys of a state as of now: it may change meanwhile."""
        state = self._states.get(name)
        if state is None:
            return iter(self._restored_keys(name))
        frozen = self._frozen(state, self._clock.wall_ms())
        found = [self.values_of(key) for key in frozen.live_keys()]
        frozen.release()
        return iter(found)

    # --- states ----------------------------------------------------------------------------------

    def state(self, descriptor: StateDescriptor) -> Any:
        found = self._states.get(descriptor.name)
        if found is None:
            found = self._open(descriptor, make_rows(descriptor))
        elif found.descriptor is not descriptor:
            check_declarations("this operator", (found.descriptor, descriptor))
        if found.handle is None:
            assert isinstance(found.store, Column)
            found.handle = make_slot_handle(found.descriptor, found.store, self._current)
        return found.handle

    def column(self, descriptor: StateDescriptor) -> Any:
        found, life = self._states.get(descriptor.name), lifetime_of(descriptor, self._clock)
        if found is None:
            check_column(descriptor)
            slots = Column(descriptor, self._index, life) if is_in_slots(descriptor) else None
            found = self._open(descriptor, slots or make_rows(descriptor))
        elif found.descriptor is not descriptor:
            check_declarations("this operator", (found.descriptor, descriptor))
        if found.column is None:
            check_column(descriptor)
            found.column = make_column(descriptor, found.store, found.handle, self._current, life)
        return found.column

    def _open(self, descriptor: StateDescriptor, store: CopyOnWriteStateMap | Column) -> _RegisteredState:
        check_declarations("this operator", [*(one.descriptor for one in self._states.values()), descriptor])
        waiting = self._taken(descriptor)
        life = lifetime_of(descriptor, self._clock)
        expiry_ms = 0 if life is None else life.expiry()
        while waiting:  # a stored batch is gone when its rows are here: memory holds the state once
            batch = waiting.popleft()
            assert self._codec is not None, "restore sets it"
            if isinstance(store, CopyOnWriteStateMap):
                load_rows(descriptor, batch, self._codec, expiry_ms, store.rows)
            else:
                load_column(store, batch, self._codec, expiry_ms)
        made = _RegisteredState(descriptor, store, None)
        if isinstance(store, CopyOnWriteStateMap):
            made.handle = make_handle(descriptor, store, self._current, life)
            if life is not None:
                made.sweep = RowSweep(store, descriptor.kind, self._clock)
                self._sweeps.append(made.sweep)
        self._states[descriptor.name] = made
        return made

    def _taken(self, descriptor: StateDescriptor) -> deque[pa.RecordBatch]:
        """The stored rows of a state, which nobody else has from now on."""
        parts = self._stored(descriptor)
        for part in parts:
            check_fits(descriptor, part.name, part.kind, part.schema, pickled=part.pickled)
        for name in (descriptor.name, *descriptor.options.renamed_from):
            self._restored.pop(name, None)
        return deque(batch for part in parts for batch in part.batches)

    def _stored(self, descriptor: StateDescriptor) -> list[StateTable]:
        """Rows under a former name count only in key groups without rows under a later one."""
        found: list[StateTable] = []
        for name in (descriptor.name, *descriptor.options.renamed_from):
            known = groups_in(found)
            found += [without_groups(part, known) for part in self._restored.get(name, [])]
        return found

    def forget_keys(self) -> None:
        """See `port.state.ForgetsKeys`. A bounded job takes no snapshots, so nothing refers to the rows."""
        nothing = np.zeros(len(self._index), np.bool_)
        for state in self._states.values():
            if isinstance(state.store, CopyOnWriteStateMap):
                state.store.rows.clear()
            else:
                state.store.keep(nothing)
        self._index.keep(nothing)

    # --- snapshots -------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: CheckpointId) -> HashMapSnapshot:
        now_ms = self._clock.wall_ms()
        self._tidy()
        frozen = [(self._frozen(state, now_ms), state.sweep) for state in self._states.values()]
        restored = [part for parts in self._restored.values() for part in parts]
        return HashMapSnapshot(frozen, restored, now_ms)

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        assert not self._states, "restore comes before the first state"
        for part in parts:
            if isinstance(part, RestoredFiles):
                raise ConfigError(
                    f"state was stored in the format {part.format!r}, which the backend 'hashmap' cannot "
                    "read; set state.backend.type to the backend that wrote it, or restore from a savepoint "
                    "in the canonical format"
                )
            pickled.check_allowed(part.name, pickled=part.pickled, allowed=self._allow_pickled)
            self.declare_keys(key_schema_of(part.schema))
            own = (of_groups(batch, *self._key_groups) for batch in part.batches)
            kept = replace(part, batches=[batch for batch in own if batch.num_rows])
            self._restored.setdefault(part.name, []).append(kept)

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """Removes expired rows that the snapshot found."""
        for sweep in self._sweeps:
            sweep.step()

    def close(self) -> None:
        """The memory is free at once, for the next attempt: handles of user functions are in cycles with
        their task, which are collected some time later. Snapshots that are still stored have copies."""
        self.forget_keys()
        self._states.clear()
        self._sweeps.clear()
        self._restored.clear()
        self._index = SlotIndex(self._column_of)

    def _column_of(self, keys: Sequence[Any]) -> pa.Array | None:
        assert self._codec is not None, "a key comes from keys_of"
        return self._codec.column_of(self._codec.decode(keys))

    def _frozen(self, state: _RegisteredState, now_ms: int) -> FrozenRows | FrozenColumn:
        if isinstance(state.store, CopyOnWriteStateMap):
            token, rows = state.store.freeze()
            thaw = partial(state.store.thaw, token)
            return FrozenRows(state.descriptor, rows, self._codec, self._max_parallelism, now_ms, thaw)
        return FrozenColumn(state.descriptor, state.store.copy(), self._codec, self._max_parallelism)

    def _tidy(self) -> None:
        """Removes expired values from columns; compacts the slots when most of them are empty."""
        columns = [state.store for state in self._states.values() if isinstance(state.store, Column)]
        for column in columns:
            column.remove_expired()
        count = len(self._index)
        if count < COMPACT_SLOTS_MIN or not columns:
            return
        kept = np.zeros(count, np.bool_)
        for column in columns:
            kept |= column.filled(count)
        if int(kept.sum()) * 2 < count:
            self._index.keep(kept)
            for column in columns:
                column.keep(kept)

    def _restored_keys(self, name: str) -> list[KeyTuple]:
        """Each key once, in the order of its first row."""
        found: dict[KeyTuple, None] = {}
        for part in self._restored.get(name, []):
            assert self._codec is not None, "restore sets it"
            for batch in part.batches:
                live = live_batch(batch, self._clock.wall_ms())
                keys = self._codec.encode(live.select(self._codec.schema.names))
                found.update(dict.fromkeys(self.values_of(key) for key in keys))
        return list(found)


@dataclass(slots=True)
class HashMapSnapshot:
    """`model.keyed_snapshot.KeyedSnapshot`: copies of dicts and columns, and restored tables of states that
    were not requested yet. Each sweep is notified of the expired keys once its table was made."""

    frozen: list[tuple[FrozenRows | FrozenColumn, RowSweep | None]]
    restored: list[StateTable]
    now_ms: int

    def tables(self) -> Iterator[StateTable]:
        for frozen, sweep in self.frozen:
            if frozen.is_empty:
                continue
            yield frozen.table()
            if sweep is not None and isinstance(frozen, FrozenRows):
                sweep.report(expired_keys(frozen.descriptor.kind, frozen.rows, frozen.now_ms))
        yield from _merged(self.restored, self.now_ms)

    def files(self) -> FileSet | None:
        return None

    def release(self) -> None:
        for frozen, _ in self.frozen:
            frozen.release()
        self.frozen, self.restored = [], []


def _merged(parts: Iterable[StateTable], now_ms: int) -> Iterator[StateTable]:
    """One table for each name, without expired rows; parts of several old subtasks in the order of their key
    groups. Parts with different columns stay separate tables: some subtasks had not requested the state since
    its declaration changed."""
    alike: dict[tuple[str, StateKind, bool, pa.Schema], list[StateTable]] = {}
    for part in parts:
        alike.setdefault((part.name, part.kind, part.pickled, part.schema), []).append(part)
    for same in alike.values():
        found = (live_batch(batch, now_ms) for part in same for batch in part.batches)
        batches = [batch for batch in found if batch.num_rows]
        if batches:
            yield replace(same[0], batches=in_group_order(batches) if len(same) > 1 else batches)
