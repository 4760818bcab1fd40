"""This machine's resources: the most that a worker on it can have."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from unistream.base.limits import MIB
from unistream.model.resources import ResourceProfile

WORKER_OWN_MB: Final = 448  # framework memory and the least overhead, which belong to no slot
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


def machine_profile() -> ResourceProfile:
    """The cores that this process may use, and the memory for one slot, without a worker's own."""
    memory_mb = _memory_bytes() // MIB - WORKER_OWN_MB
    return ResourceProfile(cpu_cores=float(_cores()), memory_mb=max(1, memory_mb))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    """Physical memory, or a container's limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no container, or "max"
        return min(physical, int(_CGROUP_LIMIT.read_text()))
    return physical
