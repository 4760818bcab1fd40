"""Timers in columns: the same as a set of (time, key), whatever is said to them; and what they refuse."""

from __future__ import annotations

import datetime
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError, UserCodeError
from unistream.operator.process import KeyedBatchOperator, timer_columns
from unistream.operator.process.timer_columns import TimerColumns
from unistream.operator.process.timer_table import KeyedTimers
from unistream.testing.harness import OperatorHarness, restore_state


def columns(pairs: list[tuple[int, str | None]]) -> tuple[Any, pa.RecordBatch]:
    times = np.array([time for time, _ in pairs], np.int64)
    return times, pa.record_batch({"k": pa.array([key for _, key in pairs], pa.string())})


def pairs_of(times: Any, keys: pa.RecordBatch) -> list[tuple[int, str | None]]:
    return list(zip(times.tolist(), keys.column(0).to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rows_max", [1, 7, 10_000])
def test_they_are_those_of_the_face_by_row(seed: int, rows_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is settled every few words, and merged even more often."""
    monkeypatch.setattr(timer_columns, "LOG_ROWS_MIN", 40)
    monkeypatch.setattr(timer_columns, "LOG_PIECES_MAX", 3)
    dice = random.Random(seed)
    reported, model = TimerColumns(), KeyedTimers()
    now = 0
    for _ in range(200):
        said = [
            (now + dice.randrange(-2, 30), dice.choice(["a", "b", "c", None]))
            for _ in range(dice.randrange(12))
        ]
        if dice.random() < 0.6:
            reported.register(*columns(said))
            model.restore(*(zip(*said, strict=True) if said else ([], [])))
        else:
            reported.delete(*columns(said))
            for time, key in said:
                model.delete(time, key)
        earliest, exact = reported.earliest(), model.earliest()
        assert exact is None or (earliest is not None and earliest <= exact)
        if dice.random() < 0.3:
            now += dice.randrange(10)
            found = [pair for due in reported.due(now, rows_max) for pair in pairs_of(*due)]
            assert found == list(model.due(now))
        stored = reported.all()
        there = [] if stored.is_empty else pairs_of(*stored.read())
        assert sorted(map(str, there)) == sorted(map(str, zip(*model.all(), strict=True)))


def test_a_snapshot_stays_as_it_was() -> None:
    timers = TimerColumns()
    timers.register(*columns([(20, "a"), (10, "b")]))
    before = timers.all()
    timers.delete(*columns([(20, "a")]))
    assert [pairs_of(*due) for due in timers.due(15, 100)] == [[(10, "b")]]
    assert pairs_of(*before.read()) == [(10, "b"), (20, "a")]
    after = timers.all()
    assert not after.is_empty
    assert pairs_of(*after.read()) == []
    assert list(timers.due(20, 100)) == []
    assert timers.all().is_empty


def test_what_is_deleted_while_timers_fire_does_not_come_any_more() -> None:
    timers = TimerColumns()
    timers.register(*columns([(1, "a"), (2, "b"), (3, "c")]))
    found = []
    for times, keys in timers.due(5, 1):
        found += pairs_of(times, keys)
        timers.delete(*columns([(2, "b")]))
        if times[0] == 3:
            timers.register(*columns([(4, "d"), (6, "e")]))
    assert found == [(1, "a"), (3, "c"), (4, "d")]
    assert timers.earliest() == 6


# --- what a function may say ------------------------------------------------------------------------


class Says(us.KeyedBatchFunction):
    """Registers what it is requested to; emits what fires."""

    def __init__(self, times: Any, groups: Any = None) -> None:
        self.times = times
        self.groups = groups

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        groups = batch.groups if self.groups == "rows" else self.groups
        context.register_event_time_timers(self.times, groups)

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit(timers.keys.take(pa.array(timers.groups)).append_column("at", timers.times))


@pytest.mark.parametrize(
    ("times", "groups", "expected"),
    [
        pytest.param(5, None, ["a 5", "b 5"], id="one number for all keys"),
        pytest.param([5, None], None, ["a 5"], id="null is no timer"),
        pytest.param(pa.array([6, 5], pa.int32()), None, ["b 5", "a 6"], id="an array"),
        pytest.param(np.array([6, 5]), None, ["b 5", "a 6"], id="of numpy"),
        pytest.param(pa.chunked_array([[6], [5]]), None, ["b 5", "a 6"], id="in chunks"),
        pytest.param(pa.array([5, 6], pa.timestamp("ms")), None, ["a 5", "b 6"], id="timestamps"),
        pytest.param(pa.array([1, None], pa.timestamp("s", "UTC")), None, ["a 1000"], id="seconds"),
        pytest.param(pa.nulls(2), None, [], id="nothing at all"),
        pytest.param([5, 6, 7], "rows", ["a 5", "b 6", "a 7"], id="one for each row"),
        pytest.param([5, 6], [1, 1], ["b 5", "b 6"], id="two of one key"),
        pytest.param(5, [1], ["b 5"], id="one number for some keys"),
        pytest.param([], [], [], id="of no keys"),
    ],
)
def test_whose_timers(times: Any, groups: Any, expected: list[str]) -> None:
    with OperatorHarness(KeyedBatchOperator(Says(times, groups), ["k"])) as harness:
        harness.process({"k": ["a", "b", "a"]})
        harness.watermark(10_000)
        assert [f"{row['k']} {row['at']}" for row in harness.rows()] == expected


class InOpen(Says):
    def __init__(self) -> None:
        super().__init__(1)

    def open(self, context: us.BatchContext) -> None:
        context.register_processing_time_timers(1)


class FailsLate(Says):
    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        raise OSError("gone")


class EmitsOther(Says):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        super().process_batch(batch, context, out)
        out.emit(batch.keys)


@pytest.mark.parametrize(
    ("function", "reported"),
    [
        (Says([1]), "1 times for 2 keys of the batch"),
        (Says([1], "rows"), "1 times for 3 groups"),
        (Says([1], [2]), "groups are positions in the 2 keys of the batch"),
        (Says([1], [-1]), "groups are positions in the 2 keys of the batch"),
        (Says([1.5, 2.0]), "times of timers are whole milliseconds or timestamps, not double"),
        (Says(["x", "y"]), "times of timers are whole milliseconds or timestamps, not string"),
        (Says([1.5, 2.0]), "ValueError: register_event_time_timers: times of timers are whole"),
        (Says([2**63, 1]), "register_event_time_timers: times of timers .*: Python int too large"),
        (
            Says(np.array([2**63, 1], np.uint64)),
            "register_event_time_timers: times of timers .* not in range",
        ),
        (Says(pa.array([1500, 1], pa.timestamp("us"))), "times of timers .* would lose data"),
        (Says([True, False]), "times of timers are whole milliseconds or timestamps, not bool"),
        (Says(None), r"TypeError: register_event_time_timers\(None\): a timer's time is an int"),
        (Says(5.5), r"TypeError: register_event_time_timers\(5\.5\): a timer's time is an int"),
        (Says(True), r"TypeError: register_event_time_timers\(True\): a timer's time is an int"),
        (Says(2**63), r"ValueError: register_event_time_timers\(9223372036854775808\): .* 2\*\*63 - 1"),
        (Says(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)), r"TypeError: .*moment\.timestamp\(\)"),
        (InOpen(), "open raised RuntimeError: there is no batch in open"),
        (FailsLate(1), "on_timers raised OSError: gone"),
        (EmitsOther(1), r"on_timers emitted columns \(k string, at int64\), wanted \(k string\)"),
    ],
)
def test_what_timers_refuse(function: us.KeyedBatchFunction, reported: str) -> None:
    def run() -> None:
        with OperatorHarness(KeyedBatchOperator(function, ["k"])) as harness:
            harness.process({"k": ["a", "b", "a"]})
            harness.watermark(10)

    with pytest.raises(UserCodeError, match=reported):
        run()


@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionaries"])
def test_keys_have_one_type_whatever_form_they_come_in(dictionary: bool) -> None:
    keys = pa.array(["a", "b"]).dictionary_encode() if dictionary else pa.array(["a", "b"])
    with OperatorHarness(KeyedBatchOperator(Says(5), ["k", "m"])) as before:
        before.process(pa.record_batch({"k": keys, "m": keys}))
        before.process(pa.record_batch({"k": pa.array(["a"]), "m": pa.array(["b"])}))
        state = restore_state([before.snapshot(1)], 1)
    schema = pa.schema([("k", pa.string()), ("m", pa.string())])
    with OperatorHarness(KeyedBatchOperator(Says(5), ["k", "m"], key_schema=schema), state=state) as after:
        after.end_input()
        found = sorted((row["k"], row["m"]) for row in after.rows())
        assert found == [("a", "a"), ("a", "b"), ("b", "b")]
    other = pa.schema([("k", pa.int64()), ("m", pa.string())])
    with pytest.raises(ConfigError, match=r"key columns are \(k string, m string\)"):
        OperatorHarness(KeyedBatchOperator(Says(5), ["k", "m"], key_schema=other), state=state).open()
