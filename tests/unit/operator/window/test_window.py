"""Windowed aggregation against a plain Python model."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.elements import Batch, WatermarkStatus
from unistream.model.metric_names import LATE_RECORDS_DROPPED
from unistream.operator.window import (
    AggregatePlan,
    LocalWindowAggregate,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAggregate,
    Windows,
)
from unistream.operator.window import aggregates as agg
from unistream.operator.window import local as window_local
from unistream.testing.harness import OperatorHarness, restore_state

TEN = TumblingEventTimeWindows.of(10)
Event = tuple[int, str | None, int | None]  # time, key, value


def plan() -> AggregatePlan:
    return AggregatePlan(
        ["k"],
        {
            "n": agg.count(),
            "known": agg.count("v"),
            "total": agg.sum("v"),
            "avg": agg.mean("v"),
            "low": agg.min("v"),
            "high": agg.max("v"),
        },
    )


def records(events: list[Event]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([k for _, k, _ in events], pa.string()), pa.array([v for _, _, v in events], pa.int32())],
        names=["k", "v"],
    )


def model(events: list[Event], windows: Windows) -> set[tuple[Any, ...]]:
    """Every window's aggregates, row by row."""
    groups: dict[tuple[int, str | None], list[int | None]] = defaultdict(list)
    for time, key, value in events:
        start = (time - windows.offset_ms) // windows.slide_ms * windows.slide_ms + windows.offset_ms
        while start + windows.size_ms > time:
            groups[start, key].append(value)
            start -= windows.slide_ms
    found = set()
    for (start, key), values in groups.items():
        known = [v for v in values if v is not None]
        found.add(
            (
                key,
                start,
                start + windows.size_ms,
                len(values),
                len(known),
                sum(known) if known else None,
                sum(known) / len(known) if known else None,
                min(known, default=None),
                max(known, default=None),
            )
        )
    return found


def results(batches: list[Batch]) -> set[tuple[Any, ...]]:
    rows = []
    for batch in batches:
        table = pa.Table.from_batches([batch.records])
        for name in ("window_start", "window_end"):
            index = table.schema.get_field_index(name)
            assert table.schema.field(name).type == pa.timestamp("ms", tz="UTC")
            table = table.set_column(index, name, table.column(name).cast(pa.int64()))
        assert [e - 1 for e in table.column("window_end").to_pylist()] == batch.timestamps.to_pylist()
        rows += [tuple(row.values()) for row in table.to_pylist()]
    assert len(rows) == len(set(rows))
    return set(rows)


def run_both(
    batches: list[list[Event]], watermarks: list[int | None], windows: Windows
) -> tuple[OperatorHarness, OperatorHarness]:
    """local -> window, with a watermark (or None) behind each batch, then the end."""
    with (
        OperatorHarness(LocalWindowAggregate(plan(), windows)) as local,
        OperatorHarness(WindowAggregate(plan(), windows)) as window,
    ):
        for events, watermark in [*zip(batches, watermarks, strict=True), ([], None)]:
            if events:
                local.process(records(events), [time for time, _, _ in events])
            if watermark is not None:
                local.watermark(watermark)
            elif not events:
                local.end()
            for batch in local.batches():
                window.operator.process_batch(batch, 0)
            local.clear()
            if watermark is not None:
                window.watermark(watermark)
        window.end()
    return local, window


