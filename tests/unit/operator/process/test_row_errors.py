"""A call of a process function that fails leaves nothing behind: no state, no timer, no output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from unistream.base.clock import SystemClock
from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorListDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from unistream.operator.process import (
    BroadcastProcessFunction,
    BroadcastProcessOperator,
    Collector,
    KeyedProcessFunction,
    KeyedProcessOperator,
    ProcessContext,
    ProcessFunction,
    ProcessOperator,
)
from unistream.port.state import KeyedStateBackend
from unistream.state.backends import make_backend
from unistream.testing.harness import OperatorHarness

Row = dict[str, Any]
RETURNS = pa.schema([("k", pa.string()), ("seen", pa.string())])
STATES = {
    "value": ValueStateDescriptor("value", pa.int64()),
    "nested": ValueStateDescriptor("nested", pa.list_(pa.int64())),
    "list": ListStateDescriptor("list", pa.int64()),
    "map": MapStateDescriptor("map", pa.int64(), key_type=pa.string()),
    "reduced": ReducingStateDescriptor("reduced", pa.int64(), reduce=lambda a, b: a + b),
}


def contents(context: ProcessContext) -> str:
    """All state of the current key."""
    value, nested, listed, mapped, reduced = (context.state(STATES[name]) for name in STATES)
    return repr((value.value(), nested.value(), list(listed.get()), sorted(mapped.items()), reduced.get()))


class Everything(KeyedProcessFunction):
    """Changes all state by `n`, in ways that depend on it, and then fails if the row is bad."""

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        value, nested, listed, mapped, reduced = (context.state(STATES[name]) for name in STATES)
        n = row["n"]
        value.update((value.value() or 0) + n)
        held = nested.value() or []
        held.append(n)
        if n % 2:
            nested.update(held)
        (listed.update if n % 3 == 0 else listed.add_all)([n, n])
        listed.add(n)
        mapped.put(f"{n % 4}", n)
        mapped.remove(f"{(n + 1) % 4}")
        if n % 5 == 0:
            mapped.clear()
            mapped.put("again", n)
            reduced.clear()
            listed.clear()
            value.clear()
        reduced.add(n)
        context.register_event_time_timer(100 + n % 3)
        context.delete_event_time_timer(100 + (n + 1) % 3)
        out.emit({"k": row["k"], "seen": contents(context)})
        if row["bad"]:
            raise ValueError("bad")

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        out.emit({"k": context.key, "seen": f"{timestamp} {contents(context)}"})


def backend(kind: str, folder: Path) -> KeyedStateBackend:
    return make_backend(
        kind,
        key_groups=(0, 127),
        max_parallelism=128,
        folder=folder / kind if kind == "rocksdb" else None,
        clock=SystemClock(),
        memory_bytes=2**26,
        allow_pickled=False,
    )


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_state_and_timers_are_as_if_bad_rows_had_not_come(kind: str, tmp_path: Path) -> None:
    rows = [{"k": "ab"[i % 2], "n": i, "bad": i % 3 == 1 or i in (15, 20)} for i in range(40)]
    found = []
    for place, given in enumerate((rows, [row for row in rows if not row["bad"]])):
        operator = KeyedProcessOperator(Everything(), ["k"], returns=RETURNS, on_error="dead-letter")
        made = backend(kind, tmp_path / str(place))
        with OperatorHarness(cloudpickle.loads(cloudpickle.dumps(operator)), backend=made) as harness:
            for start in range(0, len(given), 7):
                part = given[start : start + 7]
                harness.process(pa.RecordBatch.from_pylist(part), [row["n"] for row in part])
            harness.watermark(200)
            found.append(harness.rows())
            bad = len(rows) - len(given) if place == 1 else sum(row["bad"] for row in rows)
            assert harness.metrics.counts["dead_letters"] == (bad if place == 0 else 0)
    assert found[0] == found[1]


def emits(value: object) -> Callable[[Row], Row]:
    return lambda row: {"k": row["k"], "seen": value} if row["bad"] else {"k": row["k"], "seen": "ok"}


class Counts(KeyedProcessFunction):
    def __init__(self, made: Callable[[Row], Row]) -> None:
        self.made = made

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> Any:
        seen = context.state(STATES["value"])
        seen.update((seen.value() or 0) + 1)
        out.emit(self.made(row))
        out.emit({"k": row["k"], "seen": str(seen.value())})
        return 1 if row["bad"] == "returns" else None


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(emits(1), id="a value that the column cannot hold"),
        pytest.param(emits("\ud800"), id="a text that is no Unicode"),
        pytest.param(lambda row: {"k": row["k"]} if row["bad"] else emits("ok")(row), id="other columns"),
        pytest.param(lambda row: None if row["bad"] else emits("ok")(row), id="no row"),
    ],
)
def test_a_row_that_does_not_match_the_schema_fails_in_its_own_call(made: Callable[[Row], Row]) -> None:
    operator = KeyedProcessOperator(Counts(made), ["k"], returns=RETURNS, on_error="skip")
    with OperatorHarness(operator) as harness:
        harness.process({"k": ["a"] * 4, "bad": [None, "yes", None, "yes"]})
        assert [row["seen"] for row in harness.rows()] == ["ok", "1", "ok", "2"]
        assert harness.metrics.counts == {"numRecordsSkipped": 2}


def test_a_call_that_returns_something_fails() -> None:
    operator = KeyedProcessOperator(Counts(emits("ok")), ["k"], returns=RETURNS, on_error="skip")
    with OperatorHarness(operator) as harness:
        harness.process({"k": ["a"] * 2, "bad": ["returns", None]})
        assert [row["seen"] for row in harness.rows()] == ["ok", "1"]


class FailingTimer(Everything):
    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        raise ValueError("no row")


def test_a_timer_that_fails_has_no_row() -> None:
    operator = KeyedProcessOperator(FailingTimer(), ["k"], returns=RETURNS, on_error="skip")
    with OperatorHarness(operator) as harness:
        harness.process({"k": ["a"], "n": [1], "bad": [False]}, [1])
        with pytest.raises(UserCodeError, match="on_timer"):
            harness.watermark(200)


class Longest(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return max(value, accumulator)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return max(a, b)


class Aggregates(KeyedProcessFunction):
    longest = AggregatingStateDescriptor("longest", pa.int64(), aggregate=Longest())

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        context.state(self.longest).add(row["n"])


def test_aggregating_state_is_refused_before_any_row() -> None:
    with pytest.raises(ConfigError, match="aggregating state, which cannot be taken back"):
        KeyedProcessOperator(Aggregates(), ["k"], returns=RETURNS, on_error="skip")


class Undeclared(KeyedProcessFunction):
    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        out.emit_side("other", {"n": 1})


def test_an_output_without_declared_columns_fails_the_job() -> None:
    operator = KeyedProcessOperator(Undeclared(), ["k"], returns=RETURNS, on_error="skip")
    with OperatorHarness(operator) as harness, pytest.raises(ConfigError, match="give side_outputs="):
        harness.process({"k": ["a"]})


class InPairs(ProcessFunction):
    held = OperatorListDescriptor("held", pa.int64())

    def process_element(self, row: Row, context: Any, out: Collector) -> None:
        held = context.operator_state(self.held)
        held.add(row["n"])
        if len(held.get()) == 2:
            out.emit({"sum": sum(held.get())})
            held.clear()
            held.add_all([])
        if row["bad"]:
            held.update([0, 0, 0])
            raise ValueError("bad")


def test_lists_without_keys() -> None:
    operator = ProcessOperator(InPairs(), returns=pa.schema([("sum", pa.int64())]), on_error="dead-letter")
    with OperatorHarness(operator) as harness:
        harness.process({"n": [1, 100, 2, 100, 3, 4], "bad": [False, True, False, True, False, False]})
        assert harness.rows() == [{"sum": 3}, {"sum": 7}]
        (letters,) = harness.output.side["dead-letters"]
        assert letters.records.column("error").to_pylist() == ["bad", "bad"]


class Rules(BroadcastProcessFunction):
    limits = MapStateDescriptor("limits", pa.int64(), key_type=pa.string())

    def process_broadcast_element(self, row: Row, context: Any, out: Collector) -> None:
        context.broadcast_state(self.limits).put(row["k"], 10 // row["n"])

    def process_element(self, row: Row, context: Any, out: Collector) -> None:
        out.emit({"k": row["k"], "seen": str(10 // row["n"])})


def test_rows_of_the_broadcast_input_always_fail_the_job() -> None:
    operator = BroadcastProcessOperator(Rules(), ["k"], [Rules.limits], returns=RETURNS, on_error="skip")
    with OperatorHarness(operator) as harness:
        harness.process({"k": ["a", "a"], "n": [0, 5]})
        assert [row["seen"] for row in harness.rows()] == ["2"]
        with pytest.raises(UserCodeError, match="process_broadcast_element raised ZeroDivisionError"):
            harness.process({"k": ["a"], "n": [0]}, input_index=1)
