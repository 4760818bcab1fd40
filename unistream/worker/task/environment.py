"""What the process gives a task: nothing is global."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from unistream.base.clock import Clock
from unistream.base.compiling import PROCESS
from unistream.base.limits import MIB
from unistream.model.messages import TaskMetrics, ToJobManager
from unistream.model.metric_names import COMPILING
from unistream.port.storage import StateReader, StateWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """Everything outside the task.

    Attributes:
        report: Sends a message to the master, in order, without blocking; thread-safe.
        executor: Runs the background part of snapshots.
        commits: Runs background work of operators, such as commits; None: `executor`.
        state_writer, state_reader: Create one for the directory (fsspec URL) of a snapshot.
        crash_point: A named place where a test may let the process die.
        managed_memory: Bytes for all operators of the task: the share of a slot.
        tmp_dir: Local folder for what operators spill; None: the system's.
        state_folder: Local folder for keyed state, this process's own; None: `tmp_dir`.
        exclusive: No other attempt of the task's subtask runs at the same time.
        may_block: Each task has a thread of its own, which may wait for its consumers.
    """

    clock: Clock
    report: Callable[[ToJobManager], None]
    executor: Executor
    state_writer: Callable[[str], StateWriter]
    state_reader: Callable[[str], StateReader]
    crash_point: Callable[[str], None]
    managed_memory: int = 64 * MIB
    tmp_dir: str | None = None
    state_folder: Callable[[], Path] | None = None
    exclusive: bool = True
    may_block: bool = False
    commits: Executor | None = None


class Doing(Enum):
    """What a task's thread spends its time on."""

    BUSY = "busy"
    BACKPRESSURED = "backpressured"  # it waits for room in an output
    IDLE = "idle"  # it waits for input


@dataclass(slots=True)
class TaskCounters:
    """Counters of one attempt, written by its thread and read by the heartbeat thread.

    Attributes:
        since_ms: Monotonic start of the current piece of work or wait.
        doing: What that counts as.
    """

    records_in: int = 0
    busy_ms: int = 0
    backpressured_ms: int = 0
    idle_ms: int = 0
    since_ms: int | None = None
    doing: Doing = Doing.BUSY
    watermark: int | None = None
    user: dict[str, int] = field(default_factory=dict)

    def turn_to(self, doing: Doing, now_ms: int) -> None:
        """Makes the time count as `doing` from now on; called by the task's thread."""
        busy, backpressured, idle = self.times(now_ms)
        self.since_ms = None  # a reader in between sees the past without the present, not the past twice
        self.busy_ms, self.backpressured_ms, self.idle_ms = busy, backpressured, idle
        self.doing = doing
        self.since_ms = now_ms

    def times(self, now_ms: int) -> tuple[int, int, int]:
        """Busy, backpressured and idle ms so far, including the current piece of work or wait."""
        since_ms, doing = self.since_ms, self.doing
        spent = 0 if since_ms is None else max(0, now_ms - since_ms)
        return (
            self.busy_ms + spent * (doing is Doing.BUSY),
            self.backpressured_ms + spent * (doing is Doing.BACKPRESSURED),
            self.idle_ms + spent * (doing is Doing.IDLE),
        )

    def to_metrics(self, records_out: int, now_ms: int) -> TaskMetrics:
        """The counters, including the current piece of work or wait."""
        busy_ms, backpressured_ms, idle_ms = self.times(now_ms)
        compiling = {COMPILING: 1} if PROCESS.is_under_way else {}
        return TaskMetrics(
            records_in=self.records_in,
            records_out=records_out,
            busy_ms=busy_ms,
            backpressured_ms=backpressured_ms,
            idle_ms=idle_ms,
            watermark=self.watermark,
            user={**self.user, **compiling},
        )


class OperatorMetrics:
    """`port.metrics.Metrics` of one operator: they appear as ``<operator name>.<counter>``."""

    def __init__(self, counters: TaskCounters, operator: str) -> None:
        self._user = counters.user
        self._prefix = operator

    def add(self, name: str, amount: int) -> None:
        key = f"{self._prefix}.{name}"
        self._user[key] = self._user.get(key, 0) + amount

    def set(self, name: str, value: int) -> None:
        self._user[f"{self._prefix}.{name}"] = value
