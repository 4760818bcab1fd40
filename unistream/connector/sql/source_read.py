"""Reads splits of a SQL source, page by page: a statement for each, whose rows are all here before they are
passed on. So no statement is open while the job does not take rows.

    with a key   rows are ordered by the range's column and the key: the next page is what is greater
    without      by the column: a full page is cut before its last value, whose rows come with the next one.
                 If a page has one value alone, its rows are read in the order of all columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from unistream.base.secrets import Secret
from unistream.connector.common import RowChunk, SplitReader, decoded_split
from unistream.connector.sql.ranges import PAGE_ROWS_FIRST, next_limit
from unistream.connector.sql.source_database import Page, ReadDatabase, Reads, TooLarge
from unistream.connector.sql.source_options import check_identity, check_same
from unistream.connector.sql.source_split import SqlSplit, encode_split


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSpec:
    """How to read. `given`: see `check_same`."""

    url: str | Secret
    reads: Reads
    timeout_ms: int
    schema: pa.Schema
    given: frozenset[str]


def sql_reader(spec: SqlSpec) -> SplitReader[SqlSplit]:
    pages = Pages(spec)
    return SplitReader(
        pages.decode,
        encode_split,
        lambda split: decoded_split(split, SqlSplit, "SQL"),
        interrupt=pages.interrupt,
        release=pages.close,
    )


class Pages:
    """The pages of one reader: its connection, and how many rows fit into one."""

    def __init__(self, spec: SqlSpec) -> None:
        self._spec = spec
        self._database: ReadDatabase | None = None
        self._limit = PAGE_ROWS_FIRST
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Ends the statement that runs, so that it is not waited for; called by another thread."""
        self._is_interrupted = True
        if self._database is not None:
            self._database.interrupt()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def decode(self, split: SqlSplit) -> Iterator[RowChunk[SqlSplit]]:
        """The remaining rows of a split. Raises ConfigError, UserCodeError, Unreachable."""
        spec = self._spec
        if self._database is None:
            self._database = ReadDatabase(spec.url, spec.reads, spec.timeout_ms)
        database = self._database
        if self._is_interrupted:  # before there was a database
            database.interrupt()
        there = check_same(database, spec.schema, spec.given)
        if split.origin:
            check_identity(database, split.origin, database.identity())
        layout = database.layout(spec.schema, split.column, split.order, there)

        def page(split: SqlSplit, limit: int) -> Page | TooLarge | None:
            next_page = database.page(layout, split, limit)
            if isinstance(next_page, TooLarge):
                self._limit = next_page.rows
            elif next_page is not None:
                self._limit = next_limit(next_page.records.num_rows, next_page.size)
            return next_page

        for rows, following in pages(split, page, lambda: self._limit):
            yield RowChunk(rows, following)


def pages(
    split: SqlSplit, page: Callable[[SqlSplit, int], Page | TooLarge | None], limit: Callable[[], int]
) -> Iterator[tuple[pa.RecordBatch, SqlSplit]]:
    """Rows of a split behind its position, each with the position that follows them.

    Args:
        split: With its position.
        page: The next so many rows behind a position; if they are too large, fewer are asked for.
        limit: How many; there may be fewer in a page (`Page.asked`).
    """
    ordered, is_unique = bool(split.order), bool(split.key)  # with a key no two rows have one position
    if not ordered and split.tie is None:
        split = msgspec.structs.replace(split, tie=())
    while True:
        fitting = _fitting(split, page, limit)
        rows = 0 if fitting is None else fitting.records.num_rows
        is_last = fitting is None or rows < fitting.asked
        if split.tie is not None:
            following = _in_tie(split, rows, is_last=is_last)
            if fitting is not None:
                yield fitting.records, following
            if is_last and not ordered:
                return
            split = following
            continue
        if fitting is None:
            return
        if is_last or is_unique:
            split = msgspec.structs.replace(split, after=fitting.last)
            yield fitting.records, split
            if is_last:
                return
        elif fitting.ties == rows:
            split = msgspec.structs.replace(split, tie=fitting.last, skip=0)
        else:
            split = msgspec.structs.replace(split, after=fitting.before)
            yield fitting.records.slice(0, rows - fitting.ties), split


def _fitting(
    split: SqlSplit, page: Callable[[SqlSplit, int], Page | TooLarge | None], limit: Callable[[], int]
) -> Page | None:
    """A page; the limit is lower after one that was too large."""
    while True:
        found = page(split, limit())
        if not isinstance(found, TooLarge):
            return found


def _in_tie(split: SqlSplit, rows: int, *, is_last: bool) -> SqlSplit:
    assert split.tie is not None, "rows of one value are read"
    if is_last and split.tie:
        return msgspec.structs.replace(split, after=split.tie, tie=None, skip=0)
    return msgspec.structs.replace(split, skip=split.skip + rows)
