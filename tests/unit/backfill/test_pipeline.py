"""What of a pipeline is computed again, and what its times say about the events that are needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.backfill.pipeline import batch_job, recomputation
from unistream.base.errors import ConfigError
from unistream.core.backfill import Reach, WindowGrid
from unistream.model.graph import JobType
from unistream.model.time_range import TimeRange

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("ms"))])
ROWS = SCHEMA.empty_table()
TIMES = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
MINUTE = 60_000
RANGE = TimeRange(begin_ms=10 * MINUTE, end_ms=20 * MINUTE)


class Forever(us.KeyedProcessFunction):
    def process_element(self, row: Any, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit(row)


def live() -> us.KafkaSource:
    return us.KafkaSource(bootstrap_servers="127.0.0.1:1", topic="t", schema=SCHEMA)


def stream(env: us.Environment, source: Any = None) -> us.DataStream:
    hybrid = us.HybridSource(us.StaticSource(ROWS.select(["at", "value", "key"])), live())
    return env.from_source(source or hybrid, TIMES, "rows").uid("rows")


def minutes(rows: us.DataStream, slide: str = "1 min") -> us.DataStream:
    windows = us.SlidingEventTimeWindows.of("1 min", slide)
    return rows.key_by("key").window(windows).aggregate(n=us.count()).uid("minutes")


def sink(rows: us.DataStream, name: str = "lake", **options: Any) -> None:
    rows.sink_to(us.DeltaSink(f"/nowhere/{name}", **options)).uid(name)


def tumbling(env: us.Environment) -> None:
    sink(minutes(stream(env)))


def overlapping(env: us.Environment) -> None:
    sink(minutes(stream(env), "20 s"), time_column="window_end")


def cascade(env: us.Environment) -> None:
    first = minutes(stream(env))
    hours = first.key_by("key").window(us.TumblingEventTimeWindows.of("1 h"))
    sink(hours.aggregate(most=us.max("n")).uid("hours"))


def plain(env: us.Environment) -> None:
    sink(stream(env).filter(lambda row: row["value"] > 0), time_column="at")


def processed(env: us.Environment) -> None:
    sink(stream(env).key_by("key").process(Forever(), returns=SCHEMA).uid("forever"), time_column="at")


def two(env: us.Environment) -> None:
    rows = stream(env)
    sink(rows, "raw", time_column="at")
    sink(minutes(rows), "lake")


def built(pipeline: Callable[[us.Environment], None]) -> us.Environment:
    env = us.Environment({"parallelism.default": "2"})
    pipeline(env)
    return env


@pytest.mark.parametrize(
    ("pipeline", "column", "reach"),
    [
        (
            tumbling,
            "window_start",
            Reach(
                span_ms=MINUTE,
                starts=WindowGrid(size_ms=MINUTE, slide_ms=MINUTE, offset_ms=0),
                in_order=True,
            ),
        ),
        (overlapping, "window_end", Reach(span_ms=MINUTE, final_at_time=True, in_order=True)),
        (cascade, "window_start", Reach(span_ms=61 * MINUTE)),
        (plain, "at", Reach(span_ms=0, final_at_time=True)),
    ],
)
def test_the_reach_follows_from_the_windows(
    pipeline: Callable[[us.Environment], None], column: str, reach: Reach
) -> None:
    found = recomputation(built(pipeline), sink=None, column=None, lookback_ms=None)
    assert (found.target.column, found.reach) == (column, reach)


def test_a_lookback_says_it_for_anything() -> None:
    found = recomputation(built(processed), sink=None, column=None, lookback_ms=5)
    assert found.reach == Reach(span_ms=5)


def without_history(env: us.Environment) -> None:
    sink(minutes(stream(env, live())))


def no_table(env: us.Environment) -> None:
    stream(env).sink_to(us.BlackholeSink())


def no_column(env: us.Environment) -> None:
    sink(stream(env))


@pytest.mark.parametrize(
    ("pipeline", "options", "text"),
    [
        (processed, {}, "'forever' may keep events for any time; give the longest time as --lookback"),
        (tumbling, {"column": "n"}, "'n' is neither the start nor the end of the windows"),
        (plain, {"column": "value"}, "'value' is not the one of the event times"),
        (no_column, {}, "which column has the time of a row"),
        (without_history, {}, "'rows' is unbounded and has no history"),
        (no_table, {}, "no sink whose rows can be replaced"),
        (two, {}, "which of the sinks 'raw', 'lake'"),
        (two, {"sink": "other"}, "--sink 'other' is none of"),
    ],
)
def test_what_is_not_known_is_refused(
    pipeline: Callable[[us.Environment], None], options: dict[str, Any], text: str
) -> None:
    arguments: dict[str, Any] = {"sink": None, "column": None, "lookback_ms": None, **options}
    with pytest.raises(ConfigError, match=text):
        recomputation(built(pipeline), **arguments)


def test_the_batch_job_reads_the_history_and_writes_files(tmp_path: Path) -> None:
    env = built(two)
    found = recomputation(env, sink="lake", column=None, lookback_ms=None)
    graph, code = batch_job(env, found, RANGE, str(tmp_path), "again")
    assert graph.job_type is JobType.BATCH
    names = [node.name for chain in code.chains.values() for node in chain.nodes]
    assert names[0] == "rows"
    assert names[1] == "events of the range"
    assert names[-3:] == ["results of the range", "files", "files committer"]
    assert not [name for name in names if "delta" in name], "the other table gets nothing"
    [source] = [vertex.source for vertex in graph.vertices if vertex.source is not None]
    assert (source.connector, source.timestamp_column) == ("static", "at")
    assert env.job_graph()[0].job_type is JobType.STREAMING, "the pipeline itself stays as it is"
