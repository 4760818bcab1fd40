"""From what was stored to the local databases of a backend.

    tables                    written row by row
    files of a shard          opened as they are; of a shard at the edge the rows of others are forgotten
    files that do not fit     rows of our key groups are copied: those of a subtask with one database for all
                              (FORMAT_WHOLE), of states that subtasks stored in unlike forms, of a shard
                              that is more than half of ours (it could not be divided again), of more shards
                              than a store may have

All shards that are opened as they are come first, then the key groups that are left get new ones, then rows
are copied.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError
from unistream.model.key_groups import intersect
from unistream.model.keyed_snapshot import RestoredFiles, StateTable
from unistream.state.common import key_schema_of, of_groups
from unistream.state.rocksdb.api import FORMAT, FORMAT_WHOLE, READ_CACHE_BYTES, Memory, shown_as_database
from unistream.state.rocksdb.keys import KeyBytes
from unistream.state.rocksdb.shards import Families, Groups, Shards, label_of
from unistream.state.rocksdb.snapshot import decode_descriptors
from unistream.state.rocksdb.store import Store
from unistream.state.rocksdb.values import Layout


@dataclass(frozen=True, slots=True)
class _Stored:
    """A database that was fetched: `folder`/<its label>.

    Attributes:
        groups: All that it has.
        wanted: Those of them that are ours.
    """

    folder: Path
    groups: Groups
    wanted: Groups
    keys: KeyBytes
    layouts: tuple[Layout, ...]
    whole: bool


class Restorer:
    """Restores one backend, once, before its first state.

    Args:
        store: Where the rows go.
        declare_keys: Tells the backend its key columns; how keys are encoded.
        clock: For times to live.
        allow_pickled: Whether pickled state may be restored.
    """

    def __init__(
        self,
        store: Store,
        declare_keys: Callable[[pa.Schema], KeyBytes],
        clock: Clock,
        *,
        allow_pickled: bool,
    ) -> None:
        self._store = store
        self._declare_keys = declare_keys
        self._clock = clock
        self._allow_pickled = allow_pickled

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        """Folders of files are gone afterwards.

        Raises:
            ConfigError: another backend's files, pickled state that is not allowed, other key columns.
            CorruptSnapshot: files or their description cannot be read.
        """
        files = [part for part in parts if isinstance(part, RestoredFiles)]
        try:
            for part in files:
                self._check(part)
            self._restore_files([one for part in files for one in self._stored(part)])
        finally:
            for part in files:
                shutil.rmtree(part.folder, ignore_errors=True)
        for table in (part for part in parts if isinstance(part, StateTable)):
            self._restore_table(table)

    def _check(self, part: RestoredFiles) -> None:
        if part.format not in (FORMAT, FORMAT_WHOLE):
            raise ConfigError(
                f"state was stored in the format {part.format!r}, which the backend 'rocksdb' ({FORMAT}) "
                "cannot read; restore from a savepoint in the canonical format"
            )
        if part.pickled and not self._allow_pickled:
            raise _pickled_refused("")

    def _stored(self, part: RestoredFiles) -> list[_Stored]:
        """The databases of an old subtask that have key groups of ours, each in a folder of its own."""
        found = decode_descriptors(part.descriptors)
        keys = self._declare_keys(found.keys)
        layouts = tuple(replace(layout, schema=with_keys(layout.schema, keys)) for layout in found.layouts)
        self._store.numbers.next = max(self._store.numbers.next, found.next_number)
        whole = part.format == FORMAT_WHOLE
        stored = []
        for groups in [part.key_groups] if whole else found.shards:
            wanted = intersect(groups, self._store.key_groups)
            if wanted is not None:
                _gather(part.folder, groups, prefix="" if whole else f"{label_of(groups)}.")
                stored.append(_Stored(part.folder, groups, wanted, keys, layouts, whole))
        return stored

    def _restore_files(self, stored: list[_Stored]) -> None:
        adopted = [one for one in stored if len(stored) <= self._store.shards_max and self._fits(one)]
        for one in adopted:
            folder = one.folder / label_of(one.groups)
            self._store.shards.adopt(folder, one.wanted, cut=one.wanted != one.groups)
        for one in stored:
            if one not in adopted:
                self._copy(one)

    def _fits(self, stored: _Stored) -> bool:
        """It can be one of our shards as it is."""
        first, last = self._store.key_groups
        width = stored.wanted[1] - stored.wanted[0] + 1
        parts = min(2, self._store.shards_wanted)  # of which there must be so many at least
        if stored.whole or width > max(1, (last - first + 1) // parts):
            return False
        targets = [self._store.target(layout, family=layout.family) for layout in stored.layouts]
        return all(
            target.family == layout.family and target.schema.equals(layout.schema)
            for target, layout in zip(targets, stored.layouts, strict=True)
        )

    def _copy(self, stored: _Stored) -> None:
        """Writes its rows of our key groups into our own databases."""
        source = Shards(stored.folder, Memory(READ_CACHE_BYTES), read_only=True)
        try:
            source.add(stored.groups).open()
            for layout in stored.layouts:
                rows = Families(source, layout.family).rows(stored.wanted)
                self._store.write(self._store.target(layout), rows)
        finally:
            source.close()

    def _restore_table(self, table: StateTable) -> None:
        if table.pickled and not self._allow_pickled:
            raise _pickled_refused(f" {table.name!r}")
        keys = self._declare_keys(key_schema_of(table.schema))
        schema = with_keys(table.schema, keys)
        layout = self._store.target(Layout(table.name, table.kind, table.pickled, schema, ""))
        first, last = self._store.key_groups
        batches = (of_groups(batch, first, last) for batch in table.batches)
        self._store.load(layout, batches, keys, self._clock.wall_ms())


def _gather(folder: Path, groups: Groups, *, prefix: str) -> None:
    """Puts the files of one database into a folder of their own."""
    target = folder / label_of(groups)
    files = [path for path in folder.iterdir() if path.is_file() and path.name.startswith(prefix)]
    target.mkdir()
    for path in files:
        path.rename(target / path.name.removeprefix(prefix))
    shown_as_database(target)


def with_keys(table: pa.Schema, keys: KeyBytes) -> pa.Schema:
    """A table's columns, with the key's as this backend has them: texts are one key in each layout."""
    for column in keys.schema:
        table = table.set(table.get_field_index(column.name), column)
    return table


def _pickled_refused(name: str) -> ConfigError:
    return ConfigError(
        f"state{name} was stored pickled; reading it runs code that lies in it. If you trust where it comes "
        "from, set execution.state-recovery.allow-pickled-state to true"
    )
