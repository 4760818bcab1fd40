"""Keyed state in RocksDB: on the local disk, as much as fits there, in bounded memory.

    a column family per state      rows as in `rocksdb_values`, keys as in `rocksdb_keys`
    written through                what a handle wrote is in the database; nothing else holds state
    snapshot()                     hard links (`rocksdb_snapshot`)
    restore                        tables are written row by row; files of one old subtask that had all our
                                   key groups are opened where they lie, and clipped; of several old ones,
                                   rows of our key groups are copied

A column family per state, not one for all with a prefix: a scan of one state (a list, a savepoint's table, a
migration) touches nothing of the others, and a state that is gone is dropped at once.

The local folder is the backend's own and holds nothing that outlives it: what is durable lies in checkpoints.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from unistream.base.clock import Clock
from unistream.base.config import (
    ROCKSDB_BLOOM_FILTER,
    ROCKSDB_THREADS,
    ROCKSDB_WRITE_BUFFER_RATIO,
    Configuration,
)
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.keyed_snapshot import RestoredFiles, StateTable
from unistream.model.state import StateDescriptor
from unistream.port.state import NO_KEY, ColumnState, KeyTuple
from unistream.state.columns import check_column
from unistream.state.hashmap_tables import KeyCodec, described, of_groups
from unistream.state.hashmap_ttl import Lifetime
from unistream.state.migration import check_fits, key_schema_of
from unistream.state.rocksdb_api import FORMAT, READ_CACHE_BYTES, Database, RocksDbTuning
from unistream.state.rocksdb_handles import ColumnHandle, CurrentBytes, make_handle
from unistream.state.rocksdb_keys import KeyBytes, group_prefix
from unistream.state.rocksdb_snapshot import RocksDbSnapshot, Uploads, decode_descriptors, encode_descriptors
from unistream.state.rocksdb_values import (
    Layout,
    Numbers,
    group_rows,
    live_rows,
    plain_batch,
    rows_of,
    table_of,
)

WRITE_ROWS: Final = 4096  # of a restore that are written at once


@dataclass(slots=True)
class _Open:
    """A state that was asked for."""

    descriptor: StateDescriptor
    layout: Layout
    handle: Any
    column: ColumnState | None = None


class RocksDbStateBackend:
    """`port.state.KeyedStateBackend` on RocksDB.

    Args:
        key_groups: (first, last) of this subtask; other rows are skipped on restore.
        max_parallelism: Number of key groups of the operator.
        folder: Local, and the backend's own: made when it is needed, removed by `close`.
        clock: For times to live.
        memory_bytes: For all states together.
        allow_pickled: Whether pickled state may be restored.
        tuning: From `rocksdb_tuning`; None: the defaults.
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
    ) -> None:
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._folder = folder
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._allow_pickled = allow_pickled
        self._tuning = tuning
        self._current = CurrentBytes()
        self._accepted: KeyCodec | None = None
        self._codec: KeyBytes | None = None
        self._database: Database | None = None
        self._layouts: dict[str, Layout] = {}
        self._open: dict[str, _Open] = {}
        self._numbers = Numbers()
        self._families = itertools.count(1)
        self._uploads = Uploads()
        self._ranges: dict[str, tuple[bytes, bytes]] = {}

    # --- keys ------------------------------------------------------------------------------------

    def declare_keys(self, schema: pa.Schema) -> None:
        if self._accepted is None:
            self._accepted = KeyCodec(schema)
            self._codec = KeyBytes(self._accepted.schema, self._max_parallelism)
            for state in self._open.values():
                self._layouts[state.layout.name] = state.layout = self._layout_of(
                    state.descriptor, state.layout.family
                )
        else:
            self._accepted.check(schema)

    def keys_of(self, keys: pa.RecordBatch) -> Sequence[bytes]:
        self.declare_keys(keys.schema)
        return self._key_codec.encode(plain_batch(keys, self._key_codec.schema))

    def values_of(self, key: Any) -> KeyTuple:
        return tuple(column[0].as_py() for column in self._key_codec.decode([key]).columns)

    def set_current(self, key: Any) -> None:
        if key is NO_KEY:
            vars(self._current).pop("key", None)
        else:
            self._current.key = key

    def keys(self, name: str) -> Iterator[KeyTuple]:
        """As of now: the state may be changed meanwhile."""
        layout = self._layouts.get(name)
        if layout is None or self._codec is None:
            return
        codec = self._codec
        rows = live_rows(layout, self._db.family(layout.family), self._key_groups, self._clock.wall_ms())
        for key, _ in itertools.groupby(rows, lambda row: row[0][: codec.end(row[0])]):
            yield self.values_of(key)

    @property
    def _key_codec(self) -> KeyBytes:
        assert self._codec is not None, "a key comes from keys_of"
        return self._codec

    # --- states ----------------------------------------------------------------------------------

    def state(self, descriptor: StateDescriptor) -> Any:
        return self._opened(descriptor).handle

    def column(self, descriptor: StateDescriptor) -> ColumnState:
        check_column(descriptor)
        found = self._opened(descriptor)
        if found.column is None:
            family = self._db.family(found.layout.family)
            life = self._life(descriptor)
            found.column = ColumnHandle(descriptor, found.layout, family, life, self._db.write)
        return found.column

    def _opened(self, descriptor: StateDescriptor) -> _Open:
        found = self._open.get(descriptor.name)
        if found is not None:
            if found.descriptor is not descriptor:
                _check_same(found.descriptor, descriptor)
            return found
        layout = self._take_over(descriptor)
        self._layouts[layout.name] = layout
        handle = make_handle(
            descriptor,
            layout,
            self._db.family(layout.family),
            self._current,
            life=self._life(descriptor),
            numbers=self._numbers,
        )
        made = self._open[descriptor.name] = _Open(descriptor, layout, handle)
        return made

    def _take_over(self, descriptor: StateDescriptor) -> Layout:
        """Where the state lies; what was stored otherwise is rewritten as it is declared now."""
        for name in (descriptor.name, *descriptor.options.renamed_from):
            stored = self._layouts.get(name)
            if stored is not None:
                break
        else:
            return self._layout_of(descriptor, self._new_family())
        check_fits(
            descriptor,
            stored_name=stored.name,
            kind=stored.kind,
            pickled=stored.pickled,
            schema=stored.schema,
        )
        del self._layouts[stored.name]
        wanted = self._layout_of(descriptor, stored.family)
        if wanted.schema.equals(stored.schema):
            return wanted
        moved = self._layout_of(descriptor, self._new_family())
        family = self._db.family(stored.family)
        table = table_of(stored, family, self._key_codec, self._key_groups, self._clock.wall_ms())
        ttl = descriptor.options.ttl
        self._load(moved, table.batches, 0 if ttl is None else ttl.time_to_live_ms)
        self._db.drop(stored.family)
        return moved

    def _layout_of(self, descriptor: StateDescriptor, family: str) -> Layout:
        keys = self._codec.schema if self._codec is not None else pa.schema([])
        return Layout(
            descriptor.name,
            descriptor.kind,
            descriptor.options.pickled,
            descriptor.table_schema(keys),
            family,
        )

    def _life(self, descriptor: StateDescriptor) -> Lifetime | None:
        ttl = descriptor.options.ttl
        return None if ttl is None else Lifetime(ttl, self._clock)

    def _new_family(self) -> str:
        while self._db.has(name := f"state-{next(self._families)}"):
            pass
        return name

    @property
    def _db(self) -> Database:
        if self._database is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._database = Database(self._folder / "db", self._memory_bytes, self._tuning)
        return self._database

    # --- snapshots -------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: CheckpointId) -> RocksDbSnapshot:
        layouts = list(self._layouts.values())
        folder, descriptors = None, b""
        if self._codec is not None and layouts:
            folder = self._folder / f"snapshot-{checkpoint_id}"
            self._ranges.update(self._db.file_ranges())  # files may be merged while the links are made
            shutil.rmtree(folder, ignore_errors=True)
            self._db.checkpoint(folder)
            now = self._db.file_ranges()
            linked = {path.name for path in folder.iterdir()}
            self._ranges = {n: r for n, r in (self._ranges | now).items() if n in now or n in linked}
            descriptors = encode_descriptors(self._codec, layouts, self._max_parallelism, self._numbers.next)
        return RocksDbSnapshot(
            checkpoint_id=checkpoint_id,
            folder=folder,
            codec=self._codec,
            layouts=layouts,
            descriptors=descriptors,
            key_groups=self._key_groups,
            ranges=dict(self._ranges),
            uploads=self._uploads,
            now_ms=self._clock.wall_ms(),
        )

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        self._uploads.complete(checkpoint_id)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        self._open.clear()
        self._layouts.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- restore ---------------------------------------------------------------------------------

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        assert not self._open, "restore comes before the first state"
        files = [part for part in parts if isinstance(part, RestoredFiles)]
        tables = [part for part in parts if isinstance(part, StateTable)]
        try:
            for part in files:
                self._check_files(part)
            first, last = self._key_groups
            whole = len(files) == 1 and files[0].key_groups[0] <= first and last <= files[0].key_groups[1]
            if whole:
                self._adopt(files[0])
            else:
                for part in files:
                    self._copy(part)
        finally:
            for part in files:
                shutil.rmtree(part.folder, ignore_errors=True)
        for table in tables:
            self._restore_table(table)

    def _check_files(self, part: RestoredFiles) -> None:
        if part.format != FORMAT:
            raise ConfigError(
                f"state was stored in the format {part.format!r}, which the backend 'rocksdb' ({FORMAT}) "
                "cannot read; restore from a savepoint in the canonical format"
            )
        if part.pickled and not self._allow_pickled:
            raise _pickled_refused("")

    def _adopt(self, part: RestoredFiles) -> None:
        """Opens the files where they are, and forgets rows of other subtasks."""
        keys, layouts, number = decode_descriptors(part.descriptors)
        self.declare_keys(keys)
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.move(part.folder, self._folder / "db")
        if part.key_groups != self._key_groups:
            first, last = self._key_groups
            self._db.clip(group_prefix(first), group_prefix(last + 1))
        self._layouts = {layout.name: layout for layout in layouts}
        self._numbers.next = max(self._numbers.next, number)

    def _copy(self, part: RestoredFiles) -> None:
        """Writes its rows of our key groups into our own database."""
        keys, layouts, number = decode_descriptors(part.descriptors)
        self.declare_keys(keys)
        source = Database(part.folder, READ_CACHE_BYTES, read_only=True)
        try:
            for layout in layouts:
                target = self._target(layout)
                rows = group_rows(source.family(layout.family), self._key_groups)
                if target.schema.equals(layout.schema):
                    self._write(target, rows)
                else:
                    family = source.family(layout.family)
                    now = self._clock.wall_ms()
                    table = table_of(layout, family, self._key_codec, self._key_groups, now)
                    self._load(target, table.batches)
        finally:
            source.close()
        self._numbers.next = max(self._numbers.next, number)

    def _restore_table(self, table: StateTable) -> None:
        if table.pickled and not self._allow_pickled:
            raise _pickled_refused(f" {table.name!r}")
        self.declare_keys(key_schema_of(table.schema))
        layout = Layout(table.name, table.kind, table.pickled, table.schema, "")
        first, last = self._key_groups
        self._load(self._target(layout), (of_groups(batch, first, last) for batch in table.batches))

    def _target(self, layout: Layout) -> Layout:
        """Where restored rows of a state go; of several parts with one name the first one says how."""
        found = self._layouts.get(layout.name)
        if found is None:
            found = Layout(layout.name, layout.kind, layout.pickled, layout.schema, self._new_family())
            self._layouts[layout.name] = found
        return found

    def _load(self, layout: Layout, batches: Iterable[pa.RecordBatch], ttl_ms: int = 0) -> None:
        """Writes stored rows; those without a time to live get one that begins now."""
        expiry_ms = self._clock.wall_ms() + ttl_ms
        for batch in batches:
            self._write(layout, rows_of(layout, batch, self._key_codec, expiry_ms, self._numbers))

    def _write(self, layout: Layout, rows: Iterator[tuple[bytes, bytes]]) -> None:
        while piece := list(itertools.islice(rows, WRITE_ROWS)):
            self._db.write(layout.family, piece)


def rocksdb_tuning(config: Configuration) -> RocksDbTuning:
    """What `state.backend.rocksdb.*` says."""
    return RocksDbTuning(
        write_buffer_ratio=config.get(ROCKSDB_WRITE_BUFFER_RATIO),
        threads=config.get(ROCKSDB_THREADS),
        bloom_bits=RocksDbTuning().bloom_bits if config.get(ROCKSDB_BLOOM_FILTER) else 0,
    )


def _pickled_refused(name: str) -> ConfigError:
    return ConfigError(
        f"state{name} was stored pickled; reading it runs code that lies in it. If you trust where it comes "
        "from, set execution.state-recovery.allow-pickled-state to true"
    )


def _check_same(one: StateDescriptor, other: StateDescriptor) -> None:
    """Raises ConfigError unless both declare the same state."""
    empty = pa.schema([])
    same_tables = one.table_schema(empty).equals(other.table_schema(empty))
    if one.kind is not other.kind or not same_tables or one.options != other.options:
        raise ConfigError(
            f"state {one.name!r} is declared twice, with different types: {_told(one)} and {_told(other)}"
        )


def _told(descriptor: StateDescriptor) -> str:
    return f"{descriptor.kind.value} ({described(descriptor.table_schema(pa.schema([])))})"
