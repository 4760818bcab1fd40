"""A state file that is being written, and gets its name as a whole.

    a local store   a hidden file next to its later name ── synced, then named ──► the hidden name is removed
    others          memory, or a local file without a name ── sent as a whole ──► visible

Small files stay in memory until they are complete; those that grow past `SPOOL_BYTES_MAX` are spooled to the
disk. Sending is a multipart upload, which becomes visible at its end.

A killed process leaves nothing that looks like a state file. A file without a name ends with its process. A
hidden file belongs to its directory: it is removed with that of an aborted snapshot, and from the folder that
checkpoints share when the job has ended (`clean_shared`).
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from unistream.base.crash_points import crash_point
from unistream.base.limits import MIB
from unistream.base.object_stores import is_s3
from unistream.model.file_ref import FileRef
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.location import Location, transient

HASH_ASIDE_BYTES_MIN: Final = 4 * MIB  # below it a second thread costs more than it saves
SPOOL_BYTES_MAX: Final = 8 * MIB  # of an unfinished file that stay in memory


def create_file(target: Location, content: memoryview) -> str:
    """Makes the file with these bytes; their SHA-256 in hex. Raises OSError."""
    fs = target.fs
    if isinstance(fs, DurableLocalFileSystem):
        return _hash_while(content, lambda: _create_local(fs, target, content))
    stored = content if target.is_local else bytes(content)
    return _hash_while(content, lambda: fs.pipe_file(target.path, stored, mode=_mode(target)))


def writing(target: Location) -> AbstractContextManager[None]:
    """An OSError inside of the context becomes Transient."""
    return transient(f"cannot write the state file {target.url}")


class AtomicCounter:
    """A sum that several threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def add(self, amount: int) -> None:
        with self._lock:
            self._total += amount


class GrowingFile:
    """`unistream.port.storage.StateFile`. Made by `FsStateWriter.open`.

    Args:
        store: Stores a small file.
        name: A location as a manifest names it.
        written: Bytes of stored files.
    """

    def __init__(
        self,
        target: Location,
        store: Callable[[Location, memoryview], FileRef],
        name: Callable[[Location], str],
        written: AtomicCounter,
    ) -> None:
        self._target = target
        self._store = store
        self._name = name
        self._written = written
        self._pieces: list[bytes] = []
        self._size = 0
        self._digest = hashlib.sha256()
        self._spool: IO[bytes] | None = None
        self._ref: FileRef | None = None

    @property
    def ref(self) -> FileRef:
        assert self._ref is not None, "the file is not finished"
        return self._ref

    def __enter__(self) -> GrowingFile:
        return self

    def write(self, content: bytes | memoryview) -> None:
        self._size += len(content)
        if self._spool is None and self._size <= SPOOL_BYTES_MAX:
            self._pieces.append(bytes(content))
            return
        with writing(self._target):
            if self._spool is None:
                self._spool = self._begin_spool()
            self._append(self._spool, content)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._ref = self._finish()
        finally:
            self._pieces.clear()
            if self._spool is not None:
                _drop(self._spool)

    def _begin_spool(self) -> IO[bytes]:
        self._spool = self._new_spool()
        self._append(self._spool, b"".join(self._pieces))
        self._pieces.clear()
        _reach_half(self._spool)
        return self._spool

    def _new_spool(self) -> IO[bytes]:
        fs, path = self._target.fs, self._target.path
        return fs.temporary_for(path) if isinstance(fs, DurableLocalFileSystem) else tempfile.TemporaryFile()

    def _append(self, spool: IO[bytes], content: bytes | memoryview) -> None:
        spool.write(content)
        self._digest.update(content)

    def _finish(self) -> FileRef:
        if self._spool is None:
            return self._store(self._target, memoryview(b"".join(self._pieces)))
        target = self._target
        with writing(target):
            if isinstance(target.fs, DurableLocalFileSystem):
                _give_name(target.fs, self._spool, target)
            else:
                self._spool.seek(0)  # also flushes; the position is shared with the file opened by number
                target.fs.put_file(f"/dev/fd/{self._spool.fileno()}", target.path, mode=_mode(target))
        self._written.add(self._size)
        return FileRef(path=self._name(target), size=self._size, sha256=self._digest.hexdigest())


def _mode(target: Location) -> str:
    """The name is random, so nobody else has it. On S3 a put that was repeated because its answer was lost
    would find its own object and fail, so it replaces that."""
    return "overwrite" if is_s3(target.url) else "create"


# --- a local file -------------------------------------------------------------------------------------


def _create_local(fs: DurableLocalFileSystem, target: Location, content: memoryview) -> None:
    half = len(content) // 2
    file = fs.temporary_for(target.path)
    try:
        file.write(content[:half])
        _reach_half(file)
        file.write(content[half:])
        _give_name(fs, file, target)
    finally:
        _drop(file)


def _reach_half(file: IO[bytes]) -> None:
    file.flush()
    crash_point("snapshot.half_written")


def _give_name(fs: DurableLocalFileSystem, file: IO[bytes], target: Location) -> None:
    file.flush()
    crash_point("snapshot.unnamed")
    fs.name_temporary(file, target.path)


def _drop(file: IO[bytes]) -> None:
    """Closes it, and removes its hidden name."""
    if isinstance(file.name, str):
        Path(file.name).unlink(missing_ok=True)
    with suppress(OSError):  # of bytes that could not be written
        file.close()


def _hash_while(content: memoryview, write: Callable[[], object]) -> str:
    """SHA-256 in hex of `content`, computed in parallel with `write` if it is large."""
    if len(content) < HASH_ASIDE_BYTES_MIN:
        write()
        return hashlib.sha256(content).hexdigest()
    with ThreadPoolExecutor(1, "state-hash") as pool:
        digest = pool.submit(lambda: hashlib.sha256(content).hexdigest())
        write()
        return digest.result()
