"""Read-only views of a job's machine, for people and REST."""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.ids import AttemptId, TaskManagerId
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    attempt: AttemptId
    state: str
    task_manager: TaskManagerId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """`graph`: at its current parallelism; `wanted`: at the parallelism that it would have with enough
    slots."""

    graph: JobGraph
    state: str
    restarts: int
    attempts: tuple[AttemptView, ...] = ()
    checkpoints_completed: int = 0
    checkpoints_failed: int = 0
    failure: TaskFailure | None = None
    wanted: JobGraph | None = None
