"""Rows of the metadata database, as SQL shows them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, create_engine, select


def rows(url: str, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """`columns` of all rows, in the order of the primary key."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            chosen = select(*(table.c[name] for name in columns)).order_by(*table.primary_key.columns)
            return [tuple(row) for row in connection.execute(chosen)]
    finally:
        engine.dispose()
