"""Connections that only read: what columns there are, where ranges begin, and pages of rows."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.sql.elements import TextClause

from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.base.secrets import Secret
from unistream.connector.sql import source_statements as sql
from unistream.connector.sql.database import CONNECT_TIMEOUT_S, parsed
from unistream.connector.sql.failures import ValueTooLong, read_failure
from unistream.connector.sql.ranges import Range
from unistream.connector.sql.source_cells import Cell, cell, cells
from unistream.connector.sql.source_engine import SOURCE, reading_engine
from unistream.connector.sql.source_split import SqlSplit
from unistream.connector.sql.source_types import (
    Described,
    SqlValueMisfit,
    column_of_cells,
    no_value,
    of_named,
    of_postgresql,
    of_sqlite,
    parse_lines,
    texts_of,
)
from unistream.connector.sql.statements import SqlTableName

_LOG: Final = logging.getLogger(__name__)
_STEPS: Final = 100_000  # of SQLite's machine, between two looks at the clock: some milliseconds
_LOOKUP: Final = text("SELECT oid, format_type(oid, NULL), typtype FROM pg_type WHERE oid = ANY(:oids)")
_IDENTITY: Final = text(
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::bigint, "
    "to_regclass(:name)::oid::bigint"
)
_HEIRS: Final = text(
    "SELECT EXISTS (SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhparent "
    "WHERE inhparent = to_regclass(:name) AND relkind <> 'p')"
)
"""Tables that inherit are read with their parent, whose key is none of theirs; partitions share it."""
_KEY_MAY_BE_NULL: Final = text(
    'SELECT EXISTS (SELECT 1 FROM pragma_table_xinfo(:name) WHERE pk > 0 AND "notnull" = 0) '
    "AND EXISTS (SELECT 1 FROM pragma_index_list(:name) WHERE origin = 'pk')"
)
"""SQLite lets all be null but the number of a row (`INTEGER PRIMARY KEY`, not `INT`), which has no index."""
_CLOCK: Final = {
    "postgresql": text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"),
    "sqlite": text("SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"),
}
_PLACE: Final = "unistream place"
_FEWER: Final = 32  # times fewer rows, where the text of a page was too long
_KEY_SHOWN: Final = 200  # characters of a key in a message


class Reads(NamedTuple):
    """What is read: a table, or a query."""

    table: SqlTableName | None
    query: str = ""

    def __str__(self) -> str:
        return "the query" if self.table is None else f"table {self.table}"


class Page(NamedTuple):
    """Rows behind a position. `last`: the position of the last one. `ties`: so many at the end have the same
    value as that; `before`: the position of the one before those. `size`: in bytes, as they came. `asked`: so
    many rows would have come."""

    records: pa.RecordBatch
    before: tuple[Cell, ...]
    last: tuple[Cell, ...]
    ties: int
    size: int
    asked: int


class TooLarge(NamedTuple):
    """A page of so many rows has more bytes than one may have; `rows` fit."""

    rows: int


class ReadDatabase:
    """The connections of one source, which one thread uses. The caller closes it."""

    def __init__(self, url: str | Secret, reads: Reads, timeout_ms: int) -> None:
        where = parsed(url, SOURCE)
        self.dialect = where.get_backend_name()
        self.where = where.render_as_string(hide_password=True)
        self._reads = reads
        self._source = sql.source_clause(reads.table, reads.query)
        self._timeout_ms = timeout_ms
        self._driver: Any = None  # the connection that is used
        self._is_interrupted = False
        self._engine = reading_engine(where, timeout_ms)

    def interrupt(self) -> None:
        """Ends the statement that runs, if the server answers, and lets no other begin; called by any
        thread."""
        self._is_interrupted = True
        driver = self._driver
        if driver is None or self.dialect == "sqlite":
            return
        try:
            driver.cancel_safe(timeout=CONNECT_TIMEOUT_S)
        except driver.Error as error:
            _LOG.info("event=statement_goes_on reason=%s", error)

    def close(self) -> None:
        self._engine.dispose()

    @property
    def named(self) -> str:
        """The table and the database, for people."""
        return f"{SOURCE}: {self._reads} at {self.where}"

    def layout(
        self,
        schema: pa.Schema,
        column: str | None,
        order: Sequence[str],
        there: Mapping[str, Described] | None = None,
    ) -> sql.SqlPageLayout:
        """The layout of the statements. `there`: what the database has, where rows are read."""
        others = {
            one.name: there[one.name].kind for one in schema if there and there[one.name].kind != one.type
        }
        return sql.SqlPageLayout(
            dialect=self.dialect,
            source=self._source,
            schema=schema,
            column=column,
            order=tuple(order),
            others=others,
        )

    # --- what there is ----------------------------------------------------------------------------

    def described(self) -> list[Described]:
        """Describes all columns. Raises ConfigError: there is no such table, or the query is refused."""
        layout = self.layout(pa.schema([]), None, ())
        with self._connected("looking at its columns") as connection:
            if self._reads.table is not None:
                self._check_table(connection)
            cursor = connection.execute(sql.nothing(layout)).cursor
            assert cursor is not None, "a SELECT has a description"
            if self.dialect == "sqlite":
                return self._declared(connection)
            return _of_description(connection, list(cursor.description))

    def _check_table(self, connection: Connection) -> None:
        table = self._reads.table
        assert table is not None, "a table is read"
        found = inspect(connection)
        if not found.has_table(table.name, schema=table.schema or None):
            there = sorted(
                (*found.get_table_names(table.schema or None), *found.get_view_names(table.schema or None))
            )
            listed = f"; there are {', '.join(there[:10])}" if there else ""
            raise ConfigError(f"{SOURCE}: there is no table {table} at {self.where}{listed}")

    def _declared(self, connection: Connection) -> list[Described]:
        """SQLite knows types of tables and views only, so a query becomes a view of this connection."""
        table, view = self._reads.table, "unistream_query"
        if table is None:
            connection.exec_driver_sql("PRAGMA query_only = OFF")
            statement = sql.Statement()
            statement.add(f"CREATE TEMP VIEW {view} AS SELECT * FROM", self._source)
            connection.execute(statement.clause())
        name = view if table is None else table.name
        rows = connection.execute(
            text("SELECT name, type FROM pragma_table_xinfo(:name)"), {"name": name}
        ).all()
        if table is None:
            connection.exec_driver_sql(f"DROP VIEW temp.{view}")
            connection.exec_driver_sql("PRAGMA query_only = ON")
        return [of_sqlite(column, declared or "") for column, declared in rows]

    def key(self) -> tuple[str, ...]:
        """The primary key of a table, if no part of it can be null; (): there is none, or a query is read."""
        table = self._reads.table
        if table is None:
            return ()
        with self._connected("looking at its primary key") as connection:
            inspector = inspect(connection)
            try:
                key = inspector.get_pk_constraint(table.name, schema=table.schema or None)[
                    "constrained_columns"
                ]
            except NoSuchTableError:
                return ()
            if self.dialect == "postgresql":
                is_none = connection.execute(_HEIRS, {"name": self._source}).scalar_one()
            else:
                is_none = connection.execute(_KEY_MAY_BE_NULL, {"name": table.name}).scalar_one()
            if is_none:
                return ()
        return tuple(key)

    def identity(self) -> str:
        """The identity of a table (see `identity`); "": it has none."""
        if self.dialect != "postgresql" or self._reads.table is None:
            return ""
        with self._connected("looking at its identity") as connection:
            database, table = connection.execute(_IDENTITY, {"name": self._source}).one()
        return f"{database}/{table}"

    # --- where ranges begin and end ---------------------------------------------------------------

    def now_ms(self) -> int:
        """The time by the clock of the database, in ms."""
        with self._connected("asking for the time") as connection:
            return int(connection.execute(_CLOCK[self.dialect]).scalar_one())

    def alike(self, found: Cell | None, like: Cell | None) -> Cell | None:
        """A time in the form of another one, by which SQLite compares it."""
        if self.dialect == "sqlite" and found is not None and like is not None and "T" in like.text:
            return Cell(found.kind, found.text.replace(" ", "T"))
        return found

    def time_before(self, margin_ms: int, kind: pa.DataType, like: Cell | None) -> Cell:
        """The time `margin_ms` ago, as a value of a column. `like`: one of its values, in SQLite."""
        with self._connected("asking for the time") as connection:
            found = connection.execute(_before(self.dialect, margin_ms, kind)).scalar_one()
        before = self.alike(cell(found), like)
        assert before is not None, "there is a time"
        return before

    def greatest(self, layout: sql.SqlPageLayout, column: str) -> Cell | None:
        found = self._first(sql.greatest(layout, column), f"looking for the greatest {column!r}")
        return None if found is None else cell(found[0])

    def starts(
        self, layout: sql.SqlPageLayout, within: Range, rows: int, at_most: int, time_column: str
    ) -> list[tuple[Cell, Any]]:
        """See `source_statements.starts`."""
        statement = sql.starts(layout, within, rows, at_most, time_column)
        with self._connected(f"dividing it by {layout.column!r}") as connection:
            return [(cell(start), least or None) for start, least in connection.execute(statement)]

    def count(self, layout: sql.SqlPageLayout, within: Range) -> int:
        found = self._first(sql.count(layout, within), "counting its rows")
        assert found is not None, "a count is a row"
        return int(found[0])

    def has_nulls(self, layout: sql.SqlPageLayout, column: str) -> bool:
        return self._first(sql.has_nulls(layout, column), f"looking for nulls in {column!r}") is not None

    def _first(self, statement: TextClause, doing: str) -> Any:
        with self._connected(doing) as connection:
            return connection.execute(statement).first()

    # --- rows -------------------------------------------------------------------------------------

    def page(self, layout: sql.SqlPageLayout, split: SqlSplit, limit: int) -> Page | TooLarge | None:
        """Reads a page of rows; None: no more rows.

        Raises:
            UserCodeError: a row has a value that its column cannot have; names the row.
            ConfigError, Unreachable: see `read_failure`.
        """
        try:
            with self._connected(f"reading {split.range.name}") as connection:
                result = connection.execute(sql.page(layout, split, limit))
                assert result.cursor is not None, "a SELECT has rows"
                rows = result.cursor.fetchall()  # of the driver: it has made them already
        except ValueTooLong:
            if limit == 1:
                raise
            return self.page(layout, split, max(1, limit // _FEWER))
        if self.dialect == "postgresql":
            [(number, fitting, lines)] = rows
            if fitting < number:
                return TooLarge(max(1, fitting))
            return self._of_lines(layout, number, lines, limit) if number else None
        return self._of_cells(layout, rows, limit) if rows else None

    def _of_lines(self, layout: sql.SqlPageLayout, number: int, lines: str, asked: int) -> Page:
        names = [f"{_PLACE} {name}" for name in layout.order]
        front = [pa.field(_PLACE, pa.int64()), *(pa.field(name, pa.string()) for name in names)]
        whole = pa.schema([*front, *layout.schema])
        data = f"{lines}\n".encode()  # without its end Arrow takes the last null for a text
        try:
            table = parse_lines(data, whole, layout.others)
        except SqlValueMisfit as misfit:
            texts = texts_of(data, whole)
            row_values = [column[misfit.row].as_py() for column in texts.columns]
            key = dict(zip(layout.order, row_values[1:], strict=False))
            at = len(front) + layout.schema.get_field_index(misfit.column)
            reason = no_value(row_values[at], layout.schema.field(misfit.column).type)
            raise self._refused(SqlValueMisfit(misfit.row, misfit.column, reason), key) from misfit
        assert table.num_rows == number, f"{number} rows came as {table.num_rows} lines"
        places = table.column(0)
        table = table.sort_by(_PLACE) if not _grows(places) else table
        front_rows = table.select(range(1, len(front))).combine_chunks()
        records = table.select(range(len(front), table.num_columns)).combine_chunks().to_batches()[0]
        ties = _ties(table.column(0).to_numpy())
        last = [column[-1].as_py() for column in front_rows.columns]
        before = [column[-1 - ties].as_py() for column in front_rows.columns] if ties < number else []
        return Page(records, cells(before), cells(last), ties, len(data), asked)

    def _of_cells(self, layout: sql.SqlPageLayout, rows: Sequence[Any], asked: int) -> Page:
        columns = list(zip(*rows, strict=True))
        width = 1 + len(layout.order)
        arrays = []
        try:
            for field, values in zip(layout.schema, columns[width:], strict=True):
                arrays.append(column_of_cells(field.name, field.type, values))
        except SqlValueMisfit as misfit:
            key = dict(zip(layout.order, rows[misfit.row][1:width], strict=True))
            raise self._refused(misfit, key) from misfit
        records = pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
        ties = columns[0].count(columns[0][-1])
        last = rows[-1][1:width]
        before = rows[-1 - ties][1:width] if ties < len(rows) else ()
        return Page(records, cells(before), cells(last), ties, records.nbytes, asked)

    def _refused(self, misfit: SqlValueMisfit, key: dict[str, Any]) -> UserCodeError:
        named = ", ".join(f"{name} = {one!r}" for name, one in key.items())[:_KEY_SHOWN]
        row = f"row {named}" if named else f"row {misfit.row} of a page"
        quoted = sql.quoted(misfit.column)
        as_text = f"types={{{misfit.column!r}: pa.string()}}"
        if self.dialect == "sqlite":
            as_text = f"a query= with CAST({quoted} AS TEXT) AS {quoted}"
        return UserCodeError(
            f"{self.named}, {row}: column {misfit.column!r}: {misfit.reason}. Correct it, leave the row out "
            f"by a query=, or read the column as text: {as_text}"
        )

    @contextmanager
    def _connected(self, doing: str) -> Iterator[Connection]:
        """Opens a connection. Each statement is a transaction of its own: nothing is held while rows are
        processed."""
        if self._is_interrupted:
            raise Unreachable(f"{self.named}: {doing} was given up: the reader is closed")
        try:
            with self._engine.connect() as connection:
                self._driver = connection.connection.driver_connection
                if self.dialect == "sqlite":
                    self._limit_time()
                yield connection
        except sqlite3.Error as error:  # of rows that are asked of the driver itself
            wrapped = DBAPIError.instance(None, None, error, sqlite3.Error)
            assert isinstance(wrapped, DBAPIError), "it is one of the driver"
            raise read_failure(wrapped, self.named, doing, self._timeout_ms) from error
        except DBAPIError as error:
            raise read_failure(error, self.named, doing, self._timeout_ms) from error
        finally:
            self._driver = None

    def _limit_time(self) -> None:
        """SQLite has no limit of its own for a statement, and no interruption that comes before it."""
        ends = time.monotonic() + self._timeout_ms / 1000
        self._driver.set_progress_handler(lambda: self._is_interrupted or time.monotonic() > ends, _STEPS)


def _grows(places: pa.ChunkedArray) -> bool:
    numbers = places.to_numpy()
    return bool((numbers[1:] >= numbers[:-1]).all())


def _ties(places: Any) -> int:
    """How many at the end are equal."""
    return int((places == places[-1]).sum())


def _of_description(connection: Connection, columns: Sequence[Any]) -> list[Described]:
    found = [of_postgresql(one.name, one.type_code, one.precision, one.scale) for one in columns]
    unknown = sorted({one.type_code for one, known in zip(columns, found, strict=True) if known is None})
    named = {}
    if unknown:
        named = {oid: (name, kind) for oid, name, kind in connection.execute(_LOOKUP, {"oids": unknown})}
    return [
        known or of_named(one.name, named[one.type_code][0], is_enum=named[one.type_code][1] in ("e", b"e"))
        for one, known in zip(columns, found, strict=True)
    ]


def _before(dialect: str, margin_ms: int, kind: pa.DataType) -> TextClause:
    """A day is over when the next one has begun that long ago."""
    seconds = margin_ms / 1000
    if dialect == "postgresql":
        ago = f"(clock_timestamp() - make_interval(secs => {seconds}))"
        utc = f"({ago} AT TIME ZONE 'UTC')"  # whatever the zone of the session is
        if pa.types.is_date(kind):
            return text(f"SELECT concat(CAST({utc} AS date) - 1)")
        return text(f"SELECT concat({ago if kind.tz else utc})")
    if pa.types.is_date(kind):
        return text(f"SELECT date('now', '-{seconds} seconds', '-1 day')")
    return text(f"SELECT strftime('%Y-%m-%d %H\\:%M\\:%f', 'now', '-{seconds} seconds')")
