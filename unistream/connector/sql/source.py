"""A table or a query of a SQL database as a source.

SqlSource("postgresql+psycopg://reader@localhost/shop", "orders")
SqlSource("${env:SHOP}", "orders", increasing="id", bounded=False)
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from unistream.base.config import DurationLike, duration_ms
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.references import has_reference
from unistream.base.secrets import Secret
from unistream.connector.sql.database import dataset_of, parsed
from unistream.connector.sql.source_cells import Cell, cell
from unistream.connector.sql.source_database import ReadDatabase, Reads
from unistream.connector.sql.source_engine import SOURCE, absolute, checked_url
from unistream.connector.sql.source_options import SqlSourceOptions, written
from unistream.connector.sql.source_read import SqlSpec, sql_reader
from unistream.connector.sql.source_types import Described, check_readable, check_zones, with_types
from unistream.connector.sql.statements import SqlTableName
from unistream.model.columns.given_schema import Returns, as_schema
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset
from unistream.port.source import SourceReader

Bound: TypeAlias = int | str | Decimal | dt.datetime | dt.date
ROWS_PER_SPLIT: Final = 100_000  # some pages; a restart repeats at most one
MARGIN: Final = "60 s"
INTERVAL: Final = "5 s"  # as other sources look for what is new
QUERY_TIMEOUT: Final = "10 min"  # to divide a table without an index is to sort a column
TIMEOUT_MS_MAX: Final = 2**31 - 1  # of PostgreSQL
_CHANGES: Final = re.compile(
    r"\s*(insert|update|delete|merge|create|drop|alter|truncate|call|copy|do|pragma|attach)\b", re.IGNORECASE
)


class SqlSource:
    """Rows of a table, or of a query, of PostgreSQL or SQLite.

    Bounded (the default), it reads what is there when the job starts, in ranges of a column that several
    subtasks read at once. With `increasing` it reads by a column that grows, and with ``bounded=False`` it
    goes on: rows are read once they are older than `margin`. Positions are in every checkpoint.

    Each statement sees the table as it is at its own moment: a table that is changed while it is read is not
    read as of one moment.

    Args:
        url: Of SQLAlchemy, such as ``postgresql+psycopg://user@host/database`` or
            ``sqlite:////data/orders.db``. One with a password should be a reference to the whole of it,
            ``${env:DATABASE_URL}``, or a `Secret`.
        table: ``name`` or ``schema.name``, of a table or a view.
        query: Instead of `table`: a SELECT, without parameters.
        columns: Only these, in this order; None: all.
        schema: All columns and their types: then neither is asked of the database when the program runs.
        types: Types of some columns, for which the database says none, or another one: ``{"price":
            pa.decimal128(20, 4)}``. As ``pa.string()`` a column of any type is the text that PostgreSQL
            shows.
        split_by: Column by whose values a bounded source is divided; None: the first one of the primary key.
            Without both there is one split. Rows without a value are one of their own.
        splits: How many there are about.
        rows_per_split: How many rows each has about, 100,000 if neither is given.
        increasing: Column that grows from row to row, such as an id or the time of the last change: a row
            is read once its value is in what is not read yet.
        starting_after: With `increasing`: only rows whose value is greater. A restored job continues at its
            position instead.
        margin: With `increasing`: how long a transaction may be open, and clocks may differ. Rows of times
            that are younger are not read yet, nor are values of other types that were not there yet so long
            ago. A bounded source reads those up to the greatest one that it finds.
        bounded: False: the source never ends; needs `increasing`.
        interval: Unbounded: how often to look for new rows.
        query_timeout: How long a statement may take.

    Raises:
        ConfigError: an argument is wrong; at `schema` or when the job starts: the database refuses the login
            or the query, there is no such table or column, rows have no type for a column; while it runs: a
            column has changed, or the table was made again.

    >>> SqlSource("sqlite:////data/shop.db", "orders", columns=["id", "price"]).name
    'SQL: orders'
    """

    def __init__(
        self,
        url: str | Secret,
        table: str | None = None,
        *,
        query: str | None = None,
        columns: Sequence[str] | None = None,
        schema: Returns = None,
        types: Mapping[str, pa.DataType] | None = None,
        split_by: str | None = None,
        splits: int | None = None,
        rows_per_split: int | None = None,
        increasing: str | None = None,
        starting_after: Bound | None = None,
        margin: DurationLike | None = None,
        bounded: bool = True,
        interval: DurationLike | None = None,
        query_timeout: DurationLike = QUERY_TIMEOUT,
    ) -> None:
        self._url = _checked_url(url)
        self._reads = _checked_reads(table, query)
        self._columns = _checked_columns(columns)
        given = as_schema(schema, "schema=")
        if given is not None and (types or columns is not None):
            raise ConfigError(f"{SOURCE}: schema= says all columns and types; leave out columns= and types=")
        self._types = dict(types or {}) if given is None else dict(zip(given.names, given.types, strict=True))
        check_readable(self._types)
        self._schema = given
        _check_division(split_by, splits, rows_per_split, increasing)
        self._column = increasing or split_by
        self._splits = splits
        self._rows_per_split = rows_per_split or ROWS_PER_SPLIT
        self._increasing = increasing
        if increasing is None and (starting_after is not None or margin is not None):
            raise ConfigError(f"{SOURCE}: starting_after and margin are for a source with increasing=")
        self._starting_after = starting_after
        self._margin_ms = duration_ms(MARGIN if margin is None else margin)
        self._interval_ms = _checked_interval(interval, bounded=bounded, increasing=increasing)
        self._timeout_ms = duration_ms(query_timeout)
        if not 0 < self._timeout_ms <= TIMEOUT_MS_MAX:
            raise ConfigError(f"{SOURCE}: query_timeout is from 1 ms to 24 days, not {query_timeout!r}")

    def __repr__(self) -> str:
        return f"SqlSource({str(self._reads)!r}, columns={self._columns}, increasing={self._increasing!r})"

    @property
    def name(self) -> str:
        return "SQL: a query" if self._reads.table is None else f"SQL: {self._reads.table}"

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            database = ReadDatabase(self._url, self._reads, self._timeout_ms)
            try:
                found = database.described()
                if database.dialect == "postgresql":
                    check_zones(found, self._types, database.named)
                self._schema = with_types(found, self._columns, self._types, database.named)
                self._check_column(found, database.named)
            finally:
                database.close()
        return self._schema

    def _check_column(self, found: Sequence[Described], named: str) -> None:
        if self._column is None:
            return
        there = {one.name: one for one in found}
        column = there.get(self._column)
        if column is None:
            raise ConfigError(f"{named}: there is no column {self._column!r}; there are {', '.join(there)}")
        kind = column.kind
        if self._increasing and kind is not None and not _may_grow(kind):
            raise ConfigError(
                f"{named}: column {self._column!r} is {kind}, which does not grow from row to row; "
                "increasing= takes a number, a time, a date, or a text or uuid that begins with the time"
            )

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`; what a query reads is not known."""
        if self._reads.table is None or (isinstance(self._url, str) and has_reference(self._url)):
            return []
        if isinstance(self._url, Secret) and has_reference(self._url.reveal()):
            return []
        return [dataset_of(parsed(self._url, SOURCE), self._reads.table)]

    def info(self) -> SourceInfo:
        table = self._reads.table
        options = SqlSourceOptions(
            url=self._url,
            table="" if table is None else table.name,
            table_schema="" if table is None else table.schema,
            query=self._reads.query,
            column=self._column,
            increasing=self._increasing is not None,
            starting_after=self._first(),
            margin_ms=self._margin_ms,
            splits=self._splits,
            rows_per_split=self._rows_per_split,
            timeout_ms=self._timeout_ms,
            schema=written(self.schema),
            given=tuple(sorted(self._types)),
        )
        return SourceInfo(
            connector="sql",
            options=msgspec.to_builtins(options),
            bounded=self._interval_ms == 0,
            pull=True,
            discovery_interval_ms=self._interval_ms,
        )

    def _first(self) -> Cell | None:
        """PostgreSQL takes the text of any value, and SQLite has times as texts. Sessions are in UTC."""
        found = self._starting_after
        if found is None:
            return None
        if isinstance(found, dt.datetime):
            utc = found.astimezone(dt.UTC) if found.tzinfo is not None else found
            # all digits: in SQLite a time is a text, and one with more of them is greater
            return cell(utc.replace(tzinfo=None).isoformat(" ", "microseconds"))
        is_number = isinstance(found, int) and parsed(self._url, SOURCE).get_backend_name() == "sqlite"
        return cell(found if is_number else str(found))

    def create_reader(self) -> SourceReader:
        return sql_reader(
            SqlSpec(
                url=self._url,
                reads=self._reads,
                timeout_ms=self._timeout_ms,
                schema=self.schema,
                given=frozenset(self._types),
            )
        )


