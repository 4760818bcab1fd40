"""The statements of a SQL source, as text with named parameters. Pure.

    page    rows behind a position, at most so many, in the order of the columns that the position has
    starts  the least value of each part of a range, all parts having as many rows

Every row of a page has its place among the rows of the page: rows of one value have one place. So it is the
database that says which values are alike (1.0 and 1.00, or texts by their collation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import bindparam, text
from sqlalchemy.sql.elements import TextClause
from sqlalchemy.types import NullType

from unistream.connector.sql.ranges import PAGE_BYTES_MAX, Range
from unistream.connector.sql.source_cells import value
from unistream.connector.sql.source_split import SqlSplit
from unistream.connector.sql.source_types import is_bytes, is_quoted
from unistream.connector.sql.statements import SqlTableName

POSTGRESQL: Final = "postgresql"
_SEPARATOR: Final = " || ',' || "


def quoted(name: str) -> str:
    """A name as it is, in both databases.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def source_clause(table: SqlTableName | None, query: str) -> str:
    """What follows FROM. A comment at the end of a query ends with its line.

    >>> source_clause(SqlTableName("t", "s"), ""), source_clause(None, "SELECT 1;").splitlines()
    ('"s"."t"', ['(SELECT 1', ') AS unistream_query'])
    """
    if table is None:
        return f"({query.strip().rstrip(';')}\n) AS unistream_query"
    return f"{quoted(table.schema)}.{quoted(table.name)}" if table.schema else quoted(table.name)


@dataclass(slots=True)
class Statement:
    """Text of ours and of users, and parameters of ours: those of users have none, so that a colon in their
    text is a colon."""

    parts: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, *parts: str) -> None:
        self.parts += [part.replace(":", r"\:") for part in parts if part]

    def param(self, found: Any) -> str:
        """A mark for a value, to be put into `raw`. Without a type: the database takes that of the column
        which it is compared with."""
        name = f"u{len(self.values)}"
        self.values[name] = found
        return f":{name}"

    def raw(self, part: str) -> None:
        """Adds text with marks."""
        self.parts.append(part)

    def clause(self) -> TextClause:
        marks = [bindparam(name, one, type_=NullType()) for name, one in self.values.items()]
        return text(" ".join(self.parts)).bindparams(*marks)


def _names(columns: Sequence[str]) -> list[str]:
    """The names of columns, quoted, and with no colon that could be a mark."""
    return [quoted(name).replace(":", r"\:") for name in columns]


def _conditions(statement: Statement, column: str | None, split: SqlSplit, order: Sequence[str]) -> list[str]:
    """The rows of a split that follow its position. `order`: of the position."""
    found = list(_within(statement, column, split.range))
    if split.tie is not None:
        found += [
            f"{name} = {statement.param(value(one))}"
            for name, one in zip(_names(order), split.tie, strict=True)
        ]
    elif split.after:
        names = ", ".join(_names(order))
        marks = ", ".join(statement.param(value(one)) for one in split.after)
        found.append(f"({names}) > ({marks})")
    return found


def _within(statement: Statement, column: str | None, found: Range) -> list[str]:
    if column is None or found.all:
        return []
    [name] = _names([column])
    if found.nulls:
        return [f"{name} IS NULL"]
    parts = [f"{name} IS NOT NULL"]
    if found.low is not None:
        parts.append(f"{name} {'>' if found.after_low else '>='} {statement.param(value(found.low))}")
    if found.high is not None:
        parts.append(f"{name} {'<' if found.before_high else '<='} {statement.param(value(found.high))}")
    return parts


def _where(found: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(found)}" if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlPageLayout:
    """How pages are asked for.

    Attributes:
        dialect: Of the database.
        source: See `source_clause`.
        schema: The columns that are read.
        column: Of the ranges; None: there are none.
        order: Columns of a position; () where rows have no order of their own: then that of all columns is
            taken.
        others: Columns that have another type in the database than in `schema`; None: one that is unknown.
    """

    dialect: str
    source: str
    schema: pa.Schema
    column: str | None
    order: tuple[str, ...]
    others: Mapping[str, pa.DataType | None] = field(default_factory=dict)


def page(layout: SqlPageLayout, split: SqlSplit, limit: int) -> TextClause:
    """PostgreSQL: one row, the number of lines, how many of them are not too large for a page, and these.
    SQLite: the rows. Either has the place, the columns of the position, and those of the schema."""
    ordered = ", ".join(map(quoted, layout.order)) if split.tie is None else ""
    if layout.dialect != POSTGRESQL:
        return _cells(layout, split, limit, ordered)
    needed = ", ".join(map(quoted, dict.fromkeys((*layout.order, *layout.schema.names))))
    statement, line = Statement(), _line(layout)
    # one row is read whatever its size is
    fit = f"FILTER (WHERE size <= {PAGE_BYTES_MAX})" if limit > 1 else ""
    statement.add("SELECT count(*), count(*)", fit, ", string_agg(line, chr(10))", fit, "FROM (SELECT line,")
    statement.add("sum(octet_length(line)) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (SELECT")
    statement.add(f"{_place(ordered)}{_SEPARATOR}{line} AS line FROM (SELECT {needed}")
    _rows(statement, layout, split, limit, ordered or line)
    statement.add(") AS unistream_page) AS unistream_lines) AS unistream_sizes")
    return statement.clause()


