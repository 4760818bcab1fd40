"""States of a task, and what one step of it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TaskState(Enum):
    """Values are the names that the master knows."""

    CREATED = "CREATED"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        return self in (TaskState.FINISHED, TaskState.CANCELED, TaskState.FAILED)


@dataclass(frozen=True, slots=True)
class Progressed:
    """Something was done; step again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing to do before a wake of the mailbox, or `deadline_ms` (monotonic; None: only a wake).

    `backpressured`: there may be input, but an output is full.
    """

    deadline_ms: int | None
    backpressured: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The task has ended; everything is released."""


StepResult = Progressed | Waiting | Done
