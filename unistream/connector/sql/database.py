"""Connections of a SQL sink, and what the errors of a database mean for a job."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa

# A thread that imports the mapper of SQLAlchemy, as pyiceberg does in the middle of a job, breaks
# `bindparam` in all other threads until it is whole. An import waits for one that is under way.
import sqlalchemy.orm  # noqa: F401
from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    Table,
    column,
    create_engine,
    event,
    func,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy import table as sql_table
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
)

from unistream.base.errors import ConfigError, OutcomeUnknown, UnistreamError, Unreachable
from unistream.base.extras import require
from unistream.base.secrets import IN_QUERY, Secret, resolved
from unistream.connector.common import sqlstate
from unistream.connector.sql.columns import csv_pieces, python_rows
from unistream.connector.sql.failures import LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_MS, Limit, failure
from unistream.connector.sql.sqlite_indexes import unique_indexes
from unistream.connector.sql.statements import SqlTableName
from unistream.model.lineage import LineageDataset

_LOG: Final = logging.getLogger(__name__)
DIALECTS: Final = ("postgresql", "sqlite")
SINK: Final = "SQL sink"
NAMES: Final = {"mysql": "MySQL", "mariadb": "MariaDB", "mssql": "SQL Server"}
CONNECT_TIMEOUT_S: Final = 10
SILENT_TIMEOUT_MS: Final = 30_000  # of a server that no longer acknowledges what is sent
KEEPALIVES: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""The settings that end the wait for a server that is gone while a statement runs: its own limit would not do
so."""
LIMIT: Final = "unistream limit"  # of the transaction, in `Connection.info`
HOLDERS: Final = text("""
SELECT DISTINCT a.pid, coalesce(nullif(a.application_name, ''), 'unknown program'), a.usename,
    coalesce(a.state, 'unknown state')
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid <> pg_backend_pid() AND l.mode <> 'AccessShareLock'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (l.relation = to_regclass(:target)::oid
        OR (l.locktype = 'advisory' AND l.objid::bigint = (hashtext(:lock)::bigint & 4294967295)))
ORDER BY 1 LIMIT 5
""")
STRICT_SINCE: Final = (3, 37)
_STRICT: Final = text("SELECT strict FROM pragma_table_list(:name) WHERE schema = :schema")
CREATED_TWICE: Final = ("42P07", "23505")  # PostgreSQL: two writers create one table at once


def _is_partial(index: Any) -> bool:
    """Whether an index has some rows only: no row is found by it."""
    return index.get("dialect_options", {}).get("postgresql_where") is not None


def parsed(url: str | Secret, of: str = SINK) -> URL:
    """Reads a URL. `of`: what has the URL, for the sentence.

    Raises:
        ConfigError: no SQLAlchemy URL of a supported database; its text has no password.
    """
    try:
        parsed_url = make_url(resolved(f"url of the {of}", url))
        dialect = parsed_url.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        raise ConfigError(
            f"{of}: url is not a SQLAlchemy URL, such as postgresql+psycopg://user@host/database or "
            "sqlite:////data/orders.db"
        ) from None
    if dialect not in DIALECTS:
        raise ConfigError(f"{of}: {not_tried(dialect)}")
    if IN_QUERY & parsed_url.query.keys():
        raise ConfigError(
            f"{of}: a password behind the '?' of a url would be shown; write postgresql+psycopg://user:password@…"
        )
    if dialect == "sqlite" and parsed_url.database in (None, "", ":memory:"):
        raise ConfigError(f"{of}: SQLite needs a file, such as sqlite:////data/orders.db")
    return parsed_url


def not_tried(dialect: str) -> str:
    """Why a database is refused.

    >>> not_tried("oracle")
    "it is for PostgreSQL and SQLite; with 'oracle' its promise was not tried"
    """
    name = NAMES.get(dialect, repr(dialect))
    return f"it is for PostgreSQL and SQLite; with {name} its promise was not tried"


