"""What windows restore: only what the same windows over the same keys have stored, in types that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot, UserCodeError
from unistream.model.own_state import own_table_migration
from unistream.model.snapshot import OperatorSnapshot
from unistream.model.state_types import Same
from unistream.operator.window import (
    STATE,
    WINDOWS,
    Aggregate,
    AggregatePlan,
    LocalWindowAggregate,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAggregate,
    Windows,
)
from unistream.operator.window import aggregates as agg
from unistream.testing.harness import OperatorHarness, restore_state
from unistream.worker.task import task_failure

TUMBLING = TumblingEventTimeWindows.of
SLIDING = SlidingEventTimeWindows.of
TENS = TUMBLING("10 s")
TEXT = pa.schema([("k", pa.string()), ("v", pa.int64())])
TIMES = [1_000, 12_000, 15_000]
Columns = Mapping[str, pa.Array]


def windowed(
    windows: Windows = TENS,
    *,
    rows: pa.Schema | None = TEXT,
    keys: Sequence[str] = ("k",),
    **aggregates: Aggregate,
) -> WindowAggregate:
    """`rows`: None: types are not declared."""
    plan = AggregatePlan(list(keys), aggregates or {"n": agg.count()})
    partials = None if rows is None else plan.partial_schema(rows)
    return WindowAggregate(plan, windows, pre_aggregated=False, partials=partials)


def filled(operator: WindowAggregate, columns: Columns | None = None) -> OperatorSnapshot:
    """What it stores after three rows, in two windows of 10 s."""
    with OperatorHarness(operator) as harness:
        given = columns or {"k": pa.array(["a"] * 3), "v": pa.array([1, 2, 3])}
        harness.process(pa.RecordBatch.from_pydict(dict(given)), TIMES)
        return harness.snapshot(1)


def restored(operator: WindowAggregate, *snapshots: OperatorSnapshot) -> OperatorHarness:
    return OperatorHarness(operator, state=restore_state(snapshots, 1))


def results(harness: OperatorHarness, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in harness.rows())


# --- windows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(TUMBLING("10 s"), TUMBLING("20 s"), id="longer"),
        pytest.param(TUMBLING("20 s"), TUMBLING("10 s"), id="shorter"),
        pytest.param(TUMBLING("10 s"), TUMBLING("3 s"), id="not even a part"),
        pytest.param(TUMBLING("10 s"), TUMBLING("10 s", offset="5 s"), id="another offset"),
        pytest.param(
            TUMBLING("10 s"), SLIDING("20 s", "10 s"), id="tumbling, then sliding over the same panes"
        ),
        pytest.param(SLIDING("20 s", "10 s"), TUMBLING("10 s"), id="sliding, then tumbling"),
        pytest.param(SLIDING("20 s", "10 s"), SLIDING("30 s", "10 s"), id="longer with the same slide"),
        pytest.param(SLIDING("30 s", "10 s"), SLIDING("30 s", "15 s"), id="another slide"),
    ],
)
def test_other_windows_are_refused_and_both_are_named(before: Windows, after: Windows) -> None:
    with pytest.raises(ConfigError) as caught:
        restored(windowed(after), filled(windowed(before))).open()
    text = str(caught.value)
    assert f"it was made by {before}, and the pipeline now has {after}; go back to" in text
    assert "give the operator another uid and allow non-restored state" in text
    assert "\n" not in text
    assert not task_failure(caught.value).recoverable


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(TUMBLING("10 s"), TUMBLING("10000 ms"), id="in another unit"),
        pytest.param(TUMBLING("10 s", offset="5 s"), TUMBLING("10 s", offset=-5_000), id="an equal offset"),
        pytest.param(SLIDING("10 s", "10 s"), TUMBLING("10 s", offset="10 s"), id="sliding without overlap"),
        pytest.param(SLIDING("20 s", "10 s"), SLIDING("20 s", "10 s", offset="30 s"), id="a whole slide off"),
    ],
)
def test_the_same_windows_may_be_written_in_another_way(before: Windows, after: Windows) -> None:
    with restored(windowed(after), filled(windowed(before))) as harness:
        harness.end()
        found = results(harness, "window_start", "n")
    with restored(windowed(before), filled(windowed(before))) as harness:
        harness.end()
        assert found == results(harness, "window_start", "n")
    assert found


def test_other_windows_are_refused_where_none_was_open() -> None:
    """Rows in flight may have been grouped for the old ones; and all subtasks say the same."""
    with OperatorHarness(windowed()) as harness:
        nothing = harness.snapshot(1)
    assert not nothing.keyed
    with pytest.raises(ConfigError, match="tumbling windows of 10000 ms"):
        restored(windowed(TUMBLING("20 s")), nothing).open()


def test_every_new_subtask_knows_the_windows() -> None:
    snapshot = filled(windowed())
    for index in range(3):
        state = restore_state([snapshot], 1, index=index, parallelism=3)
        operator = windowed(TUMBLING("20 s"))
        with pytest.raises(ConfigError, match="tumbling windows of 20000 ms"):
            OperatorHarness(operator, state=state, index=index, parallelism=3).open()


def test_a_snapshot_that_does_not_say_its_windows_is_restored() -> None:
    """As older versions wrote them, and as a table of a user's own is."""
    silent = replace(filled(windowed()), lists={})
    with restored(windowed(), silent) as harness:
        harness.end()
        assert results(harness, "n") == [(1,), (2,)]
        assert set(harness.snapshot(2).lists) == {WINDOWS}


