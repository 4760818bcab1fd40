"""The tables of states: every pair is either a step or an error with a story."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId, JobId, VertexId
from unistream.core.contract import JOB_LIFE, JOB_TRANSITIONS, JobCause, JobLog, JobState, StateLog, job_steps
from unistream.core.contract.story import STORY_STEPS_MAX, IllegalTransition
from unistream.core.execution import EXECUTION_TRANSITIONS, parse_reported
from unistream.core.execution.execution import execution_state
from unistream.core.job import CHANGES, RescaleState
from unistream.model.execution_state import ExecutionState
from unistream.model.job_status import JobStatus

TABLES: list[Mapping[Any, Mapping[Any, str]]] = [
    JOB_TRANSITIONS,
    job_steps(lambda state: state),
    EXECUTION_TRANSITIONS,
    CHANGES,
]
PAIRS = [
    pytest.param(table, a, b, id=f"{type(a).__name__} {a.name} to {b.name}")
    for table in TABLES
    for a in table
    for b in table
]


@pytest.mark.parametrize(("table", "before", "after"), PAIRS)
def test_every_pair(table: Mapping[Any, Mapping[Any, str]], before: Enum, after: Enum) -> None:
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
def test_every_state_has_its_row(table: Mapping[Any, Mapping[Any, str]]) -> None:
    assert set(table) == set(type(next(iter(table))))


def log_in(state: JobState) -> JobLog:
    """A job that has come there on the shortest way."""
    ways: dict[JobState, list[JobCause]] = {JobState.INITIAL: []}
    todo = [JobState.INITIAL]
    while state not in ways:
        before = todo.pop(0)
        for cause, after in JOB_LIFE[before].items():
            if after not in ways:
                ways[after] = [*ways[before], cause]
                todo.append(after)
    log = JobLog(JobId("j"))
    for cause in ways[state]:
        log.on(cause, "on the way")
    return log


@pytest.mark.parametrize("cause", JobCause, ids=lambda cause: cause.name)
@pytest.mark.parametrize("state", JobState, ids=lambda state: state.name)
def test_whatever_happens_to_a_job_leads_somewhere_or_is_refused_with_its_story(
    state: JobState, cause: JobCause
) -> None:
    log = log_in(state)
    assert log.state is state
    assert log.allows(cause) is (cause in JOB_LIFE[state])
    if log.allows(cause):
        log.on(cause, "now")
        assert log.state is JOB_LIFE[state][cause]
        assert log.story[-1] == f"{state.name} -> {log.state.name}: now"
        return
    story = log.story
    with pytest.raises(IllegalTransition, match=rf"job j: {state.name} -> {cause.name} \(now\)") as error:
        log.on(cause, "now")
    assert (log.state, error.value.story) == (state, story)


def test_the_kinds_of_states_are_the_tables() -> None:
    names = {
        kind: " ".join(state.name for state in JobState if getattr(state, kind))
        for kind in ("is_active", "is_waiting", "is_ending")
    }
    assert names == {
        "is_active": "CREATED STARTING RUNNING RESTARTING RESCALING WAITING RECONCILING",
        "is_waiting": "CREATED WAITING",
        "is_ending": "FINISHING CANCELLING FAILING SUSPENDING",
    }
    assert all(JobCause.STEP_DOWN in row for row in JOB_LIFE.values() if row), "a leader may always step down"


def test_a_job_shows_as_the_state_that_flink_would_show() -> None:
    others = {state.name: state.status.name for state in JobState if state.name != state.status.name}
    assert others == {
        "INITIAL": "INITIALIZING",
        "STARTING": "CREATED",
        "RESCALING": "RESTARTING",
        "WAITING": "RESTARTING",
        "FINISHING": "RUNNING",
        "SUSPENDING": "RUNNING",
    }


FLINKS_JOB = """
    INITIALIZING: CREATED RECONCILING CANCELLING FAILING SUSPENDED
    CREATED:      RUNNING RESTARTING CANCELLING FAILING SUSPENDED
    RUNNING:      FINISHED RESTARTING CANCELLING FAILING SUSPENDED
    FAILING:      FAILED CANCELLING SUSPENDED
    FAILED:
    CANCELLING:   CANCELED FAILING SUSPENDED
    CANCELED:
    FINISHED:
    RESTARTING:   RUNNING CREATED CANCELLING FAILING SUSPENDED
    SUSPENDED:
    RECONCILING:  RUNNING RESTARTING CANCELLING FAILING SUSPENDED
