"""This machine's resources: the most that a worker on it can have."""

from __future__ import annotations

from typing import Final

from unistream.base.limits import MIB
from unistream.base.machine import usable_cores, usable_memory_bytes
from unistream.model.resources import ResourceProfile

WORKER_OWN_MB: Final = 448  # framework memory and the least overhead, which belong to no slot


def machine_profile() -> ResourceProfile:
    """The cores that this process may use, and the memory for one slot, without a worker's own; 0 (no limit)
    where this system does not say how much there is."""
    memory_bytes = usable_memory_bytes()
    memory_mb = 0 if memory_bytes is None else max(1, memory_bytes // MIB - WORKER_OWN_MB)
    return ResourceProfile(cpu_cores=float(usable_cores()), memory_mb=memory_mb)
