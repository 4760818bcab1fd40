"""What a function has given away does not change any more, and comes out as it was or not at all."""

from __future__ import annotations

import datetime
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import UserCodeError
from unistream.operator.common import BaseOperator, FlatMapRows, KeyRows, MapRows
from unistream.operator.process import (
    BroadcastProcessOperator,
    KeyedBatchOperator,
    KeyedProcessOperator,
    ProcessOperator,
)
from unistream.operator.process.broadcast import BROADCAST_INPUT
from unistream.operator.stateless import MapBatches
from unistream.testing.harness import OperatorHarness

N = pa.schema([("n", pa.int64())])
REQUIRED = pa.schema([pa.field("n", pa.int64(), nullable=False)])
OUT = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string())), ("raw", pa.binary())])
SCHEMAS = pytest.mark.parametrize(
    "returns", [pytest.param(OUT, id="declared"), pytest.param(None, id="inferred")]
)
RULES = us.MapStateDescriptor("rules", pa.int64(), key_type=pa.int64())


class Again:
    """One dict with one list and one bytearray, changed for each row."""

    def __init__(self) -> None:
        self.row: dict[str, Any] = {"n": 0, "tags": [], "raw": bytearray()}

    def next(self) -> dict[str, Any]:
        self.row["n"] += 1
        self.row["tags"].append(str(self.row["n"]))
        self.row["raw"] += b"x"
        return self.row

    def emit(self, out: Any, tag: str | None = None) -> None:
        for _ in range(3):
            out.emit_side(tag, self.next()) if tag else out.emit(self.next())
        self.row["tags"].clear()


EXPECTED = [{"n": n, "tags": [str(one) for one in range(1, n + 1)], "raw": b"x" * n} for n in (1, 2, 3)]


