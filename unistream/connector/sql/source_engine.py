"""Engines that only read, and which URLs there are for them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url

from unistream.base.errors import ConfigError
from unistream.base.secrets import Secret
from unistream.connector.sql.database import parsed, postgres_engine
from unistream.connector.sql.failures import LOCK_TIMEOUT_MS

SOURCE: Final = "SQL source"
DRIVERS: Final = {"postgresql": "psycopg", "sqlite": "pysqlite"}
_SETTINGS: Final = (
    "-c default_transaction_read_only=on -c client_encoding=UTF8 -c datestyle=ISO -c bytea_output=hex "
    "-c extra_float_digits=1"
)
"""The settings of a session, so that values are written as they are read here, whatever the role or the
database has set."""


def checked_url(url: str | Secret) -> URL:
    """Raises ConfigError: as `parsed`, or of another driver."""
    where = parsed(url, SOURCE)
    dialect = where.get_backend_name()
    driver = where.drivername.partition("+")[2] or DRIVERS[dialect]
    if driver != DRIVERS[dialect]:
        raise ConfigError(
            f"{SOURCE}: {dialect} is read by {DRIVERS[dialect]}, not by {driver}: write "
            f"{dialect}+{DRIVERS[dialect]}://… as url"
        )
    return where if dialect == "sqlite" else where.set(drivername=f"{dialect}+{driver}")


def absolute(url: str) -> str:
    """The URL with an absolute path: that of a file of SQLite means the same in every process.

    >>> absolute("postgresql+psycopg://u@host/d")
    'postgresql+psycopg://u@host/d'
    """
    where = make_url(url)
    if where.get_backend_name() != "sqlite" or where.database is None or where.database.startswith("file:"):
        return url
    return where.set(database=str(Path(where.database).absolute())).render_as_string(hide_password=False)


def reading_engine(where: URL, timeout_ms: int) -> Engine:
    """An engine that only reads. Each statement is a transaction, which PostgreSQL limits. Raises
    ConfigError: no such file."""
    where = checked_url(where.render_as_string(hide_password=False))
    if where.get_backend_name() == "sqlite":
        path = where.database or ""
        if not path.startswith("file:") and not Path(path).exists():
            raise ConfigError(f"{SOURCE}: there is no file {path}")
        engine = create_engine(where, creator=lambda: _opened(path), isolation_level="AUTOCOMMIT")
        event.listen(engine, "connect", _only_reads)
        return engine
    engine = postgres_engine(where, "a SQL source of PostgreSQL", statement_ms=timeout_ms, settings=_SETTINGS)
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _opened(path: str) -> sqlite3.Connection:
    """Opens a file of SQLite, and makes none."""
    uri = path if path.startswith("file:") else f"file:{quote(str(Path(path).absolute()))}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_MS / 1000, check_same_thread=False)


def _only_reads(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON")
