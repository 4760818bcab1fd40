"""Typed configuration options with Flink's names, units and defaults.

An option is declared once, in the table at the end of this file; `docs/reference/configuration.md`
is generated from it. Values travel as text and are parsed where they are read, so that an error can name
the key. An unknown key is refused with the nearest known one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from unistream.base.errors import ConfigError
from unistream.base.limits import GIB, KEY_GROUPS_MAX, KIB, PARALLELISM_MAX

T = TypeVar("T")

_DURATION_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "min": 60_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_BYTES: Final = {"b": 1, "kb": 2**10, "k": 2**10, "mb": 2**20, "m": 2**20, "gb": 2**30, "g": 2**30}
_NUMBER_UNIT: Final = re.compile(r"^\s*([0-9]+)\s*([a-zA-Z]*)\s*$")
_REAL_NUMBER: Final = re.compile(r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$")
_WHOLE_NUMBER: Final = re.compile(r"^\s*[+-]?[0-9]+\s*$")
_DIGITS_MAX: Final = 10  # 10^10 days in ms still fit into the 63 bits that timers and clocks have


def parse_duration_ms(text: str) -> int:
    """``"2 s"`` -> 2000; a bare number is milliseconds, as in Flink.

    >>> parse_duration_ms("2 s"), parse_duration_ms("100")
    (2000, 100)
    """
    return _with_unit(text, _DURATION_MS, "ms", "a duration such as '2 s' or '500 ms'")


def parse_bytes(text: str) -> int:
    """``"64 mb"`` -> 67108864; a bare number is bytes."""
    return _with_unit(text, _BYTES, "b", "a size such as '64 mb'")


def _with_unit(text: str, units: Mapping[str, int], default: str, wanted: str) -> int:
    found = _NUMBER_UNIT.match(text)
    unit = units.get(found[2].lower() or default) if found else None
    if found is None or unit is None or len(found[1]) > _DIGITS_MAX:
        raise ConfigError(f"{text[:80]!r} is not {wanted}")
    return int(found[1]) * unit


def parse_bool(text: str) -> bool:
    """``true`` or ``false``, in any case."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ConfigError(f"{text!r} is not true or false")


def parse_int(text: str) -> int:
    """A whole number in decimal digits that fits into 64 bits."""
    if _WHOLE_NUMBER.match(text) is None or len(text) > 24 or not -(2**63) <= int(text) < 2**63:
        raise ConfigError(f"{text[:80]!r} is not a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Parses one of these words; in any case, as Flink does, and gives it as it is written here."""

    allowed: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """The word. Raises ConfigError for any other."""
        wanted = text.strip().casefold()
        for word in self.allowed:
            if word.casefold() == wanted:
                return word
        raise ConfigError(f"{text!r} is not one of {', '.join(self.allowed)}")


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """Parses an integer from `least` to `most`; `unset`: one more value that stands for "derived"."""

    least: int
    most: int
    unset: int | None = None

    def __call__(self, text: str) -> int:
        """The number. Raises ConfigError if it is not one or out of range."""
        value = parse_int(text)
        if not self.least <= value <= self.most and value != self.unset:
            raise ConfigError(f"{value} is not between {self.least} and {self.most}")
        return value


@dataclass(frozen=True, slots=True)
class RealNumber:
    """Parses a finite number from `least` to `most`; `least` itself only if `inclusive`."""

    least: float
    most: float
    inclusive: bool = True

    @property
    def allowed(self) -> str:
        """The range in words."""
        if self.most == float("inf"):
            return f"at least {self.least}" if self.inclusive else f"above {self.least}"
        return f"between {self.least} and {self.most}"

    def __call__(self, text: str) -> float:
        """The number. Raises ConfigError if it is not one or out of range."""
        value = float(text) if len(text) <= 64 and _REAL_NUMBER.match(text) else float("nan")
        fits = self.least <= value <= self.most and (self.inclusive or value != self.least)
        if not fits or value == float("inf"):
            raise ConfigError(f"{text[:80]!r} is not a number {self.allowed}")
        return value


@dataclass(frozen=True, slots=True)
class Bytes:
    """Parses a size as `parse_bytes` does, from `least` to `most` bytes."""

    least: int
    most: int

    def __call__(self, text: str) -> int:
        """Bytes. Raises ConfigError if it is not a size or out of range."""
        value = parse_bytes(text)
        if not self.least <= value <= self.most:
            raise ConfigError(f"{text[:80]!r} is not a size between {self.least} and {self.most} bytes")
        return value


@dataclass(frozen=True, slots=True)
class Duration:
    """Parses a duration as `parse_duration_ms` does, of at least `least_ms`."""

    least_ms: int

    def __call__(self, text: str) -> int:
        """Milliseconds. Raises ConfigError if it is not a duration, or too short."""
        value = parse_duration_ms(text)
        if value < self.least_ms:
            raise ConfigError(f"{text[:80]!r} is not a duration of at least {self.least_ms} ms")
        return value


def one_of(*allowed: str) -> OneOf:
    """A parser of these words."""
    return OneOf(allowed)


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T]):
    """One key. `default` is text too (None = unset), so that it is parsed and printed like a value."""

    key: str
    parse: Callable[[str], T]
    default: str | None
    doc: str


