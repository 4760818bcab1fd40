"""Partials that wait for their panes to close."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from unistream.operator.window import AggregatePlan
from unistream.operator.window import aggregates as agg
from unistream.operator.window.held_partials import PANE, HeldPartials

PLAN = AggregatePlan(["k"], {"n": agg.count()})
Rows = list[tuple[str, int, int]]  # key, count, end of the pane


def held(*added: tuple[int | None, Rows]) -> HeldPartials:
    """`added`: for each table the end of its pane, or None if it has several, and its partials."""
    made = HeldPartials(PLAN)
    for pane, rows in added:
        keys, counts, ends = zip(*rows, strict=True)
        table = pa.table({"k": pa.array(keys), "count(*)": pa.array(counts, pa.int64())})
        if pane is None:
            made.add_several(table.append_column(PANE, pa.array(ends, pa.int64())), min(ends))
        else:
            made.add(table, pane)
    return made


def taken(table: pa.Table | None) -> Rows:
    rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
    return sorted((row["k"], row["count(*)"], row[PANE]) for row in rows)


ONE_PANE_EACH = ((10, [("a", 1, 10), ("b", 2, 10)]), (20, [("a", 3, 20)]), (10, [("a", 4, 10)]))
SEVERAL = ((None, [("a", 1, 10), ("b", 2, 10), ("a", 3, 20)]), (None, [("a", 4, 10)]))


@pytest.mark.parametrize("added", [ONE_PANE_EACH, SEVERAL])
def test_panes_that_are_closed_are_merged_and_taken_and_the_others_stay(
    added: tuple[tuple[int | None, Rows], ...],
) -> None:
    partials = held(*added)
    assert (partials.rows, partials.lowest) == (4, 10)
    assert partials.take(8) is None
    assert taken(partials.take(9)) == [("a", 5, 10), ("b", 2, 10)]
    assert (partials.rows, partials.lowest) == (1, 20)
    assert partials.take(18) is None
    assert taken(partials.take()) == [("a", 3, 20)]
    assert (partials.rows, partials.take()) == (0, None)


@pytest.mark.parametrize("added", [ONE_PANE_EACH, SEVERAL])
def test_all_are_merged_to_be_kept(added: tuple[tuple[int | None, Rows], ...]) -> None:
    partials = held(*added)
    partials.merge()
    assert (partials.rows, partials.merged_rows) == (3, 3)
    assert taken(partials.take(merged=False)) == [("a", 3, 20), ("a", 5, 10), ("b", 2, 10)]


def test_a_watermark_that_closes_nothing_does_not_count_as_a_merge() -> None:
    """Else nothing would be merged between the watermarks of a long window, however much there is."""
    partials = held(*ONE_PANE_EACH)
    assert partials.take(8) is None
    assert (partials.rows, partials.merged_rows) == (4, 0)
    partials.merge()
    partials.add(pa.table({"k": ["c"], "count(*)": [1]}), 20)
    assert taken(partials.take(9)) == [("a", 5, 10), ("b", 2, 10)]
    assert (partials.rows, partials.merged_rows) == (2, 2)


def test_they_are_taken_as_they_are() -> None:
    assert taken(held(*ONE_PANE_EACH, *SEVERAL).take(merged=False)) == sorted(
        row for _, rows in (*ONE_PANE_EACH, *SEVERAL) for row in rows
    )


def test_of_both_kinds_each_is_merged_by_itself() -> None:
    partials = held(*ONE_PANE_EACH, *SEVERAL)
    assert taken(partials.take(9)) == [("a", 5, 10), ("a", 5, 10), ("b", 2, 10), ("b", 2, 10)]
    assert taken(partials.take()) == [("a", 3, 20), ("a", 3, 20)]
