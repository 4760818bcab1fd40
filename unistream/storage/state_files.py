"""State files of one snapshot: written by workers under new names, read back whole or in parts.

    <root>/<job id>/chk-<n>/<uid>/<state>/part-<random>.arrow   of this snapshot (`model.state_files`)
    <root>/<job id>/chk-<n>/state-<hint>-<random>               the same, for files of no single state
    <root>/<job id>/shared/chk-<n>-<hint>-<random>              stored for one checkpoint, and shared
                                                                (`FileRef.shared`)

A file gets its name when it is complete; see `unistream.storage.growing_file`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
from fsspec import AbstractFileSystem

from unistream.base.errors import ConfigError, CorruptSnapshot, Transient
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIB
from unistream.model.file_ref import FileRef, shared_name
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.growing_file import SPOOL_BYTES_MAX, AtomicCounter, GrowingFile, create_file, writing
from unistream.storage.location import Location, confined, open_location, transient

COPY_BYTES: Final = MIB  # at a time, from a local disk
SHARED_FOLDER: Final = "shared"

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_IN_FOLDERS: Final = re.compile(r"^([A-Za-z0-9_-][A-Za-z0-9._-]*/)+[a-z]+\.[a-z]+$")
_CHECKPOINT_FOLDER: Final = re.compile(r"^chk-[0-9]+$")


def random_name() -> str:
    """12 hex digits."""
    return secrets.token_hex(6)


def shared_folder(directory: Location) -> Location:
    """The folder that the checkpoints of one job share, from the directory of one of them.

    Raises:
        ConfigError: it is not the directory of a checkpoint.
    """
    parent, _, name = directory.path.rstrip("/").rpartition("/")
    if not parent or _CHECKPOINT_FOLDER.fullmatch(name) is None:
        raise ConfigError(f"{directory.url} is not a checkpoint's directory: it has no shared files")
    return Location(directory.fs, parent, directory.pause).below(SHARED_FOLDER)


def state_file(directory: Location, ref: FileRef) -> Location:
    """The file that a manifest names. Raises CorruptSnapshot if it is outside of the allowed directories."""
    if not ref.shared:
        return confined(directory, ref.path)
    try:
        return confined(shared_folder(directory), ref.path)
    except ConfigError as error:
        raise CorruptSnapshot(f"{ref.path} cannot be a shared file: {error}") from None


def remove_shared(folder: Location, files: Sequence[str]) -> None:
    """Removes files of a folder `shared`, also hidden ones that a killed writer left. Absent is fine.

    Raises:
        ConfigError: a name leads out of it.
        OSError: not all of them could be removed.
    """
    for name in files:
        folder.below(name.removeprefix("."))  # refuses a path that leads out of it
        with suppress(FileNotFoundError):
            folder.fs.rm_file(f"{folder.path}/{name}")


def _plain(name_hint: str) -> str:
    """A part of a file's name."""
    return _NOT_IN_NAMES.sub("-", name_hint).strip("-")[:64] or "x"


class FsStateWriter:
    """`unistream.port.storage.StateWriter` below one snapshot's directory. Thread-safe.

    The directory must exist (`FsCheckpointStorage.directory` made it): a late writer of an aborted
    checkpoint then fails instead of leaving files that are never removed.
    """

    def __init__(
        self,
        directory_url: str,
        *,
        fs: AbstractFileSystem | None = None,
    ) -> None:
        self._location = open_location(directory_url, fs)
        self._bytes = AtomicCounter()

    @property
    def bytes_written(self) -> int:
        return self._bytes.total

    def write(self, name_hint: str, content: bytes | memoryview) -> FileRef:
        """See the port. Raises Transient if it could not be written; the checkpoint must be declined."""
        return self._store(self._target(name_hint), memoryview(content).cast("B"))

    def open(self, name_hint: str) -> GrowingFile:
        return GrowingFile(self._target(name_hint), self._store, self._name, self._bytes)

    def copy(self, name_hint: str, path: Path, *, shared: bool = False) -> FileRef:
        """See the port.

        Raises:
            ConfigError: `shared`, and this is a savepoint.
            Transient: it could not be read or written.
        """
        target = self._shared_target(name_hint) if shared else self._target(name_hint)
        growing = GrowingFile(target, self._store, self._name, self._bytes)
        with transient(f"cannot read the state file {path}"), path.open("rb") as source, growing as file:
            while content := source.read(COPY_BYTES):
                file.write(content)
        ref = file.ref
        return FileRef(path=ref.path, size=ref.size, sha256=ref.sha256, shared=shared)

    def _target(self, name_hint: str) -> Location:
        if _IN_FOLDERS.fullmatch(name_hint) and ".." not in name_hint:
            return self._in_folders(name_hint)
        return self._location.below(f"state-{_plain(name_hint)}-{random_name()}{random_name()}")

    def _shared_target(self, name_hint: str) -> Location:
        folder = shared_folder(self._location)
        if self._location.is_local and not self._location.is_directory():
            raise _aborted(self._location)
        with transient(f"cannot make {folder.url}"):
            folder.fs.makedirs(folder.path, exist_ok=True)
        number = CheckpointId(int(self._location.path.rstrip("/").rpartition("-")[2]))
        return folder.below(f"{shared_name(number, _plain(name_hint))}-{random_name()}{random_name()}")

    def _in_folders(self, name_hint: str) -> Location:
        """`a/b/part.arrow`: a file `part-<random>.arrow` in these folders, which it makes."""
        folders, _, name = name_hint.rpartition("/")
        stem, dot, suffix = name.partition(".")
        folder = self._location.below(folders)
        if folder.is_local:
            self._make_folders(folder, folders)
        return folder.below(f"{stem}-{random_name()}{random_name()}{dot}{suffix}")

    def _make_folders(self, folder: Location, folders: str) -> None:
        root = self._location
        if not root.is_directory():
            raise _aborted(root)
        try:
            if isinstance(root.fs, DurableLocalFileSystem):
                root.fs.make_folders(root.path, folders)
            else:
                folder.fs.makedirs(folder.path, exist_ok=True)
        except FileNotFoundError:
            raise _aborted(root) from None
        except OSError as error:
            raise Transient(f"cannot make {folder.url}: {error}") from error

    def _store(self, target: Location, content: memoryview) -> FileRef:
        with writing(target):
            digest = create_file(target, content)
        self._bytes.add(len(content))
        return FileRef(path=self._name(target), size=len(content), sha256=digest)

    def _name(self, target: Location) -> str:
        """The path in the manifest: below the snapshot's directory, or below the folder of shared files."""
        inside = f"{self._location.path.rstrip('/')}/"
        if target.path.startswith(inside):
            return target.path.removeprefix(inside)
        return target.path.rpartition("/")[2]


