"""One key may have more rows than a batch: they are merged as they grow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.operator.window import AggregatePlan, whole_panes
from unistream.operator.window import aggregates as agg
from unistream.operator.window.whole_panes import WholePanes

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
PLAN = AggregatePlan(["k"], {"n": agg.count(), "high": agg.max("v")})


def partials(keys: list[str | None], values: list[int | None]) -> pa.Table:
    """A partial of each row."""
    rows = pa.table({"k": keys, "v": values}, schema=SCHEMA)
    return pa.Table.from_batches([PLAN.lift(rows.combine_chunks().to_batches()[0])])


@pytest.mark.parametrize("most", [1, 4, 65_536])
def test_a_key_with_many_rows(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """It comes in several pieces; in the first is another key, too."""
    monkeypatch.setattr(whole_panes, "BATCH_ROWS_MAX", most)
    panes = WholePanes(PLAN)
    for _ in range(2):  # nothing of the keys before is left
        panes.add(partials(["a", "a", "b"], [7, 8, -1]), np.array([0, 0, 0]), np.array([0, 2]))
        for value in range(100):
            panes.add(partials(["b", "b"], [value, -value]), np.full(2, 10 * (value // 50)), np.array([0]))
        merged, ends = panes.take()
        rows = zip(merged.select(["k", "count(*)", "max(v)"]).to_pylist(), ends.tolist(), strict=True)
        assert sorted((*row.values(), end) for row, end in rows) == [
            ("a", 2, 8, 0),
            ("b", 100, 99, 10),
            ("b", 101, 49, 0),
        ]
        assert ends.tolist() == sorted(ends.tolist())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.none() | st.integers(-5, 5)), min_size=1))
@settings(deadline=None)
def test_rows_of_a_key_and_pane_that_are_together_become_one(rows: list[tuple[int, int, int | None]]) -> None:
    rows.sort(key=lambda row: row[:2])
    keys, ends, values = (list(column) for column in zip(*rows, strict=True))
    names = [None if key == 0 else f"k{key}" for key in keys]  # null is a key
    starts = [n for n, key in enumerate(keys) if n == 0 or key != keys[n - 1]]
    panes = WholePanes(PLAN)
    panes.add(partials(names, values), np.array(ends), np.array(starts))
    merged, found_ends = panes.take()
    truth: dict[tuple[int, int], list[int | None]] = {}
    for key, end, value in rows:
        truth.setdefault((key, end), []).append(value)
    assert found_ends.tolist() == [end for _, end in truth], "in the order in which they came"
    assert merged.select(["k", "count(*)", "max(v)"]).to_pylist() == [
        {
            "k": None if key == 0 else f"k{key}",
            "count(*)": len(found),
            "max(v)": max((value for value in found if value is not None), default=None),
        }
        for (key, _), found in truth.items()
    ]
