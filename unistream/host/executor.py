"""On which host a Spark task runs, by the name that Spark has for it.

Spark tells a Python worker nothing about that. Its executor, an ancestor of the worker, was started with
``--hostname`` by every cluster manager (standalone, YARN, Kubernetes), and this name is the one that Spark's
scheduler, its log and its preferred locations use. The machine's own name need not be it: several
executors' hosts can be one machine, and a container's name says nothing to anybody.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_OPTION: Final = "--hostname"
_ANCESTORS_MAX: Final = 16  # worker, daemon, executor; a few shells at most


def executor_host() -> str:
    """Of the Spark executor that this process descends from, else this machine's own name."""
    for command in _ancestors():
        host = hostname_of(command)
        if host is not None:
            return host
    return socket.gethostname()


def hostname_of(command: Sequence[str]) -> str | None:
    """What a command line says about its executor's host; None: it is no executor.

    >>> hostname_of(["java", "CoarseGrainedExecutorBackend", "--hostname", "node-7", "--cores", "4"])
    'node-7'
    >>> hostname_of(["python", "-m", "pyspark.daemon"]) is None
    True
    """
    if _OPTION not in command[:-1] or not any("ExecutorBackend" in word for word in command):
        return None
    return command[command.index(_OPTION) + 1]


def _ancestors() -> Iterator[list[str]]:
    """Command lines from the parent upwards; nothing where there is no /proc."""
    pid = os.getppid()
    for _ in range(_ANCESTORS_MAX):
        if pid <= 1:
            return
        with contextlib.suppress(OSError, UnicodeDecodeError):  # not Linux, or it has just ended
            yield Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
        pid = _parent(pid)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0
