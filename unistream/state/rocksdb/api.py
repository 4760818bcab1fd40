"""RocksDB as this project needs it. The only module that knows the package `rocksdict`.

Its pitfalls (checked by tests/contract/test_contract_rocksdict.py):

- An iterator over `Rdict.snapshot()` reads the newest data, not the snapshot (0.3.29), so a consistent view
  is a checkpoint: hard links in a folder, opened for reading.
- There is no compaction filter in Python: expired rows are deleted when they are read (`sweep`).
- Opening a database writes a file `rocksdict-config.json`, which nothing else needs.
- `Checkpoint.create_checkpoint` holds the interpreter's lock, `flush` does not: so flush first.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import rocksdict

from unistream.base.errors import CorruptSnapshot, Transient
from unistream.base.limits import MIB

FORMAT: Final = "rocksdb-2"  # of the key layout and of the files: a database for each part of the key groups
FORMAT_WHOLE: Final = "rocksdb-1"  # one database for all key groups of a subtask; is read, never written
MEMORY_BYTES_MIN: Final = 8 * MIB
READ_CACHE_BYTES: Final = 8 * MIB  # of a database that is read once
OPEN_FILES_MAX: Final = 512  # of databases that share their memory; more are closed and opened again
OPEN_FILES_MIN: Final = 64  # of one database
_DEFAULT: Final = "default"
LIST: Final = "MANIFEST-"  # prefix of the file that lists the others
_METADATA: Final = ("CURRENT", LIST, "OPTIONS-")

_MERGED_DELETIONS: Final = (1024, 512, 0.5)
"""A file is compacted if of any 1024 rows in it 512 are deletions, or half of all: otherwise deleted rows
stay in checkpoints until the file is compacted for another reason."""

Family = Any
"""A column family: `get(key or list of keys)`, `[key] = value`, `del [key]`, bytes to bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDbTuning:
    """How a database uses its memory and its threads. The defaults are Flink's.

    Attributes:
        write_buffer_ratio: Share of the memory for write buffers; the rest is a cache of blocks and indices.
        threads: For flushes and compactions in the background.
        bloom_bits: Of the Bloom filters, per key; 0: none.
        shards: Databases of a subtask, each with a part of its key groups (see `shards`).
    """

    write_buffer_ratio: float = 0.5
    threads: int = 2
    bloom_bits: int = 10
    shards: int = 4


class Memory:
    """Memory that databases share: cached blocks, indices, filters, and write buffers.

    As in Flink, buffers may grow to 3/2 of the limit of their manager before they are flushed.

    Args:
        memory_bytes: For all column families of all databases together; at least MEMORY_BYTES_MIN.
        databases: The largest number of them.
    """

    def __init__(self, memory_bytes: int, tuning: RocksDbTuning | None = None, *, databases: int = 1) -> None:
        self.tuning = tuning or RocksDbTuning()
        self.databases = databases
        total, ratio = max(memory_bytes, MEMORY_BYTES_MIN), self.tuning.write_buffer_ratio
        self.buffer_bytes = int(total * 2 * ratio / 3)
        self.cache = rocksdict.Cache(int(total * (3 - ratio) / 3))
        self.buffers = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
            self.buffer_bytes, False, self.cache
        )

    def used(self) -> int:
        """Bytes of cached blocks and write buffers."""
        return int(self.cache.get_usage())


