"""The local file system with two guarantees that snapshots need: durable and atomic writes.

fsspec's own local file system neither syncs nor creates exclusively: its `pipe_file(mode="create")` checks
and then writes, and a power cut leaves an empty file. See `unistream.base.durable_files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fsspec.implementations.local import LocalFileSystem

from unistream.base import durable_files
from unistream.base.durable_files import PRIVATE_FOLDER, WRITE_BYTES_MAX, private, temporary_of


class NotWritten(OSError):
    """Nothing was created; safe to try again or to clean up."""


class DurableLocalFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """`LocalFileSystem` whose `pipe_file` and `makedirs` are durable when they return. `fsync`: for tests."""

    cachable = False  # instances differ in `fsync`

    def __init__(self, fsync: Callable[[int], None] = os.fsync, **options: Any) -> None:
        super().__init__(**options)
        self._fsync = fsync

    def pipe_file(self, path: str, value: bytes | memoryview, mode: str = "create", **_kwargs: Any) -> None:
        """Creates `path` with these bytes; `mode` "overwrite" replaces an existing file atomically.

        Raises:
            FileExistsError: mode "create" and there is one, which is durable by now.
            NotWritten: it failed before the file got its name.
            OSError: it failed later; the file may or may not exist after a power cut.
        """
        target = Path(self._strip_protocol(path))
        temporary = temporary_of(target)
        try:
            self._write_temporary(temporary, value)
            self._give_name(temporary, target, mode)
        finally:
            temporary.unlink(missing_ok=True)
        self._sync_path(target.parent)

    def temporary_for(self, path: str) -> IO[bytes]:
        """A new hidden file next to `path`, for `name_temporary`; the caller closes and removes it."""
        target = Path(self._strip_protocol(path))
        return open(temporary_of(target), "xb", buffering=WRITE_BYTES_MAX // 8, opener=private)

    def name_temporary(self, file: IO[bytes], path: str) -> None:
        """Links a `temporary_for` to its name; it keeps its temporary name too.

        Raises:
            FileExistsError: there is such a file.
            OSError: it has no name, or (if the directory could not be synced) may lose it in a power cut.
        """
        target = Path(self._strip_protocol(path))
        self._fsync(file.fileno())
        self._give_name(Path(file.name), target, "create")
        self._sync_path(target.parent)

    def _write_temporary(self, temporary: Path, value: bytes | memoryview) -> None:
        try:
            durable_files.write(temporary, value, self._fsync)
        except OSError as error:
            raise NotWritten(error.errno, error.strerror or str(error), str(temporary)) from error

    def _give_name(self, temporary: Path, target: Path, mode: str) -> None:
        try:
            if mode == "overwrite":
                temporary.replace(target)
            else:
                os.link(temporary, target)
        except FileExistsError:
            self._sync_path(target.parent)  # the writer may have died before the name was durable
            raise
        except OSError as error:
            raise NotWritten(error.errno, error.strerror or str(error), str(target)) from error

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Creates a directory and its parents, each of them durable."""
        durable_files.make_folders(self._strip_protocol(path), self._fsync, exist_ok=exist_ok)

    def make_folders(self, root: str, folders: str) -> None:
        """Creates ``folders`` (``a/b``) in `root`, each of them durable; those that exist are fine.

        Raises:
            FileNotFoundError: there is no `root`; unlike `makedirs`, this does not make it.
        """
        path = Path(self._strip_protocol(root))
        for name in folders.split("/"):
            path /= name
            try:
                path.mkdir(PRIVATE_FOLDER)
            except FileExistsError:
                continue
            self._sync_path(path.parent)

    def set_aside(self, path: str) -> str:
        """Renames a directory to a hidden name, and returns it: writers cannot add to it any more."""
        target = Path(self._strip_protocol(path))
        aside = temporary_of(target)
        target.rename(aside)
        return str(aside)

    def rm_file(self, path: str) -> None:
        """Removes one file, durably."""
        target = Path(self._strip_protocol(path))
        target.unlink()
        self._sync_path(target.parent)

    def _sync_path(self, path: Path) -> None:
        durable_files.sync(path, self._fsync)
