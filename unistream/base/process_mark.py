"""A text that tells one process from every other one, also from a later one with the same pid.

    <boot id>/<namespace of pids>/<pid>/<clock ticks since boot at which it started>

Two processes with the same first two parts see each other, so that one can know for certain whether the other
still runs. Empty where the system does not provide this.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def process_name() -> str:
    """The name of this process, for people: host and pid."""
    return f"{socket.gethostname()}-{os.getpid()}"[:255]


def own() -> str:
    """The mark of this process."""
    pid = os.getpid()
    place, started = _place(), start_of(pid)
    return f"{place}/{pid}/{started}" if place and started else ""


def runs(mark: str) -> bool | None:
    """Whether the process of that mark runs. None: that cannot be known from here."""
    place, _, rest = mark.rpartition("/")[0].rpartition("/")
    if not place or place != _place():
        return None
    return rest.isdigit() and start_of(int(rest)) == mark.rpartition("/")[2]


def start_of(pid: int) -> str | None:
    """When a running process started, in clock ticks since boot; None: none runs, or the system does not
    say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else fields[19]


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
