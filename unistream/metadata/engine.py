"""Connections to the metadata database, and the translation of its errors."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from unistream.base.errors import ConfigError, Transient, Unreachable
from unistream.base.extras import require

BUSY_TIMEOUT_MS: Final = 10_000  # SQLite: longest wait for another writer
WAL_RETRY_S: Final = 0.01
CONNECT_TIMEOUT_S: Final = 10
POOL_TIMEOUT_S: Final = 10
DIALECTS: Final = ("sqlite", "postgresql")
OUTDATED: Final = "the schema of the metadata database is outdated: run `unistream db upgrade`"


def parse_url(url: str) -> URL:
    """A SQLAlchemy URL of a supported database.

    Raises:
        ConfigError: any other; its text does not contain the password.
    """
    try:
        parsed = make_url(url)
        dialect = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        raise ConfigError(
            "metadata.url is not a SQLAlchemy URL such as sqlite:////var/lib/unistream/metadata.db "
            "or postgresql+psycopg://user:password@host/database"
        ) from None
    if dialect not in DIALECTS:
        raise ConfigError(f"metadata.url: {dialect!r} is not one of {', '.join(DIALECTS)}")
    if dialect == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("metadata.url: SQLite needs a file, such as sqlite:////tmp/metadata.db")
    if dialect == "sqlite" and not Path(parsed.database or "").absolute().parent.is_dir():
        raise ConfigError(f"metadata.url: the folder of {parsed.database!r} does not exist")
    return parsed


def open_engine(url: str) -> Engine:
    """An engine with bounded waits, not connected yet; the caller disposes it.

    Raises:
        ConfigError: the URL cannot be used or its driver is not installed.
    """
    parsed = parse_url(url)
    if parsed.drivername == "postgresql+psycopg":
        require("postgres", "metadata.url")
    is_sqlite = parsed.get_backend_name() == "sqlite"
    connect_args = (
        {"timeout": BUSY_TIMEOUT_MS / 1000} if is_sqlite else {"connect_timeout": CONNECT_TIMEOUT_S}
    )
    try:
        engine = create_engine(
            parsed, pool_timeout=POOL_TIMEOUT_S, pool_pre_ping=not is_sqlite, connect_args=connect_args
        )
    except (ImportError, NoSuchModuleError, ArgumentError) as error:
        raise ConfigError(
            f"metadata.url: the driver of {parsed.drivername!r} is not installed: {error}"
        ) from error
    if is_sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says, below
    cursor = connection.cursor()
    for setting in (f"busy_timeout={BUSY_TIMEOUT_MS}", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {setting}")
    _write_ahead(cursor)
    cursor.close()


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    """Retries: of several processes that open a new file at once, SQLite lets only one succeed, without its
    busy timeout, to avoid a deadlock (https://www.sqlite.org/c3ref/busy_handler.html)."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # or a kind of it, as during recovery
            if not busy or time.monotonic() >= deadline_s:
                raise
            time.sleep(WAL_RETRY_S)
        else:
            return


def _begin_sqlite(connection: Any) -> None:
    # A reader that becomes a writer fails if another one wrote in between, so writers take the lock first.
    mode = "" if connection.get_execution_options().get("unistream_read") else " IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN{mode}")


@contextmanager
def database_errors(engine: Engine) -> Iterator[None]:
    """Translates SQLAlchemy's errors.

    Raises:
        Unreachable: no connection, locked for too long, connection lost.
        ConfigError: tables are missing.
        Transient: any other error of the database.
    """
    where = engine.url.render_as_string(hide_password=True)
    try:
        yield
    except IntegrityError:
        raise  # callers that can cause one handle it
    except PoolTimeout as error:
        raise Unreachable(f"no free connection to {where} within {POOL_TIMEOUT_S} s") from error
    except DBAPIError as error:
        text = str(error.orig)
        if isinstance(error, ProgrammingError) or "no such table" in text or "no such column" in text:
            raise ConfigError(f"{OUTDATED} ({where}: {text.splitlines()[0]})") from error
        if "not a database" in text:
            raise ConfigError(f"metadata.url: {where} is not a SQLite database") from error
        if isinstance(error, OperationalError) or error.connection_invalidated:
            raise Unreachable(f"the metadata database {where} did not answer: {text}") from error
        raise Transient(f"the metadata database {where} refused: {text}") from error
