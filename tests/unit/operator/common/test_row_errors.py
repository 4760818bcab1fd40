"""`on_error`: which rows fail, what becomes of them, and that the others are as without them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from unistream.api.functions import col, when
from unistream.base.bisection import bisected
from unistream.base.errors import ConfigError, SuppressRestarts, Transient, UserCodeError
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common import (
    AssignTimestampsAndWatermarks,
    FilterRows,
    FlatMapRows,
    KeyRows,
    MapRows,
    RowOperator,
    check_on_error,
    decoded_row,
)
from unistream.operator.stateless import FilterBatches, MapBatches, Project, SideSplit
from unistream.port.dead_letters import LETTER_SCHEMA, OnError
from unistream.testing.harness import OperatorHarness

LETTERS = "dead-letters"
TEXTS = ["7", "free", "9", None, "11"]
TIMES = [10, 20, 30, 40, 50]
FARE = pa.schema([("fare", pa.int64())])
BAD = [1, 3]


def fare(row: dict[str, Any]) -> dict[str, int]:
    return {"fare": int(row["text"])}


def unfit(row: dict[str, Any]) -> dict[str, Any]:
    """What it returns for bad rows does not match the schema."""
    return {"fare": int(row["text"])} if row["text"] in ("7", "9", "11") else {"fare": 1.5}


def other_columns(row: dict[str, Any]) -> dict[str, Any]:
    return {"fare": int(row["text"])} if row["text"] in ("7", "9", "11") else {"price": 1}


def twice(row: dict[str, Any]) -> Iterator[dict[str, int]]:
    yield {"fare": 0}
    yield {"fare": int(row["text"])}


def twice_unfit(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"fare": 0}, unfit(row)]


def cast(records: pa.RecordBatch) -> pa.RecordBatch:
    if records.column("text").null_count:
        raise ValueError("no fare")
    return pa.record_batch({"fare": records.column("text").cast(pa.int64())})


def expensive(records: pa.RecordBatch) -> pa.BooleanArray:
    return pc.greater(cast(records).column("fare"), 8)


IS_9 = pc.equal(pc.field("text").cast("int64"), pc.scalar(9))
NOT_NULL = when(col("text").is_null(), "x").otherwise(col("text")).cast("int64").arrow


@pytest.mark.parametrize(
    ("make", "good", "times"),
    [
        pytest.param(lambda e: MapRows(fare, returns=FARE, on_error=e), [7, 9, 11], [10, 30, 50], id="map"),
        pytest.param(
            lambda e: MapRows(fare, on_error=e), [7, 9, 11], [10, 30, 50], id="map, columns not declared"
        ),
        pytest.param(
            lambda e: MapRows(unfit, returns=FARE, on_error=e),
            [7, 9, 11],
            [10, 30, 50],
            id="a row whose value the column cannot hold",
        ),
        pytest.param(
            lambda e: MapRows(other_columns, returns=FARE, on_error=e),
            [7, 9, 11],
            [10, 30, 50],
            id="a row with other columns",
        ),
        pytest.param(
            lambda e: FlatMapRows(twice, returns=FARE, on_error=e),
            [0, 7, 0, 9, 0, 11],
            [10, 10, 30, 30, 50, 50],
            id="flat_map emits nothing of a row that fails after its first yield",
        ),
        pytest.param(
            lambda e: FlatMapRows(twice, on_error=e),
            [0, 7, 0, 9, 0, 11],
            [10, 10, 30, 30, 50, 50],
            id="flat_map, columns not declared",
        ),
        pytest.param(
            lambda e: FlatMapRows(twice_unfit, returns=FARE, on_error=e),
            [0, 7, 0, 9, 0, 11],
            [10, 10, 30, 30, 50, 50],
            id="flat_map emits nothing of a row of which one result does not fit",
        ),
        pytest.param(
            lambda e: MapBatches(cast, returns=FARE, on_error=e, row_wise=True),
            [7, 9, 11],
            [10, 30, 50],
            id="map_batches, row by row",
        ),
        pytest.param(
            lambda e: Project({"fare": NOT_NULL}, keep=False, on_error=e),
            [7, 9, 11],
            [10, 30, 50],
            id="an expression of select",
        ),
    ],
)
@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_rows_that_fail_are_left_out_and_the_others_are_as_before(
    make: Callable[[OnError], RowOperator], good: list[int], times: list[int], on_error: OnError
) -> None:
    with OperatorHarness(cloudpickle.loads(cloudpickle.dumps(make(on_error)))) as harness:
        harness.process({"text": TEXTS}, TIMES)
        assert [row["fare"] for row in harness.rows()] == good
        assert harness.timestamps() == times
        check_letters(harness, on_error)


@pytest.mark.parametrize(
    ("make", "good"),
    [
        pytest.param(
            lambda e: FilterRows(lambda row: int(row["text"]) > 8, on_error=e), ["9", "11"], id="filter"
        ),
        pytest.param(
            lambda e: FilterBatches(NOT_NULL > 8, on_error=e), ["9", "11"], id="an expression of filter"
        ),
        pytest.param(
            lambda e: FilterBatches(expensive, on_error=e, row_wise=True), ["9", "11"], id="filter_batches"
        ),
        pytest.param(
            lambda e: SideSplit("large", NOT_NULL > 8, on_error=e), ["7"], id="the rest of a side output"
        ),
        pytest.param(
            lambda e: KeyRows(lambda row: int(row["text"]), "key", pa.int64(), on_error=e),
            ["7", "9", "11"],
            id="the function of a key",
        ),
        pytest.param(
            lambda e: KeyRows(lambda row: unfit(row)["fare"], "key", pa.int64(), on_error=e),
            ["7", "9", "11"],
            id="a key that its type cannot hold",
        ),
    ],
)
@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_rows_of_predicates_and_keys(
    make: Callable[[OnError], RowOperator], good: list[str], on_error: OnError
) -> None:
    with OperatorHarness(make(on_error)) as harness:
        harness.process({"text": TEXTS}, TIMES)
        assert [row["text"] for row in harness.rows()] == good
        check_letters(harness, on_error)


def check_letters(harness: OperatorHarness, on_error: OnError) -> None:
    if on_error == "skip":
        assert LETTERS not in harness.output.side
        assert harness.metrics.counts == {"numRecordsSkipped": 2}
        return
    assert harness.metrics.counts == {"dead_letters": 2}
    letters = [row for batch in harness.output.side[LETTERS] for row in batch.records.to_pylist()]
    assert sorted((json.loads(one["row"])["text"] or "", one["attempt"]) for one in letters) == [
        ("", 1),
        ("free", 1),
    ]
    assert sorted(one["event_time"].timestamp() * 1000 for one in letters) == [20, 40]
    assert len({one["letter"] for one in letters}) == 2
    assert {one["operator"] for one in letters} == {"operator"}
    assert all(one["error_type"] and one["error"] for one in letters)
    for one in letters:
        assert decoded_row(one["row_ipc"]).to_pylist() == [json.loads(one["row"])]


def test_a_batch_whose_function_is_not_row_wise_fails_as_a_whole() -> None:
    with OperatorHarness(MapBatches(cast, on_error="dead-letter")) as harness:
        harness.process({"text": TEXTS}, TIMES)
        harness.process({"text": ["1"]}, [60])
        assert harness.rows() == [{"fare": 1}]
        assert harness.metrics.counts == {"dead_letters": 5}


def test_rows_without_an_event_time() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    operator = AssignTimestampsAndWatermarks(strategy, on_error="dead-letter")
    with OperatorHarness(operator) as harness:
        harness.process({"at": pa.array([1, None, 3, None], pa.int64())})
        assert harness.timestamps() == [1, 3]
        harness.process({"at": pa.array([None], pa.int64())})
        assert harness.metrics.counts == {"dead_letters": 3}
        letters = pa.Table.from_batches([b.records for b in harness.output.side[LETTERS]])
        assert letters["event_time"].null_count == 3


def test_a_function_is_called_once_for_each_row() -> None:
    calls: list[str | None] = []

    def called(row: dict[str, Any]) -> dict[str, int]:
        calls.append(row["text"])
        return fare(row)

    with OperatorHarness(MapRows(called, returns=FARE, on_error="skip")) as harness:
        harness.process({"text": TEXTS})
    assert calls == TEXTS


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Transient("the tariff service does not answer"), id="another system is to blame"),
        pytest.param(SuppressRestarts("this version cannot go on"), id="the function gives up"),
        pytest.param(MemoryError(), id="the machine is to blame"),
    ],
)
@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_what_no_row_is_to_blame_for_fails_the_job(error: Exception, on_error: OnError) -> None:
    def raises(_row: dict[str, Any]) -> dict[str, int]:
        raise error

    with (
        OperatorHarness(MapRows(raises, on_error=on_error)) as harness,
        pytest.raises(UserCodeError) as raised,
    ):
        harness.process({"text": TEXTS})
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_rows_that_python_cannot_hold_are_not_lost(on_error: OnError) -> None:
    at = pa.array([1, 2, 3], pa.timestamp("ns"))  # without pandas Python has no nanoseconds
    with (
        OperatorHarness(FilterRows(lambda row: bool(row["at"]), on_error=on_error)) as harness,
        pytest.raises(UserCodeError, match="Nanosecond"),
    ):
        harness.process({"at": at})


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(FilterBatches(pc.field("missing") > 1, on_error="skip"), id="filter"),
        pytest.param(Project({"a": pc.field("missing") + 1}, keep=True, on_error="skip"), id="with_columns"),
        pytest.param(Project({"a": "missing"}, keep=False, on_error="skip"), id="a renamed column"),
    ],
)
def test_an_expression_that_fits_no_row_fails_the_job(operator: RowOperator) -> None:
    with OperatorHarness(operator) as harness, pytest.raises(UserCodeError, match="missing"):
        harness.process({"text": TEXTS})


def test_letters_hold_rows_exactly_that_json_does_not() -> None:
    rows = {
        "at": pa.array([1], pa.timestamp("ns")),
        "raw": pa.array([b"\xff"], pa.binary()),
        "share": pa.array([math.nan], pa.float32()),
        "kind": pa.array(["a"]).dictionary_encode(),
        "parts": pa.array([[{"n": 1}]], pa.list_(pa.struct({"n": pa.int8()}))),
    }
    records = pa.record_batch(rows)

    def refuses(_rows: pa.RecordBatch) -> pa.BooleanArray:
        raise KeyError("no")

    with OperatorHarness(FilterBatches(refuses, on_error="dead-letter")) as harness:
        harness.process(records)
        (letters,) = harness.output.side[LETTERS]
    assert letters.records.schema.equals(LETTER_SCHEMA)
    (found,) = letters.records.to_pylist()
    again = decoded_row(found["row_ipc"])
    assert again.schema.equals(records.schema)
    assert again.drop_columns(["share"]).equals(records.drop_columns(["share"]))
    assert json.loads(found["row"])["at"] == "1970-01-01 00:00:00.000000001"
    assert found["error_at"].rpartition(":")[0].endswith("test_row_errors.py")


@pytest.mark.parametrize(
    ("rows", "bad", "calls_max"),
    [
        pytest.param(0, [], 0, id="no rows"),
        pytest.param(1, [0], 1, id="the only one"),
        pytest.param(1000, [], 1, id="none is bad"),
        pytest.param(1024, [77], 21, id="one of many"),
        pytest.param(1000, [0, 999], 42, id="the ends"),
        pytest.param(64, list(range(64)), 127, id="all of them"),
    ],
)
def test_bisection_finds_every_bad_row_in_few_calls(rows: int, bad: list[int], calls_max: int) -> None:
    calls = 0

    def attempt(start: int, stop: int) -> list[int]:
        nonlocal calls
        calls += 1
        if any(start <= row < stop for row in bad):
            raise ValueError(start)
        return list(range(start, stop))

    good, failed = bisected(rows, attempt, lambda error: isinstance(error, ValueError))
    assert sorted(failed) == bad
    assert [row for _, part in good for row in part] == [row for row in range(rows) if row not in bad]
    assert calls <= calls_max


def test_on_error_is_one_of_three() -> None:
    with pytest.raises(
        ConfigError, match="map: on_error='ignore' is not one of 'fail', 'skip', 'dead-letter'"
    ):
        check_on_error("ignore", "map")
