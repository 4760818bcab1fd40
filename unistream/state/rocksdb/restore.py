"""Builds the local databases of a backend from what was stored.

    tables                    written row by row
    files of a shard          opened as they are; at the edges rows of other subtasks are deleted
    files that do not fit     rows of our key groups are copied: from a subtask with one database for all
                              (FORMAT_WHOLE), from states that subtasks stored in different forms, from a
                              shard with more than half of our key groups (it could not be divided again),
                              from more shards than a store may have

Shards that are opened as they are come first, then the other key groups get new ones, then rows are copied.
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
from unistream.state.common.groups import of_groups
from unistream.state.common.migration import key_schema_of
from unistream.state.common.pickled import check_allowed
from unistream.state.rocksdb.api import FORMAT, FORMAT_WHOLE, READ_CACHE_BYTES, Memory, shown_as_database
from unistream.state.rocksdb.keys import KeyBytes
from unistream.state.rocksdb.shards import Families, Groups, Shards, label_of
from unistream.state.rocksdb.snapshot import decode_descriptors
from unistream.state.rocksdb.store import Store
from unistream.state.rocksdb.values import StateLayout


@dataclass(frozen=True, slots=True)
class _FetchedDatabase:
    """A fetched database, in `folder`/<its label>. `groups`: its key groups; `wanted`: ours among them."""

    folder: Path
    groups: Groups
    wanted: Groups
    keys: KeyBytes
    layouts: tuple[StateLayout, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Restorer:
    """Restores one backend, once, before its first state.

    Args:
        store: Gets the rows.
        declare_keys: Declares the key columns in the backend, and returns their encoding.
        clock: For times to live.
        allow_pickled: Whether pickled state may be restored.
    """

    store: Store
    declare_keys: Callable[[pa.Schema], KeyBytes]
    clock: Clock
    allow_pickled: bool

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        """Removes the folders of files afterwards.

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
        check_allowed("", pickled=part.pickled, allowed=self.allow_pickled)

    def _stored(self, part: RestoredFiles) -> list[_FetchedDatabase]:
        """The databases of an old subtask with key groups of ours, each in its own folder."""
        found, key_schema, stored_layouts = decode_descriptors(part.descriptors)
        keys = self.declare_keys(key_schema)
        layouts = tuple(replace(layout, schema=with_keys(layout.schema, keys)) for layout in stored_layouts)
        self.store.numbers.next = max(self.store.numbers.next, found.next_number)
        whole = part.format == FORMAT_WHOLE
        stored = []
        for groups in [part.key_groups] if whole else found.shards:
            wanted = intersect(groups, self.store.key_groups)
            if wanted is not None:
                _gather(part.folder, groups, prefix="" if whole else f"{label_of(groups)}.")
                stored.append(_FetchedDatabase(part.folder, groups, wanted, keys, layouts, whole))
        return stored

    def _restore_files(self, stored: list[_FetchedDatabase]) -> None:
        adopted = [one for one in stored if len(stored) <= self.store.shards_max and self._fits(one)]
        for one in adopted:
            folder = one.folder / label_of(one.groups)
            self.store.shards.adopt(folder, one.wanted, cut=one.wanted != one.groups)
        for one in stored:
            if one not in adopted:
                self._copy(one)

    def _fits(self, stored: _FetchedDatabase) -> bool:
        """It can be one of our shards as it is."""
        first, last = self.store.key_groups
        width = stored.wanted[1] - stored.wanted[0] + 1
        shards_min = min(2, self.store.shards_wanted)
        if stored.whole or width > max(1, (last - first + 1) // shards_min):
            return False
        targets = [self.store.target(layout, family=layout.family) for layout in stored.layouts]
        pairs = zip(targets, stored.layouts, strict=True)
        return all(one.family == other.family and one.schema.equals(other.schema) for one, other in pairs)

    def _copy(self, stored: _FetchedDatabase) -> None:
        """Writes its rows of our key groups into our own databases."""
        source = Shards(stored.folder, Memory(READ_CACHE_BYTES), read_only=True)
        try:
            source.add(stored.groups).open()
            for layout in stored.layouts:
                rows = Families(source, layout.family).rows(stored.wanted)
                self.store.write(self.store.target(layout), rows)
        finally:
            source.close()

    def _restore_table(self, table: StateTable) -> None:
        check_allowed(table.name, pickled=table.pickled, allowed=self.allow_pickled)
        keys = self.declare_keys(key_schema_of(table.schema))
        schema = with_keys(table.schema, keys)
        layout = self.store.target(StateLayout(table.name, table.kind, table.pickled, schema, ""))
        batches = (of_groups(batch, *self.store.key_groups) for batch in table.batches)
        self.store.load(layout, batches, keys, self.clock.wall_ms())


def _gather(folder: Path, groups: Groups, *, prefix: str) -> None:
    """Puts the files of one database into a folder of their own."""
    target = folder / label_of(groups)
    files = [path for path in folder.iterdir() if path.is_file() and path.name.startswith(prefix)]
    target.mkdir()
    for path in files:
        path.rename(target / path.name.removeprefix(prefix))
    shown_as_database(target)


def with_keys(table: pa.Schema, keys: KeyBytes) -> pa.Schema:
    """A table's columns, with the key columns of this backend: texts are one key in each layout."""
    for column in keys.schema:
        table = table.set(table.get_field_index(column.name), column)
    return table