@pytest.mark.parametrize(
    "after",
    [TUMBLING("20 s"), TUMBLING("3 s"), TUMBLING("10 s", offset="5 s"), SLIDING("30 s", "15 s")],
    ids=str,
)
def test_rows_between_two_bounds_of_the_windows_are_refused_whatever_the_snapshot_says(
    after: Windows,
) -> None:
    silent = replace(filled(windowed()), lists={})
    with pytest.raises(ConfigError) as caught:
        restored(windowed(after), silent).open()
    assert f"windows with a bound at 10000 ms, and the pipeline now has {after}; go back to" in str(
        caught.value
    )


@pytest.mark.parametrize("item", [b"", b"\xc1", b"\x81\xa7size_ms\x00"])
def test_damaged_windows_are_an_error_of_the_snapshot(item: bytes) -> None:
    snapshot = filled(windowed())
    damaged = replace(snapshot, lists={WINDOWS: replace(snapshot.lists[WINDOWS], items=(item,))})
    with pytest.raises(CorruptSnapshot, match="window-contents"):
        restored(windowed(), damaged).open()


# --- types -------------------------------------------------------------------------------------------


def typed(key: pa.DataType, value: pa.DataType) -> pa.Schema:
    return pa.schema([("k", key), ("v", value)])


def three(schema: pa.Schema) -> Columns:
    key = (
        "a"
        if pa.types.is_string(schema.field("k").type) or schema.field("k").type == pa.large_string()
        else 5
    )
    number = Decimal(2) if pa.types.is_decimal(schema.field("v").type) else 2
    return {
        "k": pa.array([key] * 3, schema.field("k").type),
        "v": pa.array([number] * 3, schema.field("v").type),
    }


TEXTS, LONGS = typed(pa.string(), pa.int64()), typed(pa.int64(), pa.int64())
UNFIT = [
    pytest.param(LONGS, TEXTS, "column 'k': a key of int64 cannot become string", id="another key"),
    pytest.param(
        typed(pa.int32(), pa.int64()),
        LONGS,
        "column 'k': a key of int32 cannot become int64",
        id="a wider key",
    ),
    pytest.param(
        TEXTS,
        typed(pa.string(), pa.float64()),
        r"column 'sum\(v\)': int64 cannot become double",
        id="a sum of floats instead of integers",
    ),
    pytest.param(
        typed(pa.string(), pa.decimal128(10, 2)),
        typed(pa.string(), pa.decimal128(12, 3)),
        r"column 'sum\(v\)': decimal128\(38, 2\) cannot become decimal128\(38, 3\)",
        id="another scale",
    ),
]


@pytest.mark.parametrize(("before", "after", "why"), UNFIT)
def test_other_types_are_refused_before_the_first_row(before: pa.Schema, after: pa.Schema, why: str) -> None:
    snapshot = filled(windowed(rows=before, s=agg.sum("v")), three(before))
    with pytest.raises(
        ConfigError, match=f"^operator 'operator': state 'window-contents': {why}.*another uid$"
    ):
        restored(windowed(rows=after, s=agg.sum("v")), snapshot).open()


@pytest.mark.parametrize(("before", "after", "why"), UNFIT)
def test_other_types_are_refused_with_the_first_row_where_they_are_not_declared(
    before: pa.Schema, after: pa.Schema, why: str
) -> None:
    snapshot = filled(windowed(rows=None, s=agg.sum("v")), three(before))
    with restored(windowed(rows=None, s=agg.sum("v")), snapshot) as harness:
        with pytest.raises(
            ConfigError, match=f"state 'window-contents': {why}.*give it another uid"
        ) as caught:
            harness.process(pa.RecordBatch.from_pydict(dict(three(after))), [16_000] * 3)
        assert not task_failure(caught.value).recoverable


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "as they come"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(typed(pa.string(), pa.int32()), TEXTS, id="a wider integer"),
        pytest.param(
            typed(pa.string(), pa.int32()), typed(pa.string(), pa.float64()), id="a float that holds it"
        ),
        pytest.param(typed(pa.string(), pa.float32()), typed(pa.string(), pa.float64()), id="a wider float"),
        pytest.param(
            typed(pa.string(), pa.decimal128(10, 2)),
            typed(pa.string(), pa.decimal128(12, 3)),
            id="more digits",
        ),
        pytest.param(TEXTS, typed(pa.large_string(), pa.int64()), id="a key in another layout"),
    ],
)
def test_wider_types_are_taken_over(before: pa.Schema, after: pa.Schema, declared: bool) -> None:
    """`min` and `max` have the type of their column: what was restored meets new rows, fires, is stored."""
    aggregates = {"low": agg.min("v"), "high": agg.max("v")}
    snapshot = filled(windowed(rows=before if declared else None, **aggregates), three(before))
    with restored(windowed(rows=after if declared else None, **aggregates), snapshot) as harness:
        more = dict(three(after))
        harness.process(pa.RecordBatch.from_pydict(more), [16_000] * 3)
        stored = harness.snapshot(2).keyed[STATE]
        assert stored.schema.field("min(v)").type == after.field("v").type
        assert stored.schema.field("k").type == (after if declared else before).field("k").type
        harness.end()
        assert results(harness, "k", "low", "high") == [("a", 2, 2), ("a", 2, 2)]


def test_narrower_types_are_refused_where_they_are_declared() -> None:
    """Results would not have the declared type."""
    snapshot = filled(windowed(rows=TEXTS, low=agg.min("v")), three(TEXTS))
    with pytest.raises(ConfigError, match=r"column 'min\(v\)': int64 cannot become int32"):
        restored(windowed(rows=typed(pa.string(), pa.int32()), low=agg.min("v")), snapshot).open()


def test_another_order_of_the_keys_is_refused() -> None:
    """The key group of a row follows from it."""
    rows = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    columns = {"a": pa.array([1, 2, 3]), "b": pa.array([4, 5, 6])}
    snapshot = filled(windowed(rows=rows, keys=("a", "b")), columns)
    with pytest.raises(ConfigError, match=r"it was kept by \(a, b\), and the key is now \(b, a\)"):
        restored(windowed(rows=rows, keys=("b", "a")), snapshot).open()


def batch(of: pa.DataType, *values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": ["a"] * len(values), "v": pa.array(values, of)})


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(batch(pa.null(), None), batch(pa.int64(), 7), id="nothing but nulls, then numbers"),
        pytest.param(batch(pa.int64(), 7), batch(pa.null(), None), id="numbers, then nothing but nulls"),
        pytest.param(batch(pa.int32(), 7), batch(pa.int64(), 8), id="then wider ones"),
        pytest.param(batch(pa.int64(), 8), batch(pa.int32(), 7), id="then narrower ones"),
    ],
)
def test_rows_that_do_not_declare_their_types_may_vary_where_nothing_is_lost(
    first: pa.RecordBatch, then: pa.RecordBatch
) -> None:
    """Subtasks that infer the types of what a function returns may come to different ones."""
    with OperatorHarness(windowed(rows=None, low=agg.min("v"))) as harness:
        harness.process(first, [1_000])
        harness.process(then, [12_000])
        assert harness.snapshot(1).keyed[STATE].schema.field("min(v)").type == pa.int64()
        harness.process(first, [13_000])
        harness.end()
        lows = results(harness, "window_start", "low")
        assert len(lows) == 2
        assert lows[1][1] == 7


@pytest.mark.parametrize("rows", [TEXT, None], ids=["declared", "as they come"])
def test_rows_of_unlike_types_are_an_error_of_who_makes_them(rows: pa.Schema | None) -> None:
    with OperatorHarness(windowed(rows=rows, low=agg.min("v"))) as harness:
        harness.process(batch(pa.int64(), 7), [1_000])
        with pytest.raises(
            UserCodeError, match=r"column 'min\(v\)': (int64|string) cannot become (string|int64)"
        ):
            harness.process(batch(pa.string(), "7"), [12_000])


# --- sums that do not fit -------------------------------------------------------------------------

LARGE = 2**63 - 1
ROWS = pa.schema([("k", pa.string()), ("v", pa.int64())])