class RocksDb:
    """One RocksDB in its own folder. Only checkpoints of it are durable: there is no write-ahead log.

    Args:
        folder: Made if it is absent; the caller removes it after `close`.
        memory: For all column families together: bytes, or memory shared with other databases.

    Raises:
        CorruptSnapshot: the files in the folder cannot be opened.
    """

    def __init__(self, folder: Path, memory: int | Memory, *, read_only: bool = False) -> None:
        self.folder = folder
        self._memory = memory if isinstance(memory, Memory) else Memory(memory)
        self._read_only = read_only
        self._options = self._new_options()
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]  # a property
        self._families: dict[str, Family] = {}
        try:
            names = rocksdict.Rdict.list_cf(str(folder), self._options) if _exists(folder) else []
            self._db: Any = self._open({name: self._options for name in names if name != _DEFAULT})
            for name in names:
                self._bind(name)
        except Exception as error:  # rocksdict raises nothing more special
            raise CorruptSnapshot(f"the RocksDB files in {folder} cannot be opened: {error}") from error

    def _open(self, families: dict[str, Any]) -> Any:
        access = (
            rocksdict.AccessType.read_only(False) if self._read_only else rocksdict.AccessType.read_write()
        )
        database = rocksdict.Rdict(str(self.folder), self._options, families, access)
        database.set_write_options(self._write_options)
        return database

    def _new_options(self) -> Any:
        memory, tuning = self._memory, self._memory.tuning
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(not self._read_only)
        options.create_missing_column_families(not self._read_only)
        options.set_max_open_files(max(OPEN_FILES_MIN, OPEN_FILES_MAX // memory.databases))
        options.set_max_background_jobs(tuning.threads)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(MIB)
        options.set_stats_dump_period_sec(0)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.add_compact_on_deletion_collector_factory(*_MERGED_DELETIONS)
        options.set_write_buffer_manager(memory.buffers)
        options.set_write_buffer_size(max(MIB, min(64 * MIB, memory.buffer_bytes // 2)))
        # each column family with rows holds at least one: all of them must fit into the buffers
        arena = memory.buffer_bytes // (16 * memory.databases)
        options.set_arena_block_size(max(64 * 1024 // memory.databases, min(MIB, arena)))
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(memory.cache)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        if tuning.bloom_bits:
            blocks.set_bloom_filter(tuning.bloom_bits, False)
        options.set_block_based_table_factory(blocks)
        return options

    def family(self, name: str) -> Family:
        """The column family of that name; made if it is absent."""
        if name not in self._families:
            self._db.create_column_family(name, self._options)
            self._bind(name)
        return self._families[name]

    def _bind(self, name: str) -> None:
        family = self._db.get_column_family(name)
        family.set_write_options(self._write_options)
        self._families[name] = family

    def has(self, name: str) -> bool:
        return name in self._families

    def drop(self, name: str) -> None:
        self._families.pop(name).close()
        self._db.drop_column_family(name)

    def write(self, name: str, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Puts (None: deletes) many rows of a column family at once, in this order."""
        self.family(name)
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._db.get_column_family_handle(name))
        for key, value in rows:
            if value is None:
                del batch[key]
            else:
                batch[key] = value
        self._db.write(batch, self._write_options)

    def written(self) -> int:
        """The number of the latest change; every put or deleted row has one."""
        return int(self._db.latest_sequence_number())

    def clip(self, first: bytes, stop: bytes) -> None:
        """Removes all rows except those with keys in [first, stop)."""
        for name, family in self._families.items():
            if name != _DEFAULT:
                family.delete_range(b"", first)
                family.delete_range(stop, b"\xff" * 16)

    def begin_flush(self) -> None:
        """Starts to flush write buffers in the background; `checkpoint` waits. Raises Transient."""
        try:
            for family in self._with_rows():
                family.flush(False)
        except Exception as error:  # rocksdict raises nothing more special
            raise Transient(f"RocksDB cannot write files in {self.folder}: {error}") from error

    def checkpoint(self, folder: Path) -> None:
        """All current rows as hard links in a new folder. Raises Transient, for instance on a full disk."""
        try:
            for family in self._with_rows():
                family.flush(True)
            rocksdict.Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:  # rocksdict raises nothing more special
            shutil.rmtree(folder, ignore_errors=True)
            raise Transient(f"RocksDB cannot make a checkpoint in {folder}: {error}") from error

    def _with_rows(self) -> list[Family]:
        return [family for name, family in self._families.items() if name != _DEFAULT]

    def file_ranges(self) -> dict[str, tuple[bytes, bytes]]:
        """First and last key of every file with rows, by its name."""
        return {
            str(file["name"]).lstrip("/"): (bytes(file["start_key"] or b""), bytes(file["end_key"] or b""))
            for file in self._db.live_files()
        }

    def close(self) -> None:
        """Files stay. Twice is fine."""
        if self._db is None:
            return
        for family in self._families.values():
            family.close()
        self._families.clear()
        self._db.close()
        self._db = None


def rows_from(family: Family, first: bytes, stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Rows with keys in [first, stop), in order, as of now; without a stop: all with the prefix `first`."""
    rows = family.items(from_key=first)
    if stop is None:
        return itertools.takewhile(lambda row: row[0].startswith(first), rows)
    return itertools.takewhile(lambda row: row[0] < stop, rows)


def shown_as_database(folder: Path) -> None:
    """Adds `CURRENT`, which names the manifest, so that the stored files can be opened as a database.

    Raises:
        CorruptSnapshot: there is not exactly one manifest.
    """
    lists = [path.name for path in folder.iterdir() if path.name.startswith(LIST)]
    if len(lists) != 1:
        raise CorruptSnapshot(f"the RocksDB files in {folder} have {len(lists)} manifests instead of one")
    (folder / "CURRENT").write_text(lists[0] + "\n")


def database_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files in a checkpoint's folder: those with rows, and those with metadata."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    rows = [path for path in files if path.suffix == ".sst"]
    return rows, [path for path in files if path.name.startswith(_METADATA)]


def _exists(folder: Path) -> bool:
    return (folder / "CURRENT").exists()
