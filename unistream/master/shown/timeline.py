"""The life of a job on one axis of time: states, executions, rescales, checkpoints, commits and failures.

Of what the catalogue has, so of every job that it has; a job's newest facts are there a moment later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from unistream.base.ids import CheckpointId, JobId, VertexId
from unistream.master.shown.history import graph_of
from unistream.model.graph import JobGraph
from unistream.model.job_info import CheckpointInfo, JobInfo, TaskStateName
from unistream.port import metadata as meta

EVENTS_READ_MAX: Final = 10_000
EVENTS_SHOWN_MAX: Final = 2_000  # the newest
_OVER: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
_WORST: Final = ("FAILED", "CANCELED", "CANCELING", "RUNNING", "INITIALIZING", "DEPLOYING", "SCHEDULED")


class StateMoment(msgspec.Struct, frozen=True, kw_only=True):
    """The moment from which on the job was in a state."""

    at_ms: int
    state: str


class RescaleMoment(msgspec.Struct, frozen=True, kw_only=True):
    """The job went on at another parallelism; `detail`: of which vertices."""

    at_ms: int
    detail: str


class ExecutionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of one number of a vertex, together.

    Attributes:
        subtasks: How many there were.
        state: The worst one that they had last.
        ended_ms: Null: one of them goes on.
    """

    vertex: VertexId
    vertex_name: str
    attempt: int
    subtasks: int
    state: TaskStateName
    started_ms: int
    ended_ms: int | None


class CommitMoment(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a checkpoint became visible."""

    at_ms: int
    sink: str
    checkpoint_id: CheckpointId
    rows: int
    table_version: int | None


class FailureMoment(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, in one line."""

    at_ms: int
    text: str
    task: str | None


class JobTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """What GET /unistream/jobs/ID/timeline answers, each list oldest first. `incomplete`: older events were
    left out."""

    now_ms: int
    began_ms: int
    ended_ms: int | None
    states: tuple[StateMoment, ...]
    rescales: tuple[RescaleMoment, ...]
    executions: tuple[ExecutionSpan, ...]
    checkpoints: tuple[CheckpointInfo, ...]
    commits: tuple[CommitMoment, ...]
    failures: tuple[FailureMoment, ...]
    incomplete: bool


def timeline_of(
    info: JobInfo, record: meta.JobRecord | None, store: meta.MetadataStore, now_ms: int
) -> JobTimeline:
    """`record` None: the catalogue does not have the job, or not yet."""
    job = info.job
    events = read_events(store, job)
    attempts = store.attempts(job)
    checkpoints = sorted(store.checkpoints(job), key=lambda one: one.checkpoint_id)
    return JobTimeline(
        now_ms=now_ms,
        began_ms=info.submitted_ms,
        ended_ms=info.ended_ms,
        states=states_of(info, events),
        rescales=tuple(
            RescaleMoment(at_ms=one.at_ms, detail=one.detail)
            for one in events
            if one.kind == meta.RESCALE_EVENT
        ),
        executions=executions_of(attempts, None if record is None else graph_of(record), info.ended_ms),
        checkpoints=tuple(map(CheckpointInfo.of, checkpoints)),
        commits=tuple(map(_commit, store.commits(job))),
        failures=tuple(
            FailureMoment(
                at_ms=one.at_ms,
                text=f"{one.kind}: {one.message}".partition("\n")[0],
                task=one.task_name or one.attempt,
            )
            for one in store.exceptions(job)
        ),
        incomplete=len(events) == EVENTS_SHOWN_MAX,
    )


def read_events(store: meta.MetadataStore, job: JobId) -> Sequence[meta.EventRecord]:
    """The newest, oldest first."""
    found: list[meta.EventRecord] = []
    while len(found) < EVENTS_READ_MAX:
        page = store.events(after=found[-1].id if found else 0, job=job)
        found += page
        if len(page) < meta.PAGE_ROWS:
            break
    return found[-EVENTS_SHOWN_MAX:]


def states_of(info: JobInfo, events: Iterable[meta.EventRecord]) -> tuple[StateMoment, ...]:
    """The states that were recorded, each once in a row; without any, the first time of each one known."""
    recorded = [(one.at_ms, one.detail) for one in events if one.kind == meta.STATE_EVENT]
    if not recorded:
        recorded = sorted((at_ms, state) for state, at_ms in info.state_times.items())
    if not recorded or recorded[0][0] > info.submitted_ms:
        recorded.insert(0, (info.submitted_ms, "INITIALIZING"))
    if info.ended_ms is not None and recorded[-1][1] != info.state:
        recorded.append((info.ended_ms, info.state))
    found: list[StateMoment] = []
    for at_ms, state in recorded:
        if not found or found[-1].state != state:
            found.append(StateMoment(at_ms=at_ms, state=state))
    return tuple(found)


def executions_of(
    attempts: Iterable[meta.AttemptHistoryRow], graph: JobGraph | None, job_ended_ms: int | None
) -> tuple[ExecutionSpan, ...]:
    """One span for each vertex and number of attempts, by its beginning."""
    names = {} if graph is None else {vertex.id: vertex.name for vertex in graph.vertices}
    together: dict[tuple[VertexId, int], list[meta.AttemptHistoryRow]] = {}
    for one in attempts:
        together.setdefault((one.attempt.vertex, one.attempt.attempt), []).append(one)
    spans = [_span(lines, names.get(vertex, vertex), job_ended_ms) for (vertex, _), lines in together.items()]
    return tuple(sorted(spans, key=lambda span: (span.started_ms, span.vertex_name, span.attempt)))


def _span(lines: Sequence[meta.AttemptHistoryRow], name: str, job_ended_ms: int | None) -> ExecutionSpan:
    states = {line.state for line in lines}
    goes_on = bool(states - _OVER)
    return ExecutionSpan(
        vertex=lines[0].attempt.vertex,
        vertex_name=name,
        attempt=lines[0].attempt.attempt,
        subtasks=len(lines),
        state=next((state for state in _WORST if state in states), lines[0].state),
        started_ms=min(line.started_ms for line in lines),
        ended_ms=job_ended_ms if goes_on else max(line.updated_ms for line in lines),
    )


def _commit(record: meta.CommitRecord) -> CommitMoment:
    return CommitMoment(
        at_ms=record.at_ms,
        sink=record.sink_uid,
        checkpoint_id=record.checkpoint_id,
        rows=record.rows,
        table_version=record.table_version,
    )
