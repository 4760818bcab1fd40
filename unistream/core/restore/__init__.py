"""Which part of which snapshot each new subtask reads. Pure.

Decides: which subtask gets which key groups, lists and in-flight rows after a change of parallelism or
pipeline (`state_assignment`, `in_flight`), which subtasks have no more to process (`ended_tasks`), and the
outcome of each state of a savepoint in a changed pipeline (`state_plan`). May import:
`core.graph`. Start with `state_assignment`.
"""

from __future__ import annotations

from unistream.core.restore.in_flight import with_in_flight
from unistream.core.restore.state_assignment import assign_state, assigner_states
from unistream.core.restore.state_plan import (
    DeclaredList,
    DeclaredState,
    OperatorPlan,
    RestorePlan,
    StateOutcome,
    StoredState,
    key_columns,
    plan_restore,
)
