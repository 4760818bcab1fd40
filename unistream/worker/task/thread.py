"""Drives one stream task on a thread of its own: step, and sleep when a step says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.model.messages import TaskDeployment, ToJobManager
from unistream.worker.task.environment import Doing
from unistream.worker.task.mailbox import Mailbox
from unistream.worker.task.run import BuildTask, TaskEnded, TaskRun
from unistream.worker.task.state import Done, TaskState, Waiting

_log = logging.getLogger(__name__)


class TaskThread(TaskRun):
    """A `TaskRun` with a thread."""

    def __init__(
        self,
        deployment: TaskDeployment,
        *,
        build: BuildTask,
        report: Callable[[ToJobManager], None],
        on_end: TaskEnded,
        clock: Clock,
    ) -> None:
        super().__init__(
            deployment, mailbox=Mailbox(), build=build, report=report, on_end=on_end, clock=clock
        )
        name = f"{deployment.vertex.name[:32]}#{deployment.attempt.index}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """True: it has ended."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        state = TaskState.FAILED
        try:
            state = self._run_to_end()
        except BaseException as error:  # user code may raise anything, before a task reports for itself
            _log.exception("event=task_not_started attempt=%s", self.attempt)
            self._not_opened(error)
        finally:
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
