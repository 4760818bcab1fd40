"""The folder of this worker in which operators keep state on the local disk.

    (none) ── path() ──► <root>/unistream-state-…, locked ── close() ──► gone
    its process is killed ──► gone when the next worker with this root starts

What lies there is never needed again after the process: what is durable lies in checkpoints.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError, Transient
from unistream.net.folder import PrivateFolder, remove_stale_folders

STATE_FOLDER_PREFIX: Final = "unistream-state-"

_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})
"""What a full disk or a busy machine says: the same may work later, or on another machine."""


class LocalFolder:
    """Made when it is first asked for, and again when somebody has removed it. Thread-safe.

    Args:
        root: An existing folder, the first of `io.tmp.dirs`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._folder: PrivateFolder | None = None
        self._closed = False

    def remove_leftovers(self) -> None:
        """Of processes that were killed."""
        remove_stale_folders(self._root, STATE_FOLDER_PREFIX)

    def path(self) -> Path:
        """The same each time, as long as it is there.

        Raises:
            ConfigError: nothing can be written there, or this worker ends.
            Transient: nothing can be written there now, or any more.
        """
        with self._lock:
            if self._closed:
                raise ConfigError("this TaskManager is shutting down and stores no more state")
            if self._folder is None or not self._folder.is_there:
                self._folder = renewed_folder(self._root, STATE_FOLDER_PREFIX, self._folder)
            return self._folder.path

    def close(self) -> None:
        """With all that is in it. May be called again."""
        with self._lock:
            self._closed = True
            if self._folder is not None:
                self._folder.close()
                self._folder = None


def renewed_folder(root: Path, prefix: str, former: PrivateFolder | None) -> PrivateFolder:
    """A folder below one of `io.tmp.dirs`; `former`: the one before, which somebody has removed.

    Raises:
        ConfigError: nothing can be written there.
        Transient: nothing can be written there now, or any more.
    """
    if former is not None:
        former.close()
    try:
        return PrivateFolder(root, prefix)
    except ConfigError as error:
        cause = error.__cause__
        passing = former is not None or (isinstance(cause, OSError) and cause.errno in _PASSING)
        raise (Transient if passing else ConfigError)(f"io.tmp.dirs: {error}") from error
