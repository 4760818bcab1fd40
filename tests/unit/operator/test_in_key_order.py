"""Keyed operators in a bounded job: results as of rows in the order of time, and few keys at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from tests.modes import STREAMING
from unistream.base.errors import Transient, UserCodeError
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.chain import HasBatchForm
from unistream.model.columns.key_buckets import buckets_of
from unistream.model.key_groups import key_hashes
from unistream.operator.in_key_order import InKeyOrder
from unistream.operator.process import BroadcastProcessOperator, KeyedBatchOperator, KeyedProcessOperator
from unistream.operator.window import WindowAggregate
from unistream.testing.harness import OperatorHarness

ROWS = 3_000
KEYS = 300
SEEN = us.ValueStateDescriptor("seen", pa.int64())
NUMBERED = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("n", pa.int64()), ("timer", pa.string())])


def columns() -> dict[str, list[int]]:
    random = np.random.default_rng(5)
    return {"k": random.integers(0, KEYS, ROWS).tolist(), "at": random.integers(0, 10_000, ROWS).tolist()}


def in_batch(operator: object, rows_together: int = 500) -> InKeyOrder:
    assert isinstance(operator, HasBatchForm)
    form = operator.batch_form()
    assert isinstance(form, InKeyOrder)
    form._rows_together = rows_together
    return form


def run(operator: InKeyOrder, tmp_path: Path, memory: int = 30_000) -> OperatorHarness:
    """All rows, in several batches, in a harness that spills."""
    harness = OperatorHarness(
        operator, managed_memory_bytes=memory, tmp_dir=str(tmp_path), checkpointing=False
    )
    with harness:
        rows = columns()
        for start in range(0, ROWS, 250):
            part = {name: values[start : start + 250] for name, values in rows.items()}
            harness.process(part, timestamps=part["at"])
        assert harness.rows() == [], "nothing comes before all rows are there"
        harness.end()
    assert list(tmp_path.iterdir()) == [], "no file is left"
    return harness


class Number(us.KeyedProcessFunction):
    """Numbers the rows of a key; its timers say how many there were."""

    def open(self, context: us.ProcessContext) -> None:
        self.seen = context.state(SEEN)
        self.most_keys = 0

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        assert context.current_watermark() == MIN_WATERMARK
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        if n == 1:
            context.register_processing_time_timer(7)
            context.register_event_time_timer(20_000)
            context.register_event_time_timer(row["at"])
        out.emit({"k": row["k"], "at": row["at"], "n": n, "timer": None})

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        assert context.current_watermark() == MAX_WATERMARK
        out.emit({"k": context.key, "at": timestamp, "n": self.seen.value(), "timer": context.time_domain})


def test_a_function_per_row_sees_each_key_in_the_order_of_time_and_then_its_timers(tmp_path: Path) -> None:
    operator = KeyedProcessOperator(Number(), ["k"], returns=NUMBERED)
    harness = run(in_batch(operator), tmp_path)
    times: dict[int, list[int]] = {}
    for key, at in zip(*columns().values(), strict=True):
        times.setdefault(key, []).append(at)
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in harness.rows():
        found.setdefault(row["k"], []).append((row["at"], row["n"], row["timer"]))
    assert found.keys() == times.keys()
    for key, at in times.items():
        at.sort()
        rows = [(time, n, None) for n, time in enumerate(at, 1)]
        last = len(at)
        timers = [(at[0], last, "event"), (20_000, last, "event"), (7, last, "processing")]
        assert found[key] == rows + timers
    count = len(harness.rows())
    harness.timers.advance(10**9)
    assert len(harness.rows()) == count, "no timer waits for a clock"
    assert operator._in_batch is False, "the form of a stream is not changed"


class Sums(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        seen = context.column(SEEN)
        new = np.bincount(batch.groups, minlength=batch.keys.num_rows)
        seen.put(pc.add(seen.get().fill_null(0), pa.array(new)))
        context.register_event_time_timers(np.full(batch.keys.num_rows, 50_000))

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        assert context.current_watermark() == MAX_WATERMARK
        out.emit(timers.keys.append_column("n", context.column(SEEN).get()), timers.times)


def test_a_function_per_batch(tmp_path: Path) -> None:
    harness = run(in_batch(KeyedBatchOperator(Sums(), ["k"])), tmp_path)
    assert {row["k"]: row["n"] for row in harness.rows()} == Counter(columns()["k"])
    assert len(harness.rows()) == len(set(columns()["k"]))
    assert set(harness.timestamps()) == {50_000}


@pytest.mark.parametrize("slide", [1_000, 2_000], ids=["sliding", "tumbling"])
@pytest.mark.parametrize("memory", [30_000, 10**9], ids=["spilled", "in memory"])
def test_windows(tmp_path: Path, slide: int, memory: int) -> None:
    harness = run(in_batch(window_operator(slide), 700), tmp_path, memory)
    truth: Counter[tuple[int, int]] = Counter()
    for key, at in zip(*columns().values(), strict=True):
        for start in range(at // slide * slide, at - 2_000, -slide):
            truth[key, start] += 1
    found = {(row["k"], round(row["window_start"].timestamp() * 1_000)): row["n"] for row in harness.rows()}
    assert len(found) == len(harness.rows())
    assert found == truth
    ends = [round(row["window_end"].timestamp() * 1_000) for row in harness.rows()]
    assert harness.timestamps() == [end - 1 for end in ends]
    of_keys: dict[int, list[int]] = {}
    for row, end in zip(harness.rows(), ends, strict=True):
        of_keys.setdefault(row["k"], []).append(end)
    assert all(times == sorted(times) for times in of_keys.values()), "each key in the order of time"
    assert harness.output.side == {}


def window_operator(slide: int) -> WindowAggregate:
    env = us.Environment(STREAMING)
    source = us.StaticSource(pa.table(columns()))
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks().with_timestamp_column("at"))
    window = rows.key_by("k").window(us.SlidingEventTimeWindows.of(2_000, slide))
    window.side_output_late_data("late").aggregate(n=us.count()).sink_to(us.BlackholeSink())
    _, code = env.job_graph("j")
    operators = [node.operator for chain in code.chains.values() for node in chain.nodes]
    [operator] = [found for found in operators if isinstance(found, WindowAggregate)]
    return operator


@pytest.mark.parametrize(
    ("second", "times", "reported"),
    [
        pytest.param({"k": [1], "at": [2]}, None, "some with and some without an event time", id="times"),
        pytest.param(
            {"k": [1], "of": [2]}, [2], "columns k int64, of int64 after k int64, at int64", id="columns"
        ),
    ],
)
def test_rows_of_two_kinds_are_refused(
    second: dict[str, list[int]], times: list[int] | None, reported: str, tmp_path: Path
) -> None:
    operator = in_batch(KeyedProcessOperator(Number(), ["k"], returns=NUMBERED))
    with OperatorHarness(operator, tmp_dir=str(tmp_path)) as harness:
        harness.process({"k": [1], "at": [2]}, timestamps=[2])
        with pytest.raises(UserCodeError, match=reported):
            harness.process(second, timestamps=times)


RULES = us.MapStateDescriptor("rules", pa.int64(), key_type=pa.string())


class Limit(us.BroadcastProcessFunction):
    def process_broadcast_element(self, row: dict, context: us.BroadcastContext, out: us.Collector) -> None:
        context.broadcast_state(RULES).put("limit", row["limit"])

    def process_element(self, row: dict, context: us.BroadcastContext, out: us.Collector) -> None:
        limit = context.broadcast_state(RULES).get("limit")
        if row["at"] < limit:
            out.emit({"k": row["k"], "at": row["at"]})


def test_rows_of_a_broadcast_input_pass_at_once(tmp_path: Path) -> None:
    """So a keyed row sees all of them, also if they came later."""
    returns = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    operator = in_batch(BroadcastProcessOperator(Limit(), ["k"], [RULES], returns=returns))
    with OperatorHarness(operator, tmp_dir=str(tmp_path), checkpointing=False) as harness:
        harness.process({"k": [1, 2], "at": [3, 9]}, timestamps=[3, 9])
        harness.process({"limit": [5]}, timestamps=[0], input_index=1)
        harness.end_input(0, inputs=2)
        harness.end_input(1, inputs=2)
        assert harness.rows() == [{"k": 1, "at": 3}]


def test_state_and_timers_are_of_few_keys_at_a_time(tmp_path: Path) -> None:
    most = 0

    class Watch(Number):
        def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
            nonlocal most
            most = max(most, sum(1 for _ in harness.context.state.keys("seen")))

    operator = in_batch(KeyedProcessOperator(Watch(), ["k"], returns=NUMBERED), 100)
    harness = OperatorHarness(operator, tmp_dir=str(tmp_path), managed_memory_bytes=30_000)
    with harness:
        rows = columns()
        harness.process(rows, timestamps=rows["at"])
        harness.end()
        assert not list(harness.context.state.keys("seen"))
    assert 0 < most < KEYS / 2


def test_a_task_that_is_cancelled_ends_between_two_batches(tmp_path: Path) -> None:
    def cancelled() -> None:
        raise Transient("cancelled")

    operator = in_batch(KeyedProcessOperator(Number(), ["k"], returns=NUMBERED))
    with OperatorHarness(operator, tmp_dir=str(tmp_path), await_room=cancelled) as harness:
        rows = columns()
        harness.process(rows, timestamps=rows["at"])
        with pytest.raises(Transient, match="cancelled"):
            harness.end()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    operator = in_batch(KeyedProcessOperator(Number(), ["k"], returns=NUMBERED))
    folder = str(tmp_path / "file")
    harness = OperatorHarness(operator, tmp_dir=folder, managed_memory_bytes=1, name="count")
    text = "operator 'count': its rows could not be sorted in the temporary folder"
    with harness, pytest.raises(Transient, match=text):
        harness.process({"k": [1], "at": [1]}, timestamps=[1])


def by_bucket(operator: InKeyOrder, tmp_path: Path, count: int) -> tuple[OperatorHarness, list[int]]:
    """The rows bucket by bucket, and how many results there are at the end of each."""
    harness = OperatorHarness(operator, managed_memory_bytes=10**6, tmp_dir=str(tmp_path))
    rows = pa.record_batch(columns())
    buckets = buckets_of(key_hashes(rows, ["k"]), count)
    results = []
    with harness:
        for number in range(count):
            part = rows.filter(pa.array(buckets == number))
            harness.process(part, timestamps=part.column("at").to_pylist())
            operator.end_bucket(number, count)
            results.append(len(harness.rows()))
        harness.end()
    return harness, results


@pytest.mark.parametrize("count", [2, 16, 64])
def test_keys_of_a_bucket_are_processed_at_its_end(count: int, tmp_path: Path) -> None:
    """The same results, and rows of a key in the same order, as when all come at the end."""
    whole = run(in_batch(KeyedProcessOperator(Number(), ["k"], returns=NUMBERED)), tmp_path)
    operator = in_batch(KeyedProcessOperator(Number(), ["k"], returns=NUMBERED))
    harness, results = by_bucket(operator, tmp_path, count)

    def of_keys(found: OperatorHarness) -> dict[int, list[dict]]:
        keys: dict[int, list[dict]] = {}
        for row in found.rows():
            keys.setdefault(row["k"], []).append(row)
        return keys

    assert of_keys(harness) == of_keys(whole)
    rows_of = np.bincount(buckets_of(key_hashes(pa.record_batch(columns()), ["k"]), count), minlength=count)
    assert all(found >= rows for found, rows in zip(results, np.cumsum(rows_of), strict=True))
    assert results[0] < ROWS


@pytest.mark.parametrize("slide", [1_000, 2_000], ids=["sliding", "tumbling"])
def test_windows_of_a_bucket(slide: int, tmp_path: Path) -> None:
    whole = run(in_batch(window_operator(slide), 700), tmp_path)
    harness, _ = by_bucket(in_batch(window_operator(slide), 700), tmp_path, 16)
    assert sorted(map(repr, harness.rows())) == sorted(map(repr, whole.rows()))


def test_a_bootstrap_keeps_its_rows_until_the_watermark_is_known(tmp_path: Path) -> None:
    class Times(us.KeyedProcessFunction):
        def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
            watermark = context.current_watermark()
            out.emit({"k": row["k"], "at": context.timestamp, "n": watermark, "timer": None})

    form = in_batch(KeyedProcessOperator(Times(), ["k"], returns=NUMBERED)).bootstrap_form()
    harness = OperatorHarness(form, managed_memory_bytes=10**6, tmp_dir=str(tmp_path))
    with harness:
        rows = columns()
        harness.process(rows, timestamps=rows["at"])
        form.end_bucket(15, 16)
        assert harness.rows() == []
        harness.watermark(20_000)
        assert len(harness.rows()) == ROWS
        assert all(row["n"] == row["at"] - 1 for row in harness.rows())
