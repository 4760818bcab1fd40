"""A private folder for temporary files that does not outlive its process for long, even a killed one.

It holds a lock that lives as long as its process, so that a later process can tell a folder that was left
behind from one in use, whatever happened to the process ids (containers may share a file system).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError

_NEW: Final = "."  # a name that begins with it is not locked yet: a cleaner must not look at it
_LOCK_NAME: Final = "lock"


class PrivateFolder:
    """A new folder `<root>/<prefix>…`, mode 0700, removed by `close`, or later by the next of its kind.

    Raises:
        ConfigError: `root` cannot be written.
    """

    def __init__(self, root: Path, prefix: str) -> None:
        try:
            remove_stale_folders(root, prefix)
            new = Path(tempfile.mkdtemp(prefix=_NEW + prefix, dir=root))
            self._lock = os.open(new / _LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path = new.rename(root / new.name.removeprefix(_NEW))
        except OSError as error:
            raise ConfigError(f"no private folder can be made in {root}: {error.strerror}") from error

    @property
    def is_there(self) -> bool:
        """Nobody has removed it: cleaners of temporary files do, after days without use."""
        return self.path.is_dir()

    def close(self) -> None:
        """May be called again."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def remove_stale_folders(root: Path, prefix: str) -> None:
    """Removes those whose process is gone; those of others are left alone."""
    for folder in root.glob(prefix + "*"):
        try:
            lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # another user's, or another cleaner was faster
            continue
        with contextlib.closing(os.fdopen(lock)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # its owner lives
                continue
            shutil.rmtree(folder, ignore_errors=True)
