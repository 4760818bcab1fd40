"""States of a task, and what one step of it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unistream.core.execution import ExecutionState

TaskState: TypeAlias = ExecutionState
"""Where a task is in its life: the master's states of an attempt, of which a worker's task has CREATED,
INITIALIZING, RUNNING, and those that are terminal."""


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
