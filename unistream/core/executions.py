"""The current attempt of every subtask: what the master knows of each, and only that.

Messages about any other attempt than the current one are not found here, and so ignored (fencing).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unistream.base.ids import AttemptId, JobId, SubtaskId
from unistream.core.execution import ExecutionState, execution_state
from unistream.core.job_messages import AttemptView, RecordAttempt
from unistream.core.outbox import Outbox
from unistream.core.story import StateLog
from unistream.model.plan import ExecutionPlan, Place


@dataclass(slots=True, kw_only=True)
class Execution:
    """One attempt.

    Attributes:
        place: Where it was deployed; None before that.
        end_of_data: All its operators have finished their logic.
        restored_finished: Its vertex had finished in the snapshot that it was restored from.
    """

    attempt: AttemptId
    vertex_name: str
    log: StateLog[ExecutionState]
    place: Place | None = None
    end_of_data: bool = False
    restored_finished: bool = False

    @property
    def state(self) -> ExecutionState:
        return self.log.state

    @property
    def is_deployed(self) -> bool:
        """A worker has it, or may have it."""
        return self.place is not None and not self.state.is_terminal


class Executions:
    """All current attempts, in the order of the plan."""

    def __init__(self, job: JobId, plan: ExecutionPlan, outbox: Outbox) -> None:
        self._job = job
        self._plan = plan
        self._outbox = outbox
        self._names = {vertex.id: vertex.name for vertex in plan.graph.vertices}
        self._current: dict[SubtaskId, Execution] = {}
        self._attempt = -1

    def new_attempts(self, why: str) -> None:
        """One more attempt of every subtask, SCHEDULED; all former ones must have ended."""
        assert self.all_terminal, "an attempt is still alive"
        self._attempt += 1
        for subtask in self._plan.subtasks:
            attempt = AttemptId(self._job, subtask.vertex, subtask.index, self._attempt)
            execution = Execution(
                attempt=attempt, vertex_name=self._names[subtask.vertex], log=execution_state(attempt)
            )
            self._current[subtask] = execution
            self.move(execution, ExecutionState.SCHEDULED, why)

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._current.values())

    def __getitem__(self, subtask: SubtaskId) -> Execution:
        return self._current[subtask]

    def find(self, attempt: AttemptId) -> Execution | None:
        """The execution, if `attempt` is the current one of its subtask."""
        execution = self._current.get(attempt.subtask)
        return execution if execution is not None and execution.attempt == attempt else None

    def move(self, execution: Execution, state: ExecutionState, why: str) -> None:
        """Takes a step of the table and has it recorded."""
        execution.log.to(state, why)
        self._outbox.add(
            RecordAttempt(
                attempt=execution.attempt,
                vertex_name=execution.vertex_name,
                state=state.value,
                task_manager=execution.place.task_manager if execution.place else None,
            )
        )

    @property
    def attempts(self) -> dict[SubtaskId, AttemptId]:
        return {subtask: execution.attempt for subtask, execution in self._current.items()}

    @property
    def states(self) -> dict[SubtaskId, ExecutionState]:
        return {subtask: execution.state for subtask, execution in self._current.items()}

    @property
    def all_started(self) -> bool:
        """Every task runs or has finished already."""
        up = (ExecutionState.RUNNING, ExecutionState.FINISHED)
        return bool(self._current) and all(execution.state in up for execution in self)

    @property
    def all_finished(self) -> bool:
        return bool(self._current) and all(e.state is ExecutionState.FINISHED for e in self)

    @property
    def all_terminal(self) -> bool:
        return all(execution.state.is_terminal for execution in self)

    @property
    def all_end_of_data(self) -> bool:
        """No task will produce another row."""
        return bool(self._current) and all(
            execution.end_of_data or execution.state is ExecutionState.FINISHED for execution in self
        )

    def views(self) -> tuple[AttemptView, ...]:
        return tuple(
            AttemptView(
                attempt=execution.attempt,
                state=execution.state.value,
                task_manager=execution.place.task_manager if execution.place else None,
            )
            for execution in self
        )
