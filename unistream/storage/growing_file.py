"""A state file in the making, and how it gets its name: whole, or not at all.

    a local store   a hidden file beside its later name ── synced, then named ──► the hidden name goes
    others          memory, or a file of this machine that has no name ── sent as a whole ──► visible

What is small stays in memory until all of it is there; what grows past `SPOOL_BYTES_MAX` goes to the disk
meanwhile. Sending is a multipart upload, which becomes visible at its end.

Who is killed meanwhile leaves nothing that can be taken for a state file. A file without a name ends with its
process. A hidden one belongs to the directory that it lies in: it goes with its snapshot's when the master
gives that up, and from the folder that checkpoints share when the job has ended (`clean_shared`).
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import Transient
from unistream.base.limits import MIB
from unistream.model.file_ref import FileRef
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.location import Location

HASH_ASIDE_BYTES_MIN: Final = 4 * MIB  # below it a second thread costs more than it hides
SPOOL_BYTES_MAX: Final = 8 * MIB  # of a file in the making that stay in memory


def create_file(target: Location, content: memoryview) -> str:
    """Makes the file with these bytes; their SHA-256 in hex.

    Raises:
        OSError: it could not be written.
    """
    fs = target.fs
    if isinstance(fs, DurableLocalFileSystem):
        return _hash_while(content, lambda: _create_local(fs, target, content))
    stored = content if target.is_local else bytes(content)
    return _hash_while(content, lambda: fs.pipe_file(target.path, stored, mode="create"))


def not_written(target: Location, error: OSError) -> Transient:
    """What the user is told of a file that could not be written."""
    return Transient(f"cannot write the state file {target.url}: {error}")


class Counter:
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
        store: Stores what has stayed small.
        name: A location as a manifest names it.
        written: Bytes of files that were stored.
    """

    def __init__(
        self,
        target: Location,
        store: Callable[[Location, memoryview], FileRef],
        name: Callable[[Location], str],
        written: Counter,
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
        """See the port."""
        assert self._ref is not None, "the file is not finished"
        return self._ref

    def __enter__(self) -> GrowingFile:
        return self

    def write(self, content: bytes | memoryview) -> None:
        """See the port."""
        self._size += len(content)
        if self._spool is None and self._size <= SPOOL_BYTES_MAX:
            self._pieces.append(bytes(content))
            return
        try:
            if self._spool is None:
                self._begin_spool()
            self._append(content)
        except OSError as error:
            raise not_written(self._target, error) from error

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

    def _begin_spool(self) -> None:
        self._spool = self._new_spool()
        self._append(b"".join(self._pieces))
        self._pieces.clear()
        _reach_half(self._spool)

    def _new_spool(self) -> IO[bytes]:
        target = self._target
        if isinstance(target.fs, DurableLocalFileSystem):
            return target.fs.temporary_for(target.path)
        return tempfile.TemporaryFile()

    def _append(self, content: bytes | memoryview) -> None:
        assert self._spool is not None, "there is a spool by now"
        self._spool.write(content)
        self._digest.update(content)

    def _finish(self) -> FileRef:
        if self._spool is None:
            return self._store(self._target, memoryview(b"".join(self._pieces)))
        target = self._target
        try:
            if isinstance(target.fs, DurableLocalFileSystem):
                _give_name(target.fs, self._spool, target)
            else:
                self._spool.seek(0)  # also flushes; the position is shared with what is opened by number
                target.fs.put_file(f"/dev/fd/{self._spool.fileno()}", target.path, mode="create")
        except OSError as error:
            raise not_written(target, error) from error
        self._written.add(self._size)
        return FileRef(path=self._name(target), size=self._size, sha256=self._digest.hexdigest())


# --- a local file -------------------------------------------------------------------------------------


def _create_local(fs: DurableLocalFileSystem, target: Location, content: memoryview) -> None:
    half = len(content) // 2
    with _dropped(fs.temporary_for(target.path)) as file:
        file.write(content[:half])
        _reach_half(file)
        file.write(content[half:])
        _give_name(fs, file, target)


def _reach_half(file: IO[bytes]) -> None:
    file.flush()
    crash_point("snapshot.half_written")


def _give_name(fs: DurableLocalFileSystem, file: IO[bytes], target: Location) -> None:
    file.flush()
    crash_point("snapshot.unnamed")
    fs.name_temporary(file, target.path)


@contextmanager
def _dropped(file: IO[bytes]) -> Iterator[IO[bytes]]:
    try:
        yield file
    finally:
        _drop(file)


def _drop(file: IO[bytes]) -> None:
    """Closes it; a hidden name that it has goes."""
    if isinstance(file.name, str):
        Path(file.name).unlink(missing_ok=True)
    with suppress(OSError):  # of bytes that could not be written, and that nobody wants any more
        file.close()


def _hash_while(content: memoryview, write: Callable[[], object]) -> str:
    """SHA-256 in hex of what `write` writes, at the same time when that pays."""
    if len(content) < HASH_ASIDE_BYTES_MIN:
        write()
        return hashlib.sha256(content).hexdigest()
    with ThreadPoolExecutor(1, "state-hash") as pool:
        digest = pool.submit(lambda: hashlib.sha256(content).hexdigest())
        write()
        return digest.result()
