"""States of one execution attempt, for the master and for the worker that reports them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ExecutionState(Enum):
    """Which may follow which: `core.execution.EXECUTION_TRANSITIONS`. INITIALIZING: restores state; no
    rows are processed yet. RECONCILING: a new leader knows it and queries its worker."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL: Final = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})
