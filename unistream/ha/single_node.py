"""Leadership without a coordination service: the master that holds the lock of a cluster's folder is the only
one.

The kernel releases the lock with the process, however it ends. Writes of an older leader are fenced by the
leader epoch, which increases with every master (`ha.folder_store`).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from unistream.base.closing import Closing
from unistream.base.errors import ConfigError, FolderInUse
from unistream.base.process_mark import process_name
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.port.ha import Contender, ContenderInfo, LeaderInfo

LOCK_NAME: Final = "master.lock"
HA_FOLDER: Final = "ha"
LOOKS_MAX: Final = 400  # so often a start meets somebody who only looks, which takes microseconds: 2 s in all
LOOK_PAUSE_S: Final = 0.005


class FolderLock(Closing):
    """Held from construction until `close`. Its file names the process that holds it.

    Args:
        folder: Of the cluster.
        pause: Waits that long, in seconds, while somebody looks at the folder (`holder`).

    Raises:
        FolderInUse: another master holds it.
        ConfigError: the folder cannot be written.
    """

    def __init__(self, folder: str | Path, pause: Callable[[float], None] = time.sleep) -> None:
        path = Path(folder) / LOCK_NAME
        try:
            self._descriptor: int | None = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot use {folder} as the cluster's folder: {error.strerror}") from error
        if not _taken(self._descriptor, pause):
            pid = _holder(self._descriptor)
            self.close()
            who = "" if pid is None else f" (process {pid})"
            raise FolderInUse(
                f"{folder} is in use by another cluster{who}; stop that one, or choose another folder", pid
            )
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def close(self) -> None:
        """Safe to repeat."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _taken(descriptor: int, pause: Callable[[float], None]) -> bool:
    """False: another master has it."""
    for _ in range(LOOKS_MAX):
        if _is_locked(descriptor, fcntl.LOCK_EX):
            return True
        if not _is_locked(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # the others only look, or have just ended
        pause(LOOK_PAUSE_S)
    return False


def _is_locked(descriptor: int, how: int) -> bool:
    """Locks the file for this process; False: others have a lock that excludes it."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def holder(folder: str | Path) -> int | None:
    """The process whose cluster has `folder` now; None: nobody has it, or it cannot be said who. It is locked
    for this look, which a master that starts meanwhile waits for."""
    try:
        descriptor = os.open(Path(folder) / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _is_locked(descriptor, fcntl.LOCK_SH) else _holder(descriptor)
    finally:
        os.close(descriptor)  # with its lock


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


class FolderElection(Closing):
    """`port.ha.LeaderElection` of a cluster with one master: it leads as soon as it has the folder.

    Args:
        folder: Of the cluster; exists. The pointers are in its folder `ha`.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._lock: FolderLock | None = None
        self._store: FolderHaStore | None = None

    def start(self, contender: Contender) -> None:
        """See the port. Grants before it returns."""
        self._lock = FolderLock(self._folder)
        try:
            folder = self._folder / HA_FOLDER
            self._store = FolderHaStore(folder, claim_folder(folder))
        except BaseException:
            self.close()
            raise
        contender.granted(self._store)

    def publish(self, info: LeaderInfo) -> None:
        """See the port."""
        assert self._store is not None, "start comes first"
        self._store.publish(msgspec.json.encode(info))

    def contenders(self) -> Sequence[ContenderInfo] | None:
        """See the port. There are no standbys."""
        return () if self._lock is None else (ContenderInfo(process=process_name(), leads=True),)

    def close(self) -> None:
        """See the port."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()
