"""What a SQL sink has staged, as a committable, and the table that it is for."""

from __future__ import annotations

import msgspec

from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.base.references import is_reference
from unistream.base.secrets import Secret
from unistream.connector.sql.database import parsed
from unistream.connector.sql.failures import STATEMENT_TIMEOUT_MS, Limit
from unistream.connector.sql.statements import SqlStagedRows, SqlTableName


class SqlTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer and a committer know of the table.

    Attributes:
        url: Of the database.
        target: The table.
        key: With which rows replace each other; empty: they are appended.
        create: The first commit makes the table, if it is not there.
        commit_timeout_ms: How long a statement of a commit may take.
    """

    url: str | Secret
    target: SqlTableName
    key: tuple[str, ...] = ()
    create: bool = True
    commit_timeout_ms: int = STATEMENT_TIMEOUT_MS

    @property
    def limit(self) -> Limit:
        """The limit of the statements of a commit."""
        return Limit(self.target, self.lock, self.commit_timeout_ms)

    @property
    def lock(self) -> str:
        """The name of the lock that a commit has."""
        return f"unistream {self.target}"

    @property
    def address(self) -> str:
        """The address of the table, for people, and to see whether two are the same."""
        return f"{parsed(self.url).render_as_string(hide_password=True)}, table {self.target}"

    def without_password(self) -> SqlTable:
        """The table as it is stored: the URL as a reference, or without what must not be read."""
        if isinstance(self.url, str) and is_reference(self.url):
            return self
        url = parsed(self.url)._replace(password=None)
        return msgspec.structs.replace(self, url=url.render_as_string(hide_password=False))


class SqlCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """Staged rows of one checkpoint of one subtask.

    Attributes:
        table: Without password.
        stage: The staging table.
        columns: Of the rows, in order.
        checkpoint: With which they were prepared. A snapshot may list those of several: another job that was
            started from an earlier one of them may have committed some.
        deletes: The staging table has a column that says which rows delete that of their key.
    """

    table: SqlTable
    stage: str
    columns: tuple[str, ...]
    subtask: int
    label: int
    attempt: str
    checkpoint: int
    rows: int
    deletes: bool = False
    format: int = 1

    @property
    def part(self) -> SqlStagedRows:
        return SqlStagedRows(self.subtask, self.label, self.attempt)

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


def decode_committable(payload: bytes) -> SqlCommittable:
    """Reads a stored committable. Raises CorruptSnapshot: it is unreadable."""
    try:
        found = msgspec.json.decode(payload, type=SqlCommittable)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"a committable of a SQL sink cannot be read: {error}") from error
    if found.format != 1:
        raise CorruptSnapshot(f"a committable of a SQL sink has format {found.format}, this version reads 1")
    return found
