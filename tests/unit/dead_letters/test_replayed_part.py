"""What of a pipeline a replay runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.core.graph import uid_of
from unistream.dead_letters.graph import appending, replay_environment, replayed_part
from unistream.dead_letters.ledger import Ledger

NO_TIMES = us.WatermarkStrategy.no_watermarks()
ROWS = pa.schema([("id", pa.int64())])


def numbers(env: us.Environment, name: str, *, bounded: bool = True) -> us.DataStream:
    source = us.DatagenSource(
        {"id": us.datagen.Sequential()}, rows=5 if bounded else None, bounded=bounded, rows_per_second=5
    )
    return env.from_source(source, NO_TIMES, name).uid(name)


def failing(rows: us.DataStream, uid: str = "failing") -> us.DataStream:
    return rows.map(lambda row: row, returns=ROWS, on_error="dead-letter").uid(uid)


def simple(env: us.Environment) -> None:
    rows = failing(numbers(env, "in", bounded=False).filter(us.col("id") > 0).uid("before"))
    rows.select("id").uid("behind").sink_to(us.BlackholeSink()).uid("out")
    rows.dead_letters_to(us.BlackholeSink())


def united(env: us.Environment) -> None:
    rows = failing(numbers(env, "in"))
    rows.union(numbers(env, "other", bounded=False)).sink_to(us.BlackholeSink()).uid("out")


def other_branch(env: us.Environment) -> None:
    source = numbers(env, "in")
    failing(source).sink_to(us.BlackholeSink()).uid("out")
    source.sink_to(us.BlackholeSink()).uid("raw")


def joined(env: us.Environment, *, bounded: bool = True) -> None:
    names = numbers(env, "names", bounded=bounded).with_columns(name=us.lit("x")).uid("named")
    names.sink_to(us.BlackholeSink()).uid("copy of names")
    failing(numbers(env, "in", bounded=False)).join(names, on="id").uid("join").sink_to(
        us.BlackholeSink()
    ).uid("out")


LIMITS = us.MapStateDescriptor("limits", pa.int64(), key_type=pa.int64())


class Limited(us.BroadcastProcessFunction):
    def process_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        out.emit(row)

    def process_broadcast_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        """Takes no rule."""


def ruled(env: us.Environment, *, bounded: bool = True) -> None:
    rules = numbers(env, "rules", bounded=bounded)
    keyed = numbers(env, "in", bounded=False).key_by("id").connect(rules, LIMITS)
    keyed.process(Limited(), returns=ROWS, on_error="dead-letter").uid("failing").sink_to(
        us.BlackholeSink()
    ).uid("out")


def windowed(env: us.Environment) -> None:
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("id")
    rows = failing(numbers(env, "in").assign_timestamps_and_watermarks(times))
    hours = rows.key_by("id").window(us.TumblingEventTimeWindows.of("1 h"))
    hours.aggregate(n=us.count()).uid("hours").name("hours").sink_to(us.BlackholeSink()).uid("out")


def of_source(env: us.Environment) -> None:
    """The letters of a source and those of an operator behind it go into one table."""
    source = us.KafkaSource(
        bootstrap_servers="localhost:1", topic="t", schema=ROWS, on_bad_record="dead-letter"
    )
    at = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("id")
    records = env.from_source(source, at, "records").uid("records")
    rows = failing(records.filter(us.col("id") > 0).uid("before")).union(numbers(env, "other"))
    rows.sink_to(us.BlackholeSink()).uid("out")
    records.dead_letters_to(us.BlackholeSink())


def nodes(
    build: Callable[..., None], tmp_path: Path, *, start: str = "failing", from_empty_state: bool = False
) -> list[str]:
    """Uids of the operators of the replay, without those that note the letters."""
    env = us.Environment()
    build(env)
    part = replayed_part(env.stream_graph(), start, from_empty_state=from_empty_state)
    made = replay_environment(part, env, Ledger(str(tmp_path)), "r1", "local")
    made.job_graph()
    return [uid for node in made.stream_graph().nodes if not (uid := uid_of(node)).startswith("unistream-")]


@pytest.mark.parametrize(
    ("build", "kept"),
    [
        pytest.param(
            simple,
            ["failing", "behind", "out-replay", "failing-dead-letters-replay"],
            id="the operator, what is behind it, and its letters; nothing before it",
        ),
        pytest.param(united, ["failing", "out-replay"], id="not what is only united with its rows"),
        pytest.param(other_branch, ["failing", "out-replay"], id="not another branch of its input"),
        pytest.param(
            joined,
            ["names", "named", "failing", "join", "out-replay"],
            id="the table of a join, and no sink of it",
        ),
    ],
)
def test_what_is_run(build: Callable[..., None], kept: list[str], tmp_path: Path) -> None:
    assert nodes(build, tmp_path) == kept


def test_of_a_source_what_its_rows_come_to_and_no_letters_of_its_own(tmp_path: Path) -> None:
    kept = ["records", "before", "failing", "out-replay"]
    assert nodes(of_source, tmp_path, start="records") == kept


def test_the_rules_of_an_operator_with_two_inputs(tmp_path: Path) -> None:
    assert nodes(ruled, tmp_path, from_empty_state=True) == ["rules", "failing", "out-replay"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(
            lambda env: joined(env, bounded=False), "dimension must be bounded", id="an endless table"
        ),
        pytest.param(
            lambda env: ruled(env, bounded=False), "'rules', which is unbounded", id="rules without an end"
        ),
        pytest.param(windowed, "'hours' has state, which the job has", id="a window"),
        pytest.param(
            lambda env: failing(numbers(env, "in"), "other").print(), "no operator 'failing'", id="gone"
        ),
    ],
)
def test_what_cannot_be_run(build: Callable[..., None], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        nodes(build, tmp_path)


def test_windows_run_from_empty_state_if_that_is_right(tmp_path: Path) -> None:
    assert "hours" in nodes(windowed, tmp_path, from_empty_state=True)


class Kept:
    """A sink that keeps a line, and cannot append."""

    name = "kept"

    def check_new_line(self, lineage: str = "") -> None: ...

    def last_commit(self, sink_uid: str) -> None: ...


def test_sinks_append_next_to_the_line_of_the_job(tmp_path: Path) -> None:
    iceberg = us.IcebergSink("s.t", catalog_properties={"uri": "http://127.0.0.1:1"})
    for sink in (us.DeltaSink("t"), us.FileSink("f"), us.SqlSink("sqlite:///rows.db", "t"), iceberg):
        other = appending(sink)
        assert (type(other), other is sink) == (type(sink), False)
        assert (other._on_foreign, sink._on_foreign) == ("append", "refuse")  # type: ignore[union-attr]
    plain = us.BlackholeSink()
    assert appending(plain) is plain
    with pytest.raises(ConfigError, match="sink 'kept' cannot append to the output of another job"):
        appending(Kept())  # type: ignore[arg-type]
