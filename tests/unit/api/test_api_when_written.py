"""What can be known when a line of the pipeline is written is said there, with what to do instead."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from unistream.api.stream import DataStream
from unistream.base.errors import ConfigError

NO_TIME = us.WatermarkStrategy.no_watermarks()
TIMED = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("n")
INT = pa.int64()
ROWS = pa.table({"n": pa.array([1, 2], INT), "text": ["3", "x"], "sum(n)": pa.array([1.0, 2.0])})
HOUR = us.TumblingEventTimeWindows.of("1 h")
ANY: Any = None


def rows(strategy: us.WatermarkStrategy = NO_TIME) -> DataStream:
    return us.Environment(target="local").from_source(us.StaticSource(ROWS), strategy, "rows")


class Misspelled(us.KeyedProcessFunction):
    def process_elemnt(self, row: Any, context: Any, out: us.Collector) -> None:
        out.emit(row)


class Without(us.ProcessFunction):
    """Says nothing at all."""


class BatchesMisspelled(us.KeyedBatchFunction):
    def proces_batch(self, batch: Any, context: Any, out: Any) -> None:
        out.emit(batch)


class OneSide(us.BroadcastProcessFunction):
    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        out.emit(row)


class Sorts(us.ProcessFunction):
    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        out.emit_side("late", row)


LIMITS = us.MapStateDescriptor("limits", INT, key_type=INT)


def connected() -> us.BroadcastConnectedStream:
    both = rows()
    return both.key_by("n").connect(both, LIMITS)


NULL = us.lit(pa.scalar(None, pa.int64()))


def two(row: Any, more: Any) -> Any:
    return row, more


@pytest.mark.parametrize(
    ("write", "said"),
    [
        # functions and classes that could never be called
        (
            lambda: rows().map(two),
            "called with one argument: missing a required argument: 'more'",
        ),
        (lambda: rows().flat_map(lambda: []), "flat_map: <lambda>() is called with one argument: too many"),
        (lambda: rows().map_batches(two), "map_batches: two("),
        (lambda: rows().key_by(two, returns=INT), "key_by: two("),
        (lambda: rows().map(5), "map takes a function, not 5"),
        (
            lambda: rows().key_by("n").process(Misspelled()),
            "Misspelled must define process_element(row, context, out); is process_elemnt meant to be it?",
        ),
        (lambda: rows().process(Without()), "Without must define process_element(row, context, out)"),
        (
            lambda: rows().key_by("n").process_batch(BatchesMisspelled()),
            "must define process_batch(batch, context, out); is proces_batch meant to be it?",
        ),
        (lambda: connected().process(OneSide()), "OneSide must define process_broadcast_element(row"),
        # expressions
        (lambda: rows().filter("n > 3"), "filter takes an expression such as us.col('n') > 3, or a function"),
        (
            lambda: rows().select(us.col("n") * 2),
            "select: (n * 2) is an expression: give",
        ),
        (lambda: rows().select(["n", "text"]), "select: it takes names one by one: select('n', 'text')"),
        (lambda: rows().select(5), "select: it takes names of columns, not 5"),
        (lambda: rows().key_by(["n", "text"]), "key_by: it takes names one by one: key_by('n', 'text')"),
        (
            lambda: rows().key_by(us.col("n")),
            "key_by: n is an expression: give the name of",
        ),
        (
            lambda: us.sum(us.col("n") * 2),
            "sum takes the name of a column, not (n * 2)",
        ),
        (lambda: us.max(ANY), "max takes the name of a column, not None"),
        (
            lambda: rows().with_columns(x=pc.sum(pc.field("n"))),
            "x = sum(n) cannot be computed: it needs",
        ),
        (
            lambda: rows().select(x=pc.unique(us.col("n").arrow)),
            "x = unique(n) cannot be computed: it",
        ),
        (lambda: rows().filter(pc.cumulative_sum(us.col("n").arrow) > 3), "it needs all rows"),
        (lambda: rows().side_output("b", pc.any((us.col("n") > 3).arrow)), "it needs all rows"),
        (
            lambda: rows().filter(us.col("n") == None),  # type: ignore[operator]  # noqa: E711
            "(n == null) is null in each row, and never true: use .is_null(), .is_valid() or",
        ),
        (
            lambda: rows().filter(pc.field("n") == None),  # noqa: E711
            "filter: (n == null[null]) is never true: use .is_null() or .is_valid()",
        ),
        (lambda: rows().map(dict).side_output("b", us.col("n") > NULL), "(n > null) is never true"),
        (
            lambda: rows().select(x=pc.is_null(pc.field("n") != NULL.arrow)),
            "(n != null[int64])) is never true",
        ),
        # what is no operator
        (
            lambda: rows().key_by("n").uid("by-n"),
            "key_by is no operator and has no uid: call .uid(...) before",
        ),
        (lambda: rows().key_by("n").name("by n"), "has no name: call .name(...) before it, for the operator"),
        # side outputs that are never sent
        (lambda: rows().get_side_output("late"), "'rows' has no side output 'late'; it has none"),
        (
            lambda: rows().side_output("large", us.col("n") > 1).get_side_output("lrge"),
            "'split large' has no side output 'lrge'; it has 'large'",
        ),
        (
            lambda: rows().process(Sorts(), side_outputs={"late": ROWS.schema}).get_side_output("lat"),
            "has no side output 'lat'; it has 'late'",
        ),
        (
            lambda: rows(TIMED).key_by("n").window(HOUR).aggregate(n2=us.count()).get_side_output("late"),
            "has no side output 'late'; it has none",
        ),
        (
            lambda: rows().map(dict).get_side_output("dead-letters"),
            "has no side output 'dead-letters'; it sends none: give it on_error=",
        ),
        # windows over rows that have no event times
        (
            lambda: rows().key_by("n").window(HOUR),
            "rows of source 'rows' have no event times",
        ),
        (
            lambda: rows().map(dict, returns=ROWS.schema).filter(us.col("n") > 1).key_by("n").window(HOUR),
            "rows of source 'rows' have no event times",
        ),
        # what is no name, and no type
        (lambda: us.Environment(target="yarn"), "target 'yarn' is not one of spark, local, remote"),  # type: ignore[arg-type]
        (
            lambda: us.TumblingEventTimeWindows.of(1.5),
            "1.5 is not a duration such as '2 s'",
        ),
        (
            lambda: us.TumblingEventTimeWindows.of(timedelta(microseconds=1)),
            "'1 micros' is not a duration in whole milliseconds",
        ),
        (
            lambda: us.FileSource("/x", schema={"n": int}),
            "schema= takes a pyarrow.Schema, or",
        ),
        (
            lambda: us.KafkaSource(bootstrap_servers="h:1", topic="t", schema={"n": "int"}),
            "schema= takes a pyarrow.Schema, or Arrow types by column",
        ),
        (lambda: rows().limit(0), "limit: 0 is not a number of rows; it is at least 1"),
        (lambda: rows().take("5"), "limit: '5' is not a number of rows"),
    ],
)
def test_it_is_refused_at_once(write: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        write()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


class Counts:
    """A callable object."""

    def __call__(self, row: Any, times: int = 1) -> Any:
        return {"n": row["n"] * times}


@pytest.mark.parametrize(
    "write",
    [
        lambda: rows().map(dict),
        lambda: rows().map(Counts()),
        lambda: rows().map(partial(two, more=3)),
        lambda: rows().map(lambda *row: row),
        lambda: rows().filter(operator.itemgetter("n")),
        lambda: rows().key_by(operator.itemgetter("n"), returns=INT),
        lambda: rows().select("sum(n)"),
        lambda: rows().with_columns(x=us.col("sum(n)") * 2, y=us.col("text").cast("int64")),
        lambda: rows().with_columns(x=us.lit("sum(n)"), y=pc.if_else(pc.field("n") > 1, pc.field("n"), 0)),
        lambda: rows().process(Sorts()).get_side_output("any"),
        lambda: rows().map(dict, on_error="dead-letter").get_side_output("dead-letters"),
        lambda: rows(TIMED).key_by("n").window(HOUR).side_output_late_data("l").aggregate(c=us.count())
        .get_side_output("l"),
        lambda: rows().assign_timestamps_and_watermarks(TIMED).key_by("n").window(HOUR),
        lambda: rows().map_batches(same, timestamp_column="n", returns=ROWS.schema).key_by("n").window(HOUR),
        lambda: rows().process(Sorts(), returns=ROWS.schema).key_by("n").window(HOUR),
        lambda: us.Environment().from_source(
            us.KafkaSource(bootstrap_servers="h:1", topic="t", schema={"n": INT}), NO_TIME
        ).key_by("n").window(HOUR),
        lambda: us.Environment({"execution.checkpointing.interval": timedelta(seconds=2)}),
        lambda: us.FileSource("/x", schema={"n": INT}),
    ],
)  # fmt: skip
def test_it_is_right(write: Callable[[], object]) -> None:
    assert write() is not None


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.mark.parametrize("hour", ["1 h", 3_600_000, timedelta(hours=1)])
def test_a_duration_is_text_milliseconds_or_a_timedelta(hour: Any) -> None:
    assert us.TumblingEventTimeWindows.of(hour) == HOUR
    assert us.SlidingEventTimeWindows.of("2 h", hour).slide_ms == 3_600_000
    assert us.TumblingEventTimeWindows.of("2 h", hour).offset_ms == 3_600_000
    assert us.WatermarkStrategy.for_bounded_out_of_orderness(hour).out_of_orderness_ms == 3_600_000
    assert NO_TIME.with_idleness(hour).idle_ms == 3_600_000
    assert us.StateTtl(hour).time_to_live_ms == 3_600_000
    config = us.Environment({"execution.checkpointing.interval": hour}).config.to_dict()
    assert us.Configuration(config).to_dict() == config