def dataset_of(where: URL, target: SqlTableName) -> LineageDataset:
    """A table, for catalogues: a sink and a source of one table have the same."""
    if where.get_backend_name() == "sqlite":
        return LineageDataset("file", f"{where.database}/{target}", "sqlite")
    namespace = f"postgres://{where.host}:{where.port or 5432}"
    return LineageDataset(namespace, f"{where.database}.{target.schema or 'public'}.{target.name}")


class SinkDatabase:
    """The connections of one sink, which one thread uses. The caller closes it."""

    def __init__(self, url: str | Secret) -> None:
        where = parsed(url)
        self.dialect = where.get_backend_name()
        self.where = where.render_as_string(hide_password=True)
        self._place = where.host, where.port, where.database
        self._engine = _engine(where)

    def close(self) -> None:
        self._engine.dispose()

    def is_at(self, url: str | Secret) -> bool:
        """Whether a URL is of this database, of whatever user."""
        other = parsed(url)
        return (other.host, other.port, other.database) == self._place

    @contextmanager
    def write(self, doing: str) -> Iterator[Connection]:
        """Opens a connection, and one transaction on it.

        Raises:
            ConfigError: the database refuses what is to be written.
            Unreachable: it does not answer, or another writer has the table for too long; nothing is written.
            OutcomeUnknown: the connection was lost while the transaction was being committed.
        """
        connection = self.connected(doing)
        notes, committing = connection.info, False
        notes.pop(LIMIT, None)  # of a former transaction
        try:
            with connection, connection.begin() as transaction:
                yield connection
                committing = True
                transaction.commit()
        except DBAPIError as error:
            found = self.our_error(error, doing, notes.get(LIMIT))
            if committing and isinstance(found, Unreachable):
                raise OutcomeUnknown(str(found)) from error
            raise found from error

    @contextmanager
    def read(self, doing: str) -> Iterator[Connection]:
        connection = self.connected(doing)
        try:
            with connection:
                yield connection
        except DBAPIError as error:
            raise self.our_error(error, doing) from error

    def connected(self, doing: str) -> Connection:
        """Opens a connection for a caller that closes it. Raises ConfigError, Unreachable."""
        try:
            return self._engine.connect()
        except DBAPIError as error:
            raise self.our_error(error, doing) from error

    def create(self, table: Table) -> None:
        """Creates a table if it is not there. Two that do it at once both find it."""
        doing = f"creating table {table.name!r}"
        connection = self.connected(doing)
        try:
            with connection, connection.begin():
                table.create(connection, checkfirst=True)
        except DBAPIError as error:
            if sqlstate(error.orig or error) not in CREATED_TWICE and "already exists" not in str(error.orig):
                raise self.our_error(error, doing) from error

    def add_column(self, table: Table, name: str) -> None:
        """Adds a column if a table that is there does not have it: a former version has made it."""
        doing = f"adding column {name!r} to table {table.name!r}"
        target = SqlTableName(table.name, table.schema or "")
        if name in self.columns(target):
            return
        quote = self._engine.dialect.identifier_preparer
        kind = table.c[name].type.compile(self._engine.dialect)
        with self.write(doing) as connection:
            self.lock(connection, f"unistream {table.name}")
            if name not in self.columns_in(connection, target):
                added = f"ADD COLUMN {quote.quote(name)} {kind}"
                connection.exec_driver_sql(f"ALTER TABLE {quote.format_table(table)} {added}")

    def lock(self, connection: Connection, name: str) -> None:
        """Takes the lock of that name, which no other transaction has until this one ends. SQLite has one for
        all."""
        if self.dialect == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))

    def columns(self, target: SqlTableName) -> dict[str, dict[str, Any]]:
        """The columns of a table, by name; empty: there is none."""
        with self.read(f"looking at table {target}") as connection:
            return self.columns_in(connection, target)

    def is_strict(self, target: SqlTableName) -> bool | None:
        """Whether a table of SQLite is a STRICT one; None: PostgreSQL."""
        if self.dialect != "sqlite":
            return None
        if sqlite3.sqlite_version_info < STRICT_SINCE:
            return False
        with self.read(f"looking at table {target}") as connection:
            names = {"name": target.name, "schema": target.schema or "main"}
            return bool(connection.execute(_STRICT, names).scalar())

    def has_table(self, connection: Connection, target: SqlTableName) -> bool:
        return bool(inspect(connection).has_table(target.name, schema=target.schema or None))

    def drop_empty(self, target: SqlTableName) -> None:
        """Drops a table if it is empty and nobody has to be waited for: one that stays is in nobody's way."""
        name = self.quoted(target)
        try:
            with self._engine.connect() as connection, connection.begin():
                if not self.has_table(connection, target):
                    return
                if self.dialect == "postgresql":
                    connection.exec_driver_sql(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE NOWAIT")
                table = Table(target.name, MetaData(), schema=target.schema or None)
                if connection.execute(select(literal(1)).select_from(table).limit(1)).first() is None:
                    connection.exec_driver_sql(f"DROP TABLE {name}")
        except DBAPIError as error:
            _LOG.info("event=staging_table_stays table=%s reason=%s", name, error.orig)

    def columns_in(self, connection: Connection, target: SqlTableName) -> dict[str, dict[str, Any]]:
        """The columns of a table, as `columns`, in a transaction of the caller."""
        found, schema = inspect(connection), target.schema or None
        if not found.has_table(target.name, schema=schema):
            return {}
        return {one["name"]: dict(one) for one in found.get_columns(target.name, schema=schema)}

    def rows(self, target: SqlTableName) -> pa.Table | None:
        """All rows of a table, as Python's values; None: there is no table."""
        with self.read(f"reading table {target}") as connection:
            found = self.columns_in(connection, target)
            if not found:
                return None
            columns = [column(name, one["type"]) for name, one in found.items()]
            rows = connection.execute(
                select(*columns).select_from(sql_table(target.name, schema=target.schema or None))
            ).all()
        values = zip(*rows, strict=True) if rows else ([] for _ in found)
        return pa.table([pa.array(list(one)) for one in values], names=list(found))

    def keys(self, target: SqlTableName) -> list[set[str]]:
        """The primary key of a table and what is unique in all its rows, as sets of columns."""
        with self.read(f"looking at the keys of table {target}") as connection:
            found, schema = inspect(connection), target.schema or None
            primary = found.get_pk_constraint(target.name, schema=schema)["constrained_columns"]
            if self.dialect == "sqlite":
                unique: list[Any] = [columns for _, _, columns in unique_indexes(connection, target)]
            else:
                constraints = found.get_unique_constraints(target.name, schema=schema)
                indexes = found.get_indexes(target.name, schema=schema)
                whole = [one for one in indexes if one["unique"] and not _is_partial(one)]
                unique = [one["column_names"] for one in (*constraints, *whole)]
        return [set(columns) for columns in (primary, *unique) if columns]

    def append(
        self, connection: Connection, table: Table, before: Sequence[Any], rows: pa.RecordBatch
    ) -> None:
        """Rows into a table, in the order of its columns: the values `before`, of which the last one grows by
        one from row to row, and then those of the rows."""
        first, numbers = before[-1], rows.num_rows
        fixed = [pa.repeat(value, numbers) for value in before[:-1]]
        places = pa.array(np.arange(first, first + numbers, dtype=np.int64))
        names = [column.name for column in table.columns]
        self.copy(connection, table, pa.RecordBatch.from_arrays([*fixed, places, *rows.columns], names=names))

    def copy(self, connection: Connection, table: Table, whole: pa.RecordBatch) -> None:
        """Rows into the columns of a table that have their names."""
        names = whole.schema.names
        name = self._engine.dialect.identifier_preparer.format_table(table)
        listed = ", ".join(map(self.quote, names))
        if self.dialect == "sqlite":
            marks = ", ".join("?" * len(names))
            connection.exec_driver_sql(f"INSERT INTO {name} ({listed}) VALUES ({marks})", python_rows(whole))  # noqa: S608  (quoted)
            return
        cursor = connection.connection.cursor()
        statement = self._plain(f"COPY {name} ({listed}) FROM STDIN WITH (FORMAT csv)")
        with of_driver(connection), cursor.copy(statement) as copy:
            for piece in csv_pieces(whole):
                copy.write(piece)

    def our_error(self, error: DBAPIError, doing: str, limit: Limit | None = None) -> UnistreamError:
        return failure(error, where=self.where, doing=doing, limit=limit, holders=self._holders)

    def limit(self, connection: Connection, limit: Limit) -> None:
        """Sets how long each statement of the transaction may take from now on. SQLite has no such limit."""
        connection.info[LIMIT] = limit
        if self.dialect == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(limit.ms)}")
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(limit.lock_ms)}")

    def _holders(self, limit: Limit) -> list[str]:
        """Sessions that have locks of its table, for people; none if the database does not say."""
        names = {"target": self.quoted_value(limit.target), "lock": limit.lock}
        try:
            with self._engine.connect() as connection:
                found = [tuple(row) for row in connection.execute(HOLDERS, names)]
        except DBAPIError:
            return []
        return [f"process {pid} ({program}, user {user}, {state})" for pid, program, user, state in found]

    def quote(self, name: str) -> str:
        """The name of a column in a statement."""
        return self._engine.dialect.identifier_preparer.quote(name)

    def quoted(self, target: SqlTableName) -> str:
        """The name of a table in a statement."""
        table = Table(target.name, MetaData(), schema=target.schema or None)
        return self._engine.dialect.identifier_preparer.format_table(table)

    def quoted_value(self, target: SqlTableName) -> str:
        """The quoted name as a value of a parameter, such as that of `to_regclass`."""
        return self._plain(self.quoted(target))

    def literal(self, value: str) -> str:
        """A text as a literal in a statement."""
        return self.in_statement("'" + value.replace("'", "''") + "'")

    def in_statement(self, sql: str) -> str:
        """What the database itself has quoted."""
        return sql.replace("%", "%%") if self._doubles_percents else sql

    @property
    def _doubles_percents(self) -> bool:
        """Whether the driver reads a percent sign in a statement as the beginning of a parameter."""
        return self.dialect == "postgresql"

    def _plain(self, statement: str) -> str:
        """The statement for the driver itself, which is given no parameters, and reads nothing in it."""
        return statement.replace("%%", "%") if self._doubles_percents else statement


