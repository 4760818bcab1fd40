"""Waiting for processes that are not children of this one (Linux; elsewhere there is nothing to wait with).

Spark's Python workers are children of a daemon, which is a child of the JVM. They end some time after Spark
has reported it. A pidfd refers to one process, also after its pid was reused.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

KILLED_S: Final = 5.0  # a killed process ends at once, unless it hangs in the kernel


class Processes:
    """Any processes; those that have ended already are ignored."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._fds: list[int] = []
        if sys.platform == "linux":
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    self._fds.append(os.pidfd_open(pid))

    def end(self, patience_s: float) -> None:
        """Waits until all have ended, and kills those that have not within `patience_s`. Call it once."""
        if sys.platform != "linux":
            return
        deadline = time.monotonic() + patience_s
        for fd in self._fds:
            if not _ended(fd, max(0.0, deadline - time.monotonic())):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                _ended(fd, KILLED_S)
            os.close(fd)
        self._fds = []


def below(root: int) -> Iterator[int]:
    """Every process that descends from `root` now."""
    parents = dict(_parents())
    for pid in parents:
        ancestor = parents.get(pid)
        while ancestor is not None and ancestor != root:
            ancestor = parents.get(ancestor)
        if ancestor == root:
            yield pid


def _ended(pidfd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _parents() -> Iterator[tuple[int, int]]:
    """(process, its parent) of every process."""
    if sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(after_name[1])