# --- arguments ------------------------------------------------------------------------------------


def _checked_url(url: str | Secret) -> str | Secret:
    """A password is shown nowhere, and the path of a file means the same in all processes."""
    if isinstance(url, str) and has_reference(url):
        return url
    where = checked_url(url)
    if where.get_backend_name() == "postgresql":
        require("postgres", "a SQL source of PostgreSQL")
    plain = absolute(where.render_as_string(hide_password=False))
    return Secret(plain) if isinstance(url, Secret) or where.password is not None else plain


def _checked_reads(table: str | None, query: str | None) -> Reads:
    if (table is None) == (query is None):
        raise ConfigError(f"{SOURCE} reads a table or a query=, one of the two")
    if query is not None:
        if not query.strip() or _CHANGES.match(query):
            raise ConfigError(f"{SOURCE}: query= is a SELECT, not {query.strip()[:60]!r}")
        return Reads(None, query)
    assert table is not None, "there is a query otherwise"
    schema, dot, name = table.rpartition(".")
    if not name or (dot and not schema):
        raise ConfigError(f"{SOURCE}: table is 'name' or 'schema.name', not {table!r}")
    return Reads(SqlTableName(name, schema))


def _checked_columns(columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"{SOURCE}: columns must be at least one, each once, not {names!r}")
    return names


