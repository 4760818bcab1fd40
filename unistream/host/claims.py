"""Which process became which worker, where host and workers share a file system.

The host offers a folder for each worker; the worker's process claims it by writing its number there; the
host withdraws it by moving it away. So either the host learns the number, or the process learns that it
is not wanted any more: there is no third case, whenever the two happen.
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
        """The process that has claimed it; None: nobody has, and nobody will."""
        gone = self._root / (task_manager + _WITHDRAWN)
        try:
            (self._root / task_manager).rename(gone)
            pid = int((gone / _PID).read_text())
        except FileNotFoundError:
            pid = None
        shutil.rmtree(gone, ignore_errors=True)
        return pid

    def close(self) -> None:
        self._folder.close()


def claim(folder: str) -> bool:
    """The worker's side: False if it was withdrawn, and this process must not begin."""
    new = Path(folder) / f"{_PID}-{os.getpid()}"
    try:
        new.write_text(str(os.getpid()))
        new.rename(new.with_name(_PID))
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    return True
