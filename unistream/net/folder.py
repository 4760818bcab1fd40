"""A private folder for temporary files, removed after its process has ended, even if that was killed.

Its lock lives as long as its process, so that a later process recognises a folder that is no longer in use,
whatever the process ids (containers may share a file system).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError

_NEW: Final = "."  # prefix of names that are not locked yet; cleaners ignore them
_LOCK_NAME: Final = "lock"


class PrivateFolder:
    """A new folder `<root>/<prefix>…`, mode 0700, removed by `close`, or later by another process.

    `before_removal`: see `remove_stale_folders`.

    Raises:
        ConfigError: `root` cannot be written.
    """

    def __init__(
        self, root: Path, prefix: str, *, before_removal: Callable[[Path], None] | None = None
    ) -> None:
        try:
            remove_stale_folders(root, prefix, before_removal=before_removal)
            new, self._lock = _locked_folder(root, prefix)
            self.path = new.rename(root / new.name.removeprefix(_NEW))
        except OSError as error:
            raise ConfigError(f"no private folder can be created in {root}: {error.strerror}") from error

    def restore(self) -> None:
        """Creates the folder again under its name, locked, if it or its lock was removed. Its content stays.

        Raises:
            ConfigError: it cannot be created, or something else is in its place.
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
        """The lock file is the one that this process holds."""
        try:
            found = (self.path / _LOCK_NAME).lstat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._lock))

    @property
    def is_there(self) -> bool:
        """False: it was removed, as cleaners of temporary files do after days without use."""
        return self.path.is_dir()

    def close(self) -> None:
        """May be called again."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _locked_folder(root: Path, prefix: str) -> tuple[Path, int]:
    """A new folder that cleaners still ignore, and the descriptor of its lock."""
    new = Path(tempfile.mkdtemp(prefix=_NEW + prefix, dir=root))
    lock = os.open(new / _LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return new, lock


def _put_in_place(new: Path, path: Path) -> None:
    """Renames `new` to `path`; if `path` exists with content, only its lock is replaced.

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


def remove_stale_folders(
    root: Path, prefix: str, *, before_removal: Callable[[Path], None] | None = None
) -> None:
    """Removes folders whose process has ended. `before_removal` is called with each of them first, while it
    is locked; one for which it raises OSError stays."""
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
            try:
                if before_removal is not None:
                    before_removal(folder)
            except OSError:
                continue
            shutil.rmtree(folder, ignore_errors=True)
