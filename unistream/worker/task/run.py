"""One attempt of a task, from deployment to its terminal state, and the thread that drives it.

start ──► cancelled before? ──► CANCELED is reported
└──► build: the code is fetched, the task put together ──► fails? FAILED is reported
└──► step, step, … (the task reports for itself) ──► `on_end`
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import msgspec

from unistream.base.allocator import give_back_freed_memory
from unistream.base.clock import Clock
from unistream.base.ids import AttemptId
from unistream.model.deployment import TaskDeployment
from unistream.model.messages import TaskMetrics, TaskStateChanged, ToJobManager
from unistream.worker.task.environment import Doing
from unistream.worker.task.failures import task_failure
from unistream.worker.task.mailbox import Mailbox
from unistream.worker.task.state import Done, TaskState, Waiting
from unistream.worker.task.task import StreamTask

RATE_WINDOW_MS: Final = 1_000  # rates over shorter windows are mostly noise

_log = logging.getLogger(__name__)

BuildTask = Callable[[TaskDeployment, Mailbox], StreamTask]
"""Fetches the user's code and builds the task, on the task's thread."""


class Rates:
    """Busy, backpressured and idle ms, and records, per second, between two readings. Used by one thread."""

    def __init__(self) -> None:
        self._at_ms: int | None = None
        self._seen = TaskMetrics()
        self._rates = (0, 0, 0)
        self._records: int | None = None

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
            if passed_ms:
                self._records = max(0, metrics.records_in - before.records_in) * 1000 // passed_ms
            self._at_ms, self._seen = now_ms, metrics
        busy, backpressured, idle = self._rates
        return msgspec.structs.replace(
            metrics,
            busy_per_s=busy,
            backpressured_per_s=backpressured,
            idle_per_s=idle,
            records_in_per_s=self._records,
        )


def _per_s(spent_ms: int, passed_ms: int) -> int:
    return min(1000, max(0, spent_ms * 1000 // passed_ms)) if passed_ms else 0


class TaskRun(ABC):
    """One attempt. A subclass steps the task: on a thread, or in turns of a simulation.

    Args:
        on_end: Called last, with the terminal state, on the task's thread.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        *,
        mailbox: Mailbox | None = None,
        build: BuildTask,
        report: Callable[[ToJobManager], None],
        on_end: TaskEnded,
        clock: Clock,
    ) -> None:
        self.deployment = deployment
        self.mailbox = mailbox or Mailbox()
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
        """Cancels the task, from any thread; repeating it is fine."""
        if self.cancelled_at_ms is None:
            self.cancelled_at_ms = self._clock.monotonic_ms()
        self.mailbox.cancel()

    def metrics(self) -> TaskMetrics:
        """Counters so far, and rates since the previous call (at least RATE_WINDOW_MS ago)."""
        if self._task is None:
            return TaskMetrics()
        return self._rates.added_to(self._task.metrics(), self._clock.monotonic_ms())

    def _open(self) -> StreamTask | None:
        """The task; None: it was cancelled before. Raises what the user's code raises."""
        if self.mailbox.is_cancelled:
            self._report(TaskStateChanged(attempt=self.attempt, state=TaskState.CANCELED.value))
            return None
        self._task = self._build(self.deployment, self.mailbox)
        return self._task

    def _not_opened(self, error: BaseException) -> None:
        self._report(
            TaskStateChanged(attempt=self.attempt, state=TaskState.FAILED.value, failure=task_failure(error))
        )


TaskEnded = Callable[[TaskRun, TaskState], None]


class TaskThread(TaskRun):
    """Drives the task on a thread of its own."""

    _thread: threading.Thread | None = None

    def start(self) -> None:
        name = f"{self.deployment.vertex.name[:32]}#{self.deployment.attempt.index}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        state = TaskState.FAILED
        try:
            state = self._run_to_end()
        except BaseException as error:  # user code may raise anything, before a task reports for itself
            _log.exception("event=task_not_started attempt=%s", self.attempt)
            self._not_opened(error)
        finally:
            if state is not TaskState.FINISHED:  # another attempt may restore its state
                give_back_freed_memory()
            self._on_end(self, state)

    def _run_to_end(self) -> TaskState:
        task = self._open()
        if task is None:
            return TaskState.CANCELED
        counters = task.counters
        counters.turn_to(Doing.BUSY, self._clock.monotonic_ms())
        while True:
            self.mailbox.prepare_wait()
            result = task.step()
            match result:
                case Done():
                    counters.turn_to(Doing.BUSY, self._clock.monotonic_ms())
                    counters.since_ms = None
                    return task.state
                case Waiting(deadline_ms=deadline_ms, backpressured=backpressured):
                    now_ms = self._clock.monotonic_ms()
                    counters.turn_to(Doing.BACKPRESSURED if backpressured else Doing.IDLE, now_ms)
                    self.mailbox.wait(None if deadline_ms is None else max(0, deadline_ms - now_ms) / 1000)
                    counters.turn_to(Doing.BUSY, self._clock.monotonic_ms())
                case _:
                    pass
