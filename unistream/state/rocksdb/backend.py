"""Keyed state in RocksDB: on the local disk, as much as fits there, in bounded memory.

    a database per shard           a range of key groups (`shards`): a restore reads only what it needs
    a column family per state      in each shard; rows as in `values`, keys as in `keys`
    written through                a handle writes to the database; nothing else holds state
    keys_of, notify_complete       check some rows, and delete expired ones (`sweep`)
    snapshot()                     hard links (`store`, `snapshot`)
    restore                        `restore`

A column family per state, not one for all with a prefix: a scan of one state (a list, a savepoint's table, a
migration) reads nothing of the others, and a removed state is dropped at once.

The local folder belongs to the backend and outlives nothing: durable state is in checkpoints.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from unistream.base.clock import Clock
from unistream.base.config import Configuration
from unistream.base.config import rocksdb as options
from unistream.base.ids import CheckpointId
from unistream.model.keyed_snapshot import RestoredFiles, StateTable
from unistream.model.state import StateDescriptor, check_declarations
from unistream.port.state import CurrentKey, KeyTuple
from unistream.state.common.columns import check_column
from unistream.state.common.key_codec import KeyCodec
from unistream.state.common.lifetime import lifetime_of
from unistream.state.common.migration import check_fits
from unistream.state.common.uploads import Uploads
from unistream.state.rocksdb.api import RocksDbTuning
from unistream.state.rocksdb.columns import make_column
from unistream.state.rocksdb.handles import make_handle
from unistream.state.rocksdb.keys import KeyBytes
from unistream.state.rocksdb.restore import Restorer
from unistream.state.rocksdb.shards import Groups
from unistream.state.rocksdb.snapshot import RocksDbSnapshot, encode_descriptors
from unistream.state.rocksdb.store import Store
from unistream.state.rocksdb.sweep import TtlSweep
from unistream.state.rocksdb.values import StateLayout, is_empty, live_rows, plain_batch, table_of


@dataclass(slots=True)
class _Open:
    """A requested state."""

    descriptor: StateDescriptor
    layout: StateLayout
    handle: Any
    column: Any = None


class RocksDbStateBackend:
    """`port.state.KeyedStateBackend` on RocksDB.

    Args:
        key_groups: (first, last) of this subtask; other rows are skipped on restore.
        max_parallelism: Number of key groups of the operator.
        folder: Local, for this backend alone: made when it is needed, removed by `close`.
        clock: For times to live.
        memory_bytes: For all states together.
        allow_pickled: Whether pickled state may be restored.
        tuning: From `rocksdb_tuning`; None: the defaults.
        parallelism: Of the operator; None: the least for which a subtask has these key groups.
    """

    def __init__(
        self,
        *,
        key_groups: tuple[int, int],
        max_parallelism: int,
        folder: Path,
        clock: Clock,
        memory_bytes: int,
        allow_pickled: bool = False,
        tuning: RocksDbTuning | None = None,
        parallelism: int | None = None,
    ) -> None:
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._folder = folder
        self._clock = clock
        self._allow_pickled = allow_pickled
        self._store = Store(
            key_groups=key_groups,
            max_parallelism=max_parallelism,
            folder=folder / "db",
            memory_bytes=memory_bytes,
            tuning=tuning,
            parallelism=parallelism,
        )
        self._current = CurrentKey()
        self._accepted: KeyCodec | None = None
        self._codec: KeyBytes | None = None
        self._open: dict[str, _Open] = {}
        self._uploads = Uploads()
        self._sweep = TtlSweep(self._store, clock)

    # --- keys ------------------------------------------------------------------------------------

    def declare_keys(self, schema: pa.Schema) -> None:
        if self._accepted is None:
            self._accepted = KeyCodec(schema)
            self._codec = KeyBytes(self._accepted.schema, self._max_parallelism)
            for state in self._open.values():
                self._store.layouts.remove(state.layout)
                state.layout = self._layout_of(state.descriptor, state.layout.family)
                self._store.layouts.append(state.layout)
        else:
            self._accepted.check(schema)

    def keys_of(self, keys: pa.RecordBatch) -> Sequence[bytes]:
        self.declare_keys(keys.schema)
        self._sweep.after_batch()
        return self._key_codec.encode(plain_batch(keys, self._key_codec.schema))

    def values_of(self, key: Any) -> KeyTuple:
        return tuple(column[0].as_py() for column in self._key_codec.decode([key]).columns)

    def set_current(self, key: Any) -> None:
        self._current.key = key

    def keys(self, name: str) -> Iterator[KeyTuple]:
        """The keys of a state as of now: it may change meanwhile."""
        codec = self._codec
        if codec is None:
            return
        for layout in self._store.named(name):
            rows = live_rows(layout, self._store.families(layout), self._key_groups, self._clock.wall_ms())
            for key, _ in itertools.groupby(rows, lambda row: row[0][: codec.end(row[0])]):
                yield self.values_of(key)

    @property
    def _key_codec(self) -> KeyBytes:
        assert self._codec is not None, "a key comes from keys_of"
        return self._codec

    # --- states ----------------------------------------------------------------------------------

    def state(self, descriptor: StateDescriptor) -> Any:
        return self._opened(descriptor).handle

    def column(self, descriptor: StateDescriptor) -> Any:
        check_column(descriptor)
        found = self._opened(descriptor)
        if found.column is None:
            found.column = make_column(
                descriptor,
                found.layout,
                self._store.families(found.layout),
                life=lifetime_of(descriptor, self._clock),
                numbers=self._store.numbers,
            )
        return found.column

    def _opened(self, descriptor: StateDescriptor) -> _Open:
        found = self._open.get(descriptor.name)
        if found is not None:
            if found.descriptor is not descriptor:
                check_declarations("this operator", (found.descriptor, descriptor))
            return found
        check_declarations("this operator", [*(one.descriptor for one in self._open.values()), descriptor])
        layout = self._take_over(descriptor)
        self._store.layouts.append(layout)
        handle = make_handle(
            descriptor,
            layout,
            self._store.families(layout),
            self._current,
            life=lifetime_of(descriptor, self._clock),
            numbers=self._store.numbers,
        )
        made = self._open[descriptor.name] = _Open(descriptor, layout, handle)
        if descriptor.options.ttl is not None:
            self._sweep.add(layout.family, descriptor.options.ttl.time_to_live_ms)
        return made

    def _take_over(self, descriptor: StateDescriptor) -> StateLayout:
        """The layout of the state; rows that were stored in another form are rewritten."""
        store = self._store
        names = (descriptor.name, *descriptor.options.renamed_from)
        stored = [layout for name in names for layout in store.named(name)]
        for one in stored:
            check_fits(descriptor, one.name, one.kind, one.schema, pickled=one.pickled)
        latest = [one for one in stored if one.name == stored[0].name]
        wanted = ((self._layout_of(descriptor, one.family), one) for one in latest)
        made, kept = next(
            (pair for pair in wanted if pair[0].schema.equals(pair[1].schema)),
            (self._layout_of(descriptor, store.new_family(descriptor.name)), None),
        )
        for one in stored:
            store.layouts.remove(one)
        for one in stored:
            if one is not kept:
                self._move(one, made, descriptor, earlier=one not in latest)
        return made

    def _move(
        self, stored: StateLayout, to: StateLayout, descriptor: StateDescriptor, *, earlier: bool
    ) -> None:
        """`earlier`: under a former name, whose rows count in key groups without rows under a later one."""
        store, codec, first, last = self._store, self._key_codec, *self._key_groups
        source, target = store.families(stored), store.families(to)
        now, life = self._clock.wall_ms(), lifetime_of(descriptor, self._clock)
        expiry_ms = now if life is None else life.expiry()
        for groups in ((group, group) for group in range(first, last + 1)) if earlier else [(first, last)]:
            if not earlier or is_empty(target, groups):
                table = table_of(stored, source, codec, groups, now)
                store.load(to, table.batches, codec, expiry_ms)
        store.drop(stored)

    def _layout_of(self, descriptor: StateDescriptor, family: str) -> StateLayout:
        schema = descriptor.table_schema(self._codec.schema if self._codec is not None else pa.schema([]))
        return StateLayout(descriptor.name, descriptor.kind, descriptor.options.pickled, schema, family)

    # --- snapshots -------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: CheckpointId) -> RocksDbSnapshot:
        store, layouts = self._store, list(self._store.layouts)
        folder, descriptors, shards = None, b"", list[Groups]()
        if self._codec is not None and layouts:
            folder = self._folder / f"snapshot-{checkpoint_id}"
            shards = store.link(folder)
            descriptors = encode_descriptors(
                self._codec, layouts, self._max_parallelism, store.numbers.next, shards
            )
        return RocksDbSnapshot(
            checkpoint_id=checkpoint_id,
            folder=folder,
            codec=self._codec,
            layouts=layouts,
            descriptors=descriptors,
            key_groups=self._key_groups,
            shards=shards,
            file_keys=store.file_keys(),
            uploads=self._uploads,
            now_ms=self._clock.wall_ms(),
        )

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        self._uploads.complete(checkpoint_id)
        self._sweep.turn()

    def close(self) -> None:
        self._store.close()
        self._open.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        assert not self._open, "restore comes before the first state"
        Restorer(self._store, self._declared, self._clock, allow_pickled=self._allow_pickled).restore(parts)

    def _declared(self, schema: pa.Schema) -> KeyBytes:
        self.declare_keys(schema)
        return self._key_codec


def rocksdb_tuning(config: Configuration) -> RocksDbTuning:
    """The tuning that the options `state.backend.rocksdb.*` make."""
    return RocksDbTuning(
        write_buffer_ratio=config.get(options.ROCKSDB_WRITE_BUFFER_RATIO),
        threads=config.get(options.ROCKSDB_THREADS),
        shards=config.get(options.ROCKSDB_SHARDS),
        bloom_bits=RocksDbTuning().bloom_bits if config.get(options.ROCKSDB_BLOOM_FILTER) else 0,
    )
