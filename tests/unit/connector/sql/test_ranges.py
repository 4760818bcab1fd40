"""Ranges of a column, how far a growing one is read, and pages: whatever comes in between, each row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.connector.sql.ranges import (
    MARKS_MAX,
    PAGE_BYTES,
    ColumnPosition,
    Mark,
    Range,
    next_limit,
    ranges,
    settled,
    with_mark,
)
from unistream.connector.sql.source_cells import Cell, cell, cells, value
from unistream.connector.sql.source_database import Page, TooLarge
from unistream.connector.sql.source_read import pages
from unistream.connector.sql.source_split import SqlSplit

MARGIN = 100


@pytest.mark.parametrize(
    ("starts", "high", "names"),
    [
        pytest.param([1], 1, ["[1, 1]"], id="one value"),
        pytest.param([1, 5, 9], 12, ["[1, 5)", "[5, 9)", "[9, 12]"], id="no gap between two"),
        pytest.param([1, 1, 1, 5], 5, ["[1, 5)", "[5, 5]"], id="a value of many rows is in one range"),
        pytest.param([], 5, [], id="no rows"),
    ],
)
def test_ranges_follow_each_other(starts: list[int], high: int, names: list[str]) -> None:
    assert [one.name for one in ranges(list(cells(starts)), cell(high))] == names


@pytest.mark.parametrize(
    ("marks", "now_ms", "expected"),
    [
        pytest.param([], 500, None, id="nothing was seen"),
        pytest.param([(450, 7)], 500, None, id="a mark that is younger than the margin says nothing yet"),
        pytest.param([(400, 7)], 500, 7, id="one that is as old as the margin does"),
        pytest.param([(300, 5), (400, 7), (450, 9)], 500, 7, id="the newest that is old enough counts"),
        pytest.param([(400, 7)], 90_000, 7, id="after a long stop it still says no more than it did"),
    ],
)
def test_what_is_settled(marks: list[tuple[int, int]], now_ms: int, expected: int | None) -> None:
    found = settled([Mark(at, cell(top)) for at, top in marks], now_ms, MARGIN)
    assert (None if found is None else value(found)) == expected


def test_marks_are_few_however_often_one_looks() -> None:
    marks: tuple[Mark, ...] = ()
    for now_ms in range(0, 50_000, 7):
        marks = with_mark(marks, Mark(now_ms, cell(now_ms)), 10_000)
        found = settled(marks, now_ms, 10_000)
        assert len(marks) <= MARKS_MAX + 2
        if now_ms > 21_000:
            assert found is not None
            assert now_ms - 10_000 - 10_000 // MARKS_MAX - 7 <= value(found) <= now_ms - 10_000


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [
        pytest.param(1_000, 100, 8_000, id="of small rows more"),
        pytest.param(60_000, 100, 65_536, id="never more than a batch has"),
        pytest.param(1_000, 2 * PAGE_BYTES, 500, id="of large rows fewer"),
        pytest.param(1, 100 * PAGE_BYTES, 1, id="one at least"),
    ],
)
def test_a_page_has_as_many_rows_as_fit(rows: int, size: int, expected: int) -> None:
    assert next_limit(rows, size) == expected


# --- a table that is written while it is read -----------------------------------------------------


class Written:
    """A table with a growing id, in which transactions are open for less than the margin."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_ms = 0
        self.ids = 0
        self.open: list[tuple[int, list[int]]] = []  # since when, its ids
        self.rows: set[int] = set()

    def step(self) -> None:
        self.now_ms += self.random.randint(1, 40)
        for since, ids in list(self.open):
            if self.now_ms - since >= MARGIN - 40 or self.random.random() < 0.3:
                self.open.remove((since, ids))
                if self.random.random() < 0.8:  # else it is rolled back, and its ids are never there
                    self.rows |= set(ids)
        if self.random.random() < 0.6:
            given = [self.ids + n + 1 for n in range(self.random.randint(1, 3))]
            self.ids += len(given)
            self.open.append((self.now_ms, given))

    def found(self, position: ColumnPosition, at_most: int) -> tuple[list[Range], ColumnPosition]:
        """As the discovery does it."""
        if not self.rows:
            return [], position
        high, position = position.marked(Mark(self.now_ms, cell(max(self.rows))), MARGIN)
        low = 0 if position.low is None else value(position.low) + position.after
        inside = [] if high is None else sorted(id for id in self.rows if low <= id <= value(high))
        assert high is not None or not inside
        starts = cells(inside[::2])
        return position.behind(ranges(starts, high or cell(0)), high, at_most)

    def within(self, found: Range) -> list[int]:
        assert found.low is not None
        assert found.high is not None
        low, high = value(found.low), value(found.high)
        return [id for id in self.rows if low <= id <= high and not (found.before_high and id == high)]


