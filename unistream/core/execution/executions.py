"""The current attempt of every subtask. Messages about any other attempt are not found here, and so ignored
(fencing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from unistream.base.ids import AttemptId, JobId, SubtaskId
from unistream.core.contract import AttemptView, CommandOutbox, RecordAttempt, StateLog
from unistream.core.execution.execution import execution_state
from unistream.core.graph import ExecutionPlan
from unistream.model.execution_state import ExecutionState
from unistream.model.plan import TaskManagerLocation


@dataclass(slots=True, kw_only=True)
class Execution:
    """One attempt.

    Attributes:
        place: Where it was deployed; None before that.
        end_of_data: It has sent EndOfData.
        inputs_read: Its stored inputs are read to their end.
        restored_finished: Its vertex had finished in the snapshot that it was restored from.
        restored_ended: So had its data: it reads nothing (`TaskRestore.data_ended`).
    """

    attempt: AttemptId
    vertex_name: str
    log: StateLog[ExecutionState]
    place: TaskManagerLocation | None = None
    end_of_data: bool = False
    inputs_read: bool = False
    restored_finished: bool = False
    restored_ended: bool = False

    @property
    def state(self) -> ExecutionState:
        return self.log.state

    @property
    def title(self) -> str:
        return f"{self.vertex_name} #{self.attempt.index}"

    @property
    def is_deployed(self) -> bool:
        """A worker may have it."""
        return self.place is not None and not self.state.is_terminal


class Executions:
    """All current attempts, in the order of the plan.

    Args:
        attempts: Number of the first attempt of each subtask.
        first: The same for those that are not listed.
    """

    def __init__(
        self,
        job: JobId,
        plan: ExecutionPlan,
        outbox: CommandOutbox,
        attempts: Mapping[SubtaskId, int] | None = None,
        *,
        first: int = 0,
    ) -> None:
        self._job = job
        self._outbox = outbox
        self._names = {vertex.id: vertex.name for vertex in plan.graph.vertices}
        self._current: dict[SubtaskId, Execution] = {}
        self._counts: Counter[ExecutionState] = Counter()
        self._moved: dict[SubtaskId, Execution] = {}
        for subtask in plan.subtasks:
            self._create(subtask, (attempts or {}).get(subtask, first))

    def _create(self, subtask: SubtaskId, number: int) -> None:
        attempt = AttemptId(self._job, subtask.vertex, subtask.index, number)
        self._current[subtask] = Execution(
            attempt=attempt, vertex_name=self._names[subtask.vertex], log=execution_state(attempt)
        )
        self._counts[ExecutionState.CREATED] += 1

    def reset(self, subtasks: Iterable[SubtaskId]) -> None:
        """A new attempt of each, CREATED; the former ones have ended or never begun."""
        for subtask in subtasks:
            former = self._current[subtask]
            if former.state is not ExecutionState.CREATED:
                assert former.state.is_terminal, f"{former.attempt} is still alive"
                self._counts[former.state] -= 1
                self._create(subtask, former.attempt.attempt + 1)

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._current.values())

    def __getitem__(self, subtask: SubtaskId) -> Execution:
        return self._current[subtask]

    def find(self, attempt: AttemptId) -> Execution | None:
        """The execution, if `attempt` is the current one of its subtask."""
        execution = self._current.get(attempt.subtask)
        return execution if execution is not None and execution.attempt == attempt else None

    def move(self, execution: Execution, state: ExecutionState, why: str) -> None:
        """Makes and records a transition."""
        former = execution.state
        execution.log.to(state, why)
        self._counts[former] -= 1
        self._counts[state] += 1
        self._moved[execution.attempt.subtask] = execution
        self._outbox.add(
            RecordAttempt(
                attempt=execution.attempt,
                vertex_name=execution.vertex_name,
                state=state.value,
                task_manager=execution.place.task_manager if execution.place else None,
            )
        )

    def take_moved(self) -> Iterable[Execution]:
        """The executions that have moved since the last call."""
        moved, self._moved = self._moved, {}
        return moved.values()

    @property
    def attempts(self) -> dict[SubtaskId, AttemptId]:
        return {subtask: execution.attempt for subtask, execution in self._current.items()}

    @property
    def places(self) -> dict[SubtaskId, TaskManagerLocation]:
        """Where the attempts that were deployed run."""
        return {s: e.place for s, e in self._current.items() if e.place is not None}

    @property
    def states(self) -> dict[SubtaskId, ExecutionState]:
        return {subtask: execution.state for subtask, execution in self._current.items()}

    @property
    def kinds(self) -> frozenset[ExecutionState]:
        """The states that occur."""
        return frozenset(state for state, count in self._counts.items() if count)

    @property
    def all_finished(self) -> bool:
        return bool(self._current) and self._counts[ExecutionState.FINISHED] == len(self._current)

    @property
    def all_terminal(self) -> bool:
        return all(state.is_terminal for state in self.kinds)

    @property
    def all_end_of_data(self) -> bool:
        """No task will produce more rows."""
        return bool(self._current) and all(
            execution.end_of_data or execution.state is ExecutionState.FINISHED for execution in self
        )

    def views(self) -> tuple[AttemptView, ...]:
        return tuple(
            AttemptView(
                attempt=execution.attempt,
                state=execution.state.value,
                task_manager=execution.place.task_manager if execution.place else None,
                allocation=execution.place.allocation if execution.place else None,
            )
            for execution in self
        )
