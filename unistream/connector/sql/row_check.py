"""Which rows a table would refuse, as far as its columns say so: before they are staged.

    null in a column that is NOT NULL, or in the key
    PostgreSQL: a text longer than VARCHAR(n); a whole number beyond SMALLINT or INTEGER; a text with the
    character NUL, which no text has there. SQLite takes these.

What depends on other rows (a unique key, a foreign key) or on an expression (CHECK) is known when the rows
are moved into the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import types as sql

from unistream.connector.common import deletes, reasons_of
from unistream.connector.sql.database import Database
from unistream.connector.sql.stage import SqlTable
from unistream.model.elements import Batch

_NUMBERS: Final = ((sql.SmallInteger, 2**15), (sql.BigInteger, None), (sql.Integer, 2**31))


class SqlRowCheck:
    """See `unistream.port.sink.RowCheck`."""

    def __init__(self, table: SqlTable, delete_when: pc.Expression | None = None) -> None:
        self._table = table
        self._delete_when = delete_when
        self._columns: Mapping[str, Mapping[str, Any]] = {}
        self._strict = False

    def open(self) -> None:
        """Asks the database for the columns of the table; one that is made later has those of the rows."""
        database = Database(self._table.url)
        try:
            self._columns = database.columns(self._table.target)
            self._strict = database.dialect != "sqlite"
        finally:
            database.close()

    def refused(self, batch: Batch) -> Mapping[int, str]:
        gone = None if self._delete_when is None else deletes(self._delete_when, batch.records)
        columns = zip(batch.records.schema.names, batch.records.columns, strict=True)
        return reasons_of(
            (pc.and_kleene(unfit, pc.invert(gone)) if gone is not None and of_target else unfit, reason)
            for name, column in columns
            for unfit, reason, of_target in self._reasons(name, column)
        )

    def _reasons(self, name: str, column: pa.Array) -> Iterator[tuple[pa.Array, str, bool]]:
        """Rows with a bad value in that column, why it is bad, and whether a row that deletes may have it: it
        is staged, and not written to the table. Only if there are any."""
        target, where = self._table.target, self._columns.get(name, {})
        if column.null_count and (name in self._table.key or where.get("nullable") is False):
            rule = "in the key of" if name in self._table.key else "NOT NULL in"
            yield (
                column.is_null(),
                f"null in {name!r}, which is {rule} table {target}",
                name not in self._table.key,
            )
        if not self._strict:
            return
        kind = where.get("type")
        if _is_text(column.type):
            if pc.any(has_nul := pc.match_substring(column, "\0")).as_py():
                yield has_nul, f"the character NUL in {name!r}, which no text of PostgreSQL has", False
            length = getattr(kind, "length", None) if isinstance(kind, sql.String) else None
            if length is not None and (pc.max(pc.utf8_length(column)).as_py() or 0) > length:
                longer = pc.greater(pc.utf8_length(column), length)
                yield longer, f"a text of more than {length} characters in {name!r} of table {target}", True
        elif pa.types.is_integer(column.type):
            limit = next((end for number, end in _NUMBERS if isinstance(kind, number)), None)
            if limit is not None:
                least, greatest = pc.min_max(column).as_py().values()
                if least is not None and (least < -limit or greatest >= limit):
                    beyond = pc.or_(pc.less(column, -limit), pc.greater_equal(column, limit))
                    yield beyond, f"a number beyond {kind} in {name!r} of table {target}", True


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
