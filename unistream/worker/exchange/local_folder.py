"""The folder of this worker in which operators keep state on the local disk.

    (none) ── path() ──► <root>/unistream-state-…, locked ── close() ──► removed
    its process is killed ──► removed when the next worker with this root starts

Its content is not needed after the process: durable state is in checkpoints.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError, Transient
from unistream.net.folder import PrivateFolder, remove_stale_folders

STATE_FOLDER_PREFIX: Final = "unistream-state-"
PLACE_FOLDER_PREFIX: Final = "unistream-place-"  # of tasks that another engine runs

_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})
"""Errors of a full disk or a busy machine: a retry may succeed, or another machine."""


class LocalFolder:
    """Created on first use, and again if it has been removed. Thread-safe.

    Args:
        root: An existing folder, the first of `io.tmp.dirs`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._folder: PrivateFolder | None = None
        self._closed = False

    def remove_leftovers(self) -> None:
        """Removes folders of killed processes."""
        remove_stale_folders(self._root, STATE_FOLDER_PREFIX)

    def path(self) -> Path:
        """The folder; the same as long as it exists.

        Raises:
            ConfigError: it cannot be written, or this TaskManager is shutting down.
            Transient: it cannot be written now, or any more.
        """
        with self._lock:
            if self._closed:
                raise ConfigError("this TaskManager is shutting down and stores no more state")
            if self._folder is None or not self._folder.is_there:
                self._folder = renewed_folder(self._root, STATE_FOLDER_PREFIX, self._folder)
            return self._folder.path

    def close(self) -> None:
        """Removes it with its content. May be called again."""
        with self._lock:
            self._closed = True
            if self._folder is not None:
                self._folder.close()
                self._folder = None


def renewed_folder(root: Path, prefix: str, former: PrivateFolder | None) -> PrivateFolder:
    """A folder below one of `io.tmp.dirs`; `former`: the previous one, which has been removed.

    Raises:
        ConfigError: it cannot be written.
        Transient: it cannot be written now, or any more.
    """
    if former is not None:
        former.close()
    try:
        return PrivateFolder(root, prefix)
    except ConfigError as error:
        cause = error.__cause__
        passing = former is not None or (isinstance(cause, OSError) and cause.errno in _PASSING)
        raise (Transient if passing else ConfigError)(f"io.tmp.dirs: {error}") from error