def _aborted(directory: Location) -> Transient:
    return Transient(f"{directory.url} no longer exists: its checkpoint was aborted")


class FsStateReader:
    """`unistream.port.storage.StateReader` below one snapshot's directory. Thread-safe.

    Methods that return a whole file check its size and checksum first: silently wrong state is worse than a
    slower restore.
    """

    def __init__(self, directory_url: str, *, fs: AbstractFileSystem | None = None) -> None:
        self._location = open_location(directory_url, fs)
        self._bytes = AtomicCounter()

    @property
    def bytes_read(self) -> int:
        return self._bytes.total

    def place(self, ref: FileRef) -> str:
        return state_file(self._location, ref).url

    def read(self, ref: FileRef) -> bytes:
        """All bytes. Raises CorruptSnapshot (missing, size, checksum) or Unreachable."""
        target = state_file(self._location, ref)
        try:
            content = target.read()
        except FileNotFoundError:
            raise missing(target) from None
        _check(target, ref, memoryview(content))
        self._bytes.add(len(content))
        return content

    def read_range(self, ref: FileRef, start: int, stop: int) -> bytes:
        target = state_file(self._location, ref)
        if not 0 <= start <= stop <= ref.size:
            raise CorruptSnapshot(f"{target.url} has {ref.size} B: there are no bytes {start} to {stop}")
        if start == stop:
            return b""
        try:
            content = target.read(start, stop)
        except FileNotFoundError:
            raise missing(target) from None
        if len(content) != stop - start:
            raise CorruptSnapshot(f"{target.url} ends before byte {stop}: it is truncated")
        self._bytes.add(len(content))
        return content

    def open_range(self, ref: FileRef) -> pa.NativeFile:
        """See the port; the caller closes it. A local file is mapped, so that subtasks share its pages and
        batches are not copied; from other stores it is read whole, as the checksum requires."""
        target = state_file(self._location, ref)
        if not isinstance(self._location.fs, DurableLocalFileSystem) or ref.size == 0:
            return pa.BufferReader(self.read(ref))
        try:
            mapped = pa.memory_map(target.path)
        except FileNotFoundError:
            raise missing(target) from None
        try:
            _check(target, ref, memoryview(mapped.read_buffer()))
            mapped.seek(0)
        except BaseException:
            mapped.close()
            raise
        self._bytes.add(ref.size)
        return mapped

    def fetch(self, ref: FileRef, path: Path) -> None:
        """See the port. After a failure a part of the file stays at `path`; the caller removes it."""
        with path.open("xb") as copy:
            for content in self._pieces(ref):
                copy.write(content)

    def verify(self, ref: FileRef) -> None:
        """Reads the whole file, a piece at a time. Raises CorruptSnapshot (missing, size, checksum)."""
        for _ in self._pieces(ref):
            pass

    def _pieces(self, ref: FileRef) -> Iterator[bytes]:
        """The whole file. Raises CorruptSnapshot after the last piece if its checksum differs."""
        target = state_file(self._location, ref)
        digest = hashlib.sha256()
        for start in range(0, ref.size, SPOOL_BYTES_MAX):
            content = self.read_range(ref, start, min(start + SPOOL_BYTES_MAX, ref.size))
            digest.update(content)
            yield content
        if digest.hexdigest() != ref.sha256:
            raise _wrong_checksum(target)


def missing(target: Location) -> CorruptSnapshot:
    return CorruptSnapshot(f"{target.url} is missing: the snapshot cannot be restored")


def _check(target: Location, ref: FileRef, content: memoryview) -> None:
    if len(content) != ref.size:
        raise CorruptSnapshot(f"{target.url} has {len(content)} B instead of {ref.size} B: it is truncated")
    if hashlib.sha256(content).hexdigest() != ref.sha256:
        raise _wrong_checksum(target)


def _wrong_checksum(target: Location) -> CorruptSnapshot:
    return CorruptSnapshot(f"{target.url} does not match its checksum: it was damaged after it was written")
