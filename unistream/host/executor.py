"""The host of a Spark task, by Spark's name for it.

Spark does not pass it to a Python worker. All cluster managers (standalone, YARN, Kubernetes) start the
executor, an ancestor of the worker, with ``--hostname``, the name in Spark's scheduler, log and preferred
locations. The machine's own name may differ: several executors' hosts can be one machine, and a container has
a name of its own.
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
    """The host of the Spark executor that this process descends from, else this machine's name."""
    for command in _ancestors():
        host = hostname_of(command)
        if host is not None:
            return host
    return socket.gethostname()


def hostname_of(command: Sequence[str]) -> str | None:
    """The executor's host in its command line; None if it is not an executor's.

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
