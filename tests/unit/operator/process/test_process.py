"""Keyed process functions: state per key, timers in order, both across restores and rescaling."""

from __future__ import annotations

import datetime
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Batch, Watermark
from unistream.model.key_groups import key_groups, subtask_of_key_group
from unistream.operator.process import Collector, KeyedProcessFunction, KeyedProcessOperator, ProcessContext
from unistream.operator.process.timer_table import EVENT_TIMERS
from unistream.testing.harness import OperatorHarness, restore_state

Row = dict[str, Any]


class CountUntilQuiet(KeyedProcessFunction):
    """Counts rows per key; emits the count when a key was quiet for 10 ms of event time."""

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        count = context.state("count", pa.int64())
        last = context.state("last", pa.int64())
        count.update((count.value() or 0) + 1)
        if last.value() is not None:
            context.delete_event_time_timer(last.value() + 10)
        assert context.timestamp is not None
        last.update(context.timestamp)
        context.register_event_time_timer(context.timestamp + 10)

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        assert context.time_domain == "event"
        out.emit({"k": context.key, "n": context.state("count", pa.int64()).value()})
        context.state("count", pa.int64()).clear()


def operator(function: KeyedProcessFunction | None = None, **options: Any) -> KeyedProcessOperator:
    return KeyedProcessOperator(function or CountUntilQuiet(), ["k"], **options)


def feed(harness: OperatorHarness, *rows: tuple[str, int]) -> None:
    harness.process({"k": [k for k, _ in rows]}, [t for _, t in rows])


def test_state_and_timers_are_per_key() -> None:
    with OperatorHarness(cloudpickle.loads(cloudpickle.dumps(operator()))) as harness:
        feed(harness, ("a", 1), ("b", 2), ("a", 5))
        harness.watermark(11)
        assert harness.rows() == []
        harness.watermark(12)
        assert harness.rows() == [{"k": "b", "n": 1}]
        feed(harness, ("b", 14))
        harness.end()
        assert harness.rows() == [{"k": "b", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 1}]
        assert harness.timestamps() == [12, 15, 24]


def test_timer_output_precedes_the_watermark() -> None:
    with OperatorHarness(operator()) as harness:
        feed(harness, ("a", 1))
        harness.watermark(50)
        kinds = [type(element) for element in harness.output.elements]
        assert kinds == [Batch, Watermark]


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_state_and_timers_move_with_their_key_group(parallelism: int) -> None:
    keys = [f"k{n}" for n in range(20)]
    with OperatorHarness(operator()) as before:
        feed(before, *((key, n) for n, key in enumerate(keys)))
        feed(before, *((key, 30) for key in keys[:5]))
        snapshot = before.snapshot(1)
        feed(before, ("k0", 31))  # not in the snapshot
    assert [timers.name for timers in snapshot.timers] == [EVENT_TIMERS]
    assert sum(table.num_rows for table in restore_state([snapshot], 1).keyed[EVENT_TIMERS]) == 20
    records = pa.RecordBatch.from_pydict({"k": keys})
    owners = [subtask_of_key_group(128, parallelism, int(g)) for g in key_groups(records, ["k"], 128)]
    found: list[Row] = []
    for index in range(parallelism):
        state = restore_state([snapshot], 1, index=index, parallelism=parallelism)
        with OperatorHarness(operator(), state=state, index=index, parallelism=parallelism) as after:
            after.end()
            assert {row["k"] for row in after.rows()} == {
                key for key, owner in zip(keys, owners, strict=True) if owner == index
            }
            found += after.rows()
    expected = {(key, 2 if n < 5 else 1) for n, key in enumerate(keys)}
    assert {(row["k"], row["n"]) for row in found} == expected


class Registers(KeyedProcessFunction):
    """Timers that register timers, twice the same, and some in the past."""

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        for at in (30, 10, 10, 20):
            context.register_event_time_timer(at)

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        out.emit({"at": timestamp, "watermark": context.current_watermark()})
        if timestamp == 10:
            context.register_event_time_timer(15)


def test_timers_fire_once_in_order_and_see_the_watermark_that_reached_them() -> None:
    with OperatorHarness(operator(Registers())) as harness:
        feed(harness, ("a", 1))
        harness.watermark(25)
        assert [row["at"] for row in harness.rows()] == [10, 15, 20]
        assert [row["watermark"] for row in harness.rows()] == [25, 25, 25]  # as in Flink
        harness.end_input()
        assert harness.rows()[-1] == {"at": 30, "watermark": MAX_WATERMARK}


class Told(KeyedProcessFunction):
    """Calls a method of the context with a time; emits what fires."""

    def __init__(self, call: str, time: Any) -> None:
        self.call = call
        self.time = time

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        getattr(context, self.call)(self.time)

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        out.emit({"at": timestamp})


CALLS = [f"{what}_{clock}_time_timer" for what in ("register", "delete") for clock in ("event", "processing")]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("time", "reported"),
    [
        pytest.param(None, r"TypeError: .*\(None\): .* for no timer, omit the call", id="none"),
        pytest.param(5.5, r"TypeError: .*\(5\.5\): .* an int, ms since the epoch; convert it", id="a part"),
        pytest.param(5.0, r"TypeError: .*\(5\.0\): ", id="a float that is whole"),
        pytest.param("5", r"TypeError: .*\('5'\): ", id="a text"),
        pytest.param(True, r"TypeError: .*\(True\): ", id="a truth value"),
        pytest.param(
            datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
            r"TypeError: .*\(datetime\.datetime\(.*int\(moment\.timestamp\(\) \* 1000\)",
            id="a datetime",
        ),
        pytest.param(2**63, r"ValueError: .*\(9223372036854775808\): .* to 2\*\*63 - 1", id="too great"),
        pytest.param(-(2**63) - 1, r"ValueError: .*\(-9223372036854775809\): ", id="too small"),
        pytest.param(np.uint64(2**63), r"ValueError: .*\(9223372036854775808\): ", id="unsigned, too great"),
    ],
)
def test_a_time_that_is_none_is_refused_where_it_is_given(call: str, time: Any, reported: str) -> None:
    with OperatorHarness(operator(Told(call, time)), name="p") as harness:
        with pytest.raises(UserCodeError, match=rf"operator 'p', .*{reported}.* at row 0") as error:
            feed(harness, ("a", 1))
        assert f"{call}(" in str(error.value)
        assert harness.snapshot(1).timers == ()


