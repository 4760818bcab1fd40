"""Which table a sink has committed to: one that is dropped and made again under the same name is another.

PostgreSQL gives every table a number (oid). Recorded with each commit are those of the target and of the
table of records: if both are others, the database was copied or put back from a dump as a whole, and the
record is right about the target that came with it. SQLite has no such numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, text

from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.statements import COMMITS, SqlTableName


class TableIdentity(NamedTuple):
    """What is there. `identity`: of both, as it is recorded; "": there is none."""

    has_target: bool
    has_record: bool
    identity: str


def tables(database: SinkDatabase, connection: Connection, target: SqlTableName) -> TableIdentity:
    """Looks up both tables as the transaction sees them now."""
    record = SqlTableName(COMMITS, target.schema)
    if database.dialect != "postgresql":
        has_target, has_record = (bool(database.columns_in(connection, one)) for one in (target, record))
        return TableIdentity(has_target, has_record, "")
    names = {"target": database.quoted_value(target), "record": database.quoted_value(record)}
    ask = text("SELECT to_regclass(:target)::oid::bigint, to_regclass(:record)::oid::bigint")
    of_target, of_record = connection.execute(ask, names).one()
    identity = "" if of_target is None or of_record is None else f"{of_record}/{of_target}"
    return TableIdentity(of_target is not None, of_record is not None, identity)


def is_another(recorded: str, found: str) -> bool:
    """Whether the target was replaced, and the table of records was not.

    >>> is_another("10/20", "10/21"), is_another("10/20", "11/21"), is_another("", "10/21")
    (True, False, False)
    """
    (record, _, target), (record_now, _, target_now) = recorded.partition("/"), found.partition("/")
    return bool(target and target_now) and record == record_now and target != target_now
