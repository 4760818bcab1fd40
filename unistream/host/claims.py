"""Which process became which worker, where host and workers share a file system.

The host offers a folder for each worker; the worker's process claims it by writing its pid there; the host
withdraws it by moving the folder. So in any order either the host gets the pid, or the process learns that it
must not start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from unistream.base.ids import TaskManagerId
from unistream.net.folder import PrivateFolder

_PID: Final = "pid"
_WITHDRAWN: Final = ".withdrawn"


class Claims:
    """The host's side."""

    def __init__(self) -> None:
        self._folder = PrivateFolder(Path(tempfile.gettempdir()), "unistream-workers-")
        self._root = self._folder.path

    def offer(self, task_manager: TaskManagerId) -> str:
        """The folder to claim."""
        folder = self._root / task_manager
        self._folder.restore()  # a cleaner of temporary files may have removed it
        folder.mkdir()
        return str(folder)

    def withdraw(self, task_manager: TaskManagerId) -> int | None:
        """The process that has claimed it; None: no process has, and none will."""
        withdrawn = self._root / (task_manager + _WITHDRAWN)
        try:
            (self._root / task_manager).rename(withdrawn)
            pid = int((withdrawn / _PID).read_text())
        except FileNotFoundError:
            pid = None
        shutil.rmtree(withdrawn, ignore_errors=True)
        return pid

    def close(self) -> None:
        self._folder.close()


def claim(folder: str) -> bool:
    """The worker's side: False if it was withdrawn and this process must not start."""
    new = Path(folder) / f"{_PID}-{os.getpid()}"
    try:
        new.write_text(str(os.getpid()))
        new.rename(new.with_name(_PID))
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    return True
