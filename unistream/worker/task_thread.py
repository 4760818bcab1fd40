"""Drives one stream task on a thread of its own: step, and sleep when a step says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.base.ids import AttemptId
from unistream.model.messages import TaskDeployment, TaskMetrics, TaskStateChanged, ToJobManager
from unistream.worker.failures import task_failure
from unistream.worker.mailbox import Mailbox
from unistream.worker.task import StreamTask
from unistream.worker.task_state import Done, TaskState, Waiting

_log = logging.getLogger(__name__)


class TaskThread:
    """One attempt from deployment to end.

    Args:
        build: Fetches the user's code and puts the task together, on the task's thread.
        on_end: Called last, with the final state, on the task's thread.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        *,
        build: Callable[[TaskDeployment, Mailbox], StreamTask],
        report: Callable[[ToJobManager], None],
        on_end: Callable[[TaskThread, TaskState], None],
        clock: Clock,
    ) -> None:
        self.deployment = deployment
        self.mailbox = Mailbox()
        self.cancelled_at_ms: int | None = None
        self._build = build
        self._report = report
        self._on_end = on_end
        self._clock = clock
        self._task: StreamTask | None = None
        name = f"{deployment.vertex.name[:32]}#{deployment.attempt.index}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def attempt(self) -> AttemptId:
        return self.deployment.attempt

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """From any thread; repeating it is fine."""
        if self.cancelled_at_ms is None:
            self.cancelled_at_ms = self._clock.monotonic_ms()
        self.mailbox.cancel()

    def join(self, timeout_s: float) -> bool:
        """True: it has ended."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def metrics(self) -> TaskMetrics:
        """Counters so far."""
        return TaskMetrics() if self._task is None else self._task.metrics()

    def _run(self) -> None:
        state = TaskState.FAILED
        try:
            state = self._run_to_end()
        except Exception as error:  # before there is a task that reports for itself
            _log.exception("event=task_not_started attempt=%s", self.attempt)
            self._report(
                TaskStateChanged(
                    attempt=self.attempt, state=TaskState.FAILED.value, failure=task_failure(error)
                )
            )
        finally:
            self._on_end(self, state)

    def _run_to_end(self) -> TaskState:
        if self.mailbox.is_cancelled:
            self._report(TaskStateChanged(attempt=self.attempt, state=TaskState.CANCELED.value))
            return TaskState.CANCELED
        task = self._task = self._build(self.deployment, self.mailbox)
        counters = task.counters
        since_ms = self._clock.monotonic_ms()
        while True:
            self.mailbox.prepare_wait()
            result = task.step()
            match result:
                case Done():
                    counters.busy_ms += self._clock.monotonic_ms() - since_ms
                    return task.state
                case Waiting(deadline_ms=deadline_ms, backpressured=backpressured):
                    now_ms = self._clock.monotonic_ms()
                    counters.busy_ms += now_ms - since_ms
                    self.mailbox.wait(None if deadline_ms is None else max(0, deadline_ms - now_ms) / 1000)
                    since_ms = self._clock.monotonic_ms()
                    if backpressured:
                        counters.backpressured_ms += since_ms - now_ms
                    else:
                        counters.idle_ms += since_ms - now_ms
                case _:
                    pass
