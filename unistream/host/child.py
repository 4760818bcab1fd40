"""Starts a worker's process, which ends with its parent.

`python -m unistream.host.child PARENT_PID MODULE …` runs MODULE as `python -m MODULE …` would, in a process
that ends when PARENT_PID does, for any reason. On Linux the kernel kills it at once; elsewhere, and if the
parent ended before that was set up, a thread checks every `WATCH_S`.
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
EXIT_ORPHANED: Final = 79  # only visible in a process table

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when `parent` ends: a TaskManager's durable state is in a storage.

    The kernel's signal follows the parent's *thread* that started this process; that thread must live
    as long as the worker may.
    """
    kill_with_parent()
    threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()


def kill_with_parent() -> None:
    """Makes this process end with its parent: on Linux the kernel kills it when the thread ends that has
    started it; elsewhere nothing does. The caller looks whether its parent lives still."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(EXIT_ORPHANED)


def main() -> None:
    parent, module = int(sys.argv[1]), sys.argv[2]
    die_with_parent(parent)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
