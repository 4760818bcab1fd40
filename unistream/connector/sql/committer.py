"""Moves staged rows into the target, with the record of the commit, in one transaction."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import Boolean, Connection, select
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table

from unistream.base.crash_points import crash_point
from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.connector.common import (
    OnRewind,
    changed_target,
    rewound,
    uncommitted_elsewhere,
)
from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.group_log import SqlGroupLog
from unistream.connector.sql.identity import TableIdentity, is_another, tables
from unistream.connector.sql.key_forms import key_forms
from unistream.connector.sql.line import CHECKPOINT_BITS, SqlCommitRecord, checkpoint_of, foreign, recorded
from unistream.connector.sql.stage import SqlCommittable, SqlTable, decode_committable
from unistream.connector.sql.statements import (
    COMMITS,
    DELETED,
    IDENTITY,
    OURS,
    SqlTableName,
    commits_table,
    count_part,
    move,
    record,
    remove_deleted,
    remove_former,
    remove_part,
    remove_rivals,
    target_table,
)
from unistream.connector.sql.transaction import SqlTransaction
from unistream.port.group import TableVersion
from unistream.port.line import Followed, OnForeign, SinkLine
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext, VisibleRows

ENVIRONMENT: Final = "UNISTREAM_SQL_URL"
REPLACED: Final = (
    f"it was dropped and made again since (if it has the same rows, set {IDENTITY} in {COMMITS} to null)"
)


class SqlCommitterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a committer: the job whose commits up to `until` it follows, and the last one of the
    sink."""

    job: str
    until: int
    address: str
    label: int


