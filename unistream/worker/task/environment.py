"""What a task is given by the process that it runs in; nothing of it is global."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from unistream.base.clock import Clock
from unistream.base.limits import MIB
from unistream.model.messages import TaskMetrics, ToJobManager
from unistream.port.storage import StateReader, StateWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """Everything outside the task.

    Attributes:
        report: Sends a message to the master, in order, without blocking; thread-safe.
        executor: Runs the background part of snapshots.
        commits: Runs what operators do beside their task, as commits; None: `executor`.
        state_writer, state_reader: Make one for the directory (fsspec URL) of a snapshot.
        crash_point: A named place where a test may let the process die.
        managed_memory: Bytes for the operators of the task together: the share of a slot.
        tmp_dir: Local folder for what operators spill; None: the system's.
        state_folder: Local folder for keyed state, this process's own; None: `tmp_dir`.
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
    may_block: bool = False
    commits: Executor | None = None


class Doing(Enum):
    """What a task's thread spends its time on."""

    BUSY = "busy"
    BACKPRESSURED = "backpressured"  # it waits for room in an output
    IDLE = "idle"  # it waits for input


@dataclass(slots=True)
class TaskCounters:
    """Counters of one attempt, written by its thread and read by the heartbeat's.

    Attributes:
        since_ms: Monotonic start of the piece of work or the wait that is going on.
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
        """By the task's thread: what it did until now is over."""
        busy, backpressured, idle = self.times(now_ms)
        self.since_ms = None  # a reader in between sees the past without the present, not the past twice
        self.busy_ms, self.backpressured_ms, self.idle_ms = busy, backpressured, idle
        self.doing = doing
        self.since_ms = now_ms

    def times(self, now_ms: int) -> tuple[int, int, int]:
        """Busy, backpressured and idle ms so far, what is going on included: a wait may be long."""
        since_ms, doing = self.since_ms, self.doing
        spent = 0 if since_ms is None else max(0, now_ms - since_ms)
        return (
            self.busy_ms + spent * (doing is Doing.BUSY),
            self.backpressured_ms + spent * (doing is Doing.BACKPRESSURED),
            self.idle_ms + spent * (doing is Doing.IDLE),
        )

    def to_metrics(self, records_out: int, now_ms: int) -> TaskMetrics:
        """The counters with what is going on; what waits before and behind the task is its own to add."""
        busy_ms, backpressured_ms, idle_ms = self.times(now_ms)
        return TaskMetrics(
            records_in=self.records_in,
            records_out=records_out,
            busy_ms=busy_ms,
            backpressured_ms=backpressured_ms,
            idle_ms=idle_ms,
            watermark=self.watermark,
            user=dict(self.user),
        )


class OperatorMetrics:
    """`port.metrics.Metrics` of one operator: its counters appear as ``<operator name>.<counter>``."""

    def __init__(self, counters: TaskCounters, operator: str) -> None:
        self._user = counters.user
        self._prefix = operator

    def add(self, name: str, amount: int) -> None:
        key = f"{self._prefix}.{name}"
        self._user[key] = self._user.get(key, 0) + amount


class SourceLinks:
    """How a source's reader reaches its task (from any thread) and the master."""

    def __init__(
        self,
        *,
        wake_task: Callable[[], None],
        request_split: Callable[[], None],
        counters: TaskCounters,
    ) -> None:
        self._wake_task = wake_task
        self._woken = threading.Event()
        self.request_split = request_split
        self.counters = counters

    def wake(self) -> None:
        """From any thread: polling may find something."""
        self._woken.set()
        self._wake_task()

    def take_wake(self) -> bool:
        """By the task: there was a wake since the last call."""
        woken = self._woken.is_set()
        if woken:
            self._woken.clear()
        return woken
