"""Job metadata in SQL: `unistream.port.metadata.MetadataStore` on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, Select, Table, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from unistream.base.errors import ConfigError, Fenced
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch
from unistream.metadata import tables as t
from unistream.metadata.engine import database_errors, open_engine
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.elements import SnapshotKind
from unistream.port.metadata import AttemptChange, CommitRecord, ExceptionRecord, JobRecord

_STATUS: Final = {status.recorded: status for status in SnapshotStatus}
EPOCH_ROW: Final = "jobmanager"
EXCEPTIONS_LISTED_MAX: Final = 1_000  # a job that restarts for weeks must not fill an answer


class SqlMetadataStore:
    """Thread-safe; each call is one short transaction on a pooled connection.

    The schema is made by `unistream.metadata.migrate.upgrade`, never here.

    Raises:
        ConfigError: the URL cannot be used; from any method: the schema is missing or outdated.
        Unreachable: from any method: the database did not answer in time.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._upsert_insert = sqlite.insert if self._engine.dialect.name == "sqlite" else postgresql.insert

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def next_leader_epoch(self) -> LeaderEpoch:
        """See the port. Atomic: concurrent calls get different epochs."""
        first = self._upsert_insert(t.leaders).values(name=EPOCH_ROW, epoch=1)
        counted = first.on_conflict_do_update(
            index_elements=[t.leaders.c.name], set_={"epoch": t.leaders.c.epoch + 1}
        )
        with self._write() as connection:
            epoch = connection.execute(counted.returning(t.leaders.c.epoch)).scalar_one()
        return LeaderEpoch(int(epoch))

    def add_job(self, record: JobRecord, epoch: LeaderEpoch) -> None:
        """See the port.

        Raises:
            ConfigError: there is a job of this id.
        """
        try:
            with self._write() as connection:
                connection.execute(insert(t.jobs).values(**_fields(record), leader_epoch=epoch))
        except IntegrityError as error:
            raise ConfigError(f"a job with the id {record.job} exists already") from error

    def update_job(self, record: JobRecord, epoch: LeaderEpoch) -> JobRecord:
        """See the port.

        Raises:
            Fenced: another leader or another write was faster, or there is no such job.
        """
        stored = msgspec.structs.replace(record, version=record.version + 1)
        mine = (
            (t.jobs.c.job == record.job)
            & (t.jobs.c.version == record.version)
            & (t.jobs.c.leader_epoch <= epoch)
        )
        with self._write() as connection:
            written = connection.execute(
                update(t.jobs).where(mine).values(**_fields(stored), leader_epoch=epoch)
            )
            if written.rowcount != 1:
                raise Fenced(_why_fenced(connection, record, epoch))
        return stored

    def job(self, job: JobId) -> JobRecord | None:
        """The job of this id, or None."""
        found = self._select(select(t.jobs).where(t.jobs.c.job == job))
        return _job(found[0]) if found else None

    def jobs(self) -> Sequence[JobRecord]:
        """All jobs, newest first."""
        newest_first = select(t.jobs).order_by(t.jobs.c.submitted_ms.desc(), t.jobs.c.job)
        return [_job(row) for row in self._select(newest_first)]

    def record_attempts(self, changes: Sequence[AttemptChange]) -> None:
        """See the port. An attempt keeps its TaskManager when a later state names none."""
        for job in dict.fromkeys(change.attempt.job for change in changes):
            of_job = [change for change in changes if change.attempt.job == job]
            names = {change.attempt.vertex: change.vertex_name for change in of_job}
            steps: dict[AttemptId, list[AttemptChange]] = {}
            for change in of_job:
                steps.setdefault(change.attempt, []).append(change)
            with self._write(job) as connection:
                for vertex, name in names.items():
                    key = {"job": job, "vertex": vertex}
                    self._upsert(connection, t.vertices, key, {"name": _storable(name)})
                for attempt, taken in steps.items():
                    self._upsert_attempt(connection, attempt, taken)

    def _upsert_attempt(
        self, connection: Connection, attempt: AttemptId, steps: Sequence[AttemptChange]
    ) -> None:
        key = {
            "job": attempt.job,
            "vertex": attempt.vertex,
            "subtask": attempt.index,
            "attempt": attempt.attempt,
        }
        places = [step.task_manager for step in steps if step.task_manager is not None]
        changed: dict[str, Any] = {"state": steps[-1].state, "updated_ms": steps[-1].at_ms}
        first: dict[str, Any] = {"started_ms": steps[0].at_ms, "task_manager": None}
        if places:
            changed["task_manager"] = first["task_manager"] = places[-1]
        self._upsert(connection, t.attempts, key, changed, first)

    def record_checkpoint(self, job: JobId, record: CheckpointFigures) -> None:
        """See the port. A completed savepoint is also added to the savepoints."""
        key = {"job": job, "checkpoint_id": record.checkpoint_id}
        values = {
            "kind": record.kind.value,
            "state": record.status.recorded,
            "triggered_ms": record.timestamp_ms,
            "duration_ms": record.recorded_duration_ms,
            "state_bytes": record.state_bytes,
            "path": _storable(record.path),
            "reason": _storable(record.reason),
        }
        is_completed = record.status is SnapshotStatus.COMPLETED
        with self._write(job) as connection:
            self._upsert(connection, t.checkpoints, key, values)
            if record.kind.is_savepoint and is_completed and record.path is not None:
                name = connection.execute(select(t.jobs.c.name).where(t.jobs.c.job == job)).scalar_one()
                listed = {k: values[k] for k in ("kind", "path", "triggered_ms")}
                self._upsert(connection, t.savepoints, key, {**listed, "job_name": name})

    def checkpoints(self, job: JobId) -> Sequence[CheckpointFigures]:
        """All snapshots of a job by id."""
        c = t.checkpoints
        found = self._select(select(c).where(c.c.job == job).order_by(c.c.checkpoint_id))
        return [_checkpoint(row) for row in found]

    def record_exception(self, record: ExceptionRecord) -> None:
        """Adds one; the same exception may be recorded twice."""
        with self._write(record.job) as connection:
            connection.execute(insert(t.exceptions).values(**_fields(record)))

    def exceptions(self, job: JobId) -> Sequence[ExceptionRecord]:
        """The newest of a job (at most `EXCEPTIONS_LISTED_MAX`), oldest of them first."""
        e = t.exceptions
        newest = select(e).where(e.c.job == job).order_by(e.c.id.desc()).limit(EXCEPTIONS_LISTED_MAX)
        return [ExceptionRecord(**_without(row, "id")) for row in reversed(self._select(newest))]

    def record_commit(self, record: CommitRecord) -> None:
        """See the port."""
        values = _fields(record)
        key = {name: values.pop(name) for name in ("job", "sink_uid", "checkpoint_id")}
        with self._write(record.job) as connection:
            self._upsert(connection, t.commits, key, values)

    def commits(self, job: JobId) -> Sequence[CommitRecord]:
        """All commits of a job by checkpoint and sink."""
        c = t.commits
        found = self._select(select(c).where(c.c.job == job).order_by(c.c.checkpoint_id, c.c.sink_uid))
        return [CommitRecord(**row._mapping) for row in found]

    @contextmanager
    def _write(self, job: JobId | None = None) -> Iterator[Connection]:
        """One transaction. `job` is named if it is unknown."""
        with database_errors(self._engine):
            try:
                with self._engine.begin() as connection:
                    yield connection
            except IntegrityError as error:
                if job is None:
                    raise
                raise ConfigError(f"there is no job {job} in the metadata, or a value is missing") from error

    def _select(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        with database_errors(self._engine), self._engine.connect() as connection:
            reader = connection.execution_options(unistream_read=True)
            return reader.execute(statement).all()

    def _upsert(
        self,
        connection: Connection,
        table: Table,
        key: Mapping[str, Any],
        changed: Mapping[str, Any],
        first: Mapping[str, Any] | None = None,
    ) -> None:
        """`first`: values of a new row only; `changed` has precedence."""
        row = self._upsert_insert(table).values({**(first or {}), **key, **changed})
        connection.execute(row.on_conflict_do_update(index_elements=list(key), set_=dict(changed)))


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    return {name: _storable(getattr(record, name)) for name in record.__struct_fields__}


def _storable(value: object) -> object:
    """Escapes what databases refuse in texts: NUL (PostgreSQL) and lone surrogates (all)."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def _without(row: Row[Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name not in names}


def _job(row: Row[Any]) -> JobRecord:
    return JobRecord(**_without(row, "leader_epoch"))


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


def _why_fenced(connection: Connection, record: JobRecord, epoch: LeaderEpoch) -> str:
    stored = connection.execute(
        select(t.jobs.c.version, t.jobs.c.leader_epoch).where(t.jobs.c.job == record.job)
    ).one_or_none()
    if stored is None:
        return f"job {record.job} is no longer in the metadata"
    return (
        f"job {record.job}: stored are version {stored.version} and epoch {stored.leader_epoch}, "
        f"refused was a write to version {record.version} with epoch {epoch}"
    )
