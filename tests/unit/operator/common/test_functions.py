"""Functions that would do nothing when they are called are refused; what they return is never lost unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError, UserCodeError
from unistream.operator.process import KeyedBatchOperator, KeyedProcessOperator, ProcessOperator
from unistream.testing.harness import OperatorHarness

TABLE = pa.table({"n": [1, 2], "at": pa.array([0, 1], pa.timestamp("ms"))})


def rows() -> Any:
    source = us.StaticSource(TABLE)
    return us.Environment(target="local").from_source(source, us.WatermarkStrategy.no_watermarks(), "rows")


def yielding(row: Any) -> Iterator[Any]:
    yield row


async def awaited(row: Any) -> Any:
    return row


class Yielding:
    def __call__(self, row: Any) -> Iterator[Any]:
        yield row


class PlainYields(us.ProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> Any:
        yield row


class KeyedYields(us.KeyedProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> Any:
        yield row


class TimerYields(us.KeyedProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> None:
        out.emit(row)

    def on_timer(self, timestamp: int, context: Any, out: Any) -> Any:
        yield {"n": timestamp}


class KeyedAwaits(us.KeyedProcessFunction):
    async def process_element(self, row: Any, context: Any, out: Any) -> None:  # type: ignore[override]
        out.emit(row)


class BatchYields(us.KeyedBatchFunction):
    def process_batch(self, batch: Any, context: Any, out: Any) -> Any:
        yield batch


@pytest.mark.parametrize(
    ("build", "said"),
    [
        pytest.param(lambda: rows().map(yielding), "map: yielding yields", id="map"),
        pytest.param(lambda: rows().map(partial(yielding)), "map: partial yields", id="a partial of it"),
        pytest.param(lambda: rows().map(Yielding()), "map: Yielding yields", id="an object that is called"),
        pytest.param(lambda: rows().map(awaited), "map: awaited is asynchronous", id="async map"),
        pytest.param(lambda: rows().flat_map(awaited), "flat_map: awaited is asynchronous", id="flat_map"),
        pytest.param(lambda: rows().filter(yielding), "filter: yielding yields", id="filter"),
        pytest.param(lambda: rows().filter(awaited), "filter: awaited is async", id="async filter"),
        pytest.param(lambda: rows().map_batches(yielding), "map_batches: yielding", id="map_batches"),
        pytest.param(lambda: rows().filter_batches(yielding), "predicate: yielding", id="filter_batches"),
        pytest.param(lambda: rows().side_output("x", yielding), "predicate: yielding", id="side output"),
        pytest.param(lambda: rows().key_by(yielding, returns=pa.int64()), "key_by: yielding", id="key_by"),
        pytest.param(lambda: rows().map(5), "map takes a function, not 5", id="no function"),
        pytest.param(lambda: rows().filter("n > 1"), "a function of the row, not the text", id="a text"),
        pytest.param(lambda: rows().process(PlainYields()), "PlainYields.process_element yields", id="plain"),
        pytest.param(
            lambda: rows().key_by("n").process(KeyedYields()), "KeyedYields.process_element", id="keyed"
        ),
        pytest.param(lambda: rows().key_by("n").process(TimerYields()), "TimerYields.on_timer", id="timer"),
        pytest.param(lambda: rows().key_by("n").process(KeyedAwaits()), "is asynchronous", id="async keyed"),
        pytest.param(
            lambda: rows().key_by("n").process_batch(BatchYields()), "BatchYields.process_batch", id="batch"
        ),
    ],
)
def test_what_would_do_nothing_is_refused_when_it_is_put_together(
    build: Callable[[], object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        build()


def test_flat_map_may_yield_and_a_class_is_a_function() -> None:
    assert rows().flat_map(yielding).map(dict).schema is None


class PlainReturns(us.ProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> Any:
        return row


class KeyedReturns(us.KeyedProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> Any:
        return row


class BatchReturns(us.KeyedBatchFunction):
    def process_batch(self, batch: Any, context: Any, out: Any) -> Any:
        return batch


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(lambda: ProcessOperator(PlainReturns()), id="plain"),
        pytest.param(lambda: KeyedProcessOperator(KeyedReturns(), ["n"]), id="keyed"),
        pytest.param(lambda: KeyedBatchOperator(BatchReturns(), ["n"]), id="batch"),
    ],
)
def test_a_returned_row_fails_the_job_instead_of_being_lost(operator: Callable[[], Any]) -> None:
    with (
        pytest.raises(UserCodeError, match=r"would be lost; pass rows to out\.emit"),
        OperatorHarness(operator()) as harness,
    ):
        harness.process({"n": [1, 2]})


@pytest.mark.parametrize(
    ("build", "said"),
    [
        pytest.param(lambda env: env.from_source(TABLE, None), "us.StaticSource", id="table as a source"),
        pytest.param(lambda env: env.from_source(us.StaticSource, None), "a source", id="class as a source"),
        pytest.param(
            lambda env: env.from_source(us.StaticSource(TABLE), None), "WatermarkStrategy", id="no strategy"
        ),
        pytest.param(lambda _: rows().sink_to(5), "sink_to takes a sink", id="no sink"),
        pytest.param(
            lambda _: rows().sink_to(us.BlackholeSink), "sink_to takes a sink", id="class as a sink"
        ),
        pytest.param(lambda _: rows().map(dict, returns={"n": "int"}), "returns= takes", id="no type"),
        pytest.param(lambda _: rows().map(dict, returns=[1]), "returns= takes", id="no schema"),
        pytest.param(lambda _: rows().with_columns(z=object()), "with_columns: z is <obj", id="no column"),
        pytest.param(lambda env: env.execute(5), "name of a job is text, not 5", id="no name"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(build: Callable[[Any], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(us.Environment(target="local"))


def test_streams_say_what_they_are_streams_of() -> None:
    assert repr(rows().map(dict)) == "DataStream(columns known when it runs)"
    assert repr(rows().key_by("n")) == "KeyedStream(n int64, at timestamp[ms], by n)"
