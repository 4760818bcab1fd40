"""The services of a task without threads, files or other processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from unistream.base.errors import Unreachable
from unistream.model.deployment import ChannelDescriptor
from unistream.port.transport import InputSink, RemoteInput
from unistream.testing.harness.memory_files import MemoryFiles


class InlineExecutor(Executor):
    """Runs submitted work at once, on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class MemoryStateStore:
    """State files of all directories. `fail_writes`: raised by every writer while it is set."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}  # by directory and path
        self.fail_writes: Exception | None = None

    def writer(self, directory: str) -> MemoryFiles:
        if self.fail_writes is not None:
            raise self.fail_writes
        return self.reader(directory)

    def reader(self, directory: str) -> MemoryFiles:
        return MemoryFiles(directory, self.files, prefix=f"{directory}/")


class NoRemote:
    """`port.transport.DataClient` without other processes."""

    def gate(self, token: str) -> NoRemote:
        return self

    def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> RemoteInput:
        raise Unreachable(f"{channel.address}: there is no other process here")

    def close(self) -> None:
        """Nothing is open."""
