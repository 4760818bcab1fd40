"""States of one execution attempt, and the one table of its transitions (Flink's ExecutionState), from which
`docs/reference/life-cycle.md` is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId
from unistream.core.contract import StateLog
from unistream.model.execution_state import ExecutionState

_E = ExecutionState

EXECUTION_TRANSITIONS: Final[Mapping[ExecutionState, Mapping[ExecutionState, str]]] = {
    _E.CREATED: {
        _E.SCHEDULED: "it is due: a slot is requested",
        _E.RECONCILING: "an earlier leader may have left it running",
        _E.CANCELED: "it is canceled",
        _E.FAILED: "it cannot be set up",
    },
    _E.SCHEDULED: {
        _E.DEPLOYING: "it has a slot",
        _E.CANCELED: "it is canceled",
        _E.FAILED: "it got no slot",
    },
    _E.DEPLOYING: {
        _E.INITIALIZING: "its worker restores its state",
        _E.RUNNING: "its worker has started it",
        _E.FINISHED: "it has ended before its start was reported",
        _E.CANCELING: "it is canceled",
        _E.FAILED: "its worker refused or lost it",
    },
    _E.INITIALIZING: {
        _E.RUNNING: "its state is restored",
        _E.FINISHED: "it has ended before its start was reported",
        _E.CANCELING: "it is canceled",
        _E.FAILED: "it or its worker failed",
    },
    _E.RUNNING: {
        _E.FINISHED: "it has ended",
        _E.CANCELING: "it is canceled",
        _E.FAILED: "it or its worker failed",
    },
    _E.CANCELING: {
        _E.CANCELED: "it has ended, or its worker is lost",
        _E.FAILED: "it failed while it was being canceled",
    },
    _E.RECONCILING: {
        _E.INITIALIZING: "its worker reports it",
        _E.RUNNING: "its worker reports it",
        _E.FINISHED: "its worker reports it",
        _E.CANCELING: "it is canceled",
        _E.CANCELED: "its worker reports it",
        _E.FAILED: "its worker reports it, or does not know it",
    },
    _E.FINISHED: {},
    _E.CANCELED: {},
    _E.FAILED: {},
}
"""State -> the states that may follow, each with its cause; a state without followers is terminal."""

REPORTABLE: Final = frozenset({_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELED, _E.FAILED})
"""States that a worker may report; the others are decided by the master."""


def execution_state(attempt: AttemptId) -> StateLog[ExecutionState]:
    """The state of a new attempt: CREATED."""
    return StateLog(f"attempt {attempt}", ExecutionState.CREATED, EXECUTION_TRANSITIONS)


def parse_reported(name: str) -> ExecutionState:
    """The state that a worker reported.

    Raises:
        ProtocolError: not a state that a worker reports.
    """
    state = ExecutionState.__members__.get(name)
    if state is None or state not in REPORTABLE:
        raise ProtocolError(f"a worker cannot report task state {name!r}")
    return state