events_strategy = st.lists(
    st.tuples(st.integers(-50, 50), st.sampled_from(["a", "b", None]), st.none() | st.integers(-9, 9)),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("run_rows", [1, 100], ids=["pane by pane", "all panes at once"])
@settings(deadline=None, max_examples=60)
@given(
    batches=st.lists(events_strategy, min_size=1, max_size=4),
    windows=st.sampled_from(
        [
            TEN,
            TumblingEventTimeWindows.of(7, 3),
            SlidingEventTimeWindows.of(20, 10),
            SlidingEventTimeWindows.of(15, 10, 2),
        ]
    ),
)
def test_local_and_window_agree_with_a_model(
    run_rows: int, batches: list[list[Event]], windows: Windows
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_local, "RUN_ROWS_MIN", run_rows)
        _, window = run_both(batches, [None] * len(batches), windows)
    assert results(window.batches()) == model([e for b in batches for e in b], windows)


@settings(deadline=None, max_examples=60)
@given(batches=st.lists(events_strategy, min_size=2, max_size=5), data=st.data())
def test_each_window_fires_once_and_late_rows_are_counted(
    batches: list[list[Event]], data: st.DataObject
) -> None:
    marks = sorted(data.draw(st.lists(st.integers(-60, 60), min_size=len(batches), max_size=len(batches))))
    on_time: list[Event] = []
    late, watermark = 0, -(10**9)
    for events, mark in zip(batches, marks, strict=True):
        for event in events:
            if TEN.pane_end(event[0]) - 1 <= watermark:
                late += 1
            else:
                on_time.append(event)
        watermark = mark
    _, window = run_both(batches, list(marks), TEN)
    assert results(window.batches()) == model(on_time, TEN)
    assert window.metrics.counts[LATE_RECORDS_DROPPED] == late


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_restored_window_goes_on_where_the_snapshot_was(cut: int, parallelism: int) -> None:
    random.seed(cut)
    batches = [
        [(random.randrange(40), f"k{random.randrange(50)}", random.randrange(9)) for _ in range(100)]
        for _ in range(4)
    ]
    with OperatorHarness(WindowAggregate(plan(), TEN, pre_aggregated=False)) as before:
        for events in batches[:cut]:
            before.process(records(events), [t for t, _, _ in events])
        snapshot = before.snapshot(1)
    tail = [event for events in batches[cut:] for event in events]
    found: set[tuple[Any, ...]] = set()
    for index in range(parallelism):
        state = restore_state([snapshot], 1, index=index, parallelism=parallelism)
        operator = WindowAggregate(plan(), TEN, pre_aggregated=False)
        with OperatorHarness(operator, state=state, index=index, parallelism=parallelism) as after:
            mine = [e for e in tail if owner(e[1], parallelism) == index]
            if mine:
                after.process(records(mine), [t for t, _, _ in mine])
            after.end()
            found |= results(after.batches())
    assert found == model([event for events in batches for event in events], TEN)


def owner(key: str | None, parallelism: int) -> int:
    from unistream.model.key_groups import key_groups, subtask_of_key_group

    group = int(key_groups(records([(0, key, 0)]), ["k"], 128)[0])
    return subtask_of_key_group(128, parallelism, group)


def test_a_snapshot_does_not_change_with_later_rows() -> None:
    with OperatorHarness(WindowAggregate(plan(), TEN, pre_aggregated=False)) as harness:
        harness.process(records([(1, "a", 1)]), [1])
        snapshot = harness.snapshot(1)
        harness.process(records([(2, "a", 5)]), [2])
        (table,) = snapshot.keyed.values()
        assert table.num_rows == 1
        assert table.column("sum(v)").to_pylist() == [1]


def test_state_made_by_other_aggregates_is_refused() -> None:
    with OperatorHarness(WindowAggregate(plan(), TEN, pre_aggregated=False)) as harness:
        harness.process(records([(1, "a", 1)]), [1])
        state = restore_state([harness.snapshot(1)], 1)
    other = WindowAggregate(AggregatePlan(["k"], {"n": agg.count()}), TEN)
    with pytest.raises(ConfigError, match="give it another uid"):
        OperatorHarness(other, state=state).open()


def test_late_rows_go_to_a_side_output_as_they_came() -> None:
    operator = WindowAggregate(plan(), TEN, pre_aggregated=False, late_tag="late")
    with OperatorHarness(operator) as harness:
        harness.process(records([(1, "a", 1)]), [1])
        harness.watermark(9)
        harness.process(records([(9, "a", 2), (10, "a", 3)]), [9, 10])
        assert harness.rows("late") == [{"k": "a", "v": 2}]
        assert harness.metrics.counts[LATE_RECORDS_DROPPED] == 0


def test_a_window_fires_exactly_at_end_minus_one() -> None:
    with OperatorHarness(WindowAggregate(plan(), TEN, pre_aggregated=False)) as harness:
        harness.process(records([(0, "a", 1)]), [0])
        harness.watermark(8)
        assert harness.batches() == []
        harness.watermark(9)
        assert len(harness.rows()) == 1


def test_windows_that_are_due_together_fire_in_their_order_and_the_others_stay() -> None:
    """Rows of each window and key came in several batches, newer windows first."""
    with OperatorHarness(WindowAggregate(plan(), TEN, pre_aggregated=False)) as harness:
        for _ in range(2):
            for start in (30, 20, 0):
                harness.process(records([(start, "b", 1), (start, "a", 2), (start, "b", 3)]), [start] * 3)
        harness.watermark(29)
        fired = [(row["window_start"].timestamp() * 1000, row["k"], row["total"]) for row in harness.rows()]
        assert fired == [(0, "b", 8), (0, "a", 4), (20, "b", 8), (20, "a", 4)]
        times = [time for batch in harness.batches() for time in batch.timestamps.to_pylist()]
        assert times == [9, 9, 29, 29]
        harness.clear()
        harness.watermark(39)
        assert [row["total"] for row in harness.rows()] == [8, 4]


def test_pre_aggregation_keeps_what_a_watermark_does_not_close_and_flushes_before_a_barrier() -> None:
    with OperatorHarness(LocalWindowAggregate(plan(), TEN)) as harness:
        harness.process(records([(1, "a", 1), (11, "a", 2), (12, "a", 3)]), [1, 11, 12])
        harness.watermark(9)
        assert harness.timestamps() == [9]
        assert isinstance(harness.output.elements[0], Batch)  # before the watermark
        harness.clear()
        assert harness.snapshot(1).is_empty
        assert [row["sum(v)"] for row in harness.rows()] == [5]


def test_nothing_is_held_back_while_idle() -> None:
    """Consumers of an idle task go on without its watermark; what it kept would come too late."""
    with OperatorHarness(LocalWindowAggregate(plan(), TEN)) as harness:
        harness.process(records([(1, "a", 1)]), [1])
        harness.idle()
        batch, status = harness.output.elements
        assert isinstance(batch, Batch)
        assert status == WatermarkStatus(idle=True)


def test_pre_aggregation_stops_where_it_does_not_reduce_and_looks_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_local, "SAMPLE_EVERY", 1)
    rows = window_local.ROWS_PER_GROUPING

    def batch(start: int, keys: int) -> pa.RecordBatch:
        numbers = pa.array(range(start, start + BATCH_ROWS_MAX), pa.int64())
        names = pa.array([f"k{n % keys}" for n in numbers.to_pylist()])
        return pa.RecordBatch.from_arrays([names, numbers.cast(pa.int32())], names=["k", "v"])

    with OperatorHarness(LocalWindowAggregate(plan(), TEN)) as harness:
        for number in range(4):  # all keys differ: grouped once
            harness.process(batch(number * BATCH_ROWS_MAX, 10**9), [5] * BATCH_ROWS_MAX)
        assert len(harness.rows()) == rows
        harness.clear()
        for _ in range(4):  # passed on one by one
            harness.process(batch(0, 10), [5] * BATCH_ROWS_MAX)
            assert len(harness.rows()) == BATCH_ROWS_MAX
            harness.clear()
        for _ in range(4):  # grouped again, and it helps
            harness.process(batch(0, 10), [5] * BATCH_ROWS_MAX)
            assert harness.rows() == []
        harness.end()
        assert len(harness.rows()) == 10