@pytest.mark.parametrize(
    ("time", "at"),
    [
        pytest.param(np.int64(7), 7, id="int64 of numpy"),
        pytest.param(np.uint8(7), 7, id="uint8 of numpy"),
        pytest.param(-(2**63), -(2**63), id="the least"),
        pytest.param(2**63 - 1, 2**63 - 1, id="the greatest"),
    ],
)
def test_whole_numbers_are_times_and_are_stored_as_what_they_fire_at(time: Any, at: int) -> None:
    with OperatorHarness(operator(Told("register_event_time_timer", time))) as before:
        feed(before, ("a", 1))
        state = restore_state([before.snapshot(1)], 1)
        before.end_input()
        assert before.rows() == [{"at": at}]
    with OperatorHarness(operator(Told("delete_event_time_timer", time)), state=state) as after:
        after.end_input()
        assert after.rows() == [{"at": at}]
    with OperatorHarness(operator(Told("delete_event_time_timer", time)), state=state) as deleted:
        feed(deleted, ("a", 1))
        deleted.end_input()
        assert deleted.rows() == []


class Clocked(KeyedProcessFunction):
    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        context.register_processing_time_timer(context.current_processing_time() + row["in"])

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        assert context.time_domain == "processing"
        out.emit({"k": context.key, "at": timestamp})


def test_processing_timers_fire_on_the_clock_and_after_a_restore() -> None:
    with OperatorHarness(operator(Clocked())) as before:
        before.timers.advance(1000)
        before.process({"k": ["a", "b", "c"], "in": [50, 20, 500]})
        before.timers.advance(1060)
        assert before.rows() == [{"k": "b", "at": 1020}, {"k": "a", "at": 1050}]
        state = restore_state([before.snapshot(1)], 1)
    with OperatorHarness(operator(Clocked()), state=state) as after:
        after.timers.advance(5000)  # it was due while the job was down
        assert after.rows() == [{"k": "c", "at": 1500}]


class Sides(KeyedProcessFunction):
    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        out.emit_side("odd" if row["n"] % 2 else "even", {"n": row["n"]})


def test_rows_of_side_outputs_keep_their_times() -> None:
    with OperatorHarness(operator(Sides())) as harness:
        harness.process({"k": ["a"] * 3, "n": [1, 2, 3]}, [5, 6, 7])
        assert harness.rows("odd") == [{"n": 1}, {"n": 3}]
        assert harness.output.side["odd"][0].timestamps.to_pylist() == [5, 7]
        assert harness.rows("even") == [{"n": 2}]


class Late(KeyedProcessFunction):
    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        out.emit_side("late", {"n": row["n"]})


def test_a_side_output_with_declared_columns_may_begin_with_nulls() -> None:
    schema = pa.schema({"n": pa.int32()})
    made = KeyedProcessOperator(Late(), ["k"], side_outputs={"late": schema})
    with OperatorHarness(made) as harness:
        harness.process({"k": ["a"], "n": pa.array([None], pa.int64())})
        harness.process({"k": ["a"], "n": [7]})
        assert [batch.records.schema for batch in harness.output.side["late"]] == [schema, schema]
        assert harness.rows("late") == [{"n": None}, {"n": 7}]
        with pytest.raises(
            UserCodeError, match=r"side output 'late' a value that column 'n' \(int32\) cannot"
        ):
            harness.process({"k": ["a"], "n": [2**40]})


def test_an_inferred_side_output_names_its_remedy() -> None:
    with OperatorHarness(KeyedProcessOperator(Late(), ["k"])) as harness:
        harness.process({"k": ["a"], "n": pa.array([None], pa.int64())})
        with pytest.raises(UserCodeError, match=r"those of the first rows, give side_outputs= to set them"):
            harness.process({"k": ["a"], "n": [7]})


class Faulty(KeyedProcessFunction):
    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        if row["n"] == 2:
            raise ValueError("two")
        context.register_event_time_timer(9)

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        raise ZeroDivisionError


class OpensState(KeyedProcessFunction):
    process_element = print

    def open(self, context: ProcessContext) -> None:
        context.state("count", pa.int64()).value()


def test_failures_name_the_row_or_the_timer() -> None:
    with OperatorHarness(operator(Faulty()), name="p") as harness:
        with pytest.raises(UserCodeError, match=r"operator 'p', subtask 0: .*ValueError: two at row 1"):
            harness.process({"k": ["a", "b"], "n": [1, 2]}, [1, 2])
        with pytest.raises(UserCodeError, match=r"on_timer\(9\) of key \('a',\) raised ZeroDivisionError"):
            harness.watermark(MAX_WATERMARK)


def test_a_function_without_process_element_says_so() -> None:
    with pytest.raises(ConfigError, match="must define process_element"):
        operator(KeyedProcessFunction())


def test_state_in_open_is_refused_with_advice() -> None:
    with pytest.raises(UserCodeError, match=r"no current key here \(open\(\)"):
        OperatorHarness(operator(OpensState())).open()
