"""Counts by key in files that do not change: a state backend whose snapshots share files, without a disk.

    put               in memory
    snapshot()        writes the changes since the last one to a new file; if there are `merge_at` files, it
                      writes all counts to one new file instead
    files()           those files, and a list of them that belongs to this snapshot alone
    tables()          all counts as a table, for a savepoint in the canonical format
    restore           files of any number of former subtasks, or tables; the first snapshot stores all again

The rules of the RocksDB backend (`state.common.Uploads`) say which files a completed checkpoint has already
stored; the product stores, acknowledges, names, restores and removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.key_groups import key_groups
from unistream.model.keyed_snapshot import FileOfSet, FileSet, RestoredFiles, StateKind, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import VALUE_COLUMN
from unistream.state.common import Uploads

FORMAT: Final = "sim-sst-1"
LIST: Final = "LIST"  # file with the names of the others, oldest first

Row = tuple[int, int, int]  # key group, key, count
Disk = MutableMapping[Path, bytes]
"""Local files of all workers; no two attempts share a path."""


@dataclass(slots=True, kw_only=True)
class SstState:
    """Counts of one operator of one subtask.

    Args:
        folder: The attempt's own.
        schema: Columns of its table: key group, key, count.
        merge_at: Most files.
    """

    disk: Disk
    folder: Path
    schema: pa.Schema
    key_groups: tuple[int, int]
    max_parallelism: int
    merge_at: int
    uploads: Uploads = field(default_factory=Uploads)
    _counts: dict[int, int] = field(default_factory=dict)
    _groups: dict[int, int] = field(default_factory=dict)
    _changed: dict[int, None] = field(default_factory=dict)
    _live: dict[str, bytes] = field(default_factory=dict)  # oldest first
    _flushed: int = 0

    def get(self, key: int) -> int:
        return self._counts.get(key, 0)

    def put(self, key: int, count: int) -> None:
        self._counts[key] = count
        self._changed[key] = None

    def snapshot(self, checkpoint_id: CheckpointId) -> SstSnapshot:
        """The present counts, in files."""
        if self._changed:
            if len(self._live) >= self.merge_at:
                self._live.clear()
                self._changed = dict.fromkeys(self._counts)
            self._flushed += 1
            self._live[f"{self._flushed:06d}.sst"] = msgspec.msgpack.encode(self._rows(self._changed))
            self._changed = {}
        return SstSnapshot(self, checkpoint_id, self._live)

    def restore(self, parts: Sequence[StateTable | RestoredFiles]) -> None:
        """Restores the rows of its own key groups."""
        first, last = self.key_groups
        for part in parts:
            rows = self._rows_in(part) if isinstance(part, RestoredFiles) else _rows_of(part)
            for group, key, count in rows:
                if first <= group <= last:
                    self._groups[key] = group
                    self.put(key, count)

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """Lets later checkpoints refer to the files of this one."""
        self.uploads.complete(checkpoint_id)

    def _rows(self, keys: Sequence[int] | dict[int, None]) -> list[Row]:
        new = [key for key in keys if key not in self._groups]
        if new:
            column = self.schema.field(1)
            batch = pa.RecordBatch.from_arrays([pa.array(new, column.type)], names=[column.name])
            found = key_groups(batch, [column.name], self.max_parallelism)
            self._groups.update(zip(new, found.tolist(), strict=True))
        return [(self._groups[key], key, self._counts[key]) for key in keys]

    def _rows_in(self, part: RestoredFiles) -> Iterator[Row]:
        """The rows of the files, the oldest first: the last count of a key is valid. The files are
        removed."""
        if part.format != FORMAT:
            raise ConfigError(f"state was stored in the format {part.format!r}, not in {FORMAT}")
        for name in msgspec.msgpack.decode(self.disk.pop(part.folder / LIST), type=list[str]):
            yield from msgspec.msgpack.decode(self.disk.pop(part.folder / name), type=list[Row])
        part.folder.rmdir()


class SstSnapshot:
    """`model.keyed_snapshot.KeyedSnapshot`: links to the files of that time. Owns the links."""

    def __init__(self, state: SstState, checkpoint_id: CheckpointId, live: Mapping[str, bytes]) -> None:
        self._state = state
        self._checkpoint_id = checkpoint_id
        folder = state.folder / f"snapshot-{checkpoint_id}"
        self._links = {name: folder / name for name in live}
        self._list = folder / LIST
        state.disk.update({self._links[name]: content for name, content in live.items()})
        state.disk[self._list] = msgspec.msgpack.encode(list(live))
        self._known = state.uploads.known()

    def tables(self) -> Iterator[StateTable]:
        counts: dict[int, tuple[int, int]] = {}
        for link in self._links.values():
            for group, key, count in msgspec.msgpack.decode(self._state.disk[link], type=list[Row]):
                counts[key] = group, count
        if counts:
            rows = sorted((group, key, count) for key, (group, count) in counts.items())
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), self._state.schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._state.schema)
            yield StateTable(
                name="count", kind=StateKind.VALUE, pickled=False, schema=self._state.schema, batches=[batch]
            )

    def files(self) -> FileSet | None:
        if not self._links:
            return None
        rows = (
            FileOfSet(name=name, path=link, key_groups=self._state.key_groups, stored=self._known.get(name))
            for name, link in self._links.items()
        )
        return FileSet(
            format=FORMAT,
            key_groups=self._state.key_groups,
            files=(*rows, FileOfSet(name=LIST, path=self._list, key_groups=None)),
            descriptors=b"",
            pickled=False,
            remember=lambda refs: self._state.uploads.remember(self._checkpoint_id, refs),
        )

    def release(self) -> None:
        for link in (*self._links.values(), self._list):
            self._state.disk.pop(link, None)
        self._links = {}


def _rows_of(table: StateTable) -> Iterator[Row]:
    for batch in table.batches:
        key = next(name for name in batch.schema.names if name not in (KEY_GROUP_COLUMN, VALUE_COLUMN))
        columns = (batch.column(name).to_pylist() for name in (KEY_GROUP_COLUMN, key, VALUE_COLUMN))
        yield from zip(*columns, strict=True)
