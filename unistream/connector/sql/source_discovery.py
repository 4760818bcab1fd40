"""Finds the splits of a SQL source: ranges of a column, each with about as many rows.

    bounded      to the greatest value that is there now           that is all
    increasing   to the last value that is settled (`ranges`)      position: where the next look begins

The position is in every checkpoint, and so is the identity of the table (`KnownSplits.origin`): one that was
dropped and made again has other rows under the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.connector.common import discovery_options
from unistream.connector.sql.ranges import ColumnPosition, Mark, Range, ranges
from unistream.connector.sql.source_cells import Cell
from unistream.connector.sql.source_database import ReadDatabase
from unistream.connector.sql.source_options import START_AGAIN, SqlSourceOptions, check_identity, check_same
from unistream.connector.sql.source_split import SqlSplit, encode_split
from unistream.connector.sql.source_statements import SqlPageLayout
from unistream.model.columns.event_time import event_times, is_event_time
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import SplitDiscovery

SPLITS_MAX: Final = 100_000  # of a bounded source
SPLITS_AT_ONCE: Final = 10_000  # of an increasing column; the others are found by the next look
Starts: TypeAlias = Sequence[tuple[Cell, Any]]
"""The first value of each range, and the least event time of its rows."""


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Entry point of the connector registry. Raises ConfigError: not the options of a SQL source."""
    return SqlDiscovery(discovery_options(info, SqlSourceOptions, "SQL"), info)


