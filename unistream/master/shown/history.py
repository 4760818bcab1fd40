"""`JobInfo` and statistics of jobs that are only in the catalogue, and one-line summaries."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from unistream.base.config import ATTEMPTS_HISTORY_SIZE, CHECKPOINTS_HISTORY, Configuration
from unistream.base.errors import UNDECODABLE
from unistream.base.ids import ClusterId, JobId, SubtaskId, TaskManagerId
from unistream.core.checkpoint import Sample
from unistream.core.contract import AttemptView
from unistream.core.job import AttemptsHistory, PastAttempt
from unistream.master.shown.archive import restored
from unistream.master.shown.exceptions import recorded_exceptions
from unistream.master.shown.projection import (
    JobFacts,
    SnapshotRecords,
    job_info,
    job_summary,
    one_line,
    rows_committed,
)
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo, SnapshotStatus
from unistream.model.graph import JobGraph, JobType
from unistream.model.job_info import (
    CHECKPOINTS_KEPT_MAX,
    MASTER_LOST,
    TERMINAL_STATES,
    JobInfo,
    JobSummary,
    SinkInfo,
    in_one_line,
)
from unistream.model.job_log_line import JobLogLine as LoggedLine
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import StoredResult
from unistream.port import metadata as meta

NO_ARCHIVE: Final = "its cluster has ended before its last picture was stored: rows of tasks are not known"
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")

logger = logging.getLogger(__name__)


def summary_of(info: JobInfo) -> JobSummary:
    """One line of a list, of a job that is not started."""
    return JobSummary(
        job=info.job,
        name=info.name,
        state=info.state,
        submitted_ms=info.submitted_ms,
        job_type=info.job_type,
        cluster=info.cluster,
    )


def record_of(result: StoredResult, cluster: ClusterId, target: str = "") -> meta.JobRecord:
    """The row that the job would have in the catalogue, which was lost or is away."""
    return meta.JobRecord(
        job=result.job,
        name=result.name,
        lineage=result.lineage,
        state=result.state,
        target=target,
        submitted_ms=result.submitted_ms,
        ended_ms=result.ended_ms,
        restarts=result.restarts,
        cluster=cluster,
    )


def summary_of_result(result: StoredResult, cluster: ClusterId) -> JobSummary:
    """One line of a list about a job of this cluster that has ended, made without the database."""
    failure = one_line(result.failure, result.state)
    return job_summary(record_of(result, cluster), tasks={}, failure=failure)


def info_of_result(result: StoredResult, target: str, cluster: ClusterId) -> JobInfo:
    """A job of this cluster that has ended and is not in the catalogue, which was lost or is away."""
    return job_info(
        JobFacts(
            record=record_of(result, cluster, target),
            snapshots=SnapshotRecords(savepoint=result.savepoint, resumes_from=result.resumes_from),
            failure=result.failure,
        )
    )


class RecordedJob(NamedTuple):
    """A job that is only in the database.

    Attributes:
        result: How it has ended, as its own cluster knows it for certain; also if the database missed it.
        cluster: Whose it is; None: that is not known.
        is_here: It is of the cluster that is asked.
        now_ms: Wall clock.
    """

    record: meta.JobRecord
    result: StoredResult | None
    cluster: meta.ClusterRecord | None
    is_here: bool
    now_ms: int

    @property
    def state(self) -> str:
        """A job runs only while its cluster does; one that this cluster had and does not run has ended."""
        if self.result is not None:
            return self.result.state
        return recorded_state(self.record, None if self.is_here else self.cluster, self.now_ms)

    @property
    def ended_ms(self) -> int | None:
        if self.result is not None:
            return self.result.ended_ms
        is_lost = self.record.ended_ms is None and self.state == "SUSPENDED"
        return last_seen_ms(self.record, self.cluster) if is_lost else self.record.ended_ms

    @property
    def current(self) -> meta.JobRecord:
        """The row as it should be."""
        restarts = self.record.restarts if self.result is None else self.result.restarts
        return replace(self.record, state=self.state, ended_ms=self.ended_ms, restarts=restarts)

    @property
    def failure(self) -> TaskFailure | None:
        """Why the job has ended, as far as it is known without an archive."""
        if self.result is not None:
            return self.result.failure
        if self.state != "SUSPENDED":
            return None
        if self.record.state == "SUSPENDED":
            text = "its cluster has ended"
        else:
            text = f"its cluster has ended while it was {self.record.state}"
        if self.cluster is not None and self.cluster.goes_on:
            text += f"; it goes on with: {self.cluster.goes_on}"
        return TaskFailure(kind=MASTER_LOST, message=text)


def recorded_state(record: meta.JobRecord, cluster: meta.ClusterRecord | None, now_ms: int) -> str:
    """A job without an end whose cluster does not run is SUSPENDED."""
    runs_elsewhere = cluster is not None and cluster.is_alive(now_ms)
    return record.state if record.state in TERMINAL_STATES or runs_elsewhere else "SUSPENDED"


def last_seen_ms(record: meta.JobRecord, cluster: meta.ClusterRecord | None) -> int:
    """When a job without an end was last known to run."""
    if cluster is None:
        return record.changed_ms or record.submitted_ms
    return max(cluster.ended_ms or cluster.heartbeat_ms, record.changed_ms)


def summary_from_line(
    line: meta.JobHistoryRow, cluster: meta.ClusterRecord | None, now_ms: int
) -> JobSummary:
    """One line of a list, from the database."""
    found = RecordedJob(line.record, None, cluster, is_here=False, now_ms=now_ms)
    failure = None if line.failure is None else in_one_line(*line.failure.split(": ", 1))
    return job_summary(found.current, tasks=line.tasks, failure=failure)


def recorded_info(found: RecordedJob, store: meta.MetadataStore) -> JobInfo:
    """A job that is only in the database: as it was when it ended, or what its rows say."""
    record = found.record
    totals = store.sinks(record.job)
    graph = graph_of(record)
    archive = restored(store.archive(record.job), found.ended_ms)
    if archive is not None:
        info = archive.info
        sinks = {uid: _sink(total, info.sinks.get(uid)) for uid, total in totals.items()} or info.sinks
        return replace(
            info,
            sinks=sinks,
            metrics={**info.metrics, **rows_committed(sinks)},
            cluster=record.cluster,
            writes=graph.writes,
            reads=graph.reads,
            plain_sinks=graph.plain_sinks,
        )
    attempts, exceptions = store.attempts(record.job), store.exceptions(record.job)
    info = job_info(
        JobFacts(
            record=found.current,
            graph=graph,
            states=_states(store, record.job),
            snapshots=_snapshots(store, record.job),
            exceptions=recorded_exceptions(exceptions, graph),
            attempts=recorded_attempts(graph, attempts, found.state),
            past=_past(graph, attempts, exceptions),
            sinks={uid: _sink(total) for uid, total in totals.items()},
            failure=found.failure,
        )
    )
    if found.result is not None:
        savepoint = found.result.savepoint or info.savepoint
        info = replace(info, savepoint=savepoint, resumes_from=found.result.resumes_from)
    return replace(info, incomplete=NO_ARCHIVE if found.state in TERMINAL_STATES else "")


def checkpoints_of(found: RecordedJob, store: meta.MetadataStore) -> CheckpointsInfo:
    """Statistics of the snapshots of the same job."""
    job = found.record.job
    archive = restored(store.archive(job), found.ended_ms)
    if archive is not None:
        return archive.checkpoints
    return checkpoints_from_records(found.record, store.checkpoints(job), store.checkpoint_totals(job))


def log_of(found: RecordedJob, store: meta.MetadataStore) -> tuple[LoggedLine, ...]:
    """The newest lines that its functions have logged; none: they were not stored."""
    archive = restored(store.archive(found.record.job), found.ended_ms)
    return () if archive is None else archive.log


def _states(store: meta.MetadataStore, job: JobId) -> list[tuple[int, str]]:
    return [(event.at_ms, event.detail) for event in store.events(job=job) if event.kind == meta.STATE_EVENT]


def _snapshots(store: meta.MetadataStore, job: JobId) -> SnapshotRecords:
    records = store.checkpoints(job, limit=CHECKPOINTS_KEPT_MAX)
    return SnapshotRecords(records=records, totals=store.checkpoint_totals(job))


def _past(
    graph: JobGraph, attempts: Iterable[meta.AttemptHistoryRow], exceptions: Iterable[meta.ExceptionRecord]
) -> AttemptsHistory:
    """The attempts that have ended, with the failure that each reported last."""
    failures = {
        one.attempt: TaskFailure(kind=one.kind, message=one.message, traceback=one.traceback)
        for one in exceptions
    }
    history = AttemptsHistory(Configuration(graph.config).get(ATTEMPTS_HISTORY_SIZE))
    for line in attempts:  # they are in order
        if line.state in _ENDED:
            past = PastAttempt(
                attempt=line.attempt,
                state=line.state,
                ended_ms=line.updated_ms,
                task_manager=line.task_manager,
                failure=failures.get(str(line.attempt)),
            )
            history.add(past)
    return history


def recorded_attempts(
    graph: JobGraph, attempts: Sequence[meta.AttemptHistoryRow], job_state: str
) -> tuple[AttemptView, ...]:
    """The newest attempt of each subtask that the graph has, as it was last recorded. Those of a job that has
    finished have finished, also if that was not recorded, or if a master that led no more recorded that they
    failed. Otherwise what ran with a cluster that has ended is cancelled."""
    newest = {one.attempt.subtask: one for one in attempts}  # they are in order
    subtasks = [SubtaskId(v.id, index) for v in graph.vertices for index in range(v.parallelism)]
    return tuple(
        AttemptView(
            attempt=one.attempt,
            state=_task_state(one.state, job_state),
            task_manager=None if one.task_manager is None else TaskManagerId(one.task_manager),
        )
        for subtask in subtasks
        if (one := newest.get(subtask)) is not None
    )


def _task_state(recorded: str, job_state: str) -> str:
    if job_state == "FINISHED":
        return job_state
    return recorded if job_state not in TERMINAL_STATES or recorded in _ENDED else "CANCELED"


def graph_of(record: meta.JobRecord) -> JobGraph:
    """The recorded graph of a job, without vertices if none was recorded, or a newer version did."""
    try:
        if record.graph_json:
            return msgspec.json.decode(record.graph_json, type=JobGraph)
    except UNDECODABLE as error:
        logger.warning("event=recorded_graph_not_read job=%s reason=%r", record.job, str(error))
    return JobGraph(name=record.name, vertices=(), edges=(), job_type=JobType(record.job_type))


def checkpoints_from_records(
    record: meta.JobRecord, records: Iterable[CheckpointFigures], totals: meta.CheckpointTotals | None = None
) -> CheckpointsInfo:
    """Statistics from the catalogue, which has neither subtasks nor restores. `records` are the newest;
    without `totals` they are all that is counted."""
    kept_max = Configuration(graph_of(record).config).get(CHECKPOINTS_HISTORY)
    newest = sorted(records, key=lambda one: one.checkpoint_id, reverse=True)
    completed = [figures for figures in newest if figures.status is SnapshotStatus.COMPLETED]
    totals = totals or _totals(newest)
    summary = {}
    if completed:
        summary = {
            "duration_ms": Sample(figures.duration_ms for figures in completed).spread(),
            "state_bytes": Sample(figures.state_bytes for figures in completed).spread(),
        }
    return CheckpointsInfo(
        completed=totals.completed,
        failed=totals.failed,
        in_progress=totals.in_progress,
        latest=tuple(newest[:kept_max]),
        latest_completed=totals.latest_completed,
        latest_savepoint=totals.latest_savepoint,
        latest_failed=totals.latest_failed,
        summary=summary,
    )


def _totals(newest: Sequence[CheckpointFigures]) -> meta.CheckpointTotals:
    completed = [figures for figures in newest if figures.status is SnapshotStatus.COMPLETED]
    failed = [figures for figures in newest if figures.status is SnapshotStatus.FAILED]
    return meta.CheckpointTotals(
        completed=len(completed),
        failed=len(failed),
        in_progress=len(newest) - len(completed) - len(failed),
        latest_completed=next((f for f in completed if not f.kind.is_savepoint), None),
        latest_savepoint=next((f for f in completed if f.kind.is_savepoint), None),
        latest_failed=next(iter(failed), None),
    )


def _sink(totals: meta.SinkTotals, archived: SinkInfo | None = None) -> SinkInfo:
    """`archived`: what was known at the end; reports may have come later."""
    known = SinkInfo() if archived is None else archived
    return SinkInfo(
        rows=totals.rows,
        commits=totals.commits,
        checkpoint_id=totals.checkpoint_id,
        table_version=totals.table_version,
        table_rows=known.table_rows if known.table_version == totals.table_version else None,
        positions=known.positions if known.checkpoint_id == totals.checkpoint_id else (),
    )
