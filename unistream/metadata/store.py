"""Job metadata in SQL: `unistream.port.metadata.MetadataStore` on SQLite or PostgreSQL.

Jobs, attempts, exceptions, events and leaders are here; snapshots, commits, artifacts, links to runs and
pruning have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from unistream.base.errors import ConfigError, Fenced, NotFound
from unistream.base.ids import AttemptId, CheckpointId, ClusterId, JobId, LeaderEpoch
from unistream.metadata import clusters, commits, events, history, snapshots
from unistream.metadata import tables as t
from unistream.metadata.artifacts import SqlArtifacts
from unistream.metadata.database import MetadataDatabase, fields, storable, without
from unistream.metadata.procedures import SqlProcedures
from unistream.metadata.pruning import Pruning
from unistream.metadata.run_links import SqlRunLinks
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.port import metadata as meta
from unistream.port.retention import MetadataRetention, Pruned


class SqlMetadataStore:
    """Thread-safe; each call is one short transaction on a pooled connection.

    The schema is made by `unistream.metadata.migrate.upgrade` or `schema.ensure`, here only after its file
    was removed, or if it could not be before (`recover`).

    Args:
        url: Of the database.
        is_ensured: False: it did not answer, so its schema may still have to be made.

    Raises:
        ConfigError: the URL cannot be used; from any method: the schema is missing or outdated.
        Unreachable: from any method: the database did not answer in time.
    """

    def __init__(self, url: str, *, is_ensured: bool = True) -> None:
        self._database = MetadataDatabase(url, is_ensured=is_ensured)
        self._links = SqlRunLinks(self._database)
        self._procedures = SqlProcedures(self._database)
        self._artifacts = SqlArtifacts(self._database)

    @property
    def links(self) -> SqlRunLinks:
        return self._links

    @property
    def procedures(self) -> SqlProcedures:
        return self._procedures

    @property
    def artifacts(self) -> SqlArtifacts:
        return self._artifacts

    def close(self) -> None:
        """Closes all connections."""
        self._database.close()

    def recover(self) -> bool:
        """See the port."""
        return self._database.recover()

    def prune(
        self,
        retention: MetadataRetention,
        now_ms: int,
        epoch: LeaderEpoch,
        *,
        ended_since_ms: int = 0,
        dry_run: bool = False,
    ) -> Iterator[Pruned]:
        """See the port."""
        return Pruning(self._database, retention, now_ms, epoch, dry_run=dry_run).steps(ended_since_ms)

    # --- leaders ----------------------------------------------------------------------------------

    def act_for(self, cluster: ClusterId) -> None:
        """See the port."""
        self._database.cluster = cluster

    def record_cluster(self, record: meta.ClusterRecord) -> None:
        """See the port."""
        clusters.record_cluster(self._database, record)

    def clusters(self, limit: int = meta.PAGE_ROWS) -> Sequence[meta.ClusterRecord]:
        """See the port."""
        return clusters.read_clusters(self._database, limit)

    def cluster(self, cluster: ClusterId) -> meta.ClusterRecord | None:
        """See the port."""
        return clusters.read_cluster(self._database, cluster)

    def record_epoch(self, record: meta.EpochRecord) -> None:
        """See the port."""
        values = fields(record)
        changed = {name: values[name] for name in ("ended_ms", "reason")}
        row = self._database.insert(t.leader_epochs).values(values)
        with self._database.write() as connection:
            connection.execute(row.on_conflict_do_update(index_elements=["cluster", "epoch"], set_=changed))

    def epochs(self, limit: int = meta.PAGE_ROWS) -> Sequence[meta.EpochRecord]:
        """See the port."""
        c = t.leader_epochs.c
        newest = select(t.leader_epochs).order_by(c.granted_ms.desc()).limit(limit)
        return [meta.EpochRecord(**row._mapping) for row in self._database.rows(newest)]

    # --- jobs -------------------------------------------------------------------------------------

    def add_job(self, record: meta.JobRecord, epoch: LeaderEpoch) -> None:
        """See the port."""
        try:
            with self._database.write() as connection:
                self._insert_job(connection, record, epoch)
        except IntegrityError as error:
            raise ConfigError(f"a job with the id {record.job} exists already") from error

    def put_job(self, record: meta.JobRecord, epoch: LeaderEpoch) -> meta.JobRecord:
        """See the port."""
        try:
            with self._database.write() as connection:
                stored = _stored(connection, record.job)
                if stored is not None and clusters.is_replaceable(connection, record, stored):
                    connection.execute(delete(t.jobs).where(t.jobs.c.job == record.job))
                    stored = None
                if stored is None:
                    self._insert_job(connection, record, epoch)
                    return record
                taken = msgspec.structs.replace(
                    record, submitted_ms=stored.submitted_ms, version=stored.version
                )
                return self._update_job(connection, taken, epoch)
        except IntegrityError as error:
            raise Fenced(f"job {record.job} was added by another leader at the same time") from error

    def update_job(self, record: meta.JobRecord, epoch: LeaderEpoch) -> meta.JobRecord:
        """See the port.

        Raises:
            Fenced: another leader or another write was faster.
            NotFound: there is no such job.
        """
        with self._database.write() as connection:
            return self._update_job(connection, record, epoch)

    def _insert_job(self, connection: Connection, record: meta.JobRecord, epoch: LeaderEpoch) -> None:
        connection.execute(insert(t.jobs).values(**fields(record), leader_epoch=epoch))
        self._note_state(connection, record, epoch)

    def _update_job(
        self, connection: Connection, record: meta.JobRecord, epoch: LeaderEpoch
    ) -> meta.JobRecord:
        before = _stored(connection, record.job)
        if before is None:
            raise NotFound(f"job {record.job} is no longer in the metadata")
        self._database.check_owner(record.job, before.cluster)
        stored = msgspec.structs.replace(record, version=record.version + 1)
        mine = (
            (t.jobs.c.job == record.job)
            & (t.jobs.c.version == record.version)
            & (t.jobs.c.leader_epoch <= epoch)
        )
        written = connection.execute(update(t.jobs).where(mine).values(**fields(stored), leader_epoch=epoch))
        if written.rowcount != 1:
            raise Fenced(
                f"job {record.job}: stored are version {before.version} and epoch {before.leader_epoch}, "
                f"refused was a write to version {record.version} with epoch {epoch}"
            )
        if before.state != stored.state:
            self._note_state(connection, stored, epoch)
        return stored

    def _note_state(self, connection: Connection, record: meta.JobRecord, epoch: LeaderEpoch) -> None:
        at_ms = record.changed_ms or record.submitted_ms
        event = meta.EventRecord(job=record.job, at_ms=at_ms, kind=meta.STATE_EVENT, detail=record.state)
        events.insert_event(self._database, connection, event, epoch)

    def job(self, job: JobId) -> meta.JobRecord | None:
        """The job of this id, or None."""
        found = self._database.rows(select(t.jobs).where(t.jobs.c.job == job))
        return _job(found[0]) if found else None

    def jobs(
        self, limit: int = meta.PAGE_ROWS, before: meta.JobRecord | None = None
    ) -> Sequence[meta.JobRecord]:
        """See the port."""
        c = t.jobs.c
        page = select(t.jobs).order_by(c.submitted_ms.desc(), c.job.desc()).limit(limit)
        if before is not None:
            older = (c.submitted_ms == before.submitted_ms) & (c.job < before.job)
            page = page.where(c.submitted_ms <= before.submitted_ms)
            page = page.where((c.submitted_ms < before.submitted_ms) | older)
        return [_job(row) for row in self._database.rows(page)]

    def history(self, limit: int = meta.PAGE_ROWS) -> Sequence[meta.JobHistoryRow]:
        """See the port."""
        return history.read_history(self._database, limit)

    def search(
        self, wanted: meta.PastJobs, limit: int = meta.PAGE_ROWS, before: meta.HistoryPlace | None = None
    ) -> Sequence[meta.JobHistoryRow]:
        """See the port."""
        return history.search_history(self._database, wanted, limit, before)

    def unended(self, cluster: ClusterId, limit: int = meta.PAGE_ROWS) -> Sequence[meta.JobRecord]:
        """See the port."""
        return history.read_unended(self._database, cluster, limit)

    def record_archive(self, record: meta.ArchiveRecord, epoch: LeaderEpoch) -> None:
        """See the port."""
        history.record_archive(self._database, record, epoch)

    def archive(self, job: JobId) -> meta.ArchiveRecord | None:
        """See the port."""
        return history.read_archive(self._database, job)

    def record_event(self, record: meta.EventRecord, epoch: LeaderEpoch) -> None:
        """See the port."""
        with self._database.of_job(record.job, epoch) as (connection, _):
            events.insert_event(self._database, connection, record, epoch)

    def events(
        self, after: int = 0, limit: int = meta.PAGE_ROWS, job: JobId | None = None
    ) -> Sequence[meta.EventRecord]:
        """See the port."""
        return events.read_events(self._database, after, limit, job)

    # --- attempts and exceptions ------------------------------------------------------------------

    def record_attempts(self, changes: Sequence[meta.AttemptChange], epoch: LeaderEpoch) -> None:
        """See the port. An attempt keeps its TaskManager when a later state names none."""
        for job in dict.fromkeys(change.attempt.job for change in changes):
            of_job = [change for change in changes if change.attempt.job == job]
            names = {change.attempt.vertex: change.vertex_name for change in of_job}
            steps: dict[AttemptId, list[meta.AttemptChange]] = {}
            for change in of_job:
                steps.setdefault(change.attempt, []).append(change)
            with self._database.of_job(job, epoch) as (connection, _):
                vertices = [{"job": job, "vertex": v, "name": storable(name)} for v, name in names.items()]
                self._database.upsert_all(connection, t.vertices, vertices, epoch, key=("job", "vertex"))
                rows = [_attempt_row(attempt, taken) for attempt, taken in steps.items()]
                self._database.upsert_all(
                    connection, t.attempts, rows, epoch, key=_ATTEMPT_KEY, first=("started_ms",)
                )

    def attempts(self, job: JobId, limit: int = meta.ATTEMPTS_READ_MAX) -> Sequence[meta.AttemptHistoryRow]:
        """See the port."""
        return history.read_attempts(self._database, job, limit)

    def record_exception(self, record: meta.ExceptionRecord, epoch: LeaderEpoch) -> None:
        """Adds one; the same exception may be recorded twice."""
        with self._database.of_job(record.job, epoch) as (connection, _):
            connection.execute(insert(t.exceptions).values(**fields(record)))

    def exceptions(self, job: JobId, limit: int = meta.PAGE_ROWS) -> Sequence[meta.ExceptionRecord]:
        """See the port."""
        e = t.exceptions
        newest = select(e).where(e.c.job == job).order_by(e.c.id.desc()).limit(limit)
        return [meta.ExceptionRecord(**without(row, "id")) for row in reversed(self._database.rows(newest))]

    # --- snapshots and commits --------------------------------------------------------------------

    def record_checkpoint(self, job: JobId, record: CheckpointFigures, epoch: LeaderEpoch) -> None:
        """See the port. A completed savepoint is also added to the savepoints."""
        snapshots.record_checkpoint(self._database, job, record, epoch)

    def checkpoints(
        self, job: JobId, limit: int = meta.PAGE_ROWS, before: CheckpointId | None = None
    ) -> Sequence[CheckpointFigures]:
        """See the port."""
        return snapshots.read_checkpoints(self._database, job, limit, before)

    def checkpoint_totals(self, job: JobId) -> meta.CheckpointTotals:
        """See the port."""
        return snapshots.read_totals(self._database, job)

    def record_commit(self, record: meta.CommitRecord, epoch: LeaderEpoch) -> int | None:
        """See the port."""
        return commits.record_commit(self._database, record, epoch)

    def commits(self, job: JobId, limit: int = meta.PAGE_ROWS) -> Sequence[meta.CommitRecord]:
        """See the port."""
        return commits.read_commits(self._database, job, limit)

    def sinks(self, job: JobId) -> dict[str, meta.SinkTotals]:
        """See the port."""
        return commits.read_sinks(self._database, job)

    def outbox(self, after: int = 0, limit: int = meta.PAGE_ROWS) -> Sequence[meta.OutboxRecord]:
        """See the port."""
        return commits.read_outbox(self._database, after, limit)


def _stored(connection: Connection, job: JobId) -> Any:
    c = t.jobs.c
    rows = select(c.version, c.leader_epoch, c.state, c.submitted_ms, c.ended_ms, c.cluster)
    return connection.execute(rows.where(c.job == job)).one_or_none()


def _job(row: Row[Any]) -> meta.JobRecord:
    return meta.JobRecord(**without(row, "leader_epoch"))


_ATTEMPT_KEY: Final = ("job", "vertex", "subtask", "attempt")


def _attempt_row(attempt: AttemptId, steps: Sequence[meta.AttemptChange]) -> dict[str, Any]:
    """The row of an attempt after these steps, of which the first may be its beginning."""
    places = [step.task_manager for step in steps if step.task_manager is not None]
    return {
        "job": attempt.job,
        "vertex": attempt.vertex,
        "subtask": attempt.index,
        "attempt": attempt.attempt,
        "state": steps[-1].state,
        "updated_ms": steps[-1].at_ms,
        "started_ms": steps[0].at_ms,
        "task_manager": places[-1] if places else None,
    }