"""

FLINKS_EXECUTION = """
    CREATED:      SCHEDULED RECONCILING CANCELED FAILED
    SCHEDULED:    DEPLOYING CANCELED FAILED
    DEPLOYING:    INITIALIZING RUNNING FINISHED CANCELING FAILED
    INITIALIZING: RUNNING FINISHED CANCELING FAILED
    RUNNING:      FINISHED CANCELING FAILED
    FINISHED:
    CANCELING:    CANCELED FAILED
    CANCELED:
    FAILED:
    RECONCILING:  INITIALIZING RUNNING FINISHED CANCELING CANCELED FAILED
"""


FLINKS_ALONE = {
    "RESTARTING": {"CREATED"},  # here it goes on being RESTARTING while it waits for slots
    "FAILING": {"CANCELLING"},  # here a job that fails, or is cancelled, goes its own way
    "CANCELLING": {"FAILING"},
}


@pytest.mark.parametrize(
    ("table", "text", "alone"),
    [
        pytest.param(JOB_TRANSITIONS, FLINKS_JOB, FLINKS_ALONE, id="job"),
        pytest.param(EXECUTION_TRANSITIONS, FLINKS_EXECUTION, {}, id="execution"),
    ],
)
def test_a_step_is_added_or_taken_away_on_purpose_only(
    table: Mapping[Any, Mapping[Any, str]], text: str, alone: dict[str, set[str]]
) -> None:
    rows = (line.split(":") for line in text.strip().splitlines())
    flinks = {before.strip(): set(after.split()) for before, after in rows}
    expected = {before: steps - alone.get(before, set()) for before, steps in flinks.items()}
    assert {before.name: {after.name for after in steps} for before, steps in table.items()} == expected


@pytest.mark.parametrize("table", TABLES)
def test_every_step_says_what_leads_to_it(table: Mapping[Any, Mapping[Any, str]]) -> None:
    for steps in table.values():
        assert all(why and why[0].islower() and not why.endswith(".") for why in steps.values())


@pytest.mark.parametrize(
    ("table", "start"),
    [
        (JOB_TRANSITIONS, JobStatus.INITIALIZING),
        (job_steps(lambda state: state), JobState.INITIAL),
        (EXECUTION_TRANSITIONS, ExecutionState.CREATED),
    ],
)
def test_every_state_can_be_reached_and_every_life_can_end(
    table: Mapping[Any, Mapping[Any, str]], start: Enum
) -> None:
    reached, todo = {start}, [start]
    while todo:
        new = set(table[todo.pop()]) - reached
        reached |= new
        todo += new
    assert reached == set(table)
    can_end = {state for state, steps in table.items() if not steps}
    while more := {s for s, steps in table.items() if s not in can_end and can_end & set(steps)}:
        can_end |= more
    assert can_end == set(table)


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
    log = log_in(JobState.RUNNING)
    for _ in range(STORY_STEPS_MAX):
        log.on(JobCause.FAILURE, "x")
        log.on(JobCause.UP, "x")
    assert len(log.story) == STORY_STEPS_MAX


def test_a_change_of_parallelism_comes_to_its_end_from_everywhere() -> None:
    can_end = {RescaleState.NONE}
    while more := {s for s, steps in CHANGES.items() if s not in can_end and can_end & set(steps)}:
        can_end |= more
    assert can_end == set(RescaleState)


@pytest.mark.parametrize("name", ["CREATED", "SCHEDULED", "DEPLOYING", "CANCELING", "running", ""])
def test_a_worker_cannot_report_what_is_the_masters(name: str) -> None:
    with pytest.raises(ProtocolError, match="cannot report"):
        parse_reported(name)


def test_a_state_is_terminal_if_none_may_follow() -> None:
    assert {state for state in ExecutionState if state.is_terminal} == {
        state for state, followers in EXECUTION_TRANSITIONS.items() if not followers
    }
