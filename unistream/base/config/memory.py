"""Memory: how the memory of a worker process is divided."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, RealNumber, parse_bytes

MEMORY_PROCESS: Final = ConfigOption(
    "taskmanager.memory.process.size",
    parse_bytes,
    None,
    "Total memory of a worker process; 1728 mb if neither it, flink.size nor both task.heap.size and "
    "managed.size are set.",
)
MEMORY_FLINK: Final = ConfigOption(
    "taskmanager.memory.flink.size",
    parse_bytes,
    None,
    "Memory of a worker process, excluding the interpreter and its libraries.",
)
MEMORY_FRAMEWORK_HEAP: Final = ConfigOption(
    "taskmanager.memory.framework.heap.size", parse_bytes, "128 mb", "Python objects of the worker itself."
)
MEMORY_FRAMEWORK_OFF_HEAP: Final = ConfigOption(
    "taskmanager.memory.framework.off-heap.size",
    parse_bytes,
    "128 mb",
    "Arrow and native memory of the worker itself.",
)
MEMORY_TASK_HEAP: Final = ConfigOption(
    "taskmanager.memory.task.heap.size",
    parse_bytes,
    None,
    "Memory of user code and of operators while they work; unset: what the other parts leave.",
)
MEMORY_TASK_OFF_HEAP: Final = ConfigOption(
    "taskmanager.memory.task.off-heap.size",
    parse_bytes,
    "0 b",
    "Native memory of user code, in addition to task.heap.size.",
)
MEMORY_MANAGED: Final = ConfigOption(
    "taskmanager.memory.managed.size",
    parse_bytes,
    None,
    "Memory that operators may fill before they spill; unset: managed.fraction of flink.size.",
)
MEMORY_MANAGED_FRACTION: Final = ConfigOption(
    "taskmanager.memory.managed.fraction",
    RealNumber(0, 1),
    "0.4",
    "Share of flink.size that is managed memory.",
)
MEMORY_NETWORK_FRACTION: Final = ConfigOption(
    "taskmanager.memory.network.fraction",
    RealNumber(0, 1),
    "0.1",
    "Share of flink.size for batches that wait between tasks, within network.min and network.max.",
)
MEMORY_NETWORK_MIN: Final = ConfigOption(
    "taskmanager.memory.network.min", parse_bytes, "64 mb", "Least network memory."
)
MEMORY_NETWORK_MAX: Final = ConfigOption(
    "taskmanager.memory.network.max", parse_bytes, None, "Most network memory; unset: no limit."
)
MEMORY_OVERHEAD_FRACTION: Final = ConfigOption(
    "taskmanager.memory.jvm-overhead.fraction",
    RealNumber(0, 1),
    "0.1",
    "Share of process.size for the interpreter, its libraries, threads and the allocators' slack, within "
    "jvm-overhead.min and jvm-overhead.max.",
)
MEMORY_OVERHEAD_MIN: Final = ConfigOption(
    "taskmanager.memory.jvm-overhead.min",
    parse_bytes,
    "192 mb",
    "Least memory of the interpreter and its libraries.",
)
MEMORY_OVERHEAD_MAX: Final = ConfigOption(
    "taskmanager.memory.jvm-overhead.max",
    parse_bytes,
    "1 gb",
    "Most memory of the interpreter and its libraries.",
)
