"""Injected faults of a real file store; nothing is mocked.

`FaultFileSystem` wraps any fsspec store and fails chosen operations. `PowerCut` replaces `os.fsync` on a
local directory and can then drop everything that was not synced, as LazyFS does.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem

from unistream.storage.durable_local import DurableLocalFileSystem


class FaultKind(Enum):
    """Kind of a fault."""

    RAISE_BEFORE = "raise_before"  # it did not happen
    APPLY_THEN_RAISE = "apply_then_raise"  # it happened, and the caller gets an error
    TRUNCATE = "truncate"  # only the first half arrives
    BIT_FLIP = "bit_flip"  # one bit in the middle is wrong
    SLOW = "slow"  # `on_slow` is called first, for instance to advance a virtual clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        operation: Name of the fsspec method: pipe_file, cat_file, info, ls, find, rm_file, rm, makedirs, …;
            "" = any.
        path: The fault hits paths that contain this text.
        skip: How many matching operations pass first.
        times: How many operations it hits after each `inject`.
        error: The error to raise; None: a TimeoutError.
    """

    kind: FaultKind
    operation: str
    path: str = ""
    skip: int = 0
    times: int = 1
    error: Exception | None = None

    def raised(self) -> Exception:
        """The error to raise."""
        return self.error or TimeoutError(f"fault: {self.kind.value} on {self.operation}")


def _faulty(operation: str) -> Callable[..., Any]:
    """A method that does as the wrapped store, or has a fault."""

    def method(self: FaultFileSystem, path: str, *args: Any, **options: Any) -> Any:
        inner = getattr(self._inner, operation)
        return self._apply(self._next(operation, path), lambda: inner(path, *args, **options))

    return method


class FaultFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Any store, with faults.

    >>> import fsspec
    >>> store = FaultFileSystem(fsspec.filesystem("memory"))
    >>> store.inject(Fault(kind=FaultKind.RAISE_BEFORE, operation="cat_file"))
    >>> store.cat_file("/anything")
    Traceback (most recent call last):
    TimeoutError: fault: raise_before on cat_file
    """

    cachable = False

    def __init__(
        self, inner: AbstractFileSystem, on_slow: Callable[[str], None] = lambda _operation: None
    ) -> None:
        super().__init__(skip_instance_cache=True)
        self._inner = inner
        self._on_slow = on_slow
        self._faults: list[Fault] = []
        self.protocol = inner.protocol
        self.calls: list[tuple[str, str]] = []

    def inject(self, *faults: Fault) -> None:
        """Adds faults; an operation gets the first that matches it."""
        self._faults.extend(replace(fault, times=1) for fault in faults for _ in range(fault.times))

    def _strip_protocol(self, path: Any) -> Any:  # an instance method here: the wrapped store decides
        return self._inner._strip_protocol(path)

    def unstrip_protocol(self, name: str) -> str:
        """As the wrapped store does."""
        return str(self._inner.unstrip_protocol(name))

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> Any:
        """Writes; TRUNCATE and BIT_FLIP damage what is stored."""
        fault = self._next("pipe_file", path)
        content = _damaged(bytes(value), fault)
        return self._apply(fault, lambda: self._inner.pipe_file(path, content, mode=mode, **options))

    def put_file(self, lpath: str, rpath: str, *_args: Any, mode: str = "overwrite", **_options: Any) -> None:
        """Writes a local file as `pipe_file` does, with its faults."""
        self.pipe_file(rpath, Path(lpath).read_bytes(), mode=mode)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        """Reads; TRUNCATE and BIT_FLIP damage what is returned."""
        fault = self._next("cat_file", path)
        read = self._apply(fault, lambda: self._inner.cat_file(path, start=start, end=end, **options))
        return _damaged(read, fault)

    info = _faulty("info")
    ls = _faulty("ls")
    find = _faulty("find")
    rm_file = _faulty("rm_file")
    rm = _faulty("rm")
    rmdir = _faulty("rmdir")
    makedirs = _faulty("makedirs")

    def _next(self, operation: str, path: str) -> Fault | None:
        self.calls.append((operation, path))
        for index, fault in enumerate(self._faults):
            if fault.operation not in {"", operation} or fault.path not in path:
                continue
            if fault.skip == 0:
                return self._faults.pop(index)
            self._faults[index] = replace(fault, skip=fault.skip - 1)
        return None

    def _apply(self, fault: Fault | None, action: Callable[[], Any]) -> Any:
        if fault is None:
            return action()
        if fault.kind is FaultKind.RAISE_BEFORE:
            raise fault.raised()
        if fault.kind is FaultKind.SLOW:
            self._on_slow(fault.operation)
        result = action()
        if fault.kind is FaultKind.APPLY_THEN_RAISE:
            raise fault.raised()
        return result


def _damaged(content: bytes, fault: Fault | None) -> bytes:
    middle = len(content) // 2
    match fault.kind if fault else None:
        case FaultKind.TRUNCATE:
            return content[:middle]
        case FaultKind.BIT_FLIP:
            return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    return content


class PowerCut:
    """Records what is synced below `root`, and can restore exactly that.

    Give `fsync` to `DurableLocalFileSystem`, work, then `cut()`: files and directories are as of their last
    sync; what was never synced is lost. All that is below `root` when this object is made counts as synced.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._remember(root)
        for path in root.rglob("*"):
            self._remember(path)

    def fsync(self, handle: int) -> None:
        """Syncs, and records the content."""
        os.fsync(handle)
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = {entry.name: entry.inode() for entry in os.scandir(handle)}
        else:
            with open(f"/proc/self/fd/{handle}", "rb") as content:
                self._contents[status.st_ino] = content.read()

    def cut(self) -> None:
        """Restores `root` as after a power failure: it holds only what was synced."""
        inode = self._root.stat().st_ino
        for path in self._root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._restore(self._root, inode)

    def _remember(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            self.fsync(handle)
        finally:
            os.close(handle)

    def _restore(self, directory: Path, inode: int) -> None:
        for name, child in self._names.get(inode, {}).items():
            if child in self._names:
                (directory / name).mkdir()
                self._restore(directory / name, child)
            else:
                (directory / name).write_bytes(self._contents.get(child, b""))


class PausedBeforeNaming(DurableLocalFileSystem):
    """Others go on after a file is written, before it has its name."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def _give_name(self, temporary: Path, target: Path, mode: str) -> None:
        self._meanwhile()
        super()._give_name(temporary, target, mode)
