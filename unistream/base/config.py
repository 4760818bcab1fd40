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
from unistream.base.limits import KEY_GROUPS_MAX, PARALLELISM_MAX

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
    """Parses one of these words, as they are written."""

    allowed: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """The word. Raises ConfigError for any other."""
        if text not in self.allowed:
            raise ConfigError(f"{text!r} is not one of {', '.join(self.allowed)}")
        return text


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
    one_of("fixed-delay", "none", "disable", "off"),
    None,
    "Unset: fixed-delay if checkpointing is enabled, else none.",
)
RESTART_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    WholeNumber(0, 2**31 - 1),
    "10",
    "Restarts before the job fails.",
)
RESTART_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", parse_duration_ms, "1 s", "Wait before a restart."
)
TASK_SLOTS: Final = ConfigOption(
    "taskmanager.numberOfTaskSlots", WholeNumber(1, PARALLELISM_MAX), "1", "Slots of one TaskManager process."
)
SLOT_REQUEST_TIMEOUT: Final = ConfigOption(
    "slot.request.timeout", parse_duration_ms, "5 min", "Longest wait for slots."
)
HEARTBEAT_INTERVAL: Final = ConfigOption(
    "heartbeat.interval", parse_duration_ms, "10 s", "Time between heartbeats of a TaskManager."
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout", parse_duration_ms, "50 s", "A peer that is silent for longer is given up."
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