@contextmanager
def of_driver(connection: Connection) -> Iterator[None]:
    """Errors of the driver, where it is used without SQLAlchemy, as those of SQLAlchemy: so that `failure`
    says what they mean, as of any other statement."""
    dialect = connection.dialect
    assert dialect.dbapi is not None, "there is a connection"
    base = dialect.dbapi.Error
    try:
        yield
    except base as error:
        raise DBAPIError.instance("", None, error, base, dialect=dialect) from error


def _engine(where: URL) -> Engine:
    if where.get_backend_name() == "sqlite":
        engine = create_engine(where, connect_args={"timeout": LOCK_TIMEOUT_MS / 1000})
        event.listen(engine, "connect", _without_own_transactions)
        event.listen(engine, "begin", _begin_immediate)
        return engine
    return postgres_engine(where, "a SQL sink to PostgreSQL")


def postgres_engine(
    where: URL, what: str, *, statement_ms: int = STATEMENT_TIMEOUT_MS, settings: str = ""
) -> Engine:
    """An engine for PostgreSQL. `what`: who needs psycopg. `settings`: further ones of its sessions, such as
    ``-c NAME=VALUE``."""
    require("postgres", what)
    # a time without a zone in a column with one, and the reverse, must not depend on the server's zone
    limits = f"-c statement_timeout={statement_ms} -c lock_timeout={LOCK_TIMEOUT_MS}"
    return create_engine(
        where,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "tcp_user_timeout": SILENT_TIMEOUT_MS,
            **KEEPALIVES,
            "options": f"{limits} -c timezone=UTC {settings}".rstrip(),
            "application_name": "unistream",
            "prepare_threshold": None,  # a prepared `SELECT *` is refused when the table has a column more
        },
        pool_pre_ping=True,
    )


def _without_own_transactions(connection: sqlite3.Connection, _record: object) -> None:
    """The driver would begin one by itself, after reads, and find the database locked then."""
    connection.isolation_level = None


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