class SqlDiscovery:
    """See `unistream.port.source.GrowingDiscovery`."""

    def __init__(self, options: SqlSourceOptions, info: SourceInfo) -> None:
        self._options = options
        self._schema = options.read_schema()
        self._bounded = info.bounded
        name = info.timestamp_column
        is_timed = name in self._schema.names and is_event_time(self._schema.field(name).type)
        self._time_column = name if is_timed else ""

    def discover(self) -> Sequence[Split]:
        return self.find(None).splits

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """
        Raises:
            ConfigError: the columns are not those of the source, the table is another one, or what is asked
                for cannot be read.
            Unreachable: the database does not answer.
        """
        options = self._options
        database = ReadDatabase(options.url, options.reads(), options.timeout_ms)
        try:
            origin = database.identity()
            look = self._look(database, origin)
            if known is not None:
                check_identity(database, known.origin, origin)
            if options.increasing:
                return look.increased(_position(known, look.column, options.starting_after), origin)
            return FoundSplits(splits=look.all(), origin=origin)
        finally:
            database.close()

    def close(self) -> None:
        """Holds nothing between calls."""

    def _look(self, database: ReadDatabase, origin: str) -> _SqlSplitEnumerator:
        """SQLite takes the name of a column that is not there for a text, so that is asked before."""
        there = check_same(database, self._schema, frozenset(self._options.given))
        key = database.key()
        column = self._options.column or next(iter(key), "")
        if column and column not in there:
            raise ConfigError(
                f"{database.named}: there is no column {column!r}; there are {', '.join(there)}"
            )
        return _SqlSplitEnumerator(
            database=database,
            origin=origin,
            layout=database.layout(self._schema, column or None, ()),
            options=self._options,
            bounded=self._bounded,
            time_column=self._time_column,
            key=key,
            column=column,
            kind=there[column].kind if column else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SqlSplitEnumerator:
    """One discovery. `column`: of the ranges, of type `kind`; "": there are none."""

    database: ReadDatabase
    origin: str
    layout: SqlPageLayout
    options: SqlSourceOptions
    bounded: bool
    time_column: str
    key: tuple[str, ...]
    column: str
    kind: pa.DataType | None

    def _split(self, range_: Range, number: int = 0, least: int | None = None) -> Split:
        column = self.column or None
        return encode_split(
            SqlSplit(
                range=range_,
                number=number,
                column=column,
                key=self.key,
                origin=self.origin,
                min_timestamp=least,
            )
        )

    # --- bounded ----------------------------------------------------------------------------------

    def all(self) -> tuple[Split, ...]:
        if not self.column:
            return (self._split(Range(all=True)),)
        nulls = () if self.column in self.key else (self._split(Range(nulls=True)),)
        high = self.database.greatest(self.layout, self.column)
        if high is None:
            return nulls
        starts = self._starts(Range(high=high), SPLITS_MAX + 1)
        if len(starts) > SPLITS_MAX:
            raise ConfigError(
                f"{self.database.named}: more than {SPLITS_MAX} splits; give the source fewer splits, or "
                "more rows_per_split"
            )
        return (*self._splits(ranges([start for start, _ in starts], high), starts), *nulls)

    def _starts(self, within: Range, at_most: int) -> Starts:
        return self.database.starts(self.layout, within, self._rows(within), at_most, self.time_column)

    def _splits(self, found: Sequence[Range], starts: Starts) -> tuple[Split, ...]:
        least = self._least_times(starts) if self.time_column else {}
        return tuple(self._split(one, number, least.get(one.low)) for number, one in enumerate(found))

    def _rows(self, within: Range) -> int:
        options = self.options
        if options.splits is None:
            return options.rows_per_split
        return max(1, -(-self.database.count(self.layout, within) // options.splits))

    def _least_times(self, starts: Starts) -> dict[Cell | None, int | None]:
        """The least event time of each range by its start. Rows of its first value may be counted with those
        before it; of several starts that are one value to the database ("a" and "A", 1 and 1.0) the last has
        all rows."""
        kind = self.layout.schema.field(self.time_column).type
        if self.time_column == self.column:
            return {start: _event_time(start.text, kind) for start, _ in starts}
        found: dict[Cell | None, int | None] = {}
        places: dict[Cell, int] = {}
        before = _event_time(starts[0][1], kind) if starts else None
        for start, text in starts:
            time = _event_time(text, kind)
            place = places.setdefault(start, len(places))
            for alike in list(places)[place:] if place < len(places) - 1 else [start]:
                found[alike] = _earliest(before, time, found.get(alike, time))
            before = time
        return found

    # --- increasing -------------------------------------------------------------------------------

    def increased(self, position: ColumnPosition, origin: str) -> FoundSplits:
        database, layout = self.database, self.layout
        if self.column not in self.key and database.has_nulls(layout, self.column):
            raise ConfigError(
                f"{database.named}: column {self.column!r} is null in some rows, which would never be read; "
                "name a column that is never null, or a query= that fills it (coalesce) or leaves them out "
                "(WHERE … IS NOT NULL)"
            )
        high, position = self._settled(position)
        within = Range(low=position.low, after_low=position.after, high=high)
        starts = [] if high is None else self._starts(within, SPLITS_AT_ONCE + 1)
        all_ranges = [] if high is None else ranges([start for start, _ in starts], high)
        new_ranges, following = position.behind(all_ranges, high, SPLITS_AT_ONCE)
        return FoundSplits(
            splits=self._splits(new_ranges, starts),
            origin=origin,
            position=msgspec.json.encode(following).decode(),
        )

    def _settled(self, position: ColumnPosition) -> tuple[Cell | None, ColumnPosition]:
        """How far may be read now, and the position that the next look begins with."""
        database, options = self.database, self.options
        greatest = database.greatest(self.layout, self.column)
        kind = self.kind
        if kind is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            position = msgspec.structs.replace(position, low=database.alike(position.low, greatest))
            return database.time_before(options.margin_ms, kind, greatest), position
        if self.bounded or greatest is None:
            return greatest, position
        now_ms = database.now_ms()  # behind the look at the greatest value
        return position.marked(Mark(now_ms, greatest), options.margin_ms)


def _position(known: KnownSplits | None, column: str, first: Cell | None) -> ColumnPosition:
    if known is None or not known.position:
        return ColumnPosition(column=column, low=first)
    try:
        found = msgspec.json.decode(known.position, type=ColumnPosition)
    except UNDECODABLE as error:
        raise ConfigError(f"the position of a SQL source is unreadable: {error}") from error
    if found.column != column:
        raise ConfigError(
            f"SQL source: the job has read it by column {found.column!r}, and is to read on by {column!r}, "
            f"whose values say nothing of what was read; {START_AGAIN}"
        )
    return found


def _earliest(*times: int | None) -> int | None:
    """The earliest of some times; None: it is not known of one of them."""
    known = [one for one in times if one is not None]
    return min(known) if len(known) == len(times) else None


def _event_time(text: Any, kind: pa.DataType) -> int | None:
    """The event time of a value as the database writes it, in ms; None: it is not known."""
    if text is None:
        return None
    try:
        found = pa.array([str(text)]).cast(kind)
        return int(event_times(found)[0].as_py())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