def test_partials_that_merging_does_not_reduce_are_emitted_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_local, "SAMPLE_EVERY", 1)
    monkeypatch.setattr(window_local, "ROWS_PER_GROUPING", 100)

    def rows(first: int) -> tuple[pa.RecordBatch, list[int]]:
        """100 rows that are 50 partials of 10 panes, in the order of time from `first` on."""
        return records([(0, f"k{n % 5}", n) for n in range(100)]), [first + n for n in range(100)]

    with OperatorHarness(LocalWindowAggregate(plan(), TEN)) as harness:
        emitted = []
        for number in range(8):
            harness.process(*rows(100 * number))
            emitted.append(len(harness.rows()))
        assert emitted == [0, 0, 150, 150, 150, 300, 300, 300], "merged once, and then as they are"
        for _ in range(12):
            harness.process(*rows(0))
            emitted.append(len(harness.rows()))
        assert emitted[8:] == [*3 * [450], *9 * [600]], "merged in between, which helps at last"
        harness.end()
        assert len(harness.rows()) == 650
        assert sum(row["count(*)"] for row in harness.rows()) == 2_000


def test_results_come_in_bounded_batches() -> None:
    with OperatorHarness(WindowAggregate(plan(), TEN, pre_aggregated=False)) as harness:
        for part in range(2):
            keys = [f"{part}-{n}" for n in range(BATCH_ROWS_MAX)]
            rows = pa.RecordBatch.from_pydict({"k": keys, "v": pa.array([1] * BATCH_ROWS_MAX, pa.int32())})
            harness.process(rows, [0] * BATCH_ROWS_MAX)
        harness.end()
        assert [batch.num_rows for batch in harness.batches()] == [BATCH_ROWS_MAX, BATCH_ROWS_MAX]


def test_rows_without_event_time_are_refused_with_advice() -> None:
    with OperatorHarness(LocalWindowAggregate(plan(), TEN)) as harness:
        harness.process(records([(1, "a", 1)]))
        with pytest.raises(ConfigError, match="WatermarkStrategy"):
            harness.watermark(1)


