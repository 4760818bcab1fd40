"""Ensures that a cluster's database has our tables, without loading Alembic if they are current.

Alembic takes a second to import, and most clusters start on a new SQLite file or on a current one. An empty
database gets the current tables and the newest revision's mark, as by Alembic's `stamp` (Dagster does the
same). An older SQLite file, which is the cluster's own, is upgraded. An older schema on PostgreSQL is refused
and left as it is: other clusters may be using it, and when they are upgraded is for people to decide.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine, Inspector, insert, inspect, text
from sqlalchemy.exc import OperationalError

from unistream.base.errors import ConfigError
from unistream.metadata.engine import OUTDATED, database_errors, open_engine
from unistream.metadata.tables import COUNTERS, TABLE_PREFIX, VERSION_TABLE, counters, metadata

NEWEST_REVISION: Final = "0007"
"""The last one in `migrations/versions`; a test compares."""

_NEVER: Final = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def ensure(url: str) -> None:
    """Returns when the schema is current. Safe to repeat and to run concurrently.

    Raises:
        ConfigError: the URL cannot be used, another version of unistream made the schema, or it is not ours.
        Unreachable: the database did not answer.
    """
    if not _is_current(url):
        from unistream.metadata.migrate import upgrade

        upgrade(url)


def _is_current(url: str) -> bool:
    engine = open_engine(url)
    try:
        with database_errors(engine), _file_errors(engine), engine.begin() as connection:
            inspector = inspect(connection)
            if inspector.has_table(VERSION_TABLE):
                return _is_newest(engine, _revision(connection))
            # on PostgreSQL two could create at once: Alembic's way takes a lock
            if engine.dialect.name != "sqlite" or _has_our_tables(inspector):
                return False
            create(connection)
            return True
    finally:
        engine.dispose()


@contextmanager
def _file_errors(engine: Engine) -> Iterator[None]:
    """Raises ConfigError for a SQLite file that no repetition opens; unlike a server, it is not away."""
    try:
        yield
    except OperationalError as error:
        code = error.orig.sqlite_errorcode if isinstance(error.orig, sqlite3.OperationalError) else 0
        if code & 0xFF in _NEVER:
            raise ConfigError(f"metadata.url: {engine.url.database} cannot be used: {error.orig}") from error
        raise


def _is_newest(engine: Engine, found: str | None) -> bool:
    """Raises ConfigError for an older schema that is not for us to upgrade."""
    if engine.dialect.name != "sqlite" and found is not None and found < NEWEST_REVISION:
        where = engine.url.render_as_string(hide_password=True)
        raise ConfigError(f"{OUTDATED} ({where} is at {found}, wanted is {NEWEST_REVISION})")
    return found == NEWEST_REVISION


def _has_our_tables(inspector: Inspector) -> bool:
    return any(name.startswith(TABLE_PREFIX) for name in inspector.get_table_names())


def _revision(connection: Connection) -> str | None:
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608  # ours
    return None if found is None else str(found)


def create(connection: Connection) -> None:
    """The newest schema in a database of which nobody else knows."""
    metadata.create_all(connection)
    now_ms = time.time_ns() // 1_000_000
    connection.execute(insert(counters), [{"name": name, "value": now_ms} for name in COUNTERS])
    connection.execute(
        text(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    mark = f"INSERT INTO {VERSION_TABLE} VALUES (:revision)"  # noqa: S608  # a constant of ours
    connection.execute(text(mark), {"revision": NEWEST_REVISION})
