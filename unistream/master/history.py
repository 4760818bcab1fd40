"""`JobInfo` and statistics of jobs that are only in the catalogue, and one-line summaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from unistream.base.config import CHECKPOINTS_HISTORY, Configuration
from unistream.core.checkpoint import Sample
from unistream.master.exceptions import recorded_exceptions
from unistream.master.job_info import TERMINAL_STATES, CheckpointInfo, JobInfo, JobSummary, SinkInfo
from unistream.master.journal import CHECKPOINTS_KEPT_MAX
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo, SnapshotStatus
from unistream.model.graph import JobGraph, JobType
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import StoredResult
from unistream.port.metadata import CheckpointTotals, JobRecord, MetadataStore, SinkTotals


def summary_of(info: JobInfo) -> JobSummary:
    """One line of a list."""
    tasks: dict[str, int] = {}
    for subtask in info.subtasks:
        tasks[subtask.state] = tasks.get(subtask.state, 0) + 1
    return JobSummary(
        job=info.job,
        name=info.name,
        state=info.state,
        submitted_ms=info.submitted_ms,
        ended_ms=info.ended_ms,
        restarts=info.restarts,
        tasks=tasks,
    )


def info_from_result(result: StoredResult, target: str) -> JobInfo:
    """A job that has ended and is not in the catalogue, which was lost."""
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
        failure=result.failure,
    )


def info_from_records(record: JobRecord, store: MetadataStore, result: StoredResult | None = None) -> JobInfo:
    """A job that is only in the catalogue. Its `result` is exact, also if the catalogue missed it; a job
    without one that the catalogue has running belongs to a master that is gone."""
    checkpoints = store.checkpoints(record.job, limit=CHECKPOINTS_KEPT_MAX)
    totals = store.checkpoint_totals(record.job)
    latest = [c for c in (totals.latest_completed, totals.latest_savepoint) if c is not None]
    graph = msgspec.json.decode(record.graph_json, type=JobGraph) if record.graph_json else None
    sinks = {uid: _sink(of_sink) for uid, of_sink in store.sinks(record.job).items()}
    return JobInfo(
        job=record.job,
        name=record.name,
        lineage=record.lineage,
        state=_state(record, result),
        target=record.target,
        submitted_ms=record.submitted_ms,
        job_type=(JobType.STREAMING if graph is None else graph.job_type).value,
        ended_ms=record.ended_ms if result is None else result.ended_ms,
        restarts=record.restarts,
        checkpoints_completed=totals.completed,
        checkpoints_failed=totals.failed,
        latest_checkpoint=max(latest, key=lambda c: c.checkpoint_id).path if latest else None,
        savepoint=None if totals.latest_savepoint is None else totals.latest_savepoint.path,
        checkpoints=tuple(map(CheckpointInfo.of, checkpoints)),
        exceptions=recorded_exceptions(store.exceptions(record.job), graph),
        sinks=sinks,
        metrics={"rows_committed": sum(s.rows for s in sinks.values())} if sinks else {},
        failure=_failure(record, result),
    )


def _state(record: JobRecord, result: StoredResult | None) -> str:
    if result is not None:
        return result.state
    return record.state if record.state in TERMINAL_STATES else "SUSPENDED"


def _failure(record: JobRecord, result: StoredResult | None) -> TaskFailure | None:
    if result is not None:
        return result.failure
    if record.state in TERMINAL_STATES:
        return None
    text = f"its cluster ended while it was {record.state}; it goes on where that cluster is started again"
    return TaskFailure(kind="MasterLost", message=text)


def checkpoints_from_records(
    record: JobRecord, records: Iterable[CheckpointFigures], totals: CheckpointTotals | None = None
) -> CheckpointsInfo:
    """Statistics from the catalogue, which has neither subtasks nor restores. `records` are the newest;
    without `totals` they are all that is counted."""
    graph = msgspec.json.decode(record.graph_json, type=JobGraph) if record.graph_json else None
    kept_max = Configuration(graph.config if graph is not None else {}).get(CHECKPOINTS_HISTORY)
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