def test_dictionary_keys_of_different_dictionaries_are_one_key() -> None:
    with OperatorHarness(LocalWindowAggregate(plan(), TEN)) as harness:
        for names in (["a", "b"], ["b", "a"]):
            rows = pa.RecordBatch.from_arrays(
                [pa.array(names).dictionary_encode(), pa.array([1, 2], pa.int32())], names=["k", "v"]
            )
            harness.process(rows, [1, 2])
        harness.end()
        assert {(r["k"], r["sum(v)"]) for r in harness.rows()} == {("a", 3), ("b", 3)}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_sliding_window_that_has_fired_does_not_fire_again_after_a_restore(parallelism: int) -> None:
    windows = SlidingEventTimeWindows.of(20, 10)
    counts = AggregatePlan(["k"], {"n": agg.count()})
    with OperatorHarness(WindowAggregate(counts, windows, pre_aggregated=False)) as before:
        before.process({"k": ["a", "a", "a"]}, timestamps=[1, 11, 21])
        before.watermark(19)
        snapshot = before.snapshot(1)
        fired = [(row["window_start"], row["n"]) for row in before.rows()]
    after = []
    for index in range(parallelism):
        state = restore_state([snapshot], 1, index=index, parallelism=parallelism)
        operator = WindowAggregate(counts, windows, pre_aggregated=False)
        with OperatorHarness(operator, state=state, index=index, parallelism=parallelism) as harness:
            harness.watermark(1_000)
            after += [(row["window_start"], row["n"]) for row in harness.rows()]
    assert [n for _, n in fired] == [1, 2]
    assert [n for _, n in sorted(after)] == [2, 1]
    assert not set(fired) & set(after)


# --- times at the ends of int64 -------------------------------------------------------------------

LEAST, MOST = -(2**63), 2**63 - 1
WINDOWS = {
    "tumbling": TEN,
    "with an offset": TumblingEventTimeWindows.of("1 h", offset=5),
    "with a large offset": TumblingEventTimeWindows.of(7, offset=-(2**62)),
    "sliding": SlidingEventTimeWindows.of(30, 10),
    "sliding with an offset": SlidingEventTimeWindows.of(35, 10, offset=2**61 + 3),
    "of a million years": TumblingEventTimeWindows.of("8333333333 h"),
}


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("time", [0, -1, LEAST + 10**17, MOST - 10**17, LEAST + 1, LEAST, MOST - 31, MOST])
@pytest.mark.parametrize("with_others", [False, True], ids=["alone", "with others"])
def test_windows_of_extreme_times_are_right_or_refused(
    windows: Windows, time: int, *, with_others: bool
) -> None:
    """Whatever int64 does not have is refused, and nothing wraps around; pre-aggregated or not."""
    times = [time, *([4, -(10**15)] if with_others else [])]
    wanted = {
        (end - windows.size_ms, end) for at in times for end in windows.ends_containing(windows.pane_end(at))
    }
    fits = all(start >= LEAST and end <= MOST for start, end in wanted)
    counts = AggregatePlan(["k"], {"n": agg.count()})

    def run() -> set[tuple[int, int]]:
        found = set()
        for pre_aggregated in (True, False):
            rows = [(pa.RecordBatch.from_pydict({"k": ["a"] * len(times)}), times)]
            if pre_aggregated:
                with OperatorHarness(LocalWindowAggregate(counts, windows)) as local:
                    local.process(*rows[0])
                    local.end()
                    rows = [(batch.records, batch.timestamps) for batch in local.batches()]
            operator = WindowAggregate(counts, windows, pre_aggregated=pre_aggregated)
            with OperatorHarness(operator) as harness:
                for one in rows:
                    harness.process(*one)
                harness.end()
                for batch in harness.batches():
                    bounds = [
                        batch.records.column(n).cast(pa.int64()) for n in ("window_start", "window_end")
                    ]
                    found |= set(zip(*(column.to_pylist() for column in bounds), strict=True))
                    assert batch.timestamps.to_pylist() == [end - 1 for end in bounds[1].to_pylist()]
        return found

    if fits:
        assert run() == wanted
        return
    with pytest.raises(UserCodeError, match="beyond 64 bits; drop rows without a real time before the wi"):
        run()


def test_a_late_row_of_the_least_time_is_dropped_as_any_other() -> None:
    with OperatorHarness(WindowAggregate(plan(), TEN, pre_aggregated=False)) as harness:
        harness.watermark(100)
        harness.process(records([(0, "a", 1)]), [LEAST])
        harness.end()
        assert harness.rows() == []
        assert harness.metrics.counts[LATE_RECORDS_DROPPED] == 1


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Windows(size_ms=2**62 + 1, slide_ms=1), id="size"),
        pytest.param(lambda: TumblingEventTimeWindows.of(10, offset=-(2**63)), id="offset"),
    ],
)
def test_windows_whose_bounds_no_time_has_are_refused(make: Callable[[], Windows]) -> None:
    with pytest.raises(ConfigError, match="must not exceed 4611686018427387904 ms"):
        make()
