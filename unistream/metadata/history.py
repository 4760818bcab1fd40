"""Ended jobs: lists without their graphs, and the archives of their pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, case, func, select

from unistream.base.ids import AttemptId, ClusterId, JobId, LeaderEpoch, VertexId
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase, storable, without
from unistream.port.metadata import (
    ArchiveRecord,
    AttemptHistoryRow,
    HistoryPlace,
    JobHistoryRow,
    JobRecord,
    PastJobs,
)

TERMINAL_STATES = ("FINISHED", "CANCELED", "FAILED", "SUSPENDED")
FAILED = "FAILED"
SUSPENDED = "SUSPENDED"
"""A job that goes on when its cluster does."""
_HEAVY = ("graph_json", "leader_epoch")
_LIGHT = tuple(column for column in t.jobs.c if column.name not in _HEAVY)
_LAST_ERROR = (
    select(t.exceptions.c.kind + ": " + t.exceptions.c.message)
    .where(t.exceptions.c.job == t.jobs.c.job)
    .order_by(t.exceptions.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_FAILURE = case((t.jobs.c.state == FAILED, _LAST_ERROR)).label("failure")


def read_history(database: MetadataDatabase, limit: int) -> Sequence[JobHistoryRow]:
    """See `MetadataStore.history`. Subtasks of an archive that is not of the job's last end do not count."""
    j, a = t.jobs.c, t.archives.c
    of_its_end = (a.job == j.job) & (a.ended_ms == j.ended_ms)
    newest = select(*_LIGHT, a.tasks, _FAILURE).select_from(t.jobs.outerjoin(t.archives, of_its_end))
    page = newest.order_by(j.submitted_ms.desc(), j.job.desc()).limit(limit)
    return [_line(row) for row in database.rows(page)]


def search_history(
    database: MetadataDatabase, wanted: PastJobs, limit: int, before: HistoryPlace | None
) -> Sequence[JobHistoryRow]:
    """See `MetadataStore.search`."""
    j, a = t.jobs.c, t.archives.c
    of_its_end = (a.job == j.job) & (a.ended_ms == j.ended_ms)
    found = select(t.jobs, a.tasks, _FAILURE).select_from(t.jobs.outerjoin(t.archives, of_its_end))
    if before is not None:  # the first condition is for the index
        older = (j.submitted_ms == before.submitted_ms) & (j.job < before.job)
        found = found.where(j.submitted_ms <= before.submitted_ms)
        found = found.where((j.submitted_ms < before.submitted_ms) | older)
    page = found.where(*_conditions(wanted)).order_by(j.submitted_ms.desc(), j.job.desc()).limit(limit)
    return [_line(row, "leader_epoch") for row in database.rows(page)]


def _conditions(wanted: PastJobs) -> Iterator[ColumnElement[bool]]:
    j = t.jobs.c
    is_over = j.state.in_(TERMINAL_STATES)
    if wanted.running:
        yield j.job.not_in(wanted.running)
    if wanted.alive:
        yield is_over | j.cluster.not_in(wanted.alive)
    if wanted.states:
        named = j.state.in_(wanted.states)
        yield named | ~is_over if SUSPENDED in wanted.states else named
    if wanted.name:
        yield j.name.icontains(wanted.name, autoescape=True) | j.job.startswith(
            wanted.name.lower(), autoescape=True
        )
    if wanted.table:
        quoted = msgspec.json.encode(wanted.table).decode()[1:-1]
        yield j.graph_json.icontains(quoted, autoescape=True)
    if wanted.until_ms is not None:
        yield j.submitted_ms <= wanted.until_ms
    if wanted.since_ms is not None:
        yield func.coalesce(j.ended_ms, j.changed_ms) >= wanted.since_ms


def _line(row: Row[Any], *left_out: str) -> JobHistoryRow:
    tasks = msgspec.json.decode(row.tasks, type=dict[str, int]) if row.tasks else {}
    return JobHistoryRow(JobRecord(**without(row, "tasks", "failure", *left_out)), tasks, row.failure)


def read_unended(database: MetadataDatabase, cluster: ClusterId, limit: int) -> Sequence[JobRecord]:
    """See `MetadataStore.unended`."""
    j = t.jobs.c
    found = select(t.jobs).where(j.cluster == cluster, j.ended_ms.is_(None) | (j.state == SUSPENDED))
    rows = database.rows(found.order_by(j.submitted_ms.desc(), j.job.desc()).limit(limit))
    return [JobRecord(**without(row, "leader_epoch")) for row in rows]


def record_archive(database: MetadataDatabase, record: ArchiveRecord, epoch: LeaderEpoch) -> None:
    """See `MetadataStore.record_archive`."""
    changed = {
        "format": record.format,
        "ended_ms": record.ended_ms,
        "tasks": msgspec.json.encode(record.tasks).decode(),
        "content": storable(record.content),
    }
    with database.of_job(record.job, epoch) as (connection, _):
        database.upsert(connection, t.archives, {"job": record.job}, changed, epoch)


def read_archive(database: MetadataDatabase, job: JobId) -> ArchiveRecord | None:
    """See `MetadataStore.archive`."""
    found = database.rows(select(t.archives).where(t.archives.c.job == job))
    if not found:
        return None
    row = without(found[0], "version", "leader_epoch")
    return ArchiveRecord(**{**row, "tasks": msgspec.json.decode(row["tasks"], type=dict[str, int])})


def read_attempts(database: MetadataDatabase, job: JobId, limit: int) -> Sequence[AttemptHistoryRow]:
    """See `MetadataStore.attempts`."""
    a = t.attempts.c
    of_job = select(t.attempts).where(a.job == job).order_by(a.vertex, a.subtask, a.attempt).limit(limit)
    return [
        AttemptHistoryRow(
            attempt=AttemptId(job, VertexId(row.vertex), row.subtask, row.attempt),
            state=row.state,
            task_manager=row.task_manager,
            started_ms=row.started_ms,
            updated_ms=row.updated_ms,
        )
        for row in database.rows(of_job)
    ]
