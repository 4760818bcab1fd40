"""A table as a sink, exactly once.

SqlSink("postgresql+psycopg://flights@localhost/lake", "delays", mode="upsert", key="carrier")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from unistream.base.config import DurationLike, duration_ms
from unistream.base.errors import ConfigError
from unistream.base.references import has_reference
from unistream.base.secrets import Secret
from unistream.connector.common import KeyedSink, OnRewind, check_condition, checked_upsert
from unistream.connector.sql.columns import sql_type
from unistream.connector.sql.committer import SqlCommitter
from unistream.connector.sql.database import SinkDatabase, dataset_of, parsed
from unistream.connector.sql.fitting import check_types
from unistream.connector.sql.group_log import GROUPS
from unistream.connector.sql.line import check_no_other, last_commit
from unistream.connector.sql.names import check_names
from unistream.connector.sql.questions import BAD, IN, ROWS, SEEN
from unistream.connector.sql.row_check import SqlRowCheck
from unistream.connector.sql.stage import SqlTable
from unistream.connector.sql.statements import DELETED, OURS, OWN_BEGIN, STAGE_BEGIN, SqlTableName
from unistream.connector.sql.trial import explain_commit
from unistream.connector.sql.writer import SqlWriter
from unistream.model.expression import Expression, as_arrow
from unistream.model.lineage import LineageDataset
from unistream.port.line import LineCommit, OnForeign
from unistream.port.sink import Committer, RowCheck, SinkWriter

Mode: TypeAlias = Literal["append", "upsert"]
MODES: Final[tuple[Mode, ...]] = ("append", "upsert")
OWN_TABLES: Final = (GROUPS, IN, ROWS, SEEN, BAD)
BATCH_ROWS: Final = 20_000
COMMIT_TIMEOUT: Final = "120 s"
COMMIT_TIMEOUT_MS_MAX: Final = 2**31 - 1  # of PostgreSQL


class SqlSink(KeyedSink):
    """Writes rows to a table of PostgreSQL or SQLite. Readers see the rows of a checkpoint at once, when it
    is complete.

    Args:
        url: Of SQLAlchemy, such as ``postgresql+psycopg://user@host/database`` or
            ``sqlite:////data/orders.db``. One with a password should be a reference to the whole of it,
            ``${env:DATABASE_URL}``, or a `Secret`.
        table: ``name`` or ``schema.name``.
        mode: "append" adds rows; "upsert" replaces the row of the same key, by the last one of a checkpoint.
        key: Column, or columns, of the key; they are the primary key, or unique. With "upsert".
        delete_when: With "upsert": an expression over the columns; rows for which it holds remove the row of
            their key, and are not written.
        create: The table is made if it is not there, with the columns of the rows, and `key` as primary key.
        batch_rows: Rows that are sent to the database together.
        commit_timeout: How long a statement of a commit may take in PostgreSQL, such as the one that moves
            the rows of a checkpoint into the table; what takes longer is given up, and tried again when the
            job restarts.
        on_rewind: If the job is restored from a checkpoint older than the table's last: "refuse" to start, or
            "allow_duplicates" (of rows that are appended).
        on_foreign: If another line of jobs writes the table (this job was not started from a snapshot of it):
            "refuse" to start, or "append" to it.

    Raises:
        ConfigError: an argument is wrong.

    >>> sink = SqlSink("sqlite:////tmp/delays.db", "delays", mode="upsert", key="carrier")
    >>> sink.name
    'SQL: delays'
    """

    def __init__(
        self,
        url: str | Secret,
        table: str,
        *,
        mode: Mode = "append",
        key: str | Sequence[str] = (),
        delete_when: Expression | None = None,
        create: bool = True,
        batch_rows: int = BATCH_ROWS,
        commit_timeout: DurationLike = COMMIT_TIMEOUT,
        on_rewind: OnRewind = "refuse",
        on_foreign: OnForeign = "refuse",
    ) -> None:
        super().__init__(
            checked_upsert("a SQL sink", mode, MODES, key, delete_when),
            on_rewind=on_rewind,
            on_foreign=on_foreign,
        )
        self._delete_when = as_arrow(delete_when)
        if batch_rows < 1:
            raise ConfigError(f"SQL sink: batch_rows must be at least 1, not {batch_rows}")
        schema, dot, name = table.rpartition(".")
        if dot and not (schema and name):
            raise ConfigError(f"SQL sink: table is 'name' or 'schema.name', not {table!r}")
        if not name or name.startswith((STAGE_BEGIN, "unistream_sink_")) or name in OWN_TABLES:
            raise ConfigError(f"SQL sink: {table!r} is not the name of a table of yours")
        if isinstance(url, str) and "${" not in url:
            parsed(url)
        self._url = url
        self._target = SqlTableName(name, schema)
        self._table = SqlTable(
            url=url,
            target=self._target,
            key=self.row_key,
            create=create,
            commit_timeout_ms=_checked_timeout(commit_timeout),
        )
        self._batch_rows = batch_rows

    def __repr__(self) -> str:
        return f"SqlSink(table={str(self._target)!r})"

    @property
    def name(self) -> str:
        return f"SQL: {self._target}"

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        if isinstance(self._url, Secret) or has_reference(self._url):
            return []
        return [dataset_of(parsed(self._url), self._target)]

    def check(self, schema: pa.Schema | None) -> None:
        """Asks the database; writes nothing.

        Raises:
            ConfigError: the table is not there, or has no such column or key; or a column cannot be in one.
            Unreachable: the database does not answer.
        """
        if schema is not None:
            self._check_columns(schema)
        database = SinkDatabase(self._url)
        try:
            check_names(database.dialect, self._target, () if schema is None else schema.names)
            found = database.columns(self._target)
            if found:
                self._check_table(database, found, schema)
            elif not self._table.create:
                raise ConfigError(f"SQL sink: table {self._target} does not exist at {database.where}")
        finally:
            database.close()

    def _check_table(
        self, database: SinkDatabase, found: Mapping[str, Any], schema: pa.Schema | None
    ) -> None:
        """Checks that a table takes such rows. `found`: its columns. Raises ConfigError: it does not."""
        missing = [name for name in (schema.names if schema is not None else ()) if name not in found]
        if missing:
            raise ConfigError(
                f"SQL sink: table {self._target} has no column {missing[0]!r}; it has {', '.join(found)}"
            )
        if self.row_key and set(self.row_key) not in database.keys(self._target):
            raise ConfigError(
                f"SQL sink: table {self._target} has no primary key or unique constraint of "
                f"{', '.join(self.row_key)}, by which mode='upsert' finds rows"
            )
        if schema is not None:
            check_types(self._target, schema, found, strict=database.is_strict(self._target))
            explain_commit(database, self._target, schema, self.row_key)

    def _check_columns(self, schema: pa.Schema) -> None:
        for name in self.row_key:
            if name not in schema.names:
                raise ConfigError(f"SQL sink: there is no column {name!r} among {', '.join(schema.names)}")
        for field in schema:
            if field.name in (*OURS, DELETED) or field.name.startswith(OWN_BEGIN):
                raise ConfigError(
                    f"SQL sink: a column cannot be called {field.name!r}: the sink has one of its own"
                )
            sql_type(field.name, field.type)
        check_condition(self._delete_when, schema)

    @property
    def replaces_rows(self) -> bool:
        """See `unistream.port.sink.ReplacesRows`."""
        return bool(self.row_key)

    def check_new_line(self, lineage: str = "") -> None:
        """See `unistream.port.line.KeepsLine`."""
        if self._on_foreign == "refuse":
            check_no_other(self._url, self._target, lineage)

    def last_commit(self, sink_uid: str) -> LineCommit | None:
        """See `unistream.port.line.KeepsLine`."""
        return last_commit(self._url, self._target, sink_uid)

    def letters(self) -> pa.Table:
        """See `unistream.port.dead_letters.KeepsLetters`."""
        database = SinkDatabase(self._url)
        try:
            found = database.rows(self._target)
            if found is None:
                raise ConfigError(f"table {self._target} does not exist at {database.where}")
            return found
        finally:
            database.close()

    def letters_folder(self) -> str | None:
        """See `unistream.port.dead_letters.KeepsLetters`: a database has no folders."""
        return None

    def create_row_check(self) -> RowCheck:
        """See `unistream.port.sink.ChecksRows`."""
        return SqlRowCheck(self._table, self._delete_when)

    def create_writer(self) -> SinkWriter:
        return SqlWriter(self._table, self._batch_rows, self._delete_when)

    def create_committer(self) -> Committer | None:
        return SqlCommitter(self._table, on_rewind=self._on_rewind, on_foreign=self._on_foreign)


def _checked_timeout(commit_timeout: DurationLike) -> int:
    """The argument `commit_timeout` in ms. Raises ConfigError: it is not in the range that a database
    takes."""
    found = duration_ms(commit_timeout)
    if not 0 < found <= COMMIT_TIMEOUT_MS_MAX:
        raise ConfigError(f"SQL sink: commit_timeout is from 1 ms to 24 days, not {commit_timeout!r}")
    return found
