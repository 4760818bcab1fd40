"""One attempt of a task, from deployment to end, whoever steps it.

start ──► cancelled before? ──► CANCELED is reported
└──► build: the code is fetched, the task put together ──► fails? FAILED is reported
└──► step, step, … (the task reports for itself) ──► `on_end`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import msgspec

from unistream.base.clock import Clock
from unistream.base.ids import AttemptId
from unistream.model.messages import TaskDeployment, TaskMetrics, TaskStateChanged, ToJobManager
from unistream.worker.task.failures import task_failure
from unistream.worker.task.mailbox import Mailbox
from unistream.worker.task.state import TaskState
from unistream.worker.task.task import StreamTask

RATE_WINDOW_MS: Final = 1_000  # shorter ones say more of chance than of load

BuildTask = Callable[[TaskDeployment, Mailbox], StreamTask]
"""Fetches the user's code and puts the task together, where the task runs."""


class Rates:
    """Times per second between two looks at the counters of a task. Used by one thread."""

    def __init__(self) -> None:
        self._at_ms: int | None = None
        self._seen = TaskMetrics()
        self._rates = (0, 0, 0)

    def added_to(self, metrics: TaskMetrics, now_ms: int) -> TaskMetrics:
        """`metrics` with the rates of the last window."""
        passed_ms = 0 if self._at_ms is None else now_ms - self._at_ms
        if self._at_ms is None or passed_ms >= RATE_WINDOW_MS:
            before = self._seen
            self._rates = (
                _per_s(metrics.busy_ms - before.busy_ms, passed_ms),
                _per_s(metrics.backpressured_ms - before.backpressured_ms, passed_ms),
                _per_s(metrics.idle_ms - before.idle_ms, passed_ms),
            )
            self._at_ms, self._seen = now_ms, metrics
        busy, backpressured, idle = self._rates
        return msgspec.structs.replace(
            metrics, busy_per_s=busy, backpressured_per_s=backpressured, idle_per_s=idle
        )


def _per_s(spent_ms: int, passed_ms: int) -> int:
    return min(1000, max(0, spent_ms * 1000 // passed_ms)) if passed_ms else 0


class TaskRun(ABC):
    """See the module. A subclass steps the task: on a thread, or in turns of a simulation.

    Args:
        mailbox: The task's own.
        on_end: Called last, with the final state, where the task runs.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        *,
        mailbox: Mailbox,
        build: BuildTask,
        report: Callable[[ToJobManager], None],
        on_end: TaskEnded,
        clock: Clock,
    ) -> None:
        self.deployment = deployment
        self.mailbox = mailbox
        self.cancelled_at_ms: int | None = None
        self._build = build
        self._report = report
        self._on_end = on_end
        self._clock = clock
        self._task: StreamTask | None = None
        self._rates = Rates()

    @property
    def attempt(self) -> AttemptId:
        return self.deployment.attempt

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def join(self, timeout_s: float) -> bool:
        """True: it has ended."""

    def cancel(self) -> None:
        """From any thread; repeating it is fine."""
        if self.cancelled_at_ms is None:
            self.cancelled_at_ms = self._clock.monotonic_ms()
        self.mailbox.cancel()

    def metrics(self) -> TaskMetrics:
        """Counters so far, and rates since the call before (if that was long enough ago)."""
        task = self._task
        return (
            TaskMetrics()
            if task is None
            else self._rates.added_to(task.metrics(), self._clock.monotonic_ms())
        )

    def _open(self) -> StreamTask | None:
        """The task; None: it was cancelled before. Raises whatever the user's code raises."""
        if self.mailbox.is_cancelled:
            self._report(TaskStateChanged(attempt=self.attempt, state=TaskState.CANCELED.value))
            return None
        self._task = self._build(self.deployment, self.mailbox)
        return self._task

    def _not_opened(self, error: BaseException) -> None:
        """A task that does not run yet cannot report for itself."""
        self._report(
            TaskStateChanged(attempt=self.attempt, state=TaskState.FAILED.value, failure=task_failure(error))
        )


TaskEnded = Callable[[TaskRun, TaskState], None]
