"""Which rows are of which split, and up to where a growing column may be read. Pure.

A range is of the values of one column, from a value (or behind it) to another (before it, or with it). Ranges
of one list follow each other without a gap, so each value is in one. Rows without a value are a range of
their own.

    margin      how long a transaction may be open, so that its rows appear behind those of later ones
    mark        "at this time no greater value was there"
    settled     values up to a mark, once it is older than the margin: no more rows come there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from unistream.base.limits import BATCH_ROWS_MAX, MIB
from unistream.connector.sql.source_cells import Cell, shown

MARKS_MAX: Final = 32  # in a state; a mark more would be younger than the one before by less than margin/32
PAGE_BYTES: Final = 16 * MIB  # of text; a page is in memory as text, and as columns
PAGE_BYTES_MAX: Final = 4 * PAGE_BYTES  # where rows are larger than those before; PostgreSQL has 1 GiB
PAGE_ROWS_FIRST: Final = 1_024  # of a table of which nothing is known
PAGE_GROWTH: Final = 8  # rows may be larger than those before


class Range(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Values of a column. `low` None: from the first one on; `after_low`: without it. `high` None: to the
    last one; `before_high`: without it. `nulls`: rows without a value, and no others. `all`: of a source that
    is not divided."""

    low: Cell | None = None
    after_low: bool = False
    high: Cell | None = None
    before_high: bool = False
    nulls: bool = False
    all: bool = False

    @property
    def name(self) -> str:
        """The name of a split of the range: two of one source are never alike.

        >>> Range(low=Cell("i", "1"), high=Cell("i", "5"), before_high=True).name
        '[1, 5)'
        """
        if self.nulls or self.all:
            return "null" if self.nulls else "all"
        ends = f"{'(' if self.after_low else '['}{shown(self.low)}", shown(self.high)
        return f"{ends[0]}, {ends[1]}{')' if self.before_high else ']'}"


def ranges(starts: Sequence[Cell], high: Cell) -> list[Range]:
    """The ranges from `starts`, in order, to `high`. Where many rows have one value it is a start several
    times, and in one range.

    >>> one, five = Cell("i", "1"), Cell("i", "5")
    >>> [found.name for found in ranges([one, five, five], Cell("i", "9"))]
    ['[1, 5)', '[5, 9]']
    """
    kept = list(dict.fromkeys(starts))
    ends = [*kept[1:], None][: len(kept)]
    return [
        Range(low=low, high=high if end is None else end, before_high=end is not None)
        for low, end in zip(kept, ends, strict=True)
    ]


class Mark(NamedTuple):
    """A look at the column: no value was greater than `greatest` at `at_ms`, by the clock of the database."""

    at_ms: int
    greatest: Cell


def settled(marks: Sequence[Mark], now_ms: int, margin_ms: int) -> Cell | None:
    """The newest value behind which no row can come any more; None: none yet.

    >>> marks = [Mark(1_000, Cell("i", "7")), Mark(2_000, Cell("i", "9"))]
    >>> settled(marks, 2_500, 1_000).text, settled(marks, 1_500, 1_000)
    ('7', None)
    """
    old = [mark.greatest for mark in marks if now_ms - mark.at_ms >= margin_ms]
    return old[-1] if old else None


class ColumnPosition(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an increasing column: to `low`, and with it if `after`. `marks`: see above."""

    column: str
    low: Cell | None = None
    after: bool = True
    marks: tuple[Mark, ...] = ()

    def marked(self, mark: Mark, margin_ms: int) -> tuple[Cell | None, ColumnPosition]:
        """How far may be read now, and the position that remembers the mark."""
        marks = with_mark(self.marks, mark, margin_ms)
        return settled(marks, mark.at_ms, margin_ms), msgspec.structs.replace(self, marks=marks)

    def behind(
        self, found: Sequence[Range], high: Cell | None, at_most: int
    ) -> tuple[list[Range], ColumnPosition]:
        """What is read of the ranges up to `high`, and where the next look begins. Where there is nothing it
        stays, so that it never goes back."""
        if len(found) > at_most:
            rest = msgspec.structs.replace(self, low=found[at_most].low, after=False)
            return list(found[:at_most]), rest
        return list(found), msgspec.structs.replace(self, low=high, after=True) if found else self


def with_mark(marks: Sequence[Mark], new: Mark, margin_ms: int) -> tuple[Mark, ...]:
    """The marks that are needed behind `new`: the newest one that is old enough, and all younger ones that
    are not close together."""
    settled_ones = [mark for mark in marks if new.at_ms - mark.at_ms >= margin_ms]
    young = [mark for mark in marks if new.at_ms - mark.at_ms < margin_ms]
    apart = bool(young) and new.at_ms - young[-1].at_ms < margin_ms // MARKS_MAX
    return (*settled_ones[-1:], *young) if apart else (*settled_ones[-1:], *young, new)


def next_limit(rows: int, size: int) -> int:
    """How many rows to ask for, after a page of `rows` rows and `size` bytes.

    >>> next_limit(1_024, 100_000), next_limit(1_024, 1_024 * 20_000), next_limit(2, 2**30)
    (8192, 838, 1)
    """
    fitting = PAGE_BYTES * rows // max(1, size)
    return max(1, min(BATCH_ROWS_MAX, fitting, rows * PAGE_GROWTH))
