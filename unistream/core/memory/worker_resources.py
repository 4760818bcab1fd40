"""The resources of a worker by its configuration, and the configuration of one with given resources. Pure.

Options of memory that contradict each other are a `ConfigError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from unistream.base.config import (
    CPU_CORES,
    MEMORY_FLINK,
    MEMORY_FRAMEWORK_HEAP,
    MEMORY_FRAMEWORK_OFF_HEAP,
    MEMORY_MANAGED,
    MEMORY_MANAGED_FRACTION,
    MEMORY_PROCESS,
    MEMORY_TASK_HEAP,
    Configuration,
)
from unistream.base.limits import KIB, MIB
from unistream.core.memory.division import memory_plan
from unistream.model.resources import ResourceProfile

_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_MEMORY_TOTALS: Final = (MEMORY_PROCESS, MEMORY_FLINK, MEMORY_TASK_HEAP, MEMORY_MANAGED)


def slot_profile(config: Configuration, slots: int) -> ResourceProfile:
    """The profile of one slot of a worker with this configuration. What is not set is unspecified: the
    default size of a worker's memory is divided, but limits nothing."""
    memory_mb = 0
    if _is_memory_set(config):
        plan = memory_plan(config, slots)
        memory_mb = (plan.flink - plan.framework) // slots // MIB
    return ResourceProfile(cpu_cores=(config.find(CPU_CORES) or 0.0) / slots, memory_mb=memory_mb)


def memory_limit(config: Configuration, slots: int) -> int | None:
    """Bytes that the worker's process may use; None: no limit is set."""
    return memory_plan(config, slots).process if _is_memory_set(config) else None


def config_with(profile: ResourceProfile, slots: int, values: Mapping[str, str]) -> dict[str, str]:
    """`values` changed so that their `slot_profile` is `profile`; unspecified parts stay.

    Managed memory is its fraction of the slots' memory here, not of flink.size: in a small worker the fixed
    framework part would leave nothing else.
    """
    changed = dict(values)
    own = slot_profile(Configuration(values), slots)
    if profile.memory_mb and profile.memory_mb != own.memory_mb:
        for option in _MEMORY_TOTALS:
            changed.pop(option.key, None)
        config = Configuration(changed)
        framework = config.get(MEMORY_FRAMEWORK_HEAP) + config.get(MEMORY_FRAMEWORK_OFF_HEAP)
        memory_kb = profile.memory_mb * slots * MIB // KIB
        changed[MEMORY_FLINK.key] = f"{memory_kb + -(-framework // KIB)} kb"
        changed[MEMORY_MANAGED.key] = f"{int(memory_kb * config.get(MEMORY_MANAGED_FRACTION))} kb"
    if profile.cpu_cores and profile.cpu_cores != own.cpu_cores:
        changed[CPU_CORES.key] = repr(profile.cpu_cores * slots)
    return changed


def _is_memory_set(config: Configuration) -> bool:
    return any(config.find(option) is not None for option in _MEMORY_TOTALS)


def cpu_threads(config: Configuration) -> int | None:
    """Threads that Arrow and numeric libraries of the worker may use; None: no limit is set."""
    cores = config.find(CPU_CORES)
    return None if cores is None else max(1, math.ceil(cores))


def thread_environment(config: Configuration) -> dict[str, str]:
    """Variables that those libraries read when they are loaded.

    Threads are not pinned to cores: hosts do not know each other's workers, so that pinned threads could
    crowd on some cores while others are idle, and a fraction of a core cannot be pinned.
    """
    threads = cpu_threads(config)
    return {} if threads is None else dict.fromkeys(_THREAD_VARIABLES, str(threads))
