"""What a task needs around it, without threads, files or other processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from unistream.base.errors import CorruptSnapshot, Unreachable
from unistream.model.messages import ChannelDescriptor
from unistream.model.snapshot import FileRef
from unistream.port.transport import InputSink, RemoteInput


class InlineExecutor(Executor):
    """Runs what is submitted at once, on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class MemoryStateStore:
    """State files of any number of directories. `fail_writes`: raised by every writer while it is set."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}
        self.fail_writes: Exception | None = None

    def writer(self, directory: str) -> MemoryStateFiles:
        if self.fail_writes is not None:
            raise self.fail_writes
        return MemoryStateFiles(self, directory)

    def reader(self, directory: str) -> MemoryStateFiles:
        return MemoryStateFiles(self, directory)


@dataclass(frozen=True)
class MemoryStateFiles:
    """`port.storage.StateWriter` and `StateReader` of one directory."""

    store: MemoryStateStore
    directory: str

    def write(self, name_hint: str, content: bytes | memoryview) -> FileRef:
        data = bytes(content)
        path = f"{name_hint}-{len(self.store.files)}"
        self.store.files[self.directory, path] = data
        return FileRef(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def read(self, ref: FileRef) -> bytes:
        data = self.store.files.get((self.directory, ref.path))
        if data is None or len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
            raise CorruptSnapshot(f"{self.directory}/{ref.path} is missing or damaged")
        return data

    def open_range(self, ref: FileRef) -> object:
        return pa.BufferReader(self.read(ref))


class NoRemote:
    """`port.transport.DataClient` of a process that knows no other."""

    def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> RemoteInput:
        raise Unreachable(f"{channel.address}: there is no other process here")

    def close(self) -> None:
        """Nothing is open."""