class Keyed(us.KeyedProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> None:
        Again().emit(out)
        context.register_event_time_timer(50)

    def on_timer(self, timestamp: int, context: Any, out: Any) -> None:
        Again().emit(out, "timer")


class Plain(us.ProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> None:
        Again().emit(out)

    def finish(self, context: Any, out: Any) -> None:
        Again().emit(out, "timer")


class Both(us.BroadcastProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> None:
        Again().emit(out, "timer")

    def process_broadcast_element(self, row: Any, context: Any, out: Any) -> None:
        Again().emit(out)


def again(_: Any) -> Iterator[dict[str, Any]]:
    held = Again()
    for _ in range(3):
        yield held.next()


@SCHEMAS
def test_rows_of_process_functions_are_taken_when_they_are_emitted(returns: pa.Schema | None) -> None:
    with OperatorHarness(KeyedProcessOperator(Keyed(), ["n"], returns=returns)) as harness:
        harness.process({"n": [7]}, [10])
        assert harness.rows() == EXPECTED
        harness.watermark(100)
        assert harness.rows("timer") == EXPECTED
    with OperatorHarness(ProcessOperator(Plain(), returns=returns)) as harness:
        harness.process({"n": [7]}, [10])
        harness.end()
        assert (harness.rows(), harness.rows("timer")) == (EXPECTED, EXPECTED)
    with OperatorHarness(BroadcastProcessOperator(Both(), ["n"], [RULES], returns=returns)) as harness:
        harness.process({"n": [7]}, [10], input_index=BROADCAST_INPUT)
        harness.process({"n": [7]}, [10])
        assert (harness.rows(), harness.rows("timer")) == (EXPECTED, EXPECTED)


@SCHEMAS
def test_rows_of_map_and_flat_map_are_taken_when_they_are_returned(returns: pa.Schema | None) -> None:
    held = Again()
    with OperatorHarness(MapRows(lambda _: held.next(), returns=returns)) as harness:
        harness.process({"n": [7, 8, 9]})
        held.row["tags"].clear()
        assert harness.rows() == EXPECTED
    with OperatorHarness(FlatMapRows(again, returns=returns)) as harness:
        harness.process({"n": [7, 8]})
        assert harness.rows() == EXPECTED * 2


class Scratch(us.KeyedBatchFunction):
    """One numpy array for all batches, and for their event times."""

    buffer = np.zeros(2, np.int64)

    def process_batch(self, batch: Any, context: Any, out: Any) -> None:
        for n in range(3):
            self.buffer[:] = n
            column = pa.array(self.buffer)
            pair = pa.FixedSizeListArray.from_arrays(column, 2)
            out.emit(pa.record_batch({"n": column}), column)
            out.emit_side("pairs", pa.record_batch({"p": pair}), pa.array(self.buffer[:1]))


def test_batches_of_a_process_function_are_taken_when_they_are_emitted() -> None:
    with OperatorHarness(KeyedBatchOperator(Scratch(), ["n"])) as harness:
        harness.process({"n": [1]}, [0])
        assert [row["n"] for row in harness.rows()] == [0, 0, 1, 1, 2, 2]
        assert harness.timestamps() == [0, 0, 1, 1, 2, 2]
        assert [row["p"] for row in harness.rows("pairs")] == [[0, 0], [1, 1], [2, 2]]


def test_batches_of_map_batches_are_taken_when_they_are_returned() -> None:
    buffer = np.zeros(2, np.int64)

    def fill(records: pa.RecordBatch) -> pa.RecordBatch:
        buffer[:] += 1
        return pa.record_batch({"n": pa.array(buffer), "old": records.column("n")})

    with OperatorHarness(MapBatches(fill)) as harness:
        rows = pa.record_batch({"n": [5, 6]})
        harness.process(rows)
        harness.process(rows)
        assert [row["n"] for row in harness.rows()] == [1, 1, 2, 2]
        passed = harness.batches()[0].records.column("old")
        assert (
            passed.buffers()[1].address == rows.column("n").buffers()[1].address
        )  # handed on without a copy


DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12, 0, 0, 1)  # noqa: DTZ001


class Emits(us.KeyedProcessFunction):
    def __init__(self, row: Any) -> None:
        self.row = row

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        out.emit(self.row if row["n"] == 3 else {"n": 1})


class EmitsAside(us.ProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> None:
        out.emit_side("late", {"n": 1.5 if row["n"] == 3 else 1})


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        pytest.param(
            MapRows(lambda r: {"n": r["n"] / 2}, returns=N),
            r"operator 'clean', subtask 1: function '<lambda>' returned a value that column 'n' \(int64\)"
            r" cannot hold: 0.5 \(float\) would come back as 0 \(int\); convert it first, or declare a type"
            " that holds it; at row 0 of the batch",
            id="map cuts no fraction",
        ),
        pytest.param(
            FlatMapRows(lambda r: [{"n": 1}, {"n": r["n"] / 2}], returns=N),
            "0.5.*; at row 0",
            id="flat_map names the row that it came from",
        ),
        pytest.param(
            KeyedProcessOperator(Emits({"n": 1.5}), ["n"], returns=N),
            r"function 'Emits' emitted a value that column 'n' \(int64\) cannot hold: 1.5.*; at row 2",
            id="process cuts no fraction",
        ),
        pytest.param(
            MapRows(lambda _: {"n": NOON}, returns=pa.schema([("n", pa.timestamp("ms"))])),
            "declare a finer unit",
            id="microseconds are kept",
        ),
        pytest.param(
            MapRows(lambda _: {"n": NOON}, returns=pa.schema([("n", pa.date32())])),
            r"give its date\(\)",
            id="a moment is no date",
        ),
        pytest.param(
            MapRows(lambda r: {"n": None if r["n"] == 2 else 1}, returns=REQUIRED),
            "cannot hold: it is None, and is declared not nullable; at row 1",
            id="null where none may be",
        ),
        pytest.param(
            KeyRows(lambda r: r["n"] / 2, "key", pa.int64()),
            r"'<lambda>' returned a key that int64, its type, cannot hold: 0.5 \(float\).*; at row 0",
            id="keys are not merged",
        ),
        pytest.param(
            MapRows(lambda r: {"n": 1, "m": 2} if r["n"] == 2 else {"n": 1}, returns=N),
            r"returned columns \(n, m\), wanted \(n\); at row 1",
            id="a column too many",
        ),
        pytest.param(
            KeyedProcessOperator(Emits({}), ["n"], returns=N), r"\(\), wanted \(n\); at row 2", id="none"
        ),
        pytest.param(
            MapRows(lambda _: None),
            r"function '<lambda>' returned None \(NoneType\), wanted a dict of columns; to drop rows use"
            " filter or flat_map; at row 0",
            id="map returns None",
        ),
        pytest.param(
            MapRows(lambda r: (r["n"],), returns=N), r"returned \(1,\) \(tuple\), wanted a dict", id="a tuple"
        ),
        pytest.param(MapRows(lambda r: [r]), r"returned \[{'n': 1}\] \(list\), wanted a dict", id="a list"),
        pytest.param(MapRows(lambda _: {}), "returned a row without columns; at row 0", id="an empty dict"),
        pytest.param(MapRows(lambda _: {1: 2}), "names of columns are text, not 1; at row 0", id="no text"),
        pytest.param(
            FlatMapRows(lambda _: None),
            "it returned None, wanted rows: a list of dicts, or yield each of them",
            id="flat_map returns None",
        ),
        pytest.param(FlatMapRows(lambda r: r), "returned {'n': 1}, wanted rows: a list", id="a dict"),
        pytest.param(
            FlatMapRows(lambda _: [(1,)], returns=N), r"\(1,\) \(tuple\), wanted a dict", id="tuples"
        ),
        pytest.param(
            KeyedProcessOperator(Emits((1,)), ["n"]), r"emitted \(1,\) \(tuple\), wanted.*row 2", id="emit"
        ),
        pytest.param(
            MapBatches(lambda r: r.cast(pa.schema([("n", pa.float64())])), returns=N),
            r"returned columns \(n double\), wanted \(n int64\)",
            id="batches are of the declared types",
        ),
        pytest.param(
            MapBatches(
                lambda _: pa.record_batch({"n": pa.array([1, None, 3])}),
                returns=REQUIRED,
            ),
            "returned null in column 'n', which is declared not nullable; at row 1",
            id="null in a batch where none may be",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_named(operator: BaseOperator, text: str) -> None:
    with OperatorHarness(operator, name="clean", index=1, parallelism=2) as harness:
        with pytest.raises(UserCodeError, match=text):
            harness.process({"n": [1, 2, 3]}, [1, 2, 3])
        assert harness.batches() == []


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        pytest.param(
            MapRows(lambda r: {"n": 1 if r["n"] < 3 else 1.5}),
            "would come back as 1 .*; the columns are those of the first rows, give returns= to set them; at"
            " row 1",
            id="nor where the type is that of the first rows",
        ),
        pytest.param(
            ProcessOperator(EmitsAside()),
            "function 'EmitsAside' emitted on side output 'late' a value that column 'n'.*; at row 1",
            id="nor on a side output",
        ),
        pytest.param(
            MapRows(lambda r: {"n": {"x": 1, "y": 2} if r["n"] == 3 else {"x": 1}}),
            "it has a field 'y', which the type does not.*first rows.*at row 1",
            id="no field of a struct is lost",
        ),
    ],
)
def test_the_columns_are_those_of_the_first_rows(operator: BaseOperator, text: str) -> None:
    with OperatorHarness(operator) as harness:
        harness.process({"n": [1, 2]})
        with pytest.raises(UserCodeError, match=text):
            harness.process({"n": [1, 3]})


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(types.MappingProxyType({"n": 1}), id="a proxy"),
        pytest.param(defaultdict(int, n=1), id="a dict with defaults"),
    ],
)
@pytest.mark.parametrize("returns", [N, None])
def test_any_mapping_is_a_row(row: Any, returns: pa.Schema | None) -> None:
    with OperatorHarness(MapRows(lambda _: row, returns=returns)) as harness:
        harness.process({"n": [1, 2]})
        assert harness.rows() == [{"n": 1}] * 2