class Configuration:
    """Text by key; every key is a known one.

    Raises:
        ConfigError: an unknown key, with the nearest known one.

    >>> Configuration({"parallelism.default": "4"}).get(PARALLELISM)
    4
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})
        for key in self._values:
            if key not in OPTIONS:
                near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"unknown configuration key {key!r}{hint}")
        for option in OPTIONS.values():
            self.find(option)

    def find(self, option: ConfigOption[T]) -> T | None:
        """The value, its default, or None when neither is set."""
        text = self._values.get(option.key, option.default)
        if text is None:
            return None
        try:
            return option.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{option.key}: {error}") from None

    def get(self, option: ConfigOption[T]) -> T:
        """The value or its default.

        Raises:
            ConfigError: it is not set and has no default.
        """
        value = self.find(option)
        if value is None:
            raise ConfigError(f"{option.key} is not set: {option.doc}")
        return value

    def merged(self, other: Mapping[str, str]) -> Configuration:
        """This one with the values of `other` on top."""
        return Configuration({**self._values, **other})

    def to_dict(self) -> dict[str, str]:
        """What was set, without defaults."""
        return dict(self._values)


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """``["a.b=1"]`` -> ``{"a.b": "1"}``, for ``-D`` on a command line."""
    values: dict[str, str] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-D takes key=value, not {text!r}")
        values[key.strip()] = value.strip()
    return values


PARALLELISM: Final = ConfigOption(
    "parallelism.default",
    WholeNumber(1, PARALLELISM_MAX),
    "1",
    "Parallelism of vertices that set none.",
)
MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.max-parallelism",
    WholeNumber(1, KEY_GROUPS_MAX, unset=-1),
    "-1",
    "Number of key groups; -1: derived from the parallelism.",
)
CHAINING: Final = ConfigOption(
    "pipeline.operator-chaining.enabled", parse_bool, "true", "Run neighbouring operators in one task."
)
CHAINING_ACROSS_MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    parse_bool,
    "true",
    "Neighbours of unlike max parallelism may share a task; it has that of its first operator.",
)
RUNTIME_MODE: Final = ConfigOption(
    "execution.runtime-mode",
    one_of("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "How exchanges work: STREAMING pipelines them, BATCH needs bounded sources and stores results between "
    "stages; AUTOMATIC: BATCH if all sources are bounded.",
)
BATCH_SHUFFLE_MODE: Final = ConfigOption(
    "execution.batch-shuffle-mode",
    one_of(
        "ALL_EXCHANGES_BLOCKING",
        "ALL_EXCHANGES_PIPELINED",
        "ALL_EXCHANGES_HYBRID_FULL",
        "ALL_EXCHANGES_HYBRID_SELECTIVE",
    ),
    "ALL_EXCHANGES_BLOCKING",
    "Exchanges of a BATCH job; the hybrid modes are known and refused.",
)
AUTO_WATERMARK_INTERVAL: Final = ConfigOption(
    "pipeline.auto-watermark-interval", parse_duration_ms, "200 ms", "How often sources emit watermarks."
)
BUFFER_TIMEOUT: Final = ConfigOption(
    "execution.buffer-timeout.interval",
    parse_duration_ms,
    "100 ms",
    "Longest wait before a partly filled batch is sent to another process.",
)
CHECKPOINT_INTERVAL: Final = ConfigOption(
    "execution.checkpointing.interval",
    parse_duration_ms,
    None,
    "Time between checkpoints; unset: none are taken.",
)
CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.timeout",
    parse_duration_ms,
    "10 min",
    "A checkpoint that takes longer is aborted.",
)
CHECKPOINT_MIN_PAUSE: Final = ConfigOption(
    "execution.checkpointing.min-pause",
    parse_duration_ms,
    "0 ms",
    "Least time between the end of one checkpoint and the start of the next.",
)
CHECKPOINT_TOLERABLE_FAILURES: Final = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    WholeNumber(0, 2**31 - 1),
    "0",
    "Failed checkpoints in a row before the job restarts.",
)
CHECKPOINTS_RETAINED: Final = ConfigOption(
    "execution.checkpointing.num-retained", WholeNumber(1, 1_000), "1", "Completed checkpoints to keep."
)
CHECKPOINT_RETENTION: Final = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    one_of("NO_EXTERNALIZED_CHECKPOINTS", "RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What happens to checkpoints when the job is cancelled or has failed.",
)
CHECKPOINT_DIR: Final = ConfigOption(
    "execution.checkpointing.dir", str, None, "fsspec URL for checkpoints; unset: a folder of the cluster."
)
SAVEPOINT_DIR: Final = ConfigOption(
    "execution.checkpointing.savepoint-dir", str, None, "fsspec URL for savepoints whose command names none."
)
RESTART_STRATEGY: Final = ConfigOption(
    "restart-strategy.type",
    one_of(
        "exponential-delay",
        "exponentialdelay",
        "fixed-delay",
        "fixeddelay",
        "failure-rate",
        "failurerate",
        "none",
        "off",
        "disable",
    ),
    None,
    "Whether and when a failed job starts again. Unset: exponential-delay if checkpointing is enabled, "
    "else none.",
)
RESTART_BACKOFF_INITIAL: Final = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff", Duration(1), "1 s", "Wait before the first restart."
)
RESTART_BACKOFF_MAX: Final = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff", Duration(1), "1 min", "Longest wait before a restart."
)
RESTART_BACKOFF_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    RealNumber(1, float("inf"), inclusive=False),
    "1.5",
    "The wait grows by this factor from restart to restart.",
)
RESTART_BACKOFF_RESET: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    Duration(1),
    "1 h",
    "A job that ran for so long since its last restart starts over with the initial wait.",
)
RESTART_BACKOFF_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    RealNumber(0, 1),
    "0.1",
    "Share of the wait that is added or taken off at random, so that jobs do not come back together.",
)
RESTART_BACKOFF_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    WholeNumber(1, 2**31 - 1),
    "2147483647",
    "Restarts without such a long run in between, before the job fails.",
)
RESTART_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    WholeNumber(0, 2**31 - 1),
    "1",
    "Restarts before the job fails.",
)
RESTART_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", parse_duration_ms, "1 s", "Wait before a restart."
)
RESTART_RATE_FAILURES: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    WholeNumber(1, 100_000),
    "1",
    "Failures in one interval that are still followed by a restart.",
)
RESTART_RATE_INTERVAL: Final = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    Duration(1),
    "1 min",
    "The interval in which failures are counted.",
)
RESTART_RATE_DELAY: Final = ConfigOption(
    "restart-strategy.failure-rate.delay", parse_duration_ms, "1 s", "Wait before a restart."
)
ATTEMPTS_HISTORY_SIZE: Final = ConfigOption(
    "jobmanager.execution.attempts-history-size",
    WholeNumber(1, 1_000),
    "16",
    "Former attempts of each subtask that are remembered.",
)
EXCEPTION_HISTORY_SIZE: Final = ConfigOption(
    "web.exception-history-size",
    WholeNumber(1, 1_000),
    "16",
    "Failures of a job that are shown, each with those that happened along with it.",
)
FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy",
    one_of("region", "full"),
    "region",
    "What starts again when a task fails: the pipelined regions that need it, or the whole job.",
)
SCHEDULING_STRATEGY: Final = ConfigOption(
    "jobmanager.scheduling-strategy",
    one_of("pipelined-region", "eager", "lazy-from-sources"),
    "pipelined-region",
    "When subtasks are started: region by region when the inputs are complete, all at once, or each when its "
    "inputs can be read.",
)
SLOT_IDLE_TIMEOUT: Final = ConfigOption(
    "slot.idle.timeout",
    Duration(0),
    "50 s",
    "A job gives a slot back when it had nothing to run for so long.",
)
RESOURCE_WAIT_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
    Duration(0),
    "5 min",
    "Longest wait for all slots; then an adaptive job starts with those that there are, or fails.",
)
RESOURCE_STABILIZATION_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    Duration(0),
    "10 s",
    "With enough slots to run, but not all, an adaptive job waits so long for more.",
)
RESCALE_COOLDOWN: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    Duration(0),
    "30 s",
    "An adaptive job runs at least so long before it starts again on more slots.",
)
RESCALE_STABILIZATION_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    Duration(0),
    "1 min",
    "With more slots, but not all, an adaptive job that runs waits so long before it uses them.",
)
SCHEDULER: Final = ConfigOption(
    "jobmanager.scheduler",
    one_of("default", "adaptive"),
    "default",
    "Whether a job waits for the slots that it asks for, or takes what there is.",
)
MEMORY_PROCESS: Final = ConfigOption(
    "taskmanager.memory.process.size",
    parse_bytes,
    None,
    "Memory of a worker process in all; 1728 mb if neither it, flink.size nor both task.heap.size and "
    "managed.size are set.",
)
MEMORY_FLINK: Final = ConfigOption(
    "taskmanager.memory.flink.size",
    parse_bytes,
    None,
    "Memory of a worker process without that of the interpreter and its libraries.",
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
    "Memory of user code and of what operators hold while they work; unset: what the other parts leave.",
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
MEMORY_SEGMENT: Final = ConfigOption(
    "taskmanager.memory.segment-size",
    Bytes(4 * KIB, 1 * GIB),
    "1 mb",
    "Unit of network memory: about one Arrow batch. What a channel and a gate may hold is a number of them.",
)
BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.buffers-per-channel",
    WholeNumber(1, 1_000),
    "2",
    "Segments of each channel of its own.",
)
FLOATING_BUFFERS: Final = ConfigOption(
    "taskmanager.network.memory.floating-buffers-per-gate",
    WholeNumber(1, 10_000),
    "8",
    "Segments that the channels of one gate or result partition share.",
)
MAX_BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.max-buffers-per-channel",
    WholeNumber(1, 10_000),
    "10",
    "Segments that may wait for one consumer before its producer is backpressured.",
)
TMP_DIRS: Final = ConfigOption(
    "io.tmp.dirs",
    str,
    None,
    "Folders of each worker's machine for blocking partitions, separated by commas or colons; unset: the"
    " system's temporary folder.",
)
TASK_SLOTS: Final = ConfigOption(
    "taskmanager.numberOfTaskSlots", WholeNumber(1, PARALLELISM_MAX), "1", "Slots of one TaskManager process."
)
SLOT_REQUEST_TIMEOUT: Final = ConfigOption(
    "slot.request.timeout", parse_duration_ms, "5 min", "Longest wait for slots."
)
HEARTBEAT_INTERVAL: Final = ConfigOption(
    "heartbeat.interval", Duration(1), "10 s", "Time between heartbeats, from worker to master and back."
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout", Duration(1), "50 s", "A peer that is silent for longer is given up."
)
HEARTBEAT_FAILURES: Final = ConfigOption(
    "heartbeat.rpc-failure-threshold",
    WholeNumber(1, 2**31 - 1, unset=-1),
    "2",
    "A peer is given up when so many heartbeats in a row found nobody at its address; -1: only after "
    "heartbeat.timeout.",
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
    "A worker that was started and does not register in this time is given up.",
)
STANDALONE_STARTUP: Final = ConfigOption(
    "resourcemanager.standalone.start-up-time",
    parse_duration_ms,
    None,
    "Standalone: how long a new cluster waits for its workers before it refuses slots that none of them is "
    "big enough for; unset: slot.request.timeout.",
)
SLOT_TIMEOUT: Final = ConfigOption(
    "taskmanager.slot.timeout",
    Duration(1),
    "10 s",
    "Longest wait of a new task for the tasks of its slot's former lease to end.",
)
REGISTRATION_TIMEOUT: Final = ConfigOption(
    "taskmanager.registration.timeout",
    Duration(1),
    "5 min",
    "Standalone: a worker that finds no master for longer ends.",
)
CPU_CORES: Final = ConfigOption(
    "taskmanager.cpu.cores",
    RealNumber(0, 4096, inclusive=False),
    None,
    "Cores that one worker may use, all its slots together; unset: it is not told.",
)
BLOCK_FAILURES: Final = ConfigOption(
    "cluster.resource-blocklist.failures",
    WholeNumber(0, 1_000),
    "3",
    "A host that lost so many workers within cluster.resource-blocklist.window gets no new ones for a time, "
    "as long as there are others; 0: never.",
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
    "How long a host stays blocked: its free slots are not given out.",
)
CANCELLATION_TIMEOUT: Final = ConfigOption(
    "task.cancellation.timeout",
    parse_duration_ms,
    "3 min",
    "A task that does not end in this time after cancel takes its process with it.",
)
PARTITION_REQUEST_TIMEOUT: Final = ConfigOption(
    "taskmanager.network.partition-request-timeout",
    parse_duration_ms,
    "10 s",
    "Longest wait for a producer's partition to appear.",
)
COMMITTER_RETRIES: Final = ConfigOption(
    "sink.committer.retries",
    WholeNumber(0, 1_000),
    "10",
    "How often a commit that asks for it is retried at once.",
)
REST_ADDRESS: Final = ConfigOption(
    "rest.address",
    str,
    "127.0.0.1",
    "Where the REST API listens; only loopback until TLS and authentication are configured.",
)
REST_PORT: Final = ConfigOption(
    "rest.port", WholeNumber(0, 65_535), "0", "Port of the REST API; 0: a free one."
)
JOBMANAGER_PORT: Final = ConfigOption(
    "jobmanager.rpc.port",
    WholeNumber(0, 65_535),
    None,
    "Port on which the JobManager listens for workers that come by themselves; unset: 6123 for a standalone "
    "cluster, else none.",
)
JOBMANAGER_BIND: Final = ConfigOption(
    "jobmanager.bind-host", str, "127.0.0.1", "Address of the JobManager's and the TaskManagers' servers."
)
METADATA_URL: Final = ConfigOption(
    "metadata.url", str, None, "SQLAlchemy URL of the job metadata; unset: SQLite in the cluster's folder."
)
STATE_BACKEND: Final = ConfigOption(
    "state.backend.type", one_of("hashmap"), "hashmap", "Where keyed state lives."
)
SPARK_MASTER: Final = ConfigOption(
    "spark.master",
    str,
    "local[*]",
    "Spark master that hosts the workers; local[*] is sized by the workers asked for.",
)

OPTIONS: Final[dict[str, ConfigOption[object]]] = {
    value.key: value for value in list(globals().values()) if isinstance(value, ConfigOption)
}
"""Every known key."""
