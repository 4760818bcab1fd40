"""The file system below the root of a sink: files are written durably, looked up and removed."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from fsspec.implementations.local import LocalFileSystem

from unistream.base import durable_files
from unistream.base.errors import ConfigError
from unistream.base.object_stores import file_system, is_s3
from unistream.base.os_failures import failure
from unistream.base.path_names import refused_path


class StageFiles:
    """Files of one sink. All paths are relative to the root.

    Args:
        uri: Absolute local path or URL of the root.
        options: Options of the fsspec file system.
        where: The sink, for messages.
        remote_folders: Remote systems need folders to exist; object stores do not.

    Raises:
        ConfigError: the file system cannot be used.
    """

    def __init__(
        self, uri: str, options: Mapping[str, Any], where: str, *, remote_folders: bool = False
    ) -> None:
        try:
            self.system, path = file_system(uri, options)
        except (ImportError, ValueError, TypeError) as error:
            raise ConfigError(f"{where}: cannot use this file system: {error}") from error
        self.root = path.rstrip("/")
        self.is_local = isinstance(self.system, LocalFileSystem)
        self._is_s3 = is_s3(uri)
        self._where = where
        self._remote_folders = remote_folders

    def write(self, path: str, write: Callable[[Any], None]) -> tuple[int, int]:
        """Writes a new durable file and returns its size in bytes and its modification time in ms.

        Raises:
            ConfigError: no permission, or no such file can be made.
            Unreachable: the storage failed; the incomplete file is removed.
        """
        full = f"{self.root}/{path}"
        try:
            self.make_folders(full)
            if self.is_local:
                return self._write_local(full, write)
            with self.system.open(full, "wb") as file:
                write(file)
            found = self.system.info(full)
        except PermissionError as error:
            raise ConfigError(f"{self._where}: no permission to write {path}: {error}") from error
        except OSError as error:
            self.remove(path)
            raise failure(f"{self._where}: could not write {path}", error) from error
        modified = found.get("LastModified") or found.get("created")
        known = modified if isinstance(modified, dt.datetime) else dt.datetime.now(dt.UTC)
        return int(found["size"]), int(known.timestamp() * 1000)

    def make_folders(self, full: str) -> None:
        """The folder of an absolute path. Raises OSError."""
        folder = full.rpartition("/")[0]
        if self.is_local:
            durable_files.make_folders(folder, shared=True)
        elif self._remote_folders:
            self.system.makedirs(folder, exist_ok=True)

    def names(self, folder: str) -> list[str]:
        """What is in an absolute folder; empty: there is none. Raises ConfigError, Unreachable."""
        try:
            self.system.invalidate_cache(folder)
            return [path.rpartition("/")[2] for path in self.system.ls(folder, detail=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure(f"{self._where}: could not list {folder}", error) from error

    def create(self, full: str, content: bytes) -> bool:
        """A small durable file at an absolute path, whole or not at all. False: it exists. Raises
        ConfigError, Unreachable: it may exist."""
        try:
            self.make_folders(full)
            if self.is_local:
                return durable_files.create(full, content, self.root, shared=True)
            self.system.pipe_file(full, content, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            raise failure(f"{self._where}: could not write the record {full}", error) from error
        return True

    def create_first(self, full: str, content: bytes) -> bool:
        """Creates, as `create`, the first file of a folder. Raises ConfigError: an S3 store creates it
        twice."""
        created = self.create(full, content)
        if created and self._is_s3 and self.create(full, content):
            raise ConfigError(
                f"{self._where}: the store ignores the header If-None-Match: *, so two jobs could commit to "
                "it at once; use a store, or a version of it, that has conditional writes"
            )
        return created

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None: there is no such file. Raises ConfigError, Unreachable."""
        full = f"{self.root}/{path}"
        try:
            self.system.invalidate_cache(full.rpartition("/")[0])
            return int(self.system.info(full)["size"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(f"{self._where}: could not look up {path}", error) from error

    def remove(self, path: str) -> None:
        """Removes a file as far as the storage allows it: readers do not see a staged file that remains."""
        try:
            self.system.rm_file(f"{self.root}/{path}")
        except OSError:
            return

    def _write_local(self, full: str, write: Callable[[Any], None]) -> tuple[int, int]:
        with self._created(full) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            status = os.fstat(file.fileno())
        durable_files.sync_folders(os.path.dirname(full), self.root)
        return status.st_size, status.st_mtime_ns // 1_000_000

    def _created(self, full: str) -> BinaryIO:
        try:
            return open(full, "xb")
        except FileNotFoundError:  # another task has removed the empty folder meanwhile
            self.make_folders(full)
            return open(full, "xb")


def absolute(path: str) -> str:
    """Workers run in other folders, so paths become absolute, and ``file://`` URLs become paths. Raises
    ConfigError: no file system has such a path."""
    why = refused_path(path)
    if why is not None:
        raise ConfigError(why)
    scheme, separator, rest = path.partition("://")
    if not separator:
        return os.path.abspath(path)
    return os.path.abspath(rest) if scheme == "file" else path.rstrip("/")
