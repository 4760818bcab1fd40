"""How the memory and the cores of a worker are divided. Pure, and loads no Arrow.

Decides: how many bytes each consumer of a worker's memory gets (`division`, Flink's model), the profile of a
slot, and how many threads libraries may start (`worker_resources`). Workers use it before they load Arrow.
May import: `base`, `model.resources`. Start with `division`.
"""

from __future__ import annotations

from unistream.core.memory.division import MemoryPlan, describe_bytes, memory_plan
from unistream.core.memory.worker_resources import (
    config_with,
    cpu_threads,
    memory_limit,
    slot_profile,
    thread_environment,
)