def _cells(layout: SqlPageLayout, split: SqlSplit, limit: int, ordered: str) -> TextClause:
    """The place is needed where several rows may have it."""
    columns = ", ".join(map(quoted, (*layout.order, *layout.schema.names)))
    statement = Statement()
    if not ordered or split.key:
        statement.add("SELECT 1,", columns)
        _rows(statement, layout, split, limit, ordered or columns)
        return statement.clause()
    needed = ", ".join(map(quoted, dict.fromkeys((*layout.order, *layout.schema.names))))
    statement.add("SELECT", f"{_place(ordered)}, {columns}", "FROM (SELECT", needed)
    _rows(statement, layout, split, limit, ordered)
    statement.add(") AS unistream_page")
    return statement.clause()


def _rows(statement: Statement, layout: SqlPageLayout, split: SqlSplit, limit: int, ordered: str) -> None:
    statement.add("FROM", layout.source)
    statement.raw(_where(_conditions(statement, layout.column, split, layout.order)))
    statement.add("ORDER BY", ordered)
    statement.raw(f"LIMIT {int(limit)}" + (f" OFFSET {int(split.skip)}" if split.skip else ""))


def _place(ordered: str) -> str:
    return f"rank() OVER (ORDER BY {ordered})" if ordered else "1"


def _line(layout: SqlPageLayout) -> str:
    """The text of a row. `concat` writes a value as the server shows it, and nothing for null."""
    of_position = [_text(quoted(name), f"concat({quoted(name)})") for name in layout.order]
    return _SEPARATOR.join([*of_position, *(_written(layout, one) for one in layout.schema)])


def _written(layout: SqlPageLayout, column: pa.Field) -> str:
    """What may be a text is in quotes, whatever it is read as: it may have a comma, or be empty."""
    name = quoted(column.name)
    if is_bytes(column.type):
        return _text(name, f"encode({name}, 'hex')")
    if is_quoted(column.type) or column.name in layout.others:
        return _text(name, f"concat({name})")
    return f"concat({name})"


def _text(name: str, shown: str) -> str:
    """An expression that puts a text in quotes, so that an empty one is not null."""
    return f"""CASE WHEN {name} IS NULL THEN '' ELSE '"' || replace({shown}, '"', '""') || '"' END"""


# --- where ranges begin and end -------------------------------------------------------------------


def greatest(layout: SqlPageLayout, column: str) -> TextClause:
    """The greatest value; no row: there is none."""
    statement = Statement()
    name = quoted(column)
    # ordered inside: a column may have the name that the database gives to the text of it
    statement.add("SELECT", _value(layout, "v"), f"FROM (SELECT {name} AS v FROM", layout.source)
    statement.add(f"WHERE {name} IS NOT NULL ORDER BY {name} DESC LIMIT 1) AS a")
    return statement.clause()


def starts(layout: SqlPageLayout, within: Range, rows: int, at_most: int, time_column: str) -> TextClause:
    """The first value of each `rows` rows in a range, in order; and the least event time among those rows, or
    null."""
    assert layout.column is not None, "there are ranges"
    statement = Statement()
    column, name = layout.column, quoted(layout.column)
    timed = bool(time_column) and time_column != column
    conditions = _within(statement, column, within)
    least = f"min(t) OVER (PARTITION BY (n - 1) / {int(rows)})" if timed else "NULL"
    shown = _value(layout, "least") if timed else "NULL"
    statement.add("SELECT", f"{_value(layout, 'v')}, {shown}", "FROM (SELECT v, n,", least, "AS least FROM (")
    statement.add(
        f"SELECT {name} AS v,", f"{quoted(time_column)} AS t," if timed else "", "row_number() OVER"
    )
    statement.add(f"(ORDER BY {name}) AS n FROM", layout.source)
    statement.raw(_where(conditions))
    statement.add(f") AS a) AS b WHERE (n - 1) % {int(rows)} = 0 ORDER BY n LIMIT {int(at_most)}")
    return statement.clause()


def count(layout: SqlPageLayout, within: Range) -> TextClause:
    statement = Statement()
    found = _within(statement, layout.column, within)
    statement.add("SELECT count(*) FROM", layout.source)
    statement.raw(_where(found))
    return statement.clause()


def has_nulls(layout: SqlPageLayout, column: str) -> TextClause:
    """A row: there are."""
    statement = Statement()
    statement.add("SELECT 1 FROM", layout.source, f"WHERE {quoted(column)} IS NULL LIMIT 1")
    return statement.clause()


def nothing(layout: SqlPageLayout) -> TextClause:
    """No row, of all columns."""
    statement = Statement()
    statement.add("SELECT * FROM", layout.source, "LIMIT 0")
    return statement.clause()


def _value(layout: SqlPageLayout, name: str) -> str:
    """An expression of a value as a `Cell` keeps it."""
    return f"concat({name})" if layout.dialect == POSTGRESQL else name
