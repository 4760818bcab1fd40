"""`JobInfo` and statistics of jobs that are only in the catalogue, and one-line summaries."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from unistream.base.config import CHECKPOINTS_HISTORY, Configuration
from unistream.base.ids import ClusterId, TaskManagerId
from unistream.core.checkpoint import Sample
from unistream.master.shown.archive import restored
from unistream.master.shown.exceptions import recorded_exceptions
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo, SnapshotStatus
from unistream.model.graph import JobGraph, JobType
from unistream.model.job_info import (
    CHECKPOINTS_KEPT_MAX,
    MASTER_LOST,
    TERMINAL_STATES,
    CheckpointInfo,
    JobInfo,
    JobSummary,
    SinkInfo,
    SubtaskInfo,
    in_one_line,
    vertices_of,
)
from unistream.model.job_log_line import JobLogLine as LoggedLine
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import StoredResult
from unistream.port.metadata import (
    STATE_EVENT,
    AttemptHistoryRow,
    CheckpointTotals,
    ClusterRecord,
    JobHistoryRow,
    JobRecord,
    MetadataStore,
    SinkTotals,
)

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


def summary_of_result(result: StoredResult, cluster: ClusterId) -> JobSummary:
    """One line of a list about a job of this cluster that has ended, made without the database."""
    return JobSummary(
        job=result.job,
        name=result.name,
        state=result.state,
        submitted_ms=result.submitted_ms,
        ended_ms=result.ended_ms,
        restarts=result.restarts,
        cluster=cluster,
        failure=_failure_of(result),
    )


def _failure_of(result: StoredResult) -> str | None:
    failure = result.failure if result.state == "FAILED" else None
    return None if failure is None else in_one_line(failure.kind, failure.message)


def info_from_result(result: StoredResult, target: str) -> JobInfo:
    """A job that has ended and is not in the catalogue, which was lost or is away."""
    return JobInfo(
        job=result.job,
        name=result.name,
        lineage=result.lineage,
        state=result.state,
        target=target,
        submitted_ms=result.submitted_ms,
        ended_ms=result.ended_ms,
        restarts=result.restarts,
        savepoint=result.savepoint,
        resumes_from=result.resumes_from,
        failure=result.failure,
    )


class Recorded(NamedTuple):
    """A job that is only in the database.

    Attributes:
        result: How it has ended, as its own cluster knows it for certain; also if the database missed it.
        cluster: Whose it is; None: that is not known.
        is_here: It is of the cluster that is asked.
        now_ms: Wall clock.
    """

    record: JobRecord
    result: StoredResult | None
    cluster: ClusterRecord | None
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


def recorded_state(record: JobRecord, cluster: ClusterRecord | None, now_ms: int) -> str:
    """A job without an end whose cluster does not run is SUSPENDED."""
    runs_elsewhere = cluster is not None and cluster.is_alive(now_ms)
    return record.state if record.state in TERMINAL_STATES or runs_elsewhere else "SUSPENDED"


def last_seen_ms(record: JobRecord, cluster: ClusterRecord | None) -> int:
    """When a job without an end was last known to run."""
    if cluster is None:
        return record.changed_ms or record.submitted_ms
    return max(cluster.ended_ms or cluster.heartbeat_ms, record.changed_ms)


def summary_from_line(line: JobHistoryRow, cluster: ClusterRecord | None, now_ms: int) -> JobSummary:
    """One line of a list, from the database."""
    record = line.record
    state = recorded_state(record, cluster, now_ms)
    is_lost = record.ended_ms is None and state == "SUSPENDED"
    return JobSummary(
        job=record.job,
        name=record.name,
        state=state,
        submitted_ms=record.submitted_ms,
        ended_ms=last_seen_ms(record, cluster) if is_lost else record.ended_ms,
        restarts=record.restarts,
        tasks=line.tasks,
        job_type=record.job_type,
        scheduler=record.scheduler,
        cluster=record.cluster,
        failure=None if line.failure is None else in_one_line(*line.failure.split(": ", 1)),
    )


def info_from_records(found: Recorded, store: MetadataStore) -> JobInfo:
    """A job that is only in the database: as it was when it ended, or what its rows say."""
    record = found.record
    sinks = {uid: _sink(of_sink) for uid, of_sink in store.sinks(record.job).items()}
    graph = graph_of(record)
    archive = restored(store.archive(record.job), found.ended_ms)
    if archive is not None:
        info = archive.info
        metrics = {**info.metrics, **_committed(sinks)}
        return replace(
            info,
            sinks=sinks or info.sinks,
            metrics=metrics,
            cluster=record.cluster,
            writes=graph.writes,
            reads=graph.reads,
        )
    checkpoints = store.checkpoints(record.job, limit=CHECKPOINTS_KEPT_MAX)
    totals = store.checkpoint_totals(record.job)
    saved = None if totals.latest_savepoint is None else totals.latest_savepoint.path
    latest = [c for c in (totals.latest_completed, totals.latest_savepoint) if c is not None]
    return JobInfo(
        job=record.job,
        name=record.name,
        lineage=record.lineage,
        state=found.state,
        target=record.target,
        submitted_ms=record.submitted_ms,
        job_type=record.job_type,
        ended_ms=found.ended_ms,
        state_times=_state_times(record, store),
        restarts=record.restarts if found.result is None else found.result.restarts,
        checkpoints_completed=totals.completed,
        checkpoints_failed=totals.failed,
        latest_checkpoint=max(latest, key=lambda c: c.checkpoint_id).path if latest else None,
        savepoint=saved if found.result is None else found.result.savepoint or saved,
        resumes_from=None if found.result is None else found.result.resumes_from,
        checkpoints=tuple(map(CheckpointInfo.of, checkpoints)),
        exceptions=recorded_exceptions(store.exceptions(record.job), graph),
        subtasks=recorded_subtasks(graph, store.attempts(record.job), found.state),
        sinks=sinks,
        metrics=_committed(sinks),
        vertices=vertices_of(graph),
        failure=found.failure,
        cluster=record.cluster,
        writes=graph.writes,
        reads=graph.reads,
        incomplete="" if found.state not in TERMINAL_STATES else NO_ARCHIVE,
    )


def checkpoints_of(found: Recorded, store: MetadataStore) -> CheckpointsInfo:
    """Statistics of the snapshots of the same job."""
    job = found.record.job
    archive = restored(store.archive(job), found.ended_ms)
    if archive is not None:
        return archive.checkpoints
    return checkpoints_from_records(found.record, store.checkpoints(job), store.checkpoint_totals(job))


def log_of(found: Recorded, store: MetadataStore) -> tuple[LoggedLine, ...]:
    """The newest lines that its functions have logged; none: they were not stored."""
    archive = restored(store.archive(found.record.job), found.ended_ms)
    return () if archive is None else archive.log


def _committed(sinks: Mapping[str, SinkInfo]) -> dict[str, int]:
    return {"rows_committed": sum(sink.rows for sink in sinks.values())} if sinks else {}


def _state_times(record: JobRecord, store: MetadataStore) -> dict[str, int]:
    """The first time of each state, as in a `Journal`."""
    times = {"INITIALIZING": record.submitted_ms}
    for event in store.events(job=record.job):
        if event.kind == STATE_EVENT:
            times.setdefault(event.detail, event.at_ms)
    return times


def recorded_subtasks(
    graph: JobGraph, attempts: Sequence[AttemptHistoryRow], job_state: str
) -> tuple[SubtaskInfo, ...]:
    """The newest attempt of each subtask that the graph has, as it was last recorded. Those of a job that has
    finished have finished, also if that was not recorded, or if a master that led no more recorded that they
    failed. Otherwise what ran with a cluster that has ended is cancelled."""
    newest = {(one.attempt.vertex, one.attempt.index): one for one in attempts}  # they are in order
    found = []
    for vertex in graph.vertices:
        for index in range(vertex.parallelism):
            one = newest.get((vertex.id, index))
            if one is not None:
                found.append(
                    SubtaskInfo(
                        vertex=vertex.id,
                        vertex_name=vertex.name,
                        index=index,
                        attempt=one.attempt.attempt,
                        state=_task_state(one.state, job_state),
                        task_manager=None if one.task_manager is None else TaskManagerId(one.task_manager),
                    )
                )
    return tuple(found)


def _task_state(recorded: str, job_state: str) -> str:
    if job_state == "FINISHED":
        return job_state
    return recorded if job_state not in TERMINAL_STATES or recorded in _ENDED else "CANCELED"


def graph_of(record: JobRecord) -> JobGraph:
    """The recorded graph of a job, without vertices if none was recorded, or a newer version did."""
    try:
        if record.graph_json:
            return msgspec.json.decode(record.graph_json, type=JobGraph)
    except msgspec.MsgspecError as error:
        logger.warning("event=recorded_graph_not_read job=%s reason=%r", record.job, str(error))
    return JobGraph(name=record.name, vertices=(), edges=(), job_type=JobType(record.job_type))


def checkpoints_from_records(
    record: JobRecord, records: Iterable[CheckpointFigures], totals: CheckpointTotals | None = None
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


def _totals(newest: Sequence[CheckpointFigures]) -> CheckpointTotals:
    completed = [figures for figures in newest if figures.status is SnapshotStatus.COMPLETED]
    failed = [figures for figures in newest if figures.status is SnapshotStatus.FAILED]
    return CheckpointTotals(
        completed=len(completed),
        failed=len(failed),
        in_progress=len(newest) - len(completed) - len(failed),
        latest_completed=next((f for f in completed if not f.kind.is_savepoint), None),
        latest_savepoint=next((f for f in completed if f.kind.is_savepoint), None),
        latest_failed=next(iter(failed), None),
    )


def _sink(totals: SinkTotals) -> SinkInfo:
    return SinkInfo(
        rows=totals.rows,
        commits=totals.commits,
        checkpoint_id=totals.checkpoint_id,
        table_version=totals.table_version,
    )
