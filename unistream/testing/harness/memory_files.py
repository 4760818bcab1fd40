"""State files in a dict: `port.storage.StateWriter` and `StateReader` of one directory, without a disk."""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from unistream.base.errors import CorruptSnapshot
from unistream.model.file_ref import FileRef

SHARED = "shared/"


class MemoryFiles:
    """The files of one directory. `prefix`: of their keys in `stored`, if other directories have files there.

    >>> files = MemoryFiles("chk-1", {})
    >>> with files.open("counts") as file:
    ...     file.write(b"one ")
    ...     file.write(b"two")
    >>> files.read(file.ref), files.bytes_written
    (b'one two', 7)
    """

    def __init__(self, directory: str, stored: MutableMapping[str, bytes], prefix: str = "") -> None:
        self.directory = directory
        self.stored = stored
        self._prefix = prefix
        self.bytes_written = 0
        self.bytes_read = 0

    def write(self, name_hint: str, content: bytes | memoryview, *, shared: bool = False) -> FileRef:
        data = bytes(content)
        path = f"{name_hint}-{len(self.stored)}"
        ref = FileRef(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), shared=shared)
        self.stored[self._key(ref)] = data
        self.bytes_written += len(data)
        return ref

    def _key(self, ref: FileRef) -> str:
        return f"{self._prefix}{SHARED * ref.shared}{ref.path}"

    def open(self, name_hint: str) -> MemoryFile:
        return MemoryFile(self, name_hint)

    def copy(self, name_hint: str, path: Path, *, shared: bool = False) -> FileRef:
        return self.write(name_hint, path.read_bytes(), shared=shared)

    def read(self, ref: FileRef) -> bytes:
        data = self.stored.get(self._key(ref))
        if data is None or len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
            raise CorruptSnapshot(f"{self.directory}/{ref.path} is missing or damaged")
        self.bytes_read += len(data)
        return data

    def place(self, ref: FileRef) -> str:
        return f"{self.directory}/{ref.path}"

    def read_range(self, ref: FileRef, start: int, stop: int) -> bytes:
        data = self.stored.get(self._key(ref), b"")[start:stop]
        if len(data) != stop - start:
            raise CorruptSnapshot(f"{self.directory}/{ref.path} is missing or truncated")
        self.bytes_read += len(data)
        return data

    def open_range(self, ref: FileRef) -> object:
        return pa.BufferReader(self.read(ref))

    def fetch(self, ref: FileRef, path: Path) -> None:
        path.write_bytes(self.read(ref))


class MemoryFile:
    """`port.storage.StateFile`: in `MemoryFiles` once its context has ended without an error."""

    def __init__(self, files: MemoryFiles, name_hint: str) -> None:
        self._files = files
        self._name_hint = name_hint
        self._content = bytearray()
        self._ref: FileRef | None = None

    @property
    def ref(self) -> FileRef:
        assert self._ref is not None, "the file is not finished"
        return self._ref

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._ref = self._files.write(self._name_hint, bytes(self._content))

    def write(self, content: bytes | memoryview) -> None:
        self._content += content
