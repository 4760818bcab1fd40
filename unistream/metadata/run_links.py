"""Links between runs of an orchestrator and jobs: `unistream.port.run_links.RunLinks`."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, Select, insert, select, true, update

from unistream.base.errors import Transient
from unistream.base.ids import CheckpointId, JobId
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.run_links import Attachment, Line, LineKind, LineSnapshot, RunLink, Watcher, check_link

LINKS_LISTED_MAX: Final = 1_000
LINE_JOBS_MAX: Final = 100  # jobs of a line in which its newest snapshot is looked for, the newest first
_LINKS: Final = t.run_links.c


class SqlRunLinks:
    """Each call is one transaction; a change needs the version that it has read."""

    def __init__(self, database: MetadataDatabase) -> None:
        self._database = database

    def attach(self, key: str, job: JobId, watcher: Watcher, at_ms: int) -> RunLink:
        """See the port."""
        check_link(key, watcher)
        wanted = RunLink(key=key, job=job, watcher=watcher, attached_ms=at_ms, heartbeat_ms=at_ms)
        with self._database.write() as connection:
            first = self._database.insert(t.run_links).values(_columns(wanted)).on_conflict_do_nothing()
            if connection.execute(first.returning(_LINKS.key)).one_or_none() is not None:
                _note(connection, wanted)
                return wanted
            stored = _locked(connection, key)
            if stored is None:  # removed by pruning in between
                raise Transient(f"the link of {key!r} was removed at this moment: attach again")
            if stored.released_ms is None and not _is_former(stored.watcher, watcher):
                return stored
            return _replace(connection, stored, wanted)

    def heartbeat(self, key: str, watcher: Watcher, at_ms: int) -> bool:
        """See the port. An older heartbeat that arrives late changes nothing."""
        return self._of(watcher, key, heartbeat_ms=at_ms, only_if=_LINKS.heartbeat_ms < at_ms)

    def release(self, key: str, watcher: Watcher, at_ms: int) -> bool:
        """See the port."""
        return self._of(watcher, key, released_ms=at_ms, only_if=_LINKS.released_ms.is_(None))

    def _of(self, watcher: Watcher, key: str, *, only_if: Any, **changed: int) -> bool:
        with self._database.write() as connection:
            stored = _locked(connection, key)
            if stored is None or not stored.is_of(watcher):
                return False
            values = {**changed, "version": stored.version + 1}
            connection.execute(update(t.run_links).where(_LINKS.key == key, only_if).values(values))
            return True

    def take_over(self, key: str, watcher: Watcher, at_ms: int, silent_ms: int) -> RunLink | None:
        """See the port."""
        check_link(key, watcher)
        with self._database.write() as connection:
            stored = _locked(connection, key)
            if stored is None or stored.is_of(watcher):
                return stored
            if stored.released_ms is None and stored.heartbeat_ms > at_ms - silent_ms:
                return stored
            wanted = RunLink(key=key, job=stored.job, watcher=watcher, attached_ms=at_ms, heartbeat_ms=at_ms)
            return _replace(connection, stored, wanted)

    def job_of_key(self, key: str) -> RunLink | None:
        """See the port."""
        found = self._database.rows(select(t.run_links).where(_LINKS.key == key))
        return _link(found[0]) if found else None

    def keys_of_job(self, job: JobId) -> list[RunLink]:
        """See the port."""
        newest = select(t.run_links).where(_LINKS.job == job).order_by(_LINKS.attached_ms.desc(), _LINKS.key)
        return [_link(row) for row in self._database.rows(newest.limit(LINKS_LISTED_MAX))]

    def attachments(self, key: str, limit: int = 100) -> list[Attachment]:
        """See the port."""
        a = t.run_attachments.c
        newest = select(t.run_attachments).where(a.key == key).order_by(a.id.desc()).limit(limit)
        return [
            Attachment(key=row.key, job=row.job, watcher=_watcher(row), at_ms=row.at_ms)
            for row in self._database.rows(newest)
        ]

    # --- lines ------------------------------------------------------------------------------------

    def last_snapshot_of_line(self, line: Line) -> LineSnapshot | None:
        """See the port. Savepoints outlive the rows of their jobs, and their name is that of the job."""
        found = [row for query in last_snapshots(line) for row in self._database.rows(query)]
        if not found:
            return None
        last = max(found, key=lambda row: (row.triggered_ms, row.checkpoint_id))
        return LineSnapshot(
            job=last.job,
            checkpoint_id=CheckpointId(last.checkpoint_id),
            kind=SnapshotKind(last.kind),
            path=last.path,
            triggered_ms=last.triggered_ms,
        )


def jobs_of_line(line: Line) -> Select[Any]:
    """Ids of the newest jobs of a line; a key may have one several times."""
    j = t.jobs.c
    match line.kind:
        case LineKind.KEY:
            a = t.run_attachments.c
            newest = select(a.job, a.id).where(a.key == line.value).order_by(a.id.desc()).limit(LINE_JOBS_MAX)
            return select(newest.subquery().c.job).distinct()
        case LineKind.NAME:
            of_line = j.name == line.value
        case LineKind.LINEAGE:
            of_line = j.lineage == line.value
    return select(j.job).where(of_line).order_by(j.submitted_ms.desc(), j.job).limit(LINE_JOBS_MAX)


def last_snapshots(line: Line) -> list[Select[Any]]:
    """The newest completed checkpoint of the jobs of a line, and their newest savepoint, in one row each."""
    c, s = t.checkpoints.c, t.savepoints.c
    jobs = jobs_of_line(line).subquery()
    is_usable = (c.state == SnapshotStatus.COMPLETED.recorded) & c.path.is_not(None)
    queries = []
    for of, which in ((c, is_usable), (s, true())):
        newest = select(of.checkpoint_id).where(of.job == jobs.c.job, which)
        newest_id = newest.order_by(of.checkpoint_id.desc()).limit(1).scalar_subquery()
        of_jobs = select(jobs.c.job, newest_id.label("checkpoint_id")).subquery()
        rows = select(of.job, of.checkpoint_id, of.kind, of.path, of.triggered_ms)
        is_newest = (of.job == of_jobs.c.job) & (of.checkpoint_id == of_jobs.c.checkpoint_id)
        found = rows.join(of_jobs, is_newest)
        queries.append(found.order_by(of.triggered_ms.desc(), of.checkpoint_id.desc()).limit(1))
    if line.kind is LineKind.NAME:
        queries.append(last_savepoint_of_name(line.value))
    return queries


def last_savepoint_of_name(name: str) -> Select[Any]:
    """The newest savepoint of all jobs of a name."""
    s = t.savepoints.c
    rows = select(s.job, s.checkpoint_id, s.kind, s.path, s.triggered_ms)
    return rows.where(s.job_name == name).order_by(s.triggered_ms.desc()).limit(1)


# --- steps and rows ------------------------------------------------------------------------------


def _is_former(stored: Watcher, watcher: Watcher) -> bool:
    """`stored` is this attempt, or an earlier one of the same step of the same run."""
    same = (stored.root_run, stored.run, stored.step) == (watcher.root_run, watcher.run, watcher.step)
    return same and stored.attempt <= watcher.attempt


def _locked(connection: Connection, key: str) -> RunLink | None:
    """The link, which nobody else changes until the end of this transaction. (On SQLite nobody writes
    then.)"""
    mine = select(t.run_links).where(_LINKS.key == key).with_for_update()
    found = connection.execute(mine).one_or_none()
    return None if found is None else _link(found)


def _replace(connection: Connection, stored: RunLink, wanted: RunLink) -> RunLink:
    values = {**_columns(wanted), "version": stored.version + 1}
    connection.execute(update(t.run_links).where(_LINKS.key == stored.key).values(values))
    if (stored.job, stored.watcher) != (wanted.job, wanted.watcher) or stored.released_ms is not None:
        _note(connection, wanted)
    return msgspec.structs.replace(wanted, version=stored.version + 1)


def _note(connection: Connection, link: RunLink) -> None:
    kept = ("key", "job", "root_run", "run", "step", "attempt")
    values = {name: value for name, value in _columns(link).items() if name in kept}
    connection.execute(insert(t.run_attachments).values(**values, at_ms=link.attached_ms))


def _columns(link: RunLink) -> dict[str, Any]:
    return {
        "key": link.key,
        "job": link.job,
        "root_run": link.watcher.root_run,
        "run": link.watcher.run,
        "step": link.watcher.step,
        "attempt": link.watcher.attempt,
        "attached_ms": link.attached_ms,
        "heartbeat_ms": link.heartbeat_ms,
        "released_ms": link.released_ms,
        "version": link.version,
    }


def _watcher(row: Row[Any]) -> Watcher:
    return Watcher(root_run=row.root_run, run=row.run, step=row.step, attempt=row.attempt)


def _link(row: Row[Any]) -> RunLink:
    return RunLink(
        key=row.key,
        job=row.job,
        watcher=_watcher(row),
        attached_ms=row.attached_ms,
        heartbeat_ms=row.heartbeat_ms,
        released_ms=row.released_ms,
        version=row.version,
    )