@given(st.integers(0, 10**9), st.integers(1, 3))
def test_whatever_commits_looks_and_restores_each_row_comes_once(seed: int, at_most: int) -> None:
    random = Random(seed)
    table, position = Written(random), ColumnPosition(column="id")
    waiting: list[Range] = []
    read: list[int] = []
    kept = (position, list(waiting), list(read))
    for n in range(400):
        if n < 150:
            table.step()
        else:
            table.open, table.now_ms = [], table.now_ms + MARGIN
        what = random.random()
        if what < 0.5 or n >= 150:
            found, position = table.found(position, at_most)
            waiting += found
        if waiting and (what > 0.4 or n >= 150):
            read += table.within(waiting.pop(random.randrange(len(waiting))))
        if n < 150 and random.random() < 0.1:
            kept = (position, list(waiting), list(read))
        elif n < 150 and random.random() < 0.1:
            position, waiting, read = kept[0], list(kept[1]), list(kept[2])
    while waiting:
        read += table.within(waiting.pop())
    assert Counter(read) == Counter(table.rows)


# --- pages ----------------------------------------------------------------------------------------


def reader(
    rows: list[tuple[int, int]], random: Random, *, key: bool
) -> Callable[[SqlSplit, int], Page | TooLarge | None]:
    """Pages of rows (value, id), which come in another order each time where nothing says which."""

    def page(split: SqlSplit, limit: int) -> Page | TooLarge | None:
        if limit > 1 and random.random() < 0.2:
            return TooLarge(limit - 1)
        found = rows if not split.order else sorted(rows, key=lambda row: row if key else row[:1])
        if split.tie is not None:
            found = sorted(row for row in rows if not split.tie or row[0] == value(split.tie[0]))
            found = found[split.skip :]
        elif split.after:
            after = tuple(map(value, split.after))
            found = [row for row in found if row[: len(after)] > after]
        limit = 1 + limit // 2  # of large rows fewer come than were wanted
        found = found[:limit]
        if not found:
            return None
        width = 2 if key else 1
        ties = len(found) if split.tie is not None else [r[:width] for r in found].count(found[-1][:width])
        before = found[-1 - ties][:width] if ties < len(found) else ()
        records = pa.record_batch({"v": [v for v, _ in found], "id": [id for _, id in found]})
        return Page(records, cells(before), cells(found[-1][:width]), ties, 1, limit)

    return page


@pytest.mark.parametrize("kind", ["key", "column", "neither"])
@given(st.integers(0, 10**9))
def test_pages_have_each_row_once_whatever_restarts(kind: str, seed: int) -> None:
    random = Random(seed)
    rows = [(random.randint(0, 4), id) for id in range(random.randint(0, 40))]
    split = SqlSplit(
        range=Range(all=kind == "neither"),
        column=None if kind == "neither" else "v",
        key=("id",) if kind == "key" else (),
    )
    read: list[int] = []
    ended = False
    while not ended:
        random.shuffle(rows)
        ended = True
        for records, following in pages(
            split, reader(rows, random, key=kind == "key"), lambda: random.randint(1, 9)
        ):
            read += records.column("id").to_pylist()
            split = following
            if random.random() < 0.4:  # a restart: the position is all that is left
                ended = False
                break
    assert Counter(read) == Counter(id for _, id in rows)


@pytest.mark.parametrize("found", [7, 2**70, "ü'\"", b"\x00\xff", 0.1, -0.0, "", "2026-01-01 00:00:00+00"])
def test_a_value_comes_back_as_it_was(found: object) -> None:
    again = value(Cell(*cell(found)))
    assert (type(again), repr(again)) == (type(found), repr(found))
