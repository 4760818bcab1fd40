"""RocksDB state as it was at a barrier: a folder of hard links, one below it for each shard.

    flush, hard links          at once, on the task's thread (what was not written to files yet is written)
    files()                    the links, for a checkpoint that keeps RocksDB's own files, by their shards
    tables()                   the folder opened for reading, for a savepoint or a full checkpoint
    release()                  the folder is removed

Immutable `.sst` files are stored once: `Uploads` knows where those lie that a completed checkpoint names.
The `MANIFEST` of a shard, which lists its files, belongs to one checkpoint alone. There is no log: a
checkpoint has it all. `CURRENT` and `OPTIONS` are not stored: they say nothing that is not known.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.model.keyed_snapshot import FileOfSet, FileSet, StateKind, StateTable
from unistream.state.common import Uploads
from unistream.state.rocksdb.api import FORMAT, LIST, READ_CACHE_BYTES, Memory, database_files
from unistream.state.rocksdb.keys import GROUP_BYTES, KeyBytes
from unistream.state.rocksdb.shards import Families, Groups, Shards, label_of
from unistream.state.rocksdb.values import Layout, is_empty, table_of


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """A state in the files. `schema`: of its table, as an Arrow IPC message."""

    name: str
    kind: StateKind
    pickled: bool
    schema: bytes
    family: str


class Descriptors(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known to read the files.

    Attributes:
        keys: The key columns, as an Arrow IPC message.
        max_parallelism: Number of key groups.
        next_number: Greater than that of every element of a list.
        shards: Key groups of each database; none in FORMAT_WHOLE, where there is but one.
    """

    keys: bytes
    max_parallelism: int
    next_number: int
    states: tuple[StoredState, ...]
    shards: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """`Descriptors`, with schemas."""

    keys: pa.Schema
    next_number: int
    layouts: tuple[Layout, ...]
    shards: tuple[Groups, ...]


def encode_descriptors(
    codec: KeyBytes,
    layouts: Iterable[Layout],
    max_parallelism: int,
    next_number: int,
    shards: Iterable[Groups],
) -> bytes:
    """For `FileSet.descriptors`."""
    states = tuple(
        StoredState(
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


def decode_descriptors(content: bytes) -> Described:
    """Raises CorruptSnapshot for what is no description."""
    try:
        found = msgspec.msgpack.decode(content, type=Descriptors)
        layouts = tuple(
            Layout(state.name, state.kind, state.pickled, _schema(state.schema), state.family)
            for state in found.states
        )
        return Described(
            keys=_schema(found.keys), next_number=found.next_number, layouts=layouts, shards=found.shards
        )
    except (msgspec.MsgspecError, pa.ArrowException, OSError) as error:
        raise CorruptSnapshot(f"RocksDB state without a description that can be read: {error}") from error


def _schema(content: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(content))


class RocksDbSnapshot:
    """`model.keyed_snapshot.KeyedSnapshot` over a folder of links. Owns the folder.

    Args:
        folder: None: there was no state at all.
        shards: Key groups of the shards that had rows.
        file_keys: First and last key of files, by their names; of those that are not there it is not known.
    """

    def __init__(
        self,
        *,
        checkpoint_id: CheckpointId,
        folder: Path | None,
        codec: KeyBytes | None,
        layouts: list[Layout],
        descriptors: bytes,
        key_groups: Groups,
        shards: Sequence[Groups],
        file_keys: Mapping[str, tuple[bytes, bytes]],
        uploads: Uploads,
        now_ms: int,
    ) -> None:
        self._checkpoint_id = checkpoint_id
        self._folder = folder
        self._codec = codec
        self._layouts = layouts
        self._descriptors = descriptors
        self._key_groups = key_groups
        self._shards = shards
        self._file_keys = file_keys
        self._uploads = uploads
        self._known = uploads.known()
        self._now_ms = now_ms
        self._reading: Shards | None = None

    def tables(self) -> Iterator[StateTable]:
        if self._folder is None or self._codec is None:
            return
        if self._reading is None:
            self._reading = Shards(self._folder, Memory(READ_CACHE_BYTES), read_only=True)
            for groups in self._shards:
                self._reading.add(groups).open()
        for layout in self._layouts:
            families = Families(self._reading, layout.family)
            if not is_empty(families, self._key_groups):
                yield table_of(layout, families, self._codec, self._key_groups, self._now_ms)

    def files(self) -> FileSet | None:
        if self._folder is None:
            return None
        return FileSet(
            format=FORMAT,
            key_groups=self._key_groups,
            files=tuple(
                file
                for groups in self._shards
                for file in self._files_of(groups, self._folder / label_of(groups))
            ),
            descriptors=self._descriptors,
            pickled=any(layout.pickled for layout in self._layouts),
            remember=lambda refs: self._uploads.remember(self._checkpoint_id, refs),
        )

    def _files_of(self, shard: Groups, folder: Path) -> Iterator[FileOfSet]:
        rows, metadata = database_files(folder)
        for path in rows:
            name = f"{folder.name}.{path.name}"
            groups, stored = self._groups_of(name, shard), self._known.get(name)
            yield FileOfSet(name=name, path=path, key_groups=groups, stored=stored, shard=shard)
        for path in metadata:
            if path.name.startswith(LIST):
                name = f"{folder.name}.{path.name}"
                yield FileOfSet(name=name, path=path, key_groups=None, shard=shard)

    def release(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _groups_of(self, name: str, shard: Groups) -> Groups:
        """Key groups of the rows in a file, as far as they are known; else all of its shard."""
        first, last = shard
        keys = self._file_keys.get(name)
        if keys is None or len(keys[0]) < GROUP_BYTES:
            return shard
        low, high = (int.from_bytes(key[:GROUP_BYTES], "big") for key in keys)
        return max(first, min(low, last)), max(first, min(high, last))
