"""Tasks move from workers that are drained. Pure.

The job keeps running until it has other slots for them. Then, as for another parallelism, a checkpoint is
taken, so that little is done twice, and the regions of these tasks restart from it in the other slots. If
that checkpoint fails, they restart from the one before, as if their worker was lost.

What takes no checkpoints has nothing to go on from, so it ends where it runs: the tasks of a BATCH job, and
those of a bounded part before a stream. What they have stored stays there until it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import Final

from unistream.base.ids import SubtaskId, TaskManagerId
from unistream.core import contract
from unistream.core.job.parts import JobParts
from unistream.core.job.rescaling import RescaleState, Rescaling
from unistream.model.messages import TaskFailure
from unistream.model.snapshot_kind import SnapshotKind


@unique
class MoveState(Enum):
    """The state of a move; the value describes it."""

    NONE = "no task is to move, or it waits for slots"
    CHECKPOINT = "a checkpoint is taken for it"
    DUE = "that is over: the tasks may end"


MOVES: Final[Mapping[MoveState, Mapping[MoveState, str]]] = {
    MoveState.NONE: {MoveState.CHECKPOINT: "a worker is drained, and there are slots elsewhere"},
    MoveState.CHECKPOINT: {MoveState.DUE: "it is durable, or has failed"},
    MoveState.DUE: {MoveState.NONE: "the tasks end and start elsewhere, or are restarting anyway"},
}
"""State -> the states that may follow, each with what leads to it."""

_UNDISTURBED: Final = frozenset({RescaleState.NONE, RescaleState.SLOTS})


class Moving:
    """The move of one job's tasks from all workers that are drained.

    Args:
        restart: Restarts the regions of these tasks.
    """

    def __init__(
        self, parts: JobParts, rescaling: Rescaling, restart: Callable[[list[SubtaskId]], None]
    ) -> None:
        self._parts = parts
        self._rescaling = rescaling
        self._restart = restart
        self._log = contract.StateLog(f"move of tasks of job {parts.job}", MoveState.NONE, MOVES)
        self._count = 0

    @property
    def state(self) -> MoveState:
        return self._log.state

    def drain(self, task_manager: TaskManagerId) -> None:
        """Nothing more starts on that worker; requests slots for what runs there."""
        self._parts.scheduler.leave(task_manager)
        self.request_slots()

    def request_slots(self) -> None:
        """Requests the slots that the job lacks: a worker of its is drained, or is lost."""
        if self._parts.state.is_active:
            self._parts.scheduling.request([*self._parts.recoveries.subtasks, *self._to_move()])
            self._rescaling.request_slots()

    def _to_move(self) -> list[SubtaskId]:
        found = self._parts.scheduler.to_move()
        if not found or self._parts.run.is_batch:
            return []
        return [subtask for subtask in found if subtask not in self._parts.recoveries]

    def move_on(self) -> TaskFailure | None:
        """Takes the step that is possible now, if any."""
        parts = self._parts
        if not parts.slots.pool.is_leaving and self.state is MoveState.NONE:
            return None
        moving = self._to_move()
        free = parts.coordinator.is_active and not parts.coordinator.is_stopping
        if self._rescaling.state not in _UNDISTURBED:
            return None  # all tasks restart then
        match self.state:
            case MoveState.NONE if moving and free and not parts.slots.lack_for(moving):
                return self._begin()
            case MoveState.DUE:
                self._log.to(MoveState.NONE, "it is over")
                if moving and free:
                    self._restart(moving)
        return None

    def _begin(self) -> TaskFailure | None:
        self._log.to(MoveState.CHECKPOINT, "a checkpoint first")
        self._count += 1
        return self._parts.coordinator.request(
            contract.SnapshotRequest(
                id=f"move {self._count}", kind=SnapshotKind.CHECKPOINT, on_done=self._checkpointed
            )
        )

    def _checkpointed(self, path: str | None, error: str | None) -> None:
        if self.state is MoveState.CHECKPOINT:
            self._log.to(MoveState.DUE, path or error or "")
