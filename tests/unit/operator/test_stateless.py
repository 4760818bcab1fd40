"""Stateless operators: what comes out, whose time it carries, and how failures are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Watermark, WatermarkStatus
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common import (
    AssignTimestampsAndWatermarks,
    BaseOperator,
    FilterRows,
    FlatMapRows,
    KeyRows,
    MapRows,
    check_expressions,
)
from unistream.operator.stateless import FilterBatches, MapBatches, Project, SideSplit
from unistream.testing.harness import OperatorHarness

THREE = {"n": [1, 2, 3]}
TIMES = [10, 20, 30]
N = pa.schema([("n", pa.int64())])


def twice(records: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pc.multiply(records.column("n"), 2)})


@pytest.mark.parametrize(
    ("operator", "rows", "times"),
    [
        pytest.param(MapBatches(twice), [2, 4, 6], TIMES, id="map_batches keeps times by row"),
        pytest.param(FilterBatches(pc.field("n") > 1), [2, 3], [20, 30], id="filter by expression"),
        pytest.param(
            FilterBatches(lambda r: pc.less(r.column("n"), 3)), [1, 2], [10, 20], id="filter by function"
        ),
        pytest.param(FilterBatches(pc.field("n") > 5), [], [], id="nothing passes"),
        pytest.param(MapRows(lambda r: {"n": r["n"] + 1}), [2, 3, 4], TIMES, id="map rows"),
        pytest.param(FilterRows(lambda r: r["n"] != 2), [1, 3], [10, 30], id="filter rows"),
        pytest.param(
            FlatMapRows(lambda r: ({"n": r["n"]} for _ in range(r["n"] - 1))),
            [2, 3, 3],
            [20, 30, 30],
            id="flat_map rows take their parent's time",
        ),
        pytest.param(FlatMapRows(lambda _: []), [], [], id="flat_map to nothing"),
        pytest.param(Project({"n": pc.field("n") + 1}, keep=True), [2, 3, 4], TIMES, id="replace a column"),
    ],
)
def test_rows_and_times(operator: BaseOperator, rows: list[int], times: list[int]) -> None:
    operator = cloudpickle.loads(cloudpickle.dumps(operator))
    with OperatorHarness(operator) as harness:
        harness.process(THREE, TIMES)
        assert [row["n"] for row in harness.rows()] == rows
        assert harness.timestamps() == times


def test_select_orders_renames_and_computes() -> None:
    columns = {"b": "b", "a2": pc.field("a") * 2, "one": pc.scalar(1), "old": "a"}
    with OperatorHarness(Project(columns, keep=False)) as harness:
        harness.process({"a": [1, 2], "b": ["x", None]}, [1, 2])
        assert harness.rows() == [
            {"b": "x", "a2": 2, "one": 1, "old": 1},
            {"b": None, "a2": 4, "one": 1, "old": 2},
        ]


def test_a_batch_split_in_pieces_by_a_plan_stays_one_batch() -> None:
    rows = 200_000
    with OperatorHarness(Project({"m": pc.field("n") + 1}, keep=False)) as harness:
        harness.process({"n": pa.array(range(rows))}, range(rows))
        (batch,) = harness.batches()
        assert batch.records.column("m").to_pylist() == list(range(1, rows + 1))


def test_side_split_moves_matches_and_keeps_nulls_on_the_main_output() -> None:
    with OperatorHarness(SideSplit("big", pc.field("n") > 1)) as harness:
        harness.process({"n": [1, 2, None, 3]}, [1, 2, 3, 4])
        assert harness.rows() == [{"n": 1}, {"n": None}]
        assert harness.rows("big") == [{"n": 2}, {"n": 3}]
        assert harness.timestamps() == [1, 3]


def fail_at(value: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == value:
            raise ValueError("no good")
        return row

    return check


def broken(records: pa.RecordBatch) -> pa.RecordBatch:
    raise KeyError("delay")


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        pytest.param(
            MapRows(fail_at(3)),
            "operator 'clean', subtask 1: function 'check' raised ValueError: no good at row 2 of the batch",
            id="map",
        ),
        pytest.param(
            FlatMapRows(lambda r: [fail_at(2)(r)]),
            "raised ValueError: no good at row 1 of the batch",
            id="flat_map",
        ),
        pytest.param(
            FilterRows(lambda r: bool(fail_at(1)(r))),
            "raised ValueError: no good at row 0 of the batch",
            id="filter",
        ),
        pytest.param(
            KeyRows(lambda r: fail_at(2)(r)["n"], "key", pa.int64()),
            "at row 1 of the batch",
            id="key function",
        ),
        pytest.param(
            MapBatches(broken),
            "operator 'clean', subtask 1: function 'broken' raised KeyError",
            id="map_batches",
        ),
        pytest.param(
            MapBatches(lambda r: r.slice(0, 1)), "returned 1 rows for 3, so their event times", id="rows lost"
        ),
        pytest.param(MapBatches(lambda _: 5), "returned int, wanted pyarrow.RecordBatch", id="not a batch"),
        pytest.param(
            FilterBatches(lambda _: pa.array([True])), "one boolean for each of the 3 rows", id="short mask"
        ),
        pytest.param(FilterBatches(lambda r: r.column("n")), "one boolean for each", id="mask of numbers"),
        pytest.param(MapRows(lambda _: 5), "wanted a dict", id="row is not a dict"),
        pytest.param(
            MapRows(lambda r: {"n": "x" if r["n"] == 3 else 1}, returns=N),
            "at row 2 of the batch",
            id="wrong type",
        ),
        pytest.param(
            MapRows(lambda r: {"n": 1} if r["n"] == 1 else {"m": 1}),
            r"returned columns \(m\), wanted \(n\); .*; at row 1",
            id="other columns",
        ),
        pytest.param(
            FlatMapRows(lambda r: [{"n": 1}, {"n": 1} if r["n"] == 1 else {"m": 1}]),
            "at row 1",
            id="parent's position",
        ),
        pytest.param(MapRows(lambda _: {"n": object()}), "no Arrow type", id="value without a type"),
        pytest.param(
            Project({"m": pc.field("zz")}, keep=True), "column 'm' could not be computed", id="no such column"
        ),
        pytest.param(
            Project({"a": pc.field("n") + 1, "b": pc.scalar(6) / (pc.field("n") - 3)}, keep=True),
            "column 'b' could not be computed; .* divide by zero at row 2 of the batch",
            id="a value that cannot be computed",
        ),
        pytest.param(
            MapBatches(twice, timestamp_column="at"),
            "no timestamp column 'at' among n",
            id="no timestamp column",
        ),
    ],
)
def test_failures_name_operator_subtask_and_row(operator: BaseOperator, text: str) -> None:
    with OperatorHarness(operator, name="clean", index=1, parallelism=2) as harness:
        with pytest.raises(UserCodeError, match=text):
            harness.process(THREE, TIMES)
        assert harness.batches() == []


def test_a_schema_is_fixed_by_the_first_rows() -> None:
    with OperatorHarness(MapRows(lambda r: {"v": r["n"] if r["n"] < 3 else "three"})) as harness:
        harness.process({"n": [1, 2]}, [1, 2])
        with pytest.raises(UserCodeError, match=r"give returns= to set them; at row 0"):
            harness.process({"n": [3]}, [3])
    with OperatorHarness(MapBatches(lambda r: r)) as harness:
        harness.process({"n": [1]}, [1])
        with pytest.raises(UserCodeError, match=r"returned columns \(n string\), wanted \(n int64\)"):
            harness.process({"n": ["x"]}, [1])


def test_a_declared_schema_gives_types_to_nulls() -> None:
    with OperatorHarness(MapRows(lambda _: {"n": None}, returns=N)) as harness:
        harness.process(THREE, TIMES)
        assert harness.batches()[0].records.schema == N


def test_schema_metadata_may_vary_but_not_downstream() -> None:
    stamps = iter([b"1", b"2"])
    operator = MapBatches(lambda r: r.replace_schema_metadata({b"pandas": next(stamps)}))
    with OperatorHarness(operator) as harness:
        harness.process(THREE, TIMES)
        harness.process(THREE, TIMES)
        first, second = harness.batches()
        assert first.records.schema.equals(second.records.schema, check_metadata=True)


def test_times_are_read_again_from_a_column() -> None:
    def explode(records: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"at": pa.array([5, 6, 7, 8], pa.timestamp("s"))})

    with OperatorHarness(MapBatches(explode, timestamp_column="at")) as harness:
        harness.process(THREE, TIMES)
        assert harness.timestamps() == [5000, 6000, 7000, 8000]


def marks_of(harness: OperatorHarness) -> list[int]:
    return [e.timestamp for e in harness.output.elements if isinstance(e, Watermark)]


def test_watermarks_assigned_in_the_middle_follow_the_newest_row() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_column("at")
    with OperatorHarness(AssignTimestampsAndWatermarks(strategy)) as harness:
        harness.timers.advance(200)  # nothing seen: no watermark
        harness.process({"at": [100, 90]})
        harness.timers.advance(400)
        harness.timers.advance(800)  # nothing new: not repeated
        harness.process({"at": [80]})
        harness.timers.advance(1000)  # never goes back
        harness.end()
        assert marks_of(harness) == [94, MAX_WATERMARK]
        assert harness.timestamps() == [100, 90, 80]


@pytest.mark.parametrize("bound", [5, 1_000])
def test_watermarks_assigned_anew_replace_those_of_the_input(bound: int) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_column("at")
    with OperatorHarness(AssignTimestampsAndWatermarks(strategy)) as harness:
        harness.watermark(500)
        harness.timers.advance(200)
        harness.process({"at": [100]})
        harness.watermark(600)
        harness.timers.advance(400)
        harness.watermark(700)
        harness.end()
        assert marks_of(harness) == [100 - bound - 1, MAX_WATERMARK]


def test_idleness_of_the_input_passes_where_watermarks_are_assigned() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    with OperatorHarness(AssignTimestampsAndWatermarks(strategy)) as harness:
        harness.idle()
        harness.idle(False)
        harness.process({"at": [100]})
        harness.idle()  # before the next interval
        harness.timers.advance(200)
        found = [e for e in harness.output.elements if isinstance(e, Watermark | WatermarkStatus)]
        assert found == [WatermarkStatus(True), WatermarkStatus(False), Watermark(99), WatermarkStatus(True)]


def test_a_row_without_time_is_named() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    operator = AssignTimestampsAndWatermarks(strategy)
    with OperatorHarness(operator) as harness, pytest.raises(UserCodeError, match="'at' is null at row 1"):
        harness.process({"at": [100, None]})


def test_expressions_are_checked_against_a_schema() -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    assert check_expressions(schema, {"x": pc.field("a") * 2}, "select").field("x").type == pa.int64()
    with pytest.raises(ConfigError, match="columns here: a int64, s string"):
        check_expressions(schema, {"x": pc.field("b")}, "select")
    with pytest.raises(ConfigError, match="select: x"):
        check_expressions(schema, {"x": pc.field("a") + pc.field("s")}, "select")
