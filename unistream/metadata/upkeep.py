"""What an operator does by hand: gives back the space of removed rows, and looks at sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, func, select, text

from unistream.metadata.engine import check_exists, database_errors, open_engine, sqlite_path
from unistream.metadata.tables import metadata


def vacuum(url: str) -> tuple[int, int]:
    """Gives the space of removed rows back to the file system (SQLite) or to the tables (PostgreSQL, where
    clusters may go on writing), and renews the statistics of the planner. Returns bytes before and after.

    Raises:
        ConfigError: there is no such database.
        Unreachable: it did not answer, or (SQLite) something else used the file for too long.
    """
    check_exists(url)
    with _by_itself(url) as connection:
        before = _size(connection)
        if connection.dialect.name == "sqlite":
            for step in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "ANALYZE"):
                connection.execute(text(step)).close()
        else:
            connection.execute(text("SET statement_timeout = 0"))
            for table in metadata.tables:
                connection.execute(text(f"VACUUM (ANALYZE) {table}"))
        return before, _size(connection)


def row_counts(url: str) -> dict[str, int]:
    """Rows of each of our tables. Raises as `vacuum`."""
    check_exists(url)
    with _by_itself(url) as connection:
        return {
            name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for name, table in sorted(metadata.tables.items())
        }


@contextmanager
def _by_itself(url: str) -> Iterator[Connection]:
    """A connection without a transaction, which a vacuum refuses."""
    engine = open_engine(url, create=False)
    try:
        with database_errors(engine), engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")
    finally:
        engine.dispose()


def _size(connection: Connection) -> int:
    if connection.dialect.name == "sqlite":
        path = sqlite_path(connection.engine.url)
        assert path is not None
        return path.stat().st_size
    sizes = (f"pg_total_relation_size('{name}')" for name in metadata.tables)
    return int(connection.execute(text(f"SELECT {' + '.join(sizes)}")).scalar_one())