def _check_division(
    split_by: str | None, splits: int | None, rows_per_split: int | None, increasing: str | None
) -> None:
    if splits is not None and rows_per_split is not None:
        raise ConfigError(f"{SOURCE}: splits or rows_per_split, one of the two")
    for name, number in (("splits", splits), ("rows_per_split", rows_per_split)):
        if number is not None and number < 1:
            raise ConfigError(f"{SOURCE}: {name} must be at least 1, not {number}")
    if increasing is not None and (split_by is not None or splits is not None):
        raise ConfigError(
            f"{SOURCE}: with increasing= it is divided by that column, by rows_per_split; leave out "
            "split_by and splits"
        )


def _checked_interval(interval: DurationLike | None, *, bounded: bool, increasing: str | None) -> int:
    """The interval of the looks in ms; 0: the source is bounded. Raises ConfigError: the arguments contradict
    each other."""
    if bounded:
        if interval is not None:
            raise ConfigError(f"{SOURCE}: interval is for a source with bounded=False")
        return 0
    if increasing is None:
        raise ConfigError(f"{SOURCE}: bounded=False needs increasing=: the column that grows from row to row")
    found = duration_ms(INTERVAL if interval is None else interval)
    if found < 1:
        raise ConfigError(f"{SOURCE}: interval must be above 0, not {interval!r}")
    return found


def _may_grow(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )
