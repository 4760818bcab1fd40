"""What a task is given by the process that it runs in; nothing of it is global."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from unistream.base.clock import Clock
from unistream.model.messages import TaskMetrics, ToJobManager
from unistream.port.storage import StateReader, StateWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """Everything outside the task.

    Attributes:
        report: Sends a message to the master, in order, without blocking; thread-safe.
        executor: Runs the background part of snapshots.
        state_writer, state_reader: Make one for the directory (fsspec URL) of a snapshot.
        crash_point: A named place where a test may let the process die.
    """

    clock: Clock
    report: Callable[[ToJobManager], None]
    executor: Executor
    state_writer: Callable[[str], StateWriter]
    state_reader: Callable[[str], StateReader]
    crash_point: Callable[[str], None]


@dataclass(slots=True)
class TaskCounters:
    """Counters of one attempt, written by its thread and read by the heartbeat's."""

    records_in: int = 0
    busy_ms: int = 0
    backpressured_ms: int = 0
    idle_ms: int = 0
    watermark: int | None = None
    user: dict[str, int] = field(default_factory=dict)

    def to_metrics(self, records_out: int) -> TaskMetrics:
        return TaskMetrics(
            records_in=self.records_in,
            records_out=records_out,
            busy_ms=self.busy_ms,
            backpressured_ms=self.backpressured_ms,
            idle_ms=self.idle_ms,
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
