"""States of a task, and the result of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unistream.model.execution_state import ExecutionState

TaskState: TypeAlias = ExecutionState
"""The master's states of an attempt; a task has CREATED, INITIALIZING, RUNNING and the terminal ones."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """Something was done; step again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing to do until the mailbox wakes the task, or `deadline_ms` (monotonic; None: no deadline).

    `backpressured`: there may be input, but an output is full.
    """

    deadline_ms: int | None
    backpressured: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The task has ended; everything is released."""


StepResult = Progressed | Waiting | Done
