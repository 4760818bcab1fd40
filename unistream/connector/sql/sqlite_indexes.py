"""The unique indexes of a table of SQLite, also those that its constraints have made."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection, text

from unistream.connector.sql.statements import SqlTableName

_INDEXES: Final = text("""
SELECT l.name, l.origin, l.partial,
    (SELECT json_group_array(x.name) FROM pragma_index_xinfo(l.name, :schema) x WHERE x.key)
FROM pragma_index_list(:name, :schema) l WHERE l."unique" ORDER BY 1
""")


def unique_indexes(
    connection: Connection, target: SqlTableName
) -> list[tuple[str, str, tuple[str, ...] | None]]:
    """(name, origin, columns) each; None: it is of some rows only, or of expressions. Origins: ``c`` CREATE
    INDEX, ``u`` UNIQUE, ``pk`` PRIMARY KEY (none for an INTEGER PRIMARY KEY).

    SQLAlchemy reads the text of the table for its constraints, and overlooks ``price DECIMAL(10, 2) UNIQUE``.
    """
    names = {"name": target.name, "schema": target.schema or "main"}
    found: list[tuple[str, str, tuple[str, ...] | None]] = []
    for name, origin, partial, listing in connection.execute(_INDEXES, names):
        columns = tuple(msgspec.json.decode(listing, type=list[str | None]))
        whole = tuple(column for column in columns if column is not None)
        found.append((name, origin, whole if not partial and whole == columns else None))
    return found
