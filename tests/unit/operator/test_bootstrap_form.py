"""Rows until a fence in a bootstrap, and the rest in a stream from its snapshot, are those of one stream."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unistream as us
from unistream.base.errors import UserCodeError
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.chain import HasBatchForm
from unistream.model.key_groups import key_group_range, key_groups
from unistream.model.snapshot import OperatorSnapshot
from unistream.operator.in_key_order import InKeyOrder
from unistream.operator.process import BroadcastProcessOperator, KeyedBatchOperator, KeyedProcessOperator
from unistream.operator.window import AggregatePlan, WindowAggregate, Windows
from unistream.testing.harness import OperatorHarness, restore_state

GAP = 7
GROUPS = 128
OUT = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
Row = tuple[int, int]  # key, event time


class Sessions(us.KeyedProcessFunction):
    """Counts the rows of a key until there was none for GAP ms: a timer moves with each row."""

    count = us.ValueStateDescriptor("count", pa.int64())
    until = us.ValueStateDescriptor("until", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        count, until = context.state(self.count), context.state(self.until)
        if until.value() is not None:
            context.delete_event_time_timer(until.value())
        count.update((count.value() or 0) + 1)
        until.update(row["at"] + GAP)
        context.register_event_time_timer(row["at"] + GAP)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"k": context.key, "at": timestamp, "n": context.state(self.count).value()})
        context.state(self.count).clear()
        context.state(self.until).clear()


class Remembers(us.KeyedProcessFunction):
    """A list and a map by key, and what is in them with each row."""

    times = us.ListStateDescriptor("times", pa.int64())
    parity = us.MapStateDescriptor("parity", pa.int64(), key_type=pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        times, parity = context.state(self.times), context.state(self.parity)
        times.add(row["at"])
        parity.put(row["at"] % 2, (parity.get(row["at"] % 2) or 0) + 1)
        known = sum(value for _, value in parity.items())
        assert known == len(times.get())
        out.emit({"k": row["k"], "at": sum(times.get()), "n": parity.get(row["at"] % 2)})


class Reduces(us.KeyedProcessFunction):
    total = us.ReducingStateDescriptor("total", pa.int64(), reduce=operator.add)

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        context.state(self.total).add(row["at"])
        out.emit({"k": row["k"], "at": row["at"], "n": context.state(self.total).get()})


class Batches(us.KeyedBatchFunction):
    """Each key's number of rows at a time after all of them: state and timers in columns."""

    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        seen = context.column(self.seen)
        new = np.bincount(batch.groups, minlength=batch.keys.num_rows)
        seen.put(pc.add(seen.get().fill_null(0), pa.array(new)))
        context.register_event_time_timers(np.full(batch.keys.num_rows, 10_000))

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit(timers.keys.append_column("n", context.column(self.seen).get()), timers.times)


def window(size: int, slide: int) -> WindowAggregate:
    return WindowAggregate(
        AggregatePlan(["k"], {"n": us.count(), "last": us.max("at")}),
        Windows(size_ms=size, slide_ms=slide),
        pre_aggregated=False,
    )


FORMS: dict[str, Callable[[], Any]] = {
    "sessions": lambda: KeyedProcessOperator(Sessions(), ["k"], returns=OUT),
    "lists and maps": lambda: KeyedProcessOperator(Remembers(), ["k"], returns=OUT),
    "reducing": lambda: KeyedProcessOperator(Reduces(), ["k"], returns=OUT),
    "columns": lambda: KeyedBatchOperator(Batches(), ["k"]),
    "tumbling": lambda: window(10, 10),
    "sliding": lambda: window(12, 4),
}


def bootstrap_form(made: object, rows_together: int = 4) -> InKeyOrder:
    assert isinstance(made, HasBatchForm)
    form = made.batch_form()
    assert isinstance(form, InKeyOrder)
    form._rows_together = rows_together
    return form.bootstrap_form()


def feed(harness: OperatorHarness, rows: Sequence[Row]) -> None:
    keys, times = [key for key, _ in rows], [at for _, at in rows]
    harness.process({"k": keys, "at": times}, timestamps=times)


def stream(harness: OperatorHarness, rows: Sequence[Row]) -> None:
    """In the order of time, each row behind the watermark just before it."""
    for key, at in rows:
        harness.watermark(at - 1)
        feed(harness, [(key, at)])


def found(harness: OperatorHarness) -> list[str]:
    return sorted(map(str, harness.rows()))


def bootstrapped(
    made: object, rows: Sequence[Row], watermark: int, folder: str
) -> tuple[list[str], OperatorSnapshot]:
    with OperatorHarness(bootstrap_form(made), tmp_dir=folder, checkpointing=False) as harness:
        for start in range(0, len(rows), 5):
            feed(harness, rows[start : start + 5])
        if watermark > MIN_WATERMARK:
            harness.watermark(watermark)
        snapshot = harness.snapshot(1)
        return found(harness), snapshot


