"""A task of a simulation: the real one, stepped by events of the world instead of a thread."""

from __future__ import annotations

from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.base.ids import AttemptId
from unistream.model.deployment import TaskDeployment
from unistream.model.messages import ToJobManager
from unistream.testing.sim.world import Process, World
from unistream.worker.task import BuildTask, Done, Mail, Mailbox, TaskEnded, TaskRun, TaskState, Waiting

STEPS_PER_TURN = 4  # at most


class SimMailbox(Mailbox):
    """Wakes its task by an event of the world."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake

    def post(self, mail: Mail) -> None:
        super().post(mail)
        self._wake()

    def cancel(self) -> None:
        super().cancel()
        self._wake()

    def wake(self) -> None:
        self._wake()


class SimTask(TaskRun):
    """A task in turns of a few steps.

    Args:
        process: Of the worker.
        on_task: (attempt, "begins" or its terminal state)
    """

    def __init__(
        self,
        world: World,
        process: Process,
        on_task: Callable[[AttemptId, str], None],
        deployment: TaskDeployment,
        *,
        build: BuildTask,
        report: Callable[[ToJobManager], None],
        on_end: TaskEnded,
        clock: Clock,
    ) -> None:
        super().__init__(
            deployment,
            mailbox=SimMailbox(self._schedule),
            build=build,
            report=report,
            on_end=on_end,
            clock=clock,
        )
        self._world = world
        self._process = process
        self._on_task = on_task
        self._scheduled = False
        self._ended = False
        self._alarm_ms: float | None = None

    def start(self) -> None:
        self._world.at(self._world.between(0.5, 20), self._begin, self._process)

    def join(self, timeout_s: float) -> bool:
        return self._ended

    def _begin(self) -> None:
        if not self.mailbox.is_cancelled:
            self._on_task(self.attempt, "begins")
        try:
            task = self._open()
        except Exception as error:
            self._not_opened(error)
            self._end(TaskState.FAILED)
            return
        if task is None:
            self._end(TaskState.CANCELED)
        else:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._ended and self._task is not None:
            self._scheduled = True
            self._world.at(self._world.between(0.01, 1), self._turn, self._process)

    def _turn(self) -> None:
        self._scheduled = False
        task = self._task
        assert task is not None, "a turn is scheduled only when there is a task"
        for _ in range(1 + self._world.random.randrange(STEPS_PER_TURN)):
            result = task.step()
            if isinstance(result, Done):
                self._end(task.state)
                return
            if isinstance(result, Waiting):
                self._sleep(result.deadline_ms)
                return
        self._schedule()

    def _sleep(self, deadline_ms: int | None) -> None:
        if deadline_ms is None or (self._alarm_ms is not None and self._alarm_ms <= deadline_ms):
            return
        self._alarm_ms = deadline_ms
        self._world.at(max(0.0, deadline_ms - self._world.now), self._alarm, self._process)

    def _alarm(self) -> None:
        self._alarm_ms = None
        self._schedule()

    def _end(self, state: TaskState) -> None:
        self._ended = True
        self._on_task(self.attempt, state.value)
        self._on_end(self, state)
