"""Connections to the metadata database, and the translation of its errors."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy.orm  # noqa: F401  (whole before any thread works: see `connector.sql.database`)
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
from unistream.base.secrets import IN_QUERY

BUSY_TIMEOUT_MS: Final = 10_000  # SQLite: longest wait for another writer
WAL_RETRY_S: Final = 0.01
CONNECT_TIMEOUT_S: Final = 10
POOL_TIMEOUT_S: Final = 10
STATEMENT_TIMEOUT_MS: Final = 30_000  # PostgreSQL: a statement that takes longer is given up
LOCK_TIMEOUT_MS: Final = 10_000
SILENT_TIMEOUT_MS: Final = 30_000  # of a server that no longer acknowledges what is sent
DIALECTS: Final = ("sqlite", "postgresql")
UNDEFINED: Final = ("42P01", "42703")  # PostgreSQL's codes of a missing table and a missing column
OUTDATED: Final = "the schema of the metadata database is outdated: run `unistream db upgrade`"
MISSING: Final = "there is no metadata database: `unistream db upgrade` makes it"


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
    if IN_QUERY & parsed.query.keys():
        raise ConfigError(
            "metadata.url: a password behind the '?' would be shown; write postgresql+psycopg://user:password@…"
        )
    if dialect == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("metadata.url: SQLite needs a file, such as sqlite:////tmp/metadata.db")
    if dialect == "sqlite" and not Path(parsed.database or "").absolute().parent.is_dir():
        raise ConfigError(f"metadata.url: the folder of {parsed.database!r} does not exist")
    return parsed


def open_engine(url: str, *, create: bool = True) -> Engine:
    """An engine with bounded waits, not connected yet; the caller disposes it.

    With `create` a SQLite file that is not there is created by the first connection.

    Raises:
        ConfigError: the URL cannot be used or its driver is not installed.
    """
    parsed = parse_url(url)
    if parsed.drivername == "postgresql+psycopg":
        require("postgres", "metadata.url")
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(
            parsed, pool_timeout=POOL_TIMEOUT_S, creator=_sqlite_opener(parsed, create=create)
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(
            parsed, pool_timeout=POOL_TIMEOUT_S, pool_pre_ping=True, connect_args=_bounded_waits(parsed)
        )
    except (ImportError, NoSuchModuleError, ArgumentError) as error:
        raise ConfigError(
            f"metadata.url: the driver of {parsed.drivername!r} is not installed: {error}"
        ) from error


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite database; None for other databases."""
    return Path(url.database).absolute() if url.get_backend_name() == "sqlite" and url.database else None


def check_exists(url: str) -> None:
    """Raises ConfigError if the file of a SQLite database is not there."""
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None and not path.exists():
        raise ConfigError(f"{MISSING} ({parsed.render_as_string(hide_password=True)})")


def _sqlite_opener(url: URL, *, create: bool) -> Callable[[], sqlite3.Connection]:
    path = sqlite_path(url)
    assert path is not None
    mode = "rwc" if create else "rw"

    def connect() -> sqlite3.Connection:
        if create:
            _create_private(path)
        return sqlite3.connect(
            f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_TIMEOUT_MS / 1000, check_same_thread=False
        )

    return connect


def _create_private(path: Path) -> None:
    """SQLite would leave it to the umask who may read the history; its own files next to it get the mode of
    this     one. What is there stays as it is, and what cannot be made is SQLite's to refuse."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _bounded_waits(url: URL) -> dict[str, Any]:
    """Arguments of libpq, on which both psycopg and psycopg2 are built; those of the URL come first."""
    waits: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
    if url.get_driver_name().startswith("psycopg"):
        waits["options"] = f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS}"
        waits |= {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
        waits["tcp_user_timeout"] = SILENT_TIMEOUT_MS
    return {name: value for name, value in waits.items() if name not in url.query}


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
    options = connection.get_execution_options()
    if options.get("isolation_level") == "AUTOCOMMIT":
        return
    mode = "" if options.get("unistream_read") else " IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN{mode}")


def _lacks_tables(error: DBAPIError, text: str) -> bool:
    if "no such table" in text or "no such column" in text:
        return True
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return state in UNDEFINED if state is not None else isinstance(error, ProgrammingError)


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
        if _lacks_tables(error, text):
            raise ConfigError(f"{OUTDATED} ({where}: {text.splitlines()[0]})") from error
        if "not a database" in text:
            raise ConfigError(f"metadata.url: {where} is not a SQLite database") from error
        if isinstance(error, OperationalError) or error.connection_invalidated:
            raise Unreachable(f"the metadata database {where} did not answer: {text}") from error
        raise Transient(f"the metadata database {where} refused: {text}") from error