def test_a_dict_with_defaults_does_not_make_up_columns() -> None:
    operator = MapRows(lambda _: defaultdict(int, m=1), returns=N)
    with (
        OperatorHarness(operator) as harness,
        pytest.raises(UserCodeError, match=r"columns \(m\), wanted \(n\)"),
    ):
        harness.process({"n": [1]})


class Remembers(us.KeyedProcessFunction):
    """Changes what it has put into state."""

    value = us.ValueStateDescriptor("value", pa.list_(pa.int64()))
    many = us.ListStateDescriptor("many", pa.list_(pa.int64()))
    by_name = us.MapStateDescriptor("by_name", pa.list_(pa.int64()), key_type=pa.string())

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        given = [1]
        context.state(self.value).update(given)
        context.state(self.many).add(given)
        context.state(self.by_name).put("a", given)
        given.append(2)
        held = context.state(self.value).value(), context.state(self.many).get()[0]
        out.emit({"v": held[0], "l": held[1], "m": context.state(self.by_name).get("a")})


def test_state_keeps_what_it_was_given() -> None:
    with OperatorHarness(KeyedProcessOperator(Remembers(), ["n"])) as harness:
        harness.process({"n": [1]})
        assert harness.rows() == [{"v": [1], "l": [1], "m": [1]}]


class ColumnOfState(us.KeyedBatchFunction):
    value = us.ValueStateDescriptor("value", pa.int64())
    buffer = np.zeros(1, np.int64)

    def process_batch(self, batch: Any, context: Any, out: Any) -> None:
        state = context.column(self.value)
        self.buffer[:] = 1
        state.put(pa.array(self.buffer))
        self.buffer[:] = 2
        out.emit(batch.keys.append_column("held", state.get()))


def test_state_in_columns_keeps_what_it_was_given() -> None:
    with OperatorHarness(KeyedBatchOperator(ColumnOfState(), ["n"])) as harness:
        harness.process({"n": [1]})
        assert harness.rows() == [{"n": 1, "held": 1}]
