"""Checkpoints and savepoints of jobs: their rows, and totals that also count rows which were pruned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, Select, func, select

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase, storable
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import CheckpointTotals

_STATUS: Final = {status.recorded: status for status in SnapshotStatus}
_COMPLETED: Final = SnapshotStatus.COMPLETED.recorded
_FAILED: Final = SnapshotStatus.FAILED.recorded
_IN_PROGRESS: Final = SnapshotStatus.IN_PROGRESS.recorded


def record_checkpoint(
    database: MetadataDatabase, job: JobId, record: CheckpointFigures, epoch: LeaderEpoch
) -> None:
    """See `MetadataStore.record_checkpoint`."""
    key = {"job": job, "checkpoint_id": record.checkpoint_id}
    values = {
        "kind": record.kind.value,
        "state": record.status.recorded,
        "triggered_ms": record.timestamp_ms,
        "duration_ms": record.recorded_duration_ms,
        "state_bytes": record.state_bytes,
        "path": storable(record.path),
        "reason": storable(record.reason),
    }
    is_completed = record.status is SnapshotStatus.COMPLETED
    with database.of_job(job, epoch) as (connection, stored):
        database.upsert(connection, t.checkpoints, key, values, epoch)
        if record.kind.is_savepoint and is_completed and record.path is not None:
            listed = {k: values[k] for k in ("kind", "path", "triggered_ms")}
            database.upsert(connection, t.savepoints, key, {**listed, "job_name": stored.name}, epoch)


def newest(job: JobId, before: CheckpointId | None = None) -> Select[Any]:
    """Snapshots of a job, newest first."""
    c = t.checkpoints
    page = select(c).where(c.c.job == job).order_by(c.c.checkpoint_id.desc())
    return page if before is None else page.where(c.c.checkpoint_id < before)


def read_checkpoints(
    database: MetadataDatabase, job: JobId, limit: int, before: CheckpointId | None
) -> Sequence[CheckpointFigures]:
    """See `MetadataStore.checkpoints`."""
    return [_checkpoint(row) for row in database.rows(newest(job, before).limit(limit))]


def count_by_state(job: JobId) -> Select[Any]:
    """Rows that are there, by state."""
    c = t.checkpoints.c
    return select(c.state, func.count().label("number")).where(c.job == job).group_by(c.state)


def read_totals(database: MetadataDatabase, job: JobId) -> CheckpointTotals:
    """See `MetadataStore.checkpoint_totals`."""
    p = t.pruned_checkpoints.c
    counts: dict[str, int] = {row.state: row.number for row in database.rows(count_by_state(job))}
    pruned = database.rows(select(p.completed, p.failed).where(p.job == job))
    completed, failed = (pruned[0].completed, pruned[0].failed) if pruned else (0, 0)
    of_job = newest(job).limit(1)
    c = t.checkpoints.c
    plain = of_job.where(c.state == _COMPLETED, c.kind == SnapshotKind.CHECKPOINT.value)
    return CheckpointTotals(
        completed=counts.get(_COMPLETED, 0) + completed,
        failed=counts.get(_FAILED, 0) + failed,
        in_progress=counts.get(_IN_PROGRESS, 0),
        latest_completed=_first(database, plain),
        latest_savepoint=_latest_savepoint(database, job),
        latest_failed=_first(database, of_job.where(c.state == _FAILED)),
    )


def _latest_savepoint(database: MetadataDatabase, job: JobId) -> CheckpointFigures | None:
    s = t.savepoints.c
    newest_id = select(s.checkpoint_id).where(s.job == job).order_by(s.checkpoint_id.desc()).limit(1)
    found = database.rows(newest_id)
    if not found:
        return None
    c = t.checkpoints.c
    return _first(database, select(t.checkpoints).where(c.job == job, c.checkpoint_id == found[0][0]))


def _first(database: MetadataDatabase, query: Select[Any]) -> CheckpointFigures | None:
    found = database.rows(query)
    return _checkpoint(found[0]) if found else None


def _checkpoint(row: Row[Any]) -> CheckpointFigures:
    return CheckpointFigures(
        checkpoint_id=CheckpointId(row.checkpoint_id),
        kind=SnapshotKind(row.kind),
        status=_STATUS[row.state],
        timestamp_ms=row.triggered_ms,
        duration_ms=row.duration_ms or 0,
        path=row.path,
        reason=row.reason,
        recorded_bytes=row.state_bytes,
        format=None,
    )
