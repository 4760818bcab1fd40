"""Ensures that a cluster's database has our tables, without loading Alembic if they are current.

Alembic takes a second to import, and most clusters start on a new SQLite file or on a current one. An empty
database gets the current tables and the newest revision's mark, as by Alembic's `stamp` (Dagster does the
same); any other is upgraded by `migrate.upgrade`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Inspector, inspect, text

from unistream.metadata.engine import database_errors, open_engine
from unistream.metadata.tables import TABLE_PREFIX, VERSION_TABLE, metadata

NEWEST_REVISION: Final = "0002"
"""The last one in `migrations/versions`; a test compares."""


def ensure(url: str) -> None:
    """Returns when the schema is current. Safe to repeat and to run concurrently.

    Raises:
        ConfigError: the URL cannot be used, or a newer version of unistream made the schema.
        Unreachable: the database did not answer.
    """
    if not _is_current(url):
        from unistream.metadata.migrate import upgrade

        upgrade(url)


def _is_current(url: str) -> bool:
    engine = open_engine(url)
    try:
        with database_errors(engine), engine.begin() as connection:
            inspector = inspect(connection)
            if inspector.has_table(VERSION_TABLE):
                return _revision(connection) == NEWEST_REVISION
            # on PostgreSQL two could create at once: Alembic's way takes a lock
            if engine.dialect.name != "sqlite" or _has_our_tables(inspector):
                return False
            _create(connection)
            return True
    finally:
        engine.dispose()


def _has_our_tables(inspector: Inspector) -> bool:
    return any(name.startswith(TABLE_PREFIX) for name in inspector.get_table_names())


def _revision(connection: Connection) -> str | None:
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608  # ours
    return None if found is None else str(found)


def _create(connection: Connection) -> None:
    metadata.create_all(connection)
    connection.execute(
        text(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    insert = f"INSERT INTO {VERSION_TABLE} VALUES (:revision)"  # noqa: S608  # a constant of ours
    connection.execute(text(insert), {"revision": NEWEST_REVISION})
