"""States of one execution attempt, and the one table of its transitions (Flink's ExecutionState).

`docs/reference/life-cycle.md` is drawn from the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId
from unistream.core.contract import StateLog


class ExecutionState(Enum):
    """Where an attempt is in its life. INITIALIZING: restores state; nothing flows yet.
    RECONCILING: a new leader has heard of it and asks its worker."""

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
        return not EXECUTION_TRANSITIONS[self]


_E = ExecutionState

EXECUTION_TRANSITIONS: Final[Mapping[ExecutionState, Mapping[ExecutionState, str]]] = {
    _E.CREATED: {
        _E.SCHEDULED: "its turn has come: a slot is asked for",
        _E.RECONCILING: "an earlier leader may have left it running",
        _E.CANCELED: "it is not wanted any more",
        _E.FAILED: "it cannot be set up",
    },
    _E.SCHEDULED: {
        _E.DEPLOYING: "it has a slot",
        _E.CANCELED: "it is not wanted any more",
        _E.FAILED: "it got no slot",
    },
    _E.DEPLOYING: {
        _E.INITIALIZING: "its worker restores its state",
        _E.RUNNING: "its worker has started it",
        _E.FINISHED: "it has ended, before its start was heard of",
        _E.CANCELING: "it is cancelled",
        _E.FAILED: "its worker refused or lost it",
    },
    _E.INITIALIZING: {
        _E.RUNNING: "its state is restored",
        _E.FINISHED: "it has ended, before its start was heard of",
        _E.CANCELING: "it is cancelled",
        _E.FAILED: "it or its worker failed",
    },
    _E.RUNNING: {
        _E.FINISHED: "it has ended",
        _E.CANCELING: "it is cancelled",
        _E.FAILED: "it or its worker failed",
    },
    _E.CANCELING: {
        _E.CANCELED: "it has ended, or its worker is gone",
        _E.FAILED: "it failed while it was being cancelled",
    },
    _E.RECONCILING: {
        _E.INITIALIZING: "its worker says so",
        _E.RUNNING: "its worker says so",
        _E.FINISHED: "its worker says so",
        _E.CANCELING: "it is cancelled",
        _E.CANCELED: "its worker says so",
        _E.FAILED: "its worker says so, or knows nothing of it",
    },
    _E.FINISHED: {},
    _E.CANCELED: {},
    _E.FAILED: {},
}
"""State -> the states that may follow, each with what leads to it; what nothing follows is terminal."""

REPORTABLE: Final = frozenset({_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELED, _E.FAILED})
"""What a worker may say of a task; the other states are the master's own."""


def execution_state(attempt: AttemptId) -> StateLog[ExecutionState]:
    """A new attempt's state: CREATED."""
    return StateLog(f"attempt {attempt}", ExecutionState.CREATED, EXECUTION_TRANSITIONS)


def parse_reported(name: str) -> ExecutionState:
    """The state that a worker reported.

    Raises:
        ProtocolError: not a state, or not one that a worker decides.
    """
    state = ExecutionState.__members__.get(name)
    if state is None or state not in REPORTABLE:
        raise ProtocolError(f"a worker cannot report task state {name!r}")
    return state
