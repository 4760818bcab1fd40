"""Keyed state in memory: a dict by key for each state, or columns where a function works on batches.

    state(descriptor)    first ─► Rows (a dict), with a handle of the current key
    column(descriptor)   first ─► Column (an array, by slot of the key), or Rows (lists, maps, aggregates)
    the other one afterwards   ─► the same storage through an adapter
    snapshot()                 ─► shallow copies, made at once; their tables are made in the background
    keys_of, notify_complete   ─► a bit of what snapshots have found expired is removed (`hashmap_sweep`)

What was restored stays as stored tables until its state is asked for, and goes as it is into every snapshot
until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.arrow_layouts import taken
from unistream.model.keyed_snapshot import FileSet, RestoredFiles, StateKind, StateTable
from unistream.model.state import StateDescriptor, check_declarations
from unistream.port.state import KeyTuple
from unistream.state.common import (
    COMPACT_SLOTS_MIN,
    Column,
    KeyCodec,
    Lifetime,
    SlotIndex,
    SlotKeys,
    check_column,
    check_fits,
    check_same,
    groups_in,
    key_schema_of,
    of_groups,
    without_groups,
)
from unistream.state.hashmap.columns import is_in_slots, make_column, make_slot_handle
from unistream.state.hashmap.handles import make_handle, make_rows
from unistream.state.hashmap.rows import CurrentKey, Rows
from unistream.state.hashmap.sweep import RowSweep, count_cells, expired_keys, live_batch
from unistream.state.hashmap.tables import FrozenColumn, FrozenRows, load_column, load_rows


@dataclass(slots=True)
class _State:
    """A state that was asked for. `store` is where its values are; `sweep`: of rows with a time to live."""

    descriptor: StateDescriptor
    store: Rows | Column
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
        self._states: dict[str, _State] = {}
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
        """As of now: the state may be changed meanwhile."""
        state = self._states.get(name)
        if state is None:
            return iter(self._restored_keys(name))
        frozen = self._frozen(state, self._clock.wall_ms())
        found = [self.values_of(key) for key in frozen.live_keys()]
        frozen.release()
        return iter(found)

    def held(self, name: str) -> int:
        """How many values, elements and entries of a state are in memory: also what has expired and was not
        removed yet. Goes through all of them."""
        state = self._states.get(name)
        if state is None:
            return sum(batch.num_rows for part in self._restored.get(name, []) for batch in part.batches)
        if isinstance(state.store, Rows):
            return count_cells(state.descriptor.kind, state.store.rows)
        return int(state.store.filled(len(self._index)).sum())

    # --- states ----------------------------------------------------------------------------------

    def state(self, descriptor: StateDescriptor) -> Any:
        found = self._states.get(descriptor.name)
        if found is None:
            found = self._open(descriptor, make_rows(descriptor))
        elif found.descriptor is not descriptor:
            check_same(found.descriptor, descriptor)
        if found.handle is None:
            assert isinstance(found.store, Column)
            found.handle = make_slot_handle(found.descriptor, found.store, self._current)
        return found.handle

    def column(self, descriptor: StateDescriptor) -> Any:
        found, life = self._states.get(descriptor.name), self._life(descriptor)
        if found is None:
            check_column(descriptor)
            slots = is_in_slots(descriptor)
            found = self._open(
                descriptor, Column(descriptor, self._index, life) if slots else make_rows(descriptor)
            )
        elif found.descriptor is not descriptor:
            check_same(found.descriptor, descriptor)
        if found.column is None:
            check_column(descriptor)
            found.column = make_column(descriptor, found.store, found.handle, self._current, life)
        return found.column

    def _open(self, descriptor: StateDescriptor, store: Rows | Column) -> _State:
        check_declarations("this operator", [*(one.descriptor for one in self._states.values()), descriptor])
        parts = self._stored(descriptor)
        for part in parts:
            check_fits(
                descriptor, stored_name=part.name, kind=part.kind, pickled=part.pickled, schema=part.schema
            )
        expiry_ms = 0
        if descriptor.options.ttl is not None:
            expiry_ms = self._clock.wall_ms() + descriptor.options.ttl.time_to_live_ms
        for part in parts:
            assert self._codec is not None, "restore sets it"
            for batch in part.batches:
                if isinstance(store, Rows):
                    load_rows(descriptor, batch, self._codec, expiry_ms, store.rows)
                else:
                    load_column(store, batch, self._codec, expiry_ms)
        for name in (descriptor.name, *descriptor.options.renamed_from):
            self._restored.pop(name, None)
        made = _State(descriptor, store, None)
        if isinstance(store, Rows):
            made.handle = make_handle(descriptor, store, self._current, self._life(descriptor))
            if descriptor.options.ttl is not None:
                made.sweep = RowSweep(store, descriptor.kind, self._clock)
                self._sweeps.append(made.sweep)
        self._states[descriptor.name] = made
        return made

    def _stored(self, descriptor: StateDescriptor) -> list[StateTable]:
        """Rows under a former name count in key groups alone that have none under a later one."""
        found: list[StateTable] = []
        for name in (descriptor.name, *descriptor.options.renamed_from):
            known = groups_in(found)
            found += [without_groups(part, known) for part in self._restored.get(name, [])]
        return found

    def _life(self, descriptor: StateDescriptor) -> Lifetime | None:
        ttl = descriptor.options.ttl
        return None if ttl is None else Lifetime(ttl, self._clock)

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
            if part.pickled and not self._allow_pickled:
                raise ConfigError(
                    f"state {part.name!r} was stored pickled; reading it runs code that lies in it. If you "
                    "trust where it comes from, set execution.state-recovery.allow-pickled-state to true"
                )
            self.declare_keys(key_schema_of(part.schema))
            self._restored.setdefault(part.name, []).append(self._share(part))

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """No files, so nothing to remember. What the snapshot has found expired is gone to."""
        for sweep in self._sweeps:
            sweep.step()

    def close(self) -> None:
        self._states.clear()
        self._sweeps.clear()
        self._restored.clear()
        self._index = SlotIndex(self._column_of)

    def _share(self, part: StateTable) -> StateTable:
        """The same in memory, and without rows of other subtasks."""
        first, last = self._key_groups
        batches = [of_groups(batch, first, last) for batch in part.batches]
        return StateTable(
            name=part.name,
            kind=part.kind,
            pickled=part.pickled,
            schema=part.schema,
            batches=[batch for batch in batches if batch.num_rows],
        )

    def _column_of(self, keys: Sequence[Any]) -> pa.Array | None:
        assert self._codec is not None, "a key comes from keys_of"
        return self._codec.column_of(self._codec.decode(keys))

    def _frozen(self, state: _State, now_ms: int) -> FrozenRows | FrozenColumn:
        if isinstance(state.store, Rows):
            token, rows = state.store.freeze()
            thaw = partial(state.store.thaw, token)
            return FrozenRows(state.descriptor, rows, self._codec, self._max_parallelism, now_ms, thaw)
        return FrozenColumn(state.descriptor, state.store.copy(), self._codec, self._max_parallelism)

    def _tidy(self) -> None:
        """Removes what has expired from columns; gives back slots when most of them hold nothing."""
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


class HashMapSnapshot:
    """`model.keyed_snapshot.KeyedSnapshot`: copies of dicts and columns, and tables nobody asked for.

    Args:
        frozen: With what is told, once the table was made, under which keys something has expired.
        now_ms: When it was taken.
    """

    def __init__(
        self,
        frozen: list[tuple[FrozenRows | FrozenColumn, RowSweep | None]],
        restored: list[StateTable],
        now_ms: int,
    ) -> None:
        self._frozen = frozen
        self._restored = restored
        self._now_ms = now_ms

    def tables(self) -> Iterator[StateTable]:
        for frozen, sweep in self._frozen:
            if frozen.is_empty:
                continue
            yield frozen.table()
            if sweep is not None and isinstance(frozen, FrozenRows):
                sweep.report(expired_keys(frozen.descriptor.kind, frozen.rows, frozen.now_ms))
        yield from merged(self._restored, self._now_ms)

    def files(self) -> FileSet | None:
        return None

    def release(self) -> None:
        for frozen, _ in self._frozen:
            frozen.release()
        self._frozen, self._restored = [], []


def merged(parts: Iterable[StateTable], now_ms: int) -> Iterator[StateTable]:
    """One table for each name, without what has expired; parts of several old subtasks follow each other by
    key group. Parts with unlike columns stay tables of their own: not all subtasks had asked for the
    state since its declaration has changed."""
    alike: dict[tuple[str, StateKind, bool, pa.Schema], list[StateTable]] = {}
    for part in parts:
        alike.setdefault((part.name, part.kind, part.pickled, part.schema), []).append(part)
    for (name, *_), same in alike.items():
        found = (live_batch(batch, now_ms) for part in same for batch in part.batches)
        batches = [batch for batch in found if batch.num_rows]
        if not batches:
            continue
        first = same[0]
        if len(same) > 1:
            table = pa.Table.from_batches(batches, first.schema)
            groups = table.column(0).to_numpy()
            order = np.argsort(groups, kind="stable")
            batches = taken(table, order).combine_chunks().to_batches()
        yield StateTable(
            name=name, kind=first.kind, pickled=first.pickled, schema=first.schema, batches=batches
        )
