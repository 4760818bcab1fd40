"""The log of a commit group as a table of the database that its members write.

unistream_groups     one row for each record: group, number, record (JSON)
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text, insert, select
from sqlalchemy import delete as sql_delete

from unistream.base.secrets import Secret
from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.statements import SqlTableName
from unistream.port.group import RECORDS_KEPT, GroupCommit, decode_record

GROUPS: Final = "unistream_groups"
_TABLE: Final = Table(
    GROUPS,
    MetaData(),
    Column("group_name", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False),
)


class LogInTransaction:
    """See `unistream.port.group.GroupLog`. Nobody else writes to it until the transaction ends."""

    def __init__(self, database: SinkDatabase, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        if not database.columns_in(connection, SqlTableName(GROUPS)):
            database.lock(connection, f"unistream {GROUPS}")
            _TABLE.create(connection, checkfirst=True)
        database.lock(connection, f"unistream group {group}")

    def newest(self) -> GroupCommit | None:
        return _newest(self._connection, self._group)

    def append(self, record: GroupCommit) -> bool:
        values = {
            "group_name": record.group,
            "number": record.number,
            "record": msgspec.json.encode(record).decode(),
        }
        self._connection.execute(insert(_TABLE).values(**values))
        c = _TABLE.c
        former = (c.group_name == record.group) & (c.number <= record.number - RECORDS_KEPT)
        self._connection.execute(sql_delete(_TABLE).where(former))
        return True

    def close(self) -> None:
        """The transaction is its owner's."""


class SqlGroupLog:
    """See `unistream.port.group.GroupLog`: a transaction for each call."""

    def __init__(self, url: str | Secret, group: str) -> None:
        self._database = SinkDatabase(url)
        self._group = group

    def newest(self) -> GroupCommit | None:
        if not self._database.columns(SqlTableName(GROUPS)):
            return None
        with self._database.read(f"reading the log of commit group {self._group!r}") as connection:
            return _newest(connection, self._group)

    def append(self, record: GroupCommit) -> bool:
        with self._database.write(f"recording commit group {self._group!r}") as connection:
            log = LogInTransaction(self._database, connection, self._group)
            newest = log.newest()
            return (0 if newest is None else newest.number) < record.number and log.append(record)

    def close(self) -> None:
        self._database.close()


def _newest(connection: Connection, group: str) -> GroupCommit | None:
    c = _TABLE.c
    found: Any = select(c.record).where(c.group_name == group).order_by(c.number.desc()).limit(1)
    record = connection.execute(found).scalar_one_or_none()
    return None if record is None else decode_record(record, f"of {group!r} in {GROUPS}")
