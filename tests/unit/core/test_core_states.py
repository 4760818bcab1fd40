"""The two state tables: every pair is either a step or an error with a story."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId, JobId, VertexId
from unistream.core.execution import EXECUTION_TRANSITIONS, ExecutionState, execution_state, parse_reported
from unistream.core.job import JOB_TRANSITIONS, JobStatus, job_state
from unistream.core.story import STORY_STEPS_MAX, IllegalTransition, StateLog

TABLES: list[Mapping[Any, frozenset[Any]]] = [JOB_TRANSITIONS, EXECUTION_TRANSITIONS]
PAIRS = [
    pytest.param(table, a, b, id=f"{type(a).__name__} {a.name} to {b.name}")
    for table in TABLES
    for a in table
    for b in table
]


@pytest.mark.parametrize(("table", "before", "after"), PAIRS)
def test_every_pair(table: Mapping[Any, frozenset[Any]], before: Enum, after: Enum) -> None:
    log = StateLog("it", before, table)
    if after in table[before]:
        log.to(after, "because")
        assert log.state is after
        assert log.story == (f"{before.name} -> {after.name}: because",)
    else:
        with pytest.raises(IllegalTransition, match=f"it: {before.name} -> {after.name}"):
            log.to(after, "because")
        assert log.state is before


@pytest.mark.parametrize("table", TABLES)
def test_every_state_has_its_row(table: Mapping[Any, frozenset[Any]]) -> None:
    assert set(table) == set(type(next(iter(table))))


def test_terminal_states_are_flinks() -> None:
    assert {s for s in JobStatus if not JOB_TRANSITIONS[s]} == {
        JobStatus.FINISHED,
        JobStatus.CANCELED,
        JobStatus.FAILED,
        JobStatus.SUSPENDED,
    }
    assert {s for s in JobStatus if s.is_globally_terminal} == {
        JobStatus.FINISHED,
        JobStatus.CANCELED,
        JobStatus.FAILED,
    }
    assert {s.name for s in ExecutionState if s.is_terminal} == {"FINISHED", "CANCELED", "FAILED"}


def test_an_illegal_step_tells_how_it_came_to_it() -> None:
    log = execution_state(AttemptId(JobId("j"), VertexId("v"), 0, 3))
    log.to(ExecutionState.SCHEDULED, "first start")
    log.to(ExecutionState.DEPLOYING, "slots")
    with pytest.raises(ProtocolError) as error:
        log.to(ExecutionState.SCHEDULED, "again")
    assert "attempt j/v#0.3: DEPLOYING -> SCHEDULED (again)" in str(error.value)
    assert "CREATED -> SCHEDULED: first start\n  SCHEDULED -> DEPLOYING: slots" in str(error.value)


def test_a_story_has_a_limit() -> None:
    log = job_state(JobId("j"))
    log.to(JobStatus.CREATED, "x")
    log.to(JobStatus.RUNNING, "x")
    for _ in range(STORY_STEPS_MAX):
        log.to(JobStatus.RESTARTING, "x")
        log.to(JobStatus.RUNNING, "x")
    assert len(log.story) == STORY_STEPS_MAX


@pytest.mark.parametrize("name", ["CREATED", "SCHEDULED", "DEPLOYING", "CANCELING", "running", ""])
def test_a_worker_cannot_report_what_is_the_masters(name: str) -> None:
    with pytest.raises(ProtocolError, match="cannot report"):
        parse_reported(name)