def restored(
    make: Callable[[], Any], snapshot: OperatorSnapshot, rows: Sequence[Row], width: int
) -> list[str]:
    """The rest, in `width` subtasks."""
    groups = (
        key_groups(pa.RecordBatch.from_pydict({"k": [k for k, _ in rows]}), ["k"], GROUPS) if rows else []
    )
    made: list[str] = []
    for index in range(width):
        first, last = key_group_range(GROUPS, width, index)
        mine = [row for row, group in zip(rows, groups, strict=True) if first <= group <= last]
        state = restore_state([snapshot], 1, index=index, parallelism=width)
        with OperatorHarness(make(), state=state, index=index, parallelism=width) as harness:
            stream(harness, mine)
            harness.watermark(MAX_WATERMARK)
            made += found(harness)
    return made


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), max_size=40),
    fence=st.integers(0, 60),
    width=st.sampled_from([1, 3]),
    known=st.booleans(),
)
def test_history_and_the_rest_are_one_stream(
    name: str, rows: list[Row], fence: int, width: int, known: bool
) -> None:
    """Without a watermark nothing fires before the stream: nor does it in a stream without watermarks."""
    if not known and name == "sessions":
        return
    ordered = sorted(rows, key=lambda row: row[1])
    with OperatorHarness(FORMS[name]()) as harness:
        stream(harness, ordered)
        harness.watermark(MAX_WATERMARK)
        whole = found(harness)
    with tempfile.TemporaryDirectory() as folder:
        history = [row for row in rows if row[1] < fence]  # in any order
        first, snapshot = bootstrapped(FORMS[name](), history, fence - 1 if known else MIN_WATERMARK, folder)
    rest = restored(FORMS[name], snapshot, [row for row in ordered if row[1] >= fence], width)
    assert sorted(first + rest) == whole


class Deadline(us.KeyedProcessFunction):
    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        context.register_processing_time_timer(100)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"k": context.key, "at": timestamp, "n": 0})


def test_timers_of_processing_time_are_left_to_the_stream(tmp_path: Any) -> None:
    def make() -> KeyedProcessOperator:
        return KeyedProcessOperator(Deadline(), ["k"], returns=OUT)

    first, snapshot = bootstrapped(make(), [(1, 1), (2, 2)], 50, str(tmp_path))
    assert first == []
    with OperatorHarness(make(), state=restore_state([snapshot], 1)) as harness:
        harness.timers.advance(1_000)
        assert {(row["k"], row["at"]) for row in harness.rows()} == {(1, 100), (2, 100)}


class Between(us.KeyedProcessFunction):
    """Rows and timers as they come, with the watermark of each."""

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        context.register_event_time_timer(row["at"] + 2)
        out.emit({"k": context.timestamp, "at": row["at"], "n": context.current_watermark()})

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"k": -1, "at": timestamp, "n": context.current_watermark()})


def test_timers_fire_between_rows_and_output_keeps_their_order(tmp_path: Any) -> None:
    form = bootstrap_form(KeyedProcessOperator(Between(), ["k"], returns=OUT), 1_000)
    with OperatorHarness(form, tmp_dir=str(tmp_path)) as harness:
        feed(harness, [(1, 10), (1, 1), (1, 4)])
        harness.watermark(11)
        assert [(row["k"], row["at"], row["n"]) for row in harness.rows()] == [
            (1, 1, 0),
            (-1, 3, 3),
            (4, 4, 3),
            (-1, 6, 9),
            (10, 10, 9),
        ]
        assert harness.timestamps() == [1, 3, 4, 6, 10]


class Fails(Between):
    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        raise ValueError(timestamp)


def test_a_failing_timer_between_rows_names_itself(tmp_path: Any) -> None:
    form = bootstrap_form(KeyedProcessOperator(Fails(), ["k"], returns=OUT))
    with OperatorHarness(form, tmp_dir=str(tmp_path)) as harness:
        feed(harness, [(1, 10), (1, 1)])
        with pytest.raises(UserCodeError, match=r"on_timer\(3\) of key .* raised ValueError: 3") as caught:
            harness.watermark(11)
    assert "process_element" not in str(caught.value)


RULES = us.MapStateDescriptor("rules", pa.int64(), key_type=pa.string())


class Limit(us.BroadcastProcessFunction):
    count = us.ValueStateDescriptor("count", pa.int64())

    def process_broadcast_element(self, row: dict, context: us.BroadcastContext, out: us.Collector) -> None:
        context.broadcast_state(RULES).put("limit", row["limit"])

    def process_element(self, row: dict, context: us.BroadcastContext, out: us.Collector) -> None:
        count = context.state(self.count)
        count.update((count.value() or 0) + 1)
        if row["at"] < context.broadcast_state(RULES).get("limit"):
            out.emit({"k": row["k"], "at": row["at"], "n": count.value()})


def test_broadcast_maps_go_on(tmp_path: Any) -> None:
    def make() -> BroadcastProcessOperator:
        return BroadcastProcessOperator(Limit(), ["k"], [RULES], returns=OUT)

    with OperatorHarness(bootstrap_form(make()), tmp_dir=str(tmp_path), checkpointing=False) as harness:
        feed(harness, [(1, 3), (1, 9)])
        harness.process({"limit": [5]}, timestamps=[0], input_index=1)
        harness.watermark(20, 0, inputs=2)
        harness.watermark(20, 1, inputs=2)
        snapshot = harness.snapshot(1)
        assert found(harness) == [str({"k": 1, "at": 3, "n": 1})]
    with OperatorHarness(make(), state=restore_state([snapshot], 1)) as harness:
        feed(harness, [(1, 4)])
        assert found(harness) == [str({"k": 1, "at": 4, "n": 3})]
