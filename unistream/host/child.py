"""What a worker's process does before it becomes a TaskManager: it ties its life to its parent's.

`python -m unistream.host.child PARENT_PID MODULE` runs MODULE as `python -m MODULE` would, in a process
that ends when PARENT_PID does, however that ended. On Linux the kernel sees to it at once; elsewhere, and
where the parent was gone before the kernel was asked, a thread looks every `WATCH_S`.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

WATCH_S: Final = 0.5
EXIT_ORPHANED: Final = 79  # seen by nobody but a person who reads a process table

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when `parent` ends: all that a TaskManager must keep is on a storage.

    The kernel's signal follows the parent's *thread* that started this process; that thread must live
    as long as the worker may.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(EXIT_ORPHANED)


def main() -> None:
    parent, module = int(sys.argv[1]), sys.argv[2]
    die_with_parent(parent)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
