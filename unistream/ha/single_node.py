"""Leadership without a coordination service: the master that holds the lock of a cluster's folder is the only
one.

The kernel releases the lock with the process, however it ends. Writes of an older leader are fenced by the
leader epoch, which increases with every master (`MetadataStore.next_leader_epoch`).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from unistream.base.closing import Closing
from unistream.base.errors import ConfigError

LOCK_NAME: Final = "master.lock"


class FolderLock(Closing):
    """Held from construction until `close`.

    Raises:
        ConfigError: another master holds it, or the folder cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / LOCK_NAME
        try:
            self._descriptor: int | None = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot use {folder} as the cluster's folder: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise ConfigError(
                f"{folder} is in use by another cluster; stop that one, or choose another folder"
            ) from None

    def close(self) -> None:
        """Safe to repeat."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
