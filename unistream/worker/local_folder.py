"""The folder of this worker in which operators keep state on the local disk.

    (none) ── path() ──► <root>/unistream-state-…, locked ── close() ──► gone
    its process is killed ──► gone when the next worker with this root starts

What lies there is never needed again after the process: what is durable lies in checkpoints.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError
from unistream.net.folder import PrivateFolder, remove_stale_folders

PREFIX: Final = "unistream-state-"


class LocalFolder:
    """Made when it is first asked for. Thread-safe.

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
        remove_stale_folders(self._root, PREFIX)

    def path(self) -> Path:
        """The same each time.

        Raises:
            ConfigError: nothing can be written there, or this worker ends.
        """
        with self._lock:
            if self._closed:
                raise ConfigError("this TaskManager ends and keeps no state any more")
            if self._folder is None:
                try:
                    self._folder = PrivateFolder(self._root, PREFIX)
                except ConfigError as error:
                    raise ConfigError(f"io.tmp.dirs: {error}") from error
            return self._folder.path

    def close(self) -> None:
        """With all that is in it. May be called again."""
        with self._lock:
            self._closed = True
            if self._folder is not None:
                self._folder.close()
                self._folder = None
