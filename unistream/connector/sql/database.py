"""Connections of a SQL sink, and what the errors of a database mean for a job."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, Engine, Table, create_engine, event, func, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    ProgrammingError,
)

from unistream.base.errors import ConfigError, OutcomeUnknown, UnistreamError, Unreachable
from unistream.base.extras import require
from unistream.base.secrets import Secret, resolved
from unistream.connector.common import remedy, sqlite_code, sqlstate
from unistream.connector.sql.columns import csv_pieces, python_rows
from unistream.connector.sql.statements import Target

DIALECTS: Final = ("postgresql", "sqlite")
CONNECT_TIMEOUT_S: Final = 10
STATEMENT_TIMEOUT_MS: Final = 120_000  # PostgreSQL: a commit that takes longer is given up
LOCK_TIMEOUT_MS: Final = 30_000  # of both: longest wait for another writer
SILENT_TIMEOUT_MS: Final = 30_000  # of a server that no longer acknowledges what is sent
SQLITE_ERROR: Final = sqlite3.SQLITE_ERROR  # a statement that does not fit the tables that are there
CREATED_TWICE: Final = ("42P07", "23505")  # PostgreSQL: two writers create one table at once


def parsed(url: str | Secret) -> URL:
    """Raises ConfigError: no SQLAlchemy URL of a supported database; its text has no password."""
    try:
        found = make_url(resolved("url of the SQL sink", url))
        dialect = found.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        raise ConfigError(
            "SQL sink: url is not a SQLAlchemy URL, such as postgresql+psycopg://user@host/database or "
            "sqlite:////data/orders.db"
        ) from None
    if dialect not in DIALECTS:
        raise ConfigError(f"SQL sink: {dialect!r} is not one of {', '.join(DIALECTS)}")
    if dialect == "sqlite" and found.database in (None, "", ":memory:"):
        raise ConfigError("SQL sink: SQLite needs a file, such as sqlite:////data/orders.db")
    return found


class Database:
    """Of one sink; one thread. The caller closes it."""

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
        """One transaction.

        Raises:
            ConfigError: the database refuses what is to be written.
            Unreachable: it does not answer, or another writer has the table for too long; nothing is written.
            OutcomeUnknown: the connection was lost while the transaction was being committed.
        """
        connection = self._connected(doing)
        committing = False
        try:
            with connection, connection.begin() as transaction:
                yield connection
                committing = True
                transaction.commit()
        except DBAPIError as error:
            found = self.our_error(error, doing)
            if committing and isinstance(found, Unreachable):
                raise OutcomeUnknown(str(found)) from error
            raise found from error

    @contextmanager
    def read(self, doing: str) -> Iterator[Connection]:
        connection = self._connected(doing)
        try:
            with connection:
                yield connection
        except DBAPIError as error:
            raise self.our_error(error, doing) from error

    def _connected(self, doing: str) -> Connection:
        try:
            return self._engine.connect()
        except DBAPIError as error:
            raise self.our_error(error, doing) from error

    def create(self, table: Table) -> None:
        """If it is not there. Two that do it at once both find it."""
        doing = f"creating table {table.name!r}"
        connection = self._connected(doing)
        try:
            with connection, connection.begin():
                table.create(connection, checkfirst=True)
        except DBAPIError as error:
            if sqlstate(error.orig or error) not in CREATED_TWICE and "already exists" not in str(error.orig):
                raise self.our_error(error, doing) from error

    def lock(self, connection: Connection, name: str) -> None:
        """Until the transaction ends no other one has the lock of that name. SQLite has one for all."""
        if self.dialect == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))

    def columns(self, target: Target) -> dict[str, dict[str, Any]]:
        """Of a table, by name; empty: there is none."""
        with self.read(f"looking at table {target}") as connection:
            return self.columns_in(connection, target)

    def columns_in(self, connection: Connection, target: Target) -> dict[str, dict[str, Any]]:
        """The same, in a transaction of the caller."""
        found, schema = inspect(connection), target.schema or None
        if not found.has_table(target.name, schema=schema):
            return {}
        return {one["name"]: dict(one) for one in found.get_columns(target.name, schema=schema)}

    def keys(self, target: Target) -> list[set[str]]:
        """Its primary key and what is unique, as sets of columns."""
        with self.read(f"looking at the keys of table {target}") as connection:
            found, schema = inspect(connection), target.schema or None
            primary = found.get_pk_constraint(target.name, schema=schema)["constrained_columns"]
            unique = [one["column_names"] for one in found.get_unique_constraints(target.name, schema=schema)]
            indexes = [
                one["column_names"] for one in found.get_indexes(target.name, schema=schema) if one["unique"]
            ]
        found_keys: list[Any] = [primary, *unique, *indexes]
        return [set(columns) for columns in found_keys if columns]

    def append(
        self, connection: Connection, table: Table, before: Sequence[Any], rows: pa.RecordBatch
    ) -> None:
        """Rows into a table, in the order of its columns: the values `before`, of which the last one grows by
        one from row to row, and then those of the rows."""
        first, numbers = before[-1], rows.num_rows
        fixed = [pa.repeat(value, numbers) for value in before[:-1]]
        places = pa.array(np.arange(first, first + numbers, dtype=np.int64))
        names = [column.name for column in table.columns]
        whole = pa.RecordBatch.from_arrays([*fixed, places, *rows.columns], names=names)
        name = self._engine.dialect.identifier_preparer.format_table(table)
        listed = ", ".join(self._engine.dialect.identifier_preparer.quote(one) for one in names)
        if self.dialect == "sqlite":
            marks = ", ".join("?" * len(names))
            connection.exec_driver_sql(f"INSERT INTO {name} ({listed}) VALUES ({marks})", python_rows(whole))  # noqa: S608  (quoted)
            return
        cursor = connection.connection.cursor()
        with cursor.copy(f"COPY {name} ({listed}) FROM STDIN WITH (FORMAT csv)") as copy:
            for piece in csv_pieces(whole):
                copy.write(piece)

    def our_error(self, error: DBAPIError, doing: str) -> UnistreamError:
        text = str(error.orig).strip().partition("\n")[0]
        if (what := remedy(error)) is not None:
            return ConfigError(f"{self.where} refused {doing}: {text}; {what}")
        is_refused = isinstance(error, IntegrityError | DataError | ProgrammingError)
        if is_refused and not error.connection_invalidated:
            return ConfigError(f"{self.where} refused {doing}: {text}")
        if error.orig is not None and sqlite_code(error.orig) == SQLITE_ERROR:
            return ConfigError(f"{self.where} refused {doing}: {text}")
        return Unreachable(f"{self.where} did not answer while {doing}: {text}")


def _engine(where: URL) -> Engine:
    if where.get_backend_name() == "sqlite":
        engine = create_engine(where, connect_args={"timeout": LOCK_TIMEOUT_MS / 1000})
        event.listen(engine, "connect", _without_own_transactions)
        event.listen(engine, "begin", _begin_immediate)
        return engine
    require("postgres", "a SQL sink to PostgreSQL")
    options = f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS}"
    return create_engine(
        where,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "tcp_user_timeout": SILENT_TIMEOUT_MS,
            "options": options,
            "application_name": "unistream",
        },
        pool_pre_ping=True,
    )


def _without_own_transactions(connection: sqlite3.Connection, _record: object) -> None:
    """The driver would begin one by itself, after reads, and find the database locked then."""
    connection.isolation_level = None


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
