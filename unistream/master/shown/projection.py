"""The `JobInfo` of a job, by one rule for all who show it: what happened to it, folded. Pure.

    a running job     its JobJournal, and its machine's view   ──┐
    the database      its rows                                   ├──►  JobFacts  ──►  JobInfo
    a stored result   how it has ended, and nothing else       ──┘

An archive is the `JobInfo` of a running job at its end. What only a master knows of tasks that run (counters,
workers, the engine) is added by `master.job.live`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from unistream.base.ids import OperatorUid
from unistream.core.contract import AttemptView
from unistream.core.job import AttemptsHistory
from unistream.master.shown.exceptions import past_attempt_info
from unistream.model import job_info as info
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.graph import JobGraph
from unistream.model.job_status import JobStatus
from unistream.model.messages import TaskFailure
from unistream.port.metadata import CheckpointTotals, JobRecord

ENDS: Final = frozenset({JobStatus.FINISHED.name, JobStatus.CANCELED.name, JobStatus.FAILED.name})
"""States that a job comes into with the record of its result only."""


NO_TOTALS: Final = CheckpointTotals()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecords:
    """The snapshots of one job.

    Attributes:
        records: Those that are shown, the newest first.
        totals: Of all, with the newest of each kind.
        latest, savepoint, resumes_from: Directories as `JobInfo` has them, as an earlier leader left them.
    """

    records: Sequence[CheckpointFigures] = ()
    totals: CheckpointTotals = NO_TOTALS
    latest: str | None = None
    savepoint: str | None = None
    resumes_from: str | None = None

    @property
    def shown(self) -> tuple[info.CheckpointInfo, ...]:
        return tuple(map(info.CheckpointInfo.of, self.records))

    @property
    def newest(self) -> str | None:
        """See `JobInfo.latest_checkpoint`."""
        complete = (self.totals.latest_completed, self.totals.latest_savepoint)
        known = [one for one in complete if one is not None and one.path is not None]
        return max(known, key=lambda one: one.checkpoint_id).path if known else self.latest

    @property
    def newest_savepoint(self) -> str | None:
        """See `JobInfo.savepoint`."""
        saved = self.totals.latest_savepoint
        return self.savepoint if saved is None or saved.path is None else saved.path

    @property
    def resumable(self) -> str | None:
        """See `JobInfo.resumes_from`."""
        return info.resumable_of(self.shown) or self.resumes_from


NO_SNAPSHOTS: Final = SnapshotRecords()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of one job; a fact that nobody knows is left out.

    Attributes:
        record: The job as it is now. Without an end it is in none of `ENDS`.
        graph: At its current parallelism; None: nobody knows it.
        states: When it came into each state, as (ms, state), oldest first.
        attempts: The current one of each subtask.
        past: Ended attempts; also of those that are still the current ones.
        exceptions: Newest first.
        sinks: By uid.
    """

    record: JobRecord
    graph: JobGraph | None = None
    states: Iterable[tuple[int, str]] = ()
    snapshots: SnapshotRecords = NO_SNAPSHOTS
    exceptions: tuple[info.ExceptionInfo, ...] = ()
    attempts: Sequence[AttemptView] = ()
    past: AttemptsHistory | None = None
    sinks: Mapping[str, info.SinkInfo] = field(default_factory=dict)
    failure: TaskFailure | None = None


def job_info(facts: JobFacts) -> info.JobInfo:
    """What people see of the job."""
    record, graph, snapshots = facts.record, facts.graph, facts.snapshots
    return info.JobInfo(
        job=record.job,
        name=record.name,
        lineage=record.lineage,
        state=record.state,
        target=record.target,
        submitted_ms=record.submitted_ms,
        job_type=record.job_type,
        ended_ms=record.ended_ms,
        state_times=state_times(record, facts.states),
        restarts=record.restarts,
        checkpoints_completed=snapshots.totals.completed,
        checkpoints_failed=snapshots.totals.failed,
        latest_checkpoint=snapshots.newest,
        savepoint=snapshots.newest_savepoint,
        resumes_from=snapshots.resumable,
        checkpoints=snapshots.shown,
        exceptions=facts.exceptions,
        subtasks=_subtasks(facts),
        sinks=dict(facts.sinks),
        metrics=rows_committed(facts.sinks),
        vertices=() if graph is None else info.vertices_of(graph),
        failure=facts.failure,
        cluster=record.cluster,
        writes={} if graph is None else graph.writes,
        reads={} if graph is None else graph.reads,
        plain_sinks=() if graph is None else graph.plain_sinks,
    )


def job_summary(
    record: JobRecord,
    *,
    tasks: Mapping[str, int],
    failure: str | None,
    writes: Mapping[OperatorUid, tuple[str, ...]] | None = None,
) -> info.JobSummary:
    """One line of a list: the job's `JobInfo` without what a list does not show."""
    return info.JobSummary(
        job=record.job,
        name=record.name,
        state=record.state,
        submitted_ms=record.submitted_ms,
        ended_ms=record.ended_ms,
        restarts=record.restarts,
        tasks=dict(tasks),
        job_type=record.job_type,
        scheduler=record.scheduler,
        cluster=record.cluster,
        writes=dict(writes or {}),
        failure=failure,
    )


def state_times(record: JobRecord, states: Iterable[tuple[int, str]]) -> dict[str, int]:
    """The first time of each state, in ms; of an end that of the record of the result."""
    times = {"INITIALIZING": record.submitted_ms}
    for at_ms, state in states:
        if state not in ENDS:
            times.setdefault(state, at_ms)
    return times if record.ended_ms is None else times | {record.state: record.ended_ms}


def rows_committed(sinks: Mapping[str, info.SinkInfo]) -> dict[str, int]:
    """See `JobInfo.metrics`; empty: the job has no sink that counts."""
    return {"rows_committed": sum(sink.rows for sink in sinks.values())} if sinks else {}


def one_line(failure: TaskFailure | None, state: str) -> str | None:
    """See `JobSummary.failure`."""
    return None if failure is None or state != "FAILED" else info.in_one_line(failure.kind, failure.message)


def _subtasks(facts: JobFacts) -> tuple[info.SubtaskInfo, ...]:
    names = {} if facts.graph is None else {vertex.id: vertex.name for vertex in facts.graph.vertices}
    return tuple(
        info.SubtaskInfo(
            vertex=one.attempt.vertex,
            vertex_name=names.get(one.attempt.vertex, one.attempt.vertex),
            index=one.attempt.index,
            attempt=one.attempt.attempt,
            state=one.state,
            task_manager=one.task_manager,
            past=() if facts.past is None else _past(facts.past, one),
        )
        for one in facts.attempts
    )


def _past(history: AttemptsHistory, current: AttemptView) -> tuple[info.PastAttemptInfo, ...]:
    ended = history.of(current.attempt.subtask)
    return tuple(past_attempt_info(past) for past in ended if past.attempt != current.attempt)
