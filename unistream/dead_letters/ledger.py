"""What is durable of the replays of a table of letters, next to it.

    <table>/_unistream_replays/
      replayed/            which letters were replayed: files that the job of each replay commits, in the same
                           checkpoints as its rows
      <id>/letters.parquet the letters of a replay, written before `order.json`
      <id>/order.json      it has begun
      <id>/checkpoints/    of its job
      <id>/done.json       its job has finished

A process that is killed leaves a replay that is not done. What its job has committed is listed by a
checkpoint, or in `replayed`, if the job had ended and its checkpoints were removed; otherwise it has
committed nothing. The job of a replay that a cluster has begun goes on without its caller: whether it
runs only that cluster knows (`clustered`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from typing import Final

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unistream.base import durable_files
from unistream.base.closing import Closing
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.object_stores import file_system
from unistream.base.os_failures import failure
from unistream.base.parquet_files import parquet_file
from unistream.client.machine import home
from unistream.storage.fs import FsCheckpointStorage

FOLDER: Final = "_unistream_replays"
REPLAYED: Final = "replayed"
LOCKS: Final = "replays"  # below $UNISTREAM_HOME
FORMAT: Final = 1
FORMAT_OF_CLUSTERS: Final = 2  # earlier versions would take its job for dead
REPLAYED_SCHEMA: Final = pa.schema([("letter", pa.string()), ("replay", pa.string())])


class ReplayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One replay.

    Attributes:
        id: Of the replay.
        operator: Uid of the operator that gets the rows.
        pipeline: ``MODULE:FUNCTION``, for people.
        letters: Number of them.
        host, pid: Of the process that began it.
        begun_ms: When, wall clock.
        cluster: That runs its job; empty: its job is in the process that began it, and ends with that.
        mark: Of the JobManager that began it (`base.process_mark`), if its jobs end with it; empty: they may
            go on under another one.
    """

    id: str
    operator: str
    pipeline: str
    letters: int
    host: str
    pid: int
    begun_ms: int
    cluster: str = ""
    mark: str = ""
    format: int = FORMAT


class ReplayEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a replay. `job`: its last one; empty: not known, since its process was killed then."""

    id: str
    ended_ms: int
    job: str = ""


class Ledger:
    """The replays of the table at `uri`, an absolute path or a URL."""

    def __init__(self, uri: str) -> None:
        self._system, inner = file_system(uri)
        self._inner = f"{inner.rstrip('/')}/{FOLDER}"
        self.folder = f"{uri.rstrip('/')}/{FOLDER}"

    @property
    def replayed_folder(self) -> str:
        return f"{self.folder}/{REPLAYED}"

    def letters_file(self, replay: str) -> str:
        return f"{self.folder}/{replay}/letters.parquet"

    def checkpoints_folder(self, replay: str) -> str:
        return f"{self.folder}/{replay}/checkpoints"

    def replayed(self) -> pa.Table:
        """Letters that were replayed, each with the replay. Raises Unreachable."""
        folder = f"{self._inner}/{REPLAYED}"
        try:
            if not self._system.exists(folder):
                return REPLAYED_SCHEMA.empty_table()
            self._system.invalidate_cache()
            paths = [path for path in self._system.ls(folder, detail=False) if _is_visible(path)]
            tables = [self._parquet(path).select(REPLAYED_SCHEMA.names) for path in sorted(paths)]
        except OSError as error:
            raise failure(f"{self.folder} could not be read", error) from error
        return pa.concat_tables([REPLAYED_SCHEMA.empty_table(), *tables])

    def unfinished(self) -> list[ReplayOrder]:
        """Replays that have begun and are not done, oldest first. Raises CorruptSnapshot, Unreachable."""
        found = [order for order in self._orders() if not self._exists(f"{order.id}/done.json")]
        return sorted(found, key=lambda order: order.begun_ms)

    def begin(self, order: ReplayOrder, letters: pa.Table) -> None:
        """Durable when it returns: first the letters, then that there is a replay."""
        sink = pa.BufferOutputStream()
        pq.write_table(letters, sink)
        self._write(f"{order.id}/letters.parquet", bytes(sink.getvalue()))
        self._write(f"{order.id}/order.json", msgspec.json.encode(order))

    def take_over(self, order: ReplayOrder) -> None:
        """It is another one's from now on. Durable when it returns."""
        self._write(f"{order.id}/order.json", msgspec.json.encode(order))

    def is_recorded(self, order: ReplayOrder) -> bool:
        """All of its letters were replayed, and its job needs no checkpoint any more: it has ended, in
        whatever process. Looked for twice: while a job ends, a checkpoint may be replaced by its last one."""
        letters = self._parquet(f"{self._inner}/{order.id}/letters.parquet")["letter"].to_pylist()
        replayed = self.replayed()
        done = replayed.filter(pc.equal(replayed["replay"], order.id))["letter"].to_pylist()
        if not set(letters) <= set(done):
            return False
        return all(self.newest_checkpoint(order.id) is None for _ in range(2))

    def is_noted(self, order: ReplayOrder) -> bool:
        """Letters of it were replayed."""
        return order.id in pc.unique(self.replayed()["replay"]).to_pylist()

    def has_ended(self, replay: str) -> bool:
        """`end` was called."""
        return self._exists(f"{replay}/done.json")

    def end(self, done: ReplayEnd) -> None:
        """Durable when it returns; safe to repeat."""
        self._write(f"{done.id}/done.json", msgspec.json.encode(done))

    def withdraw(self, order: ReplayOrder) -> None:
        """A replay that has committed nothing: its letters can be replayed by another one."""
        folder = f"{self._inner}/{order.id}"
        self._system.rm_file(f"{folder}/order.json")
        self._system.rm(folder, recursive=True)

    def newest_checkpoint(self, replay: str) -> str | None:
        """Directory of the newest complete one of the jobs of a replay; None: there is none."""
        folder = f"{self._inner}/{replay}/checkpoints"
        if not self._system.exists(folder):
            return None
        self._system.invalidate_cache()
        storage = FsCheckpointStorage(self.checkpoints_folder(replay))
        found = [
            (one.manifest.timestamp_ms, one.manifest.checkpoint_id, one.directory)
            for path in self._system.ls(folder, detail=False)
            for one in storage.completed(path.rstrip("/").rpartition("/")[2])
        ]
        return max(found)[2] if found else None

    def _orders(self) -> Iterator[ReplayOrder]:
        if not self._system.exists(self._inner):
            return
        self._system.invalidate_cache()
        for path in self._system.ls(self._inner, detail=False):
            name = path.rstrip("/").rpartition("/")[2]
            if not self._exists(f"{name}/order.json"):
                continue
            try:
                order = msgspec.json.decode(self._system.cat_file(f"{path}/order.json"), type=ReplayOrder)
            except UNDECODABLE as error:
                raise CorruptSnapshot(f"{self.folder}/{name}/order.json is unreadable: {error}") from error
            if order.format not in (FORMAT, FORMAT_OF_CLUSTERS):
                raise CorruptSnapshot(
                    f"{self.folder}/{name} has format {order.format}, this version reads {FORMAT_OF_CLUSTERS}"
                )
            yield order

    def _exists(self, name: str) -> bool:
        return bool(self._system.exists(f"{self._inner}/{name}"))

    def _parquet(self, path: str) -> pa.Table:
        """Reads a Parquet file from its bytes: Arrow reads a file of Python on a thread of its own, which
        aborts the process if that ends meanwhile."""
        return parquet_file(pa.BufferReader(self._system.cat_file(path))).read(use_threads=False)

    def _write(self, name: str, content: bytes) -> None:
        path = f"{self._inner}/{name}"
        try:
            if _is_local(self._system):
                durable_files.make_folders(os.path.dirname(path), shared=True)
                target = durable_files.Path(path)
                temporary = durable_files.temporary_of(target)
                durable_files.write(temporary, content, shared=True)
                temporary.replace(target)
                durable_files.sync(target.parent)
            else:
                self._system.pipe_file(path, content)  # object stores have no half-written objects
        except OSError as error:
            raise failure(f"{self.folder}/{name} could not be written", error) from error


class TableLock(Closing):
    """Held by the process of this machine that replays letters of a table, from construction until `close`;
    the kernel releases it with the process.

    Raises:
        ConfigError: another process has it.
    """

    def __init__(self, uri: str) -> None:
        folder = home.home() / LOCKS
        durable_files.make_folders(folder)
        path = folder / f"{hashlib.sha256(uri.encode()).hexdigest()[:32]}.lock"
        self._descriptor: int | None = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise ConfigError(
                f"another process replays letters of {uri} ({path} is locked); wait for it"
            ) from None

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _is_visible(path: str) -> bool:
    return path.endswith(".parquet") and not path.rpartition("/")[2].startswith((".", "_"))


def _is_local(system: fsspec.AbstractFileSystem) -> bool:
    return "file" in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol)