def large(windows: Windows, *, pre_aggregated: bool, **aggregates: Aggregate) -> WindowAggregate:
    plan = AggregatePlan(["k"], aggregates)
    partials = plan.partial_schema(ROWS)
    return WindowAggregate(plan, windows, pre_aggregated=pre_aggregated, partials=partials)


def given(harness: OperatorHarness, key: str, *values: int, at: int = 0) -> None:
    columns = {"k": [key] * len(values), "v": pa.array(values, pa.int64())}
    harness.process(pa.RecordBatch.from_pydict(columns), [at] * len(values))


@pytest.mark.parametrize("declared", [True, False], ids=["declared types", "types of the first rows"])
@pytest.mark.parametrize("windows", [TENS, SLIDING("20 s", "10 s")], ids=["tumbling", "sliding"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_sums_that_do_not_fit_are_exact_in_the_snapshot(
    parallelism: int, windows: Windows, declared: bool
) -> None:
    """They fit again with rows that come after the restore, and the mean never has to."""
    aggregates = {"total": agg.sum("v"), "avg": agg.mean("v")}
    rows = ROWS if declared else None
    with OperatorHarness(windowed(windows, rows=rows, **aggregates)) as before:
        given(before, "a", LARGE, LARGE, at=1)
        given(before, "b", 1, at=1)
        before.operator._panes[10_000].tables = [
            before.operator._plan.merge(pa.concat_tables(before.operator._panes[10_000].tables))
        ]
        snapshot = before.snapshot(1)
    assert snapshot.keyed[STATE].schema.field("sum(v)").type == pa.decimal128(37, 0)
    change = own_table_migration(snapshot.keyed[STATE].schema, windowed(windows, **aggregates).state_table)
    assert change == Same(), "what checks a savepoint before the start takes it, too"
    found = []
    for index in range(parallelism):
        state = restore_state([snapshot], 1, index=index, parallelism=parallelism)
        operator = windowed(windows, rows=rows, **aggregates)
        with OperatorHarness(operator, state=state, index=index, parallelism=parallelism) as after:
            if "a" in {
                key for pane in operator._panes.values() for t in pane.tables for key in t["k"].to_pylist()
            }:
                given(after, "a", -LARGE, at=2)
            after.end()
            found += [(row["k"], row["total"], row["avg"]) for row in after.rows()]
            assert {b.records.schema.field("total").type for b in after.batches()} <= {pa.int64()}
    assert set(found) == {("a", LARGE, LARGE / 3), ("b", 1, 1.0)}


def test_a_snapshot_without_wide_sums_is_as_older_versions_wrote_it() -> None:
    stored = filled(windowed(total=agg.sum("v"), avg=agg.mean("v"))).keyed[STATE]
    assert stored.schema.field("sum(v)").type == pa.int64()


@pytest.mark.parametrize("how", ["row by row", "together", "by key", "pre-aggregated"])
@pytest.mark.parametrize("fits", [True, False], ids=["it fits at the end", "it does not fit"])
def test_a_sum_fails_with_its_window_and_key_whatever_the_way_of_the_rows(how: str, fits: bool) -> None:
    values = [LARGE, LARGE, *([-LARGE] if fits else [])]
    operator = large(TENS, pre_aggregated=how == "pre-aggregated", total=agg.sum("v"), avg=agg.mean("v"))
    with OperatorHarness(operator.batch_form() if how == "by key" else operator) as harness:
        if how == "pre-aggregated":
            plan = AggregatePlan(["k"], {"total": agg.sum("v"), "avg": agg.mean("v")})
            with OperatorHarness(LocalWindowAggregate(plan, TENS)) as local:
                given(local, "x", *values, at=12_000)
                local.end()
                for batch in local.batches():
                    assert batch.records.schema == plan.partial_schema(ROWS), "one type on its way"
                    harness.process(batch.records, batch.timestamps.to_pylist())
        elif how == "row by row":
            for value in values:
                given(harness, "x", value, at=12_000)
        else:
            given(harness, "x", *values, at=12_000)
        if fits:
            harness.end()
            assert [(row["total"], row["avg"]) for row in harness.rows()] == [(LARGE, LARGE / 3)]
            return
        with pytest.raises(UserCodeError) as caught:
            harness.end()
    assert (
        "aggregate total=sum(v): the sum of key (k='x') in the window [1970-01-01T00:00:10Z, "
        f"1970-01-01T00:00:20Z) is {2 * LARGE}, which int64 does not hold; cast the column before the "
        "window, to decimal128(38, 0)"
    ) in str(caught.value)
