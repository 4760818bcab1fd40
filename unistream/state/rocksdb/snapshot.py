"""RocksDB state as it was at a barrier: a folder of hard links, one below it for each shard.

    flush, hard links          at once, on the task's thread
    files()                    the links, for a checkpoint that keeps RocksDB's own files, by their shards
    tables()                   the folder opened for reading, for a savepoint or a full checkpoint
    release()                  removes the folder

Immutable `.sst` files are stored once: `Uploads` has those that a completed checkpoint names. The `MANIFEST`
of a shard, which lists its files, belongs to one checkpoint alone. There is no log: the files have all rows.
`CURRENT` and `OPTIONS` are not stored: their contents are known.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.model.file_ref import FileRef
from unistream.model.keyed_snapshot import FileOfSet, FileSet, StateKind, StateTable
from unistream.state.common.uploads import Uploads
from unistream.state.rocksdb.api import FORMAT, LIST, READ_CACHE_BYTES, Memory, database_files
from unistream.state.rocksdb.keys import GROUP_BYTES, KeyBytes
from unistream.state.rocksdb.shards import Families, Groups, Shards, label_of
from unistream.state.rocksdb.values import StateLayout, is_empty, table_of


class StateMetaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A `StateLayout`. `schema`: of its table, as an Arrow IPC message."""

    name: str
    kind: StateKind
    pickled: bool
    schema: bytes
    family: str


class Descriptors(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to read the files.

    Attributes:
        keys: The key columns, as an Arrow IPC message.
        max_parallelism: Number of key groups.
        next_number: Greater than that of every element of a list.
        shards: Key groups of each database; empty in FORMAT_WHOLE, which has only one.
    """

    keys: bytes
    max_parallelism: int
    next_number: int
    states: tuple[StateMetaInfo, ...]
    shards: tuple[tuple[int, int], ...] = ()


def encode_descriptors(
    codec: KeyBytes,
    layouts: Iterable[StateLayout],
    max_parallelism: int,
    next_number: int,
    shards: Iterable[Groups],
) -> bytes:
    """The description of a store for `FileSet.descriptors`, which `decode_descriptors` reads."""
    states = tuple(
        StateMetaInfo(
            name=layout.name,
            kind=layout.kind,
            pickled=layout.pickled,
            schema=layout.schema.serialize().to_pybytes(),
            family=layout.family,
        )
        for layout in layouts
    )
    return msgspec.msgpack.encode(
        Descriptors(
            keys=codec.schema.serialize().to_pybytes(),
            max_parallelism=max_parallelism,
            next_number=next_number,
            states=states,
            shards=tuple(shards),
        )
    )


def decode_descriptors(content: bytes) -> tuple[Descriptors, pa.Schema, list[StateLayout]]:
    """The description of a store, with the key columns and the layouts that it encodes. Raises
    CorruptSnapshot."""
    try:
        found = msgspec.msgpack.decode(content, type=Descriptors)
        layouts = [StateLayout(s.name, s.kind, s.pickled, _schema(s.schema), s.family) for s in found.states]
        return found, _schema(found.keys), layouts
    except (*UNDECODABLE, pa.ArrowException, OSError) as error:
        raise CorruptSnapshot(f"the description of RocksDB files cannot be read: {error}") from error


def _schema(content: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(content))


@dataclass(slots=True, kw_only=True)
class RocksDbSnapshot:
    """`model.keyed_snapshot.KeyedSnapshot` over a folder of links. Owns the folder.

    Attributes:
        folder: None: there was no state.
        shards: Key groups of the shards that had rows.
        file_keys: First and last key of files, by name, as far as they are known.
        known: Files that a completed checkpoint has stored.
    """

    checkpoint_id: CheckpointId
    folder: Path | None
    codec: KeyBytes | None
    layouts: list[StateLayout]
    descriptors: bytes
    key_groups: Groups
    shards: Sequence[Groups]
    file_keys: Mapping[str, tuple[bytes, bytes]]
    uploads: Uploads
    now_ms: int
    known: dict[str, FileRef] = field(init=False)
    reading: Shards | None = None

    def __post_init__(self) -> None:
        self.known = self.uploads.known()

    def tables(self) -> Iterator[StateTable]:
        if self.folder is None or self.codec is None:
            return
        if self.reading is None:
            self.reading = Shards(self.folder, Memory(READ_CACHE_BYTES), read_only=True)
            for groups in self.shards:
                self.reading.add(groups).open()
        for layout in self.layouts:
            families = Families(self.reading, layout.family)
            if not is_empty(families, self.key_groups):
                yield table_of(layout, families, self.codec, self.key_groups, self.now_ms)

    def files(self) -> FileSet | None:
        if self.folder is None:
            return None
        found = (self._files_of(groups, self.folder / label_of(groups)) for groups in self.shards)
        return FileSet(
            format=FORMAT,
            key_groups=self.key_groups,
            files=tuple(itertools.chain.from_iterable(found)),
            descriptors=self.descriptors,
            pickled=any(layout.pickled for layout in self.layouts),
            remember=lambda refs: self.uploads.remember(self.checkpoint_id, refs),
        )

    def _files_of(self, shard: Groups, folder: Path) -> Iterator[FileOfSet]:
        rows, metadata = database_files(folder)
        for path in rows:
            name = f"{folder.name}.{path.name}"
            groups, stored = self._groups_of(name, shard), self.known.get(name)
            yield FileOfSet(name=name, path=path, key_groups=groups, stored=stored, shard=shard)
        for path in metadata:
            if path.name.startswith(LIST):
                name = f"{folder.name}.{path.name}"
                yield FileOfSet(name=name, path=path, key_groups=None, shard=shard)

    def release(self) -> None:
        if self.reading is not None:
            self.reading.close()
            self.reading = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def _groups_of(self, name: str, shard: Groups) -> Groups:
        """Key groups of the rows in a file, as far as they are known; otherwise all of its shard."""
        first, last = shard
        keys = self.file_keys.get(name)
        if keys is None or len(keys[0]) < GROUP_BYTES:
            return shard
        low, high = (int.from_bytes(key[:GROUP_BYTES], "big") for key in keys)
        return max(first, min(low, last)), max(first, min(high, last))
