"""Metadata databases: a new one, and rows as SQL shows them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Table, create_engine, select, update
from sqlalchemy.engine import make_url

from unistream.metadata.schema import create, ensure


@cache
def _empty() -> bytes:
    """The file that `ensure` makes: once for this process, since it takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metadata.db"
        ensure(f"sqlite:///{path}")
        return path.read_bytes()


def create_database(url: str) -> None:
    """What `ensure` makes of a database of which there is nothing yet."""
    if (file := make_url(url)).get_backend_name() == "sqlite":
        assert file.database is not None
        with Path(file.database).open("xb") as new:
            new.write(_empty())
        return
    engine = create_engine(url)
    try:
        with engine.begin() as connection:  # a third of the time of Alembic, which `ensure` uses here
            create(connection)
    finally:
        engine.dispose()


def rows(url: str, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """`columns` of all rows, in the order of the primary key."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            chosen = select(*(table.c[name] for name in columns)).order_by(*table.primary_key.columns)
            return [tuple(row) for row in connection.execute(chosen)]
    finally:
        engine.dispose()


def change(url: str, table: Table, key: str, **values: Any) -> None:
    """The row whose primary key this is, as another version of unistream may have written it."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            [column] = table.primary_key.columns
            assert connection.execute(update(table).where(column == key).values(values)).rowcount == 1
    finally:
        engine.dispose()
