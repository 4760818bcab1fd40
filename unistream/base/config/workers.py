"""Workers: their slots, and how they are started, monitored and released."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import (
    ConfigOption,
    Duration,
    RealNumber,
    WholeNumber,
    parse_duration_ms,
    parse_ports,
)
from unistream.base.limits import PARALLELISM_MAX

TASK_SLOTS: Final = ConfigOption(
    "taskmanager.numberOfTaskSlots", WholeNumber(1, PARALLELISM_MAX), "1", "Slots of one TaskManager process."
)
WORKER_HOST: Final = ConfigOption(
    "taskmanager.host",
    str,
    None,
    "By which name or address other hosts reach this worker; unset: the address by which it reaches the "
    "JobManager.",
)
WORKER_BIND: Final = ConfigOption(
    "taskmanager.bind-host",
    str,
    None,
    "Where a worker listens for other hosts, such as `0.0.0.0` or `::`; unset: taskmanager.host.",
)
WORKER_PORTS: Final = ConfigOption(
    "taskmanager.data.port",
    parse_ports,
    "0",
    "Port of a worker for other hosts, or ports of which the first free one is used, such as `50100-50200`; "
    "0: any free one. It is for tasks and for the JobManager: a worker has one server.",
    other_keys=("taskmanager.rpc.port",),
)
CPU_CORES: Final = ConfigOption(
    "taskmanager.cpu.cores",
    RealNumber(0, 4096, inclusive=False),
    None,
    "Cores that one worker may use, all its slots together; unset: unknown.",
)
DRAIN_TIMEOUT: Final = ConfigOption(
    "taskmanager.drain.timeout",
    parse_duration_ms,
    "20 s",
    "A standalone worker that gets SIGTERM lets its tasks move to other workers first, for at most this "
    "long; without enough slots there, and with 0, it ends at once. What stops it has to give it a few "
    "seconds more.",
)
SLOT_TIMEOUT: Final = ConfigOption(
    "taskmanager.slot.timeout",
    Duration(1),
    "10 s",
    "Longest wait of a new task until the tasks of its slot's previous lease have ended.",
)
HEARTBEAT_INTERVAL: Final = ConfigOption(
    "heartbeat.interval",
    Duration(1),
    "10 s",
    "Time between heartbeats, from worker to master and back; shorter than heartbeat.timeout. Workers use "
    "the value of their master.",
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout",
    Duration(1),
    "50 s",
    "A peer that is silent for longer is considered lost. Workers use the value of their master.",
)
HEARTBEAT_FAILURES: Final = ConfigOption(
    "heartbeat.rpc-failure-threshold",
    WholeNumber(1, 2**31 - 1, unset=-1),
    "2",
    "A peer is considered lost after this many heartbeats in a row to an address where nothing listens; -1: "
    "only after heartbeat.timeout.",
)
WORKER_IDLE_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-timeout",
    parse_duration_ms,
    "30 s",
    "A worker that was started on demand and holds nothing of any job for longer is released.",
)
WORKER_START_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-registration.timeout",
    Duration(1),
    "5 min",
    "A worker that was started and does not register within this time is considered lost.",
)
REGISTRATION_TIMEOUT: Final = ConfigOption(
    "taskmanager.registration.timeout",
    Duration(1),
    "5 min",
    "Standalone: a worker that finds no master for longer ends.",
)
STANDALONE_STARTUP: Final = ConfigOption(
    "resourcemanager.standalone.start-up-time",
    parse_duration_ms,
    None,
    "Standalone: how long a new cluster waits for its workers before it refuses slots that none of them is "
    "big enough for; unset: slot.request.timeout.",
)
BLOCK_FAILURES: Final = ConfigOption(
    "cluster.resource-blocklist.failures",
    WholeNumber(0, 1_000),
    "3",
    "A host that lost workers this often within cluster.resource-blocklist.window gets no new ones for a "
    "while, as long as there are other hosts; those lost together count once; 0: never.",
)
BLOCK_WINDOW: Final = ConfigOption(
    "cluster.resource-blocklist.window",
    Duration(1),
    "10 min",
    "Time in which lost workers of one host are counted.",
)
BLOCK_TIME: Final = ConfigOption(
    "cluster.resource-blocklist.duration",
    Duration(1),
    "1 min",
    "How long a host stays blocked: its free slots are not used.",
)
SPARK_MASTER: Final = ConfigOption(
    "spark.master",
    str,
    "local[*]",
    "Spark master that hosts the workers; local[*] is sized for the requested workers. All other keys "
    "that begin with spark. are passed to Spark unchanged.",
)