class SqlCommitter:
    """See `unistream.port.sink.Committer` and `JointCommitter`."""

    is_sole = True  # its record counts for the rows of all writers

    def __init__(
        self, table: SqlTable, *, on_rewind: OnRewind = "refuse", on_foreign: OnForeign = "refuse"
    ) -> None:
        self._table = table
        self._target = table.target
        self._on_rewind = on_rewind
        self._on_foreign = on_foreign
        self._database: SinkDatabase | None = None
        self._remembered: SqlCommitterState | None = None
        self._line: SinkLine[str] | None = None
        self._tidied: set[str] = set()  # staging tables without rows of former jobs
        self._rewinds = 0

    @property
    def connector(self) -> str:
        return "sql"

    def database_url(self) -> str:
        """See `unistream.port.group.SharesTransaction`."""
        return str(self._table.without_password().url)

    def restore_state(self, items: Sequence[bytes]) -> None:
        found = [msgspec.json.decode(item, type=SqlCommitterState) for item in items]
        self._remembered = max(found, key=lambda one: one.label, default=None)

    def snapshot_state(self) -> Sequence[bytes]:
        return [] if self._remembered is None else [msgspec.json.encode(self._remembered)]

    def open(self, context: SinkContext) -> None:
        """Raises ConfigError: a rewind, the table was removed, or another line of jobs writes it; Fenced."""
        self._context = context
        remembered = self._remembered
        followed = None if remembered is None else Followed(remembered.job, remembered.until)
        self._line = SinkLine(f"table {self._target}", context, str, followed)
        self._database = SinkDatabase(self._table.url)
        self._address = self._table.address
        self._commits = commits_table(self._target.schema)
        self._database.create(self._commits)
        self._database.add_column(self._commits, IDENTITY)
        with self._database.read("looking for the last commit") as connection:
            last = self._last(connection)
            self._check_removed(self._tables(connection), last)
            is_rewind = last is not None and last.checkpoint > context.committed_max
            if last is not None and is_rewind and self._on_rewind == "refuse":
                choices = ", or set on_rewind='allow_duplicates' and accept duplicates"
                raise rewound(f"table {self._target}", context, last.checkpoint, choices)
            if not is_rewind:
                self._check(connection, last)
        if last is None:
            return
        self._rewinds = last.rewinds
        if is_rewind and not context.finalizing:
            last = self._begin_again(last)
        self._remember(last.job, last.checkpoint, last.label)

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """Commits all requests in one transaction.

        Raises:
            CorruptSnapshot: staged rows are missing; nothing was committed.
            ConfigError: the table refuses the rows.
        """
        with self.transaction(f"committing to table {self._target}") as transaction:
            result = self.commit_within(transaction.connection, permit, requests)
        return result()

    @contextmanager
    def transaction(self, doing: str) -> Iterator[SqlTransaction]:
        """See `unistream.port.group.SharesTransaction`."""
        database = self._opened
        with database.write(doing) as connection:
            yield SqlTransaction(database, connection)
            crash_point("sql.before_commit")
        crash_point("sql.committed")

    def group_log(self, group: str) -> SqlGroupLog:
        """See `unistream.port.group.SharesTransaction`."""
        return SqlGroupLog(self._table.url, group)

    def table_version(self) -> TableVersion:
        """See `unistream.port.group.JoinsGroup`: whatever is committed is visible."""
        return TableVersion(kind="sql", address=str(self._target))

    def newest_version(self) -> TableVersion:
        """See `unistream.port.group.JoinsGroup`."""
        return self.table_version()

    def commit_within(
        self, connection: Connection, permit: CommitPermit, requests: Sequence[CommitRequest]
    ) -> Callable[[], CommitResult]:
        """Commits in a transaction of this database; the result, when that is committed. Raises as
        `commit_all`."""
        permit.require(self._context.lineage, max(request.checkpoint_id for request in requests))
        given = {
            request.checkpoint_id: [decode_committable(one) for one in request.committables]
            for request in requests
            if request.committables
        }
        if not given:
            return lambda: CommitResult(CommitOutcome.COMMITTED)
        moved: dict[CheckpointId, int] = {}  # rows
        self._opened.limit(connection, self._table.limit)
        self._opened.lock(connection, self._table.lock)
        identity = self._tables(connection)
        last = self._last(connection) if identity.has_record else None
        self._check_removed(identity, last)
        self._check(connection, last)
        done = 0 if last is None else last.label
        todo = [one for one in sorted(given) if self._label(one) > done]
        if todo and (last is None or last.target != str(self._target)) and self._table.create:
            self._create_target(connection, given[todo[0]])
        for checkpoint_id in todo:
            new = [one for one in given[checkpoint_id] if self._label(one.checkpoint) > done]
            moved[checkpoint_id] = sum(one.rows for one in new)
            self._check_address(new)
            self._move(connection, checkpoint_id, new)
        if todo:
            self._record(connection, permit, todo[-1], identity)
        for parts in given.values():
            self._remove(connection, parts)
        return lambda: self._committed(given, moved)

    def _committed(
        self, given: Mapping[CheckpointId, Sequence[SqlCommittable]], moved: Mapping[CheckpointId, int]
    ) -> CommitResult:
        """The result of a commit, after which a job without checkpoints drops its empty staging tables.
        `moved`: rows of the checkpoints that the transaction has committed."""
        if not self._context.checkpointing:
            for stage in {one.stage for parts in given.values() for one in parts}:
                self._opened.drop_empty(SqlTableName(stage, self._target.schema))
        if moved:
            self._note(max(moved))
        visible = tuple(
            VisibleRows(one, moved.get(one, sum(part.rows for part in given[one])), already=one not in moved)
            for one in sorted(given)
        )
        outcome = CommitOutcome.COMMITTED if moved else CommitOutcome.ALREADY_COMMITTED
        return CommitResult(outcome, rows=sum(moved.values()), visible=visible)

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    @property
    def _opened(self) -> SinkDatabase:
        assert self._database is not None, "open() comes first"
        return self._database

    @property
    def _opened_line(self) -> SinkLine[str]:
        assert self._line is not None, "open() comes first"
        return self._line

    # --- in a transaction ---------------------------------------------------------------------------

    def _last(self, connection: Connection) -> SqlCommitRecord | None:
        """The last commit of this sink."""
        c, context = self._commits.c, self._context
        own = (c.lineage == context.lineage) & (c.sink_uid == context.sink_uid)
        row = connection.execute(select(self._commits).where(own)).one_or_none()
        return None if row is None else recorded(row._mapping)

    def _begin_again(self, last: SqlCommitRecord) -> SqlCommitRecord:
        """Notes an allowed rewind before a checkpoint gets an id that was used before: a job that dies
        between its first new checkpoint and the commit of that would else find it committed."""
        context = self._context
        label = ((last.rewinds + 1) << CHECKPOINT_BITS) | (context.restored or 0)
        with self._opened.write(f"noting the rewind of table {self._target}") as connection:
            self._opened.lock(connection, self._table.lock)
            now = self._last(connection)
            if now != last:
                raise self._opened_line.succeeded(last.job if now is None else now.job)
            self._write_record(
                connection,
                label=label,
                job=context.job,
                snapshot=last.snapshot,
                identity=last.table_identity,
            )
            begun = self._last(connection)
        assert begun is not None, "it was recorded"
        self._rewinds = begun.rewinds
        return begun

    def _check(self, connection: Connection, last: SqlCommitRecord | None) -> None:
        """Raises ConfigError, Fenced: this job may not commit behind `last`."""
        self._opened_line.check(
            None if last is None else last.job,
            0 if last is None else last.checkpoint,
            begins=lambda: self._check_begins(connection),
        )

    def _check_begins(self, connection: Connection) -> None:
        lineage = self._context.lineage
        found = [recorded(row._mapping) for row in connection.execute(select(self._commits))]
        others = [one for one in found if one.target == str(self._target) and one.lineage != lineage]
        if others and self._on_foreign == "refuse":
            raise foreign(f"table {self._target}", others)

    def _tables(self, connection: Connection) -> TableIdentity:
        return tables(self._opened, connection, self._target)

    def _check_removed(self, found: TableIdentity, last: SqlCommitRecord | None) -> None:
        """Raises ConfigError: what the restored checkpoint, or the last commit, knows to be there is not."""
        remembered, where = self._remembered, f"table {self._target}"
        if remembered is not None and remembered.address == self._address:
            done = f"had committed checkpoint {checkpoint_of(remembered.label)}"
            if last is None:
                raise changed_target(where, self._context, done, f"{COMMITS} does not say so any more")
            if last.label < remembered.label:
                now = f"by {COMMITS} the last one is {last.checkpoint}"
                raise changed_target(where, self._context, done, now)
        if last is None or last.target != str(self._target):
            return
        done = f"had committed checkpoint {last.checkpoint}"
        if not found.has_target:
            raise changed_target(where, self._context, done, "there is no such table any more")
        if is_another(last.table_identity, found.identity):
            raise changed_target(where, self._context, done, REPLACED)

    def _check_address(self, parts: Sequence[SqlCommittable]) -> None:
        """Raises ConfigError: rows that were staged for another table are not committed yet."""
        for one in parts if not self._context.finalizing else ():
            if one.table.target != self._target or not self._opened.is_at(one.table.url):
                former = f"table {one.table.target}"
                raise uncommitted_elsewhere(
                    self._context, f"table {self._target}", former, "not committed there yet"
                )

    def _create_target(self, connection: Connection, parts: Sequence[SqlCommittable]) -> None:
        """Creates the target with the columns of the staging table, unless it is there."""
        found = self._opened.columns_in(connection, SqlTableName(parts[0].stage, self._target.schema))
        types = {name: found[name]["type"] for name in parts[0].columns if name in found}
        if types:
            target_table(self._target, types, self._table.key).create(connection, checkfirst=True)

    def _label(self, checkpoint_id: int) -> int:
        return (self._rewinds << CHECKPOINT_BITS) | checkpoint_id

    def _move(self, connection: Connection, checkpoint_id: int, parts: Sequence[SqlCommittable]) -> None:
        for stage, of_stage in _by_stage(parts).items():
            source, is_there = self._stage(of_stage[0]), self._has_stage(connection, stage)
            for committable in of_stage:
                count = count_part(source, committable.part)
                staged_rows = connection.execute(count).scalar_one() if is_there else 0
                if staged_rows != committable.rows:
                    raise CorruptSnapshot(
                        f"table {self._target}: of {committable.rows} rows that subtask "
                        f"{committable.subtask} has staged in {stage} for checkpoint {checkpoint_id}, "
                        f"{staged_rows} are there; some are missing: nothing was committed"
                    )
            columns = of_stage[0].columns
            target = sql_table(
                self._target.name, *map(sql_column, columns), schema=self._target.schema or None
            )
            moved = [one.part for one in of_stage]
            key, has_deletes = self._table.key, of_stage[0].deletes
            forms = key_forms(connection, (self._target, self._opened.quoted_value(self._target)), key)
            if has_deletes:
                gone = remove_deleted(stage=source, target=target, key=key, parts=moved, forms=forms)
                connection.execute(gone)
            connection.execute(
                move(
                    self._opened.dialect,
                    stage=source,
                    target=target,
                    columns=columns,
                    key=key,
                    parts=moved,
                    deletes=has_deletes,
                    forms=forms,
                )
            )

    def _remove(self, connection: Connection, parts: Sequence[SqlCommittable]) -> None:
        """Removes staged rows that are committed, and those that nobody commits any more."""
        is_last = not self._context.checkpointing
        for stage, of_stage in _by_stage(parts).items():
            if not self._has_stage(connection, stage):  # it was empty, and dropped
                continue
            source = self._stage(of_stage[0])
            for one in of_stage:
                connection.execute(remove_part(source, one.part))
            if is_last:
                connection.execute(remove_rivals(source, [one.part for one in of_stage]))
            elif self._opened_line.has_committed and stage not in self._tidied:
                connection.execute(remove_former(source, self._context.job))
                self._tidied.add(stage)

    def _record(
        self, connection: Connection, permit: CommitPermit, checkpoint_id: CheckpointId, before: TableIdentity
    ) -> None:
        """Raises ConfigError: the rows went into another table than was there `before` them: its name was
        looked up again when a transaction that had dropped it let this one go on."""
        job, label = self._opened_line.writer(checkpoint_id), self._label(checkpoint_id)
        now = self._tables(connection)
        if is_another(before.identity, now.identity):
            done = f"was committing checkpoint {checkpoint_id}"
            raise changed_target(f"table {self._target}", self._context, done, REPLACED)
        self._write_record(connection, label=label, job=job, snapshot=permit.snapshot, identity=now.identity)

    def _write_record(
        self, connection: Connection, *, label: int, job: str, snapshot: str, identity: str
    ) -> None:
        values = {
            "lineage": self._context.lineage,
            "sink_uid": self._context.sink_uid,
            "target": str(self._target),
            "label": label,
            "job": job,
            "snapshot": snapshot,
            "at_ms": int(time.time() * 1000),
            IDENTITY: identity,
        }
        connection.execute(record(self._opened.dialect, self._commits, values))

    def _note(self, checkpoint_id: CheckpointId) -> None:
        self._opened_line.committed(checkpoint_id)
        job = self._opened_line.writer(checkpoint_id)
        self._remember(job, checkpoint_id, self._label(checkpoint_id))

    def _remember(self, job: str, checkpoint: int, label: int) -> None:
        followed = self._opened_line.remembered(job, checkpoint)
        self._remembered = SqlCommitterState(
            job=followed.job, until=followed.until, address=self._address, label=label
        )

    def _has_stage(self, connection: Connection, stage: str) -> bool:
        return self._opened.has_table(connection, SqlTableName(stage, self._target.schema))

    def _stage(self, one: SqlCommittable) -> Any:
        """The staging table of a committable."""
        names = (*OURS, *one.columns, *((DELETED,) if one.deletes else ()))
        columns = [sql_column(name, Boolean if name == DELETED else None) for name in names]
        return sql_table(one.stage, *columns, schema=self._target.schema or None)


def committer_of(committables: Sequence[bytes]) -> SqlCommitter:
    """The committer for committables of a snapshot, see `unistream.connector.catalogue`. The URL is that
    of the snapshot, which has no password, or in the environment (`ENVIRONMENT`).

    Raises:
        CorruptSnapshot: a committable cannot be read.
        ConfigError: the URL is wrong, or refers to a variable that is not set.
    """
    table = decode_committable(committables[0]).table
    url = os.environ.get(ENVIRONMENT)
    return SqlCommitter(table if url is None else msgspec.structs.replace(table, url=url))


def _by_stage(parts: Sequence[SqlCommittable]) -> dict[str, list[SqlCommittable]]:
    found: dict[str, list[SqlCommittable]] = {}
    for one in parts:
        found.setdefault(one.stage, []).append(one)
    return found
