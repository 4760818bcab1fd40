"""Which line of jobs writes a table: its records of commits, see `unistream.port.line`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import select

from unistream.base.errors import ConfigError
from unistream.base.secrets import Secret
from unistream.connector.common import kept_snapshot
from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.statements import IDENTITY, SqlTableName, commits_table
from unistream.port.line import LineCommit, foreign_line

CHECKPOINT_BITS: Final = 40


class SqlCommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of a sink. `label`: the number of rewinds that were allowed, and of the checkpoint.
    `table_identity`: see `identity`; "": not recorded."""

    lineage: str
    sink_uid: str
    target: str
    label: int
    job: str
    snapshot: str
    table_identity: str = ""

    @property
    def checkpoint(self) -> int:
        return checkpoint_of(self.label)

    @property
    def rewinds(self) -> int:
        return self.label >> CHECKPOINT_BITS


def last_commit(url: str | Secret, target: SqlTableName, sink_uid: str) -> LineCommit | None:
    """See `unistream.port.line.KeepsLine`."""
    found = [one for one in records(url, target) if one.sink_uid == sink_uid]
    if not found:
        return None
    last = found[-1]
    return LineCommit(lineage=last.lineage, job=last.job, checkpoint=last.checkpoint, snapshot=last.snapshot)


def check_no_other(url: str | Secret, target: SqlTableName, lineage: str) -> None:
    """Raises ConfigError: another line than `lineage` ("": any) writes the table."""
    others = [one for one in records(url, target) if one.lineage != lineage]
    if others:
        raise foreign(f"table {target}", others)


def records(url: str | Secret, target: SqlTableName) -> list[SqlCommitRecord]:
    """Commits to the table, the oldest first."""
    database = SinkDatabase(url)
    try:
        commits = commits_table(target.schema)
        there = database.columns(SqlTableName(commits.name, target.schema))
        if not there:
            return []
        columns = [column for column in commits.c if column.name in there]
        with database.read("looking for the last commit") as connection:
            rows = connection.execute(select(*columns).order_by(commits.c.at_ms))
            found = [recorded(row._mapping) for row in rows]
    finally:
        database.close()
    return [one for one in found if one.target == str(target)]


def foreign(where: str, others: Sequence[SqlCommitRecord]) -> ConfigError:
    last = others[-1]
    return foreign_line(
        where, writer=last.job, checkpoint=str(last.checkpoint), snapshot=kept_snapshot(last.snapshot)
    )


def checkpoint_of(label: int) -> int:
    return label & ((1 << CHECKPOINT_BITS) - 1)


def recorded(row: Any) -> SqlCommitRecord:
    values: dict[str, Any] = {name: row.get(name) for name in SqlCommitRecord.__struct_fields__}
    return SqlCommitRecord(**{**values, IDENTITY: values[IDENTITY] or ""})
