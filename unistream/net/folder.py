"""A private folder for temporary files that does not outlive its process for long, even a killed one.

It holds a lock that lives as long as its process, so that a later process can tell a folder that was left
behind from one in use, whatever happened to the process ids (containers may share a file system).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
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
            new, self._lock = _locked_folder(root, prefix)
            self.path = new.rename(root / new.name.removeprefix(_NEW))
        except OSError as error:
            raise ConfigError(f"no private folder can be created in {root}: {error.strerror}") from error

    def restore(self) -> None:
        """Makes the folder again under its name, locked, when somebody has removed it or its lock. What is in
        it stays.

        Raises:
            ConfigError: it cannot be made, or somebody else has put something in its place.
        """
        if self._lock < 0 or self._is_locked():
            return
        root = self.path.parent
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            new, lock = _locked_folder(root, self.path.name)
            try:
                _put_in_place(new, self.path)
            except BaseException:
                os.close(lock)
                shutil.rmtree(new, ignore_errors=True)
                raise
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be created again: {error.strerror}") from error
        os.close(self._lock)
        self._lock = lock

    def _is_locked(self) -> bool:
        """The lock that this process holds is the one that others find."""
        try:
            found = (self.path / _LOCK_NAME).lstat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._lock))

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


def _locked_folder(root: Path, prefix: str) -> tuple[Path, int]:
    """A new folder that cleaners do not look at yet, and the descriptor of its lock."""
    new = Path(tempfile.mkdtemp(prefix=_NEW + prefix, dir=root))
    lock = os.open(new / _LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return new, lock


def _put_in_place(new: Path, path: Path) -> None:
    """`new` becomes `path`; of a `path` that is there with something in it, only the lock is replaced.

    Raises:
        ConfigError: `path` is not a folder of this user.
        OSError: it cannot be done.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        new.rename(path)
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} was removed, and something else is there that is not a folder of this user"
        )
    (new / _LOCK_NAME).rename(path / _LOCK_NAME)
    new.rmdir()


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
