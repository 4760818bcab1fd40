"""States of one execution attempt, and the one table of its transitions (Flink's ExecutionState)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId
from unistream.core.story import StateLog


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

EXECUTION_TRANSITIONS: Final[Mapping[ExecutionState, frozenset[ExecutionState]]] = {
    _E.CREATED: frozenset({_E.SCHEDULED, _E.RECONCILING, _E.CANCELED, _E.FAILED}),
    _E.SCHEDULED: frozenset({_E.DEPLOYING, _E.CANCELED, _E.FAILED}),
    _E.DEPLOYING: frozenset({_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
    _E.INITIALIZING: frozenset({_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
    _E.RUNNING: frozenset({_E.FINISHED, _E.CANCELING, _E.FAILED}),
    _E.CANCELING: frozenset({_E.CANCELED, _E.FAILED}),
    _E.RECONCILING: frozenset({_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
    _E.FINISHED: frozenset(),
    _E.CANCELED: frozenset(),
    _E.FAILED: frozenset(),
}

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
