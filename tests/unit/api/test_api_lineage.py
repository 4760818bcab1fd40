"""Lineage of pipelines: data sets, and columns through every operator that says what it does with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from unistream.api.described import described
from unistream.api.lineage import plain_sinks, written_by
from unistream.base.secrets import Secret
from unistream.model.lineage import LineageDataset, SinkLineage, dataset_at
from unistream.operator.sink import CommitterOperator, SinkWriterOperator

ROWS = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("kind", pa.string())])
NO_TIME = us.WatermarkStrategy.no_watermarks()
TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")


def stream(env: us.Environment, name: str = "rows", schema: pa.Schema = ROWS) -> us.DataStream:
    return env.from_collection(schema.empty_table(), name=name).uid(name)


def of_columns(build: Callable[[us.Environment], us.DataStream]) -> dict[str, list[str]]:
    """Column of the sink -> "source.column" it is made of."""
    env = us.Environment()
    build(env).sink_to(us.BlackholeSink()).uid("sink")
    (sink,) = env.lineage().sinks
    return {name: sorted(f"{uid}.{column}" for uid, column in made) for name, made in sink.columns.items()}


def windowed(env: us.Environment, late: str | None = None) -> us.DataStream:
    rows = env.from_collection(ROWS.empty_table(), watermark_strategy=TIMES, name="rows").uid("rows")
    windows = rows.key_by("kind").window(us.TumblingEventTimeWindows.of("1 h"))
    if late is not None:
        windows = windows.side_output_late_data(late)
    return windows.aggregate(rows=us.count(), last=us.max("at"), mean=us.mean("id"))


def joined(env: us.Environment) -> us.DataStream:
    kinds = stream(env, "kinds", pa.schema([("key", pa.string()), ("title", pa.string())]))
    return stream(env).join(kinds, on={"kind": "key"}, how="left")


ALL = {name: [f"rows.{name}"] for name in ROWS.names}

CASES: dict[str, tuple[Callable[[us.Environment], us.DataStream], dict[str, list[str]]]] = {
    "source": (stream, ALL),
    "select": (
        lambda env: stream(env).select("kind", sum=us.col("id") + us.col("at"), one=us.lit(1), same="id"),
        {"kind": ["rows.kind"], "sum": ["rows.at", "rows.id"], "one": [], "same": ["rows.id"]},
    ),
    "with columns": (
        lambda env: stream(env).with_columns(id=us.col("id") * us.col("at")),
        {**ALL, "id": ["rows.at", "rows.id"]},
    ),
    "with columns twice": (
        lambda env: stream(env).with_columns(a=us.col("id") + 1).select(b=us.col("a") + us.col("at")),
        {"b": ["rows.at", "rows.id"]},
    ),
    "filter": (lambda env: stream(env).filter(us.col("at") > 1), ALL),
    "filter by a function": (lambda env: stream(env).filter(lambda row: row["id"] > 1), ALL),
    "filter of batches": (lambda env: stream(env).filter_batches(lambda batch: batch["id"]), ALL),
    "event times": (
        lambda env: (
            env.from_source(us.StaticSource(ROWS.empty_table()), NO_TIME, "rows")
            .uid("rows")
            .assign_timestamps_and_watermarks(TIMES)
        ),
        ALL,
    ),
    "side output": (
        lambda env: stream(env).side_output("big", us.col("id") > 9).get_side_output("big"),
        ALL,
    ),
    "rest of a side output": (lambda env: stream(env).side_output("big", us.col("id") > 9), ALL),
    "exchange": (lambda env: stream(env).rebalance(), ALL),
    "union": (
        lambda env: stream(env).union(stream(env, "more")),
        {name: [f"more.{name}", f"rows.{name}"] for name in ROWS.names},
    ),
    "union with an unknown": (
        lambda env: stream(env).union(stream(env, "more").map(lambda row: row, returns=ROWS)),
        {},
    ),
    "window": (
        windowed,
        {"kind": ["rows.kind"], "rows": [], "last": ["rows.at"], "mean": ["rows.id"]},
    ),
    "late rows of a window": (lambda env: windowed(env, "late").get_side_output("late"), ALL),
    "window over raw rows": (
        lambda env: windowed(env, "late"),
        {"kind": ["rows.kind"], "rows": [], "last": ["rows.at"], "mean": ["rows.id"]},
    ),
    "join": (joined, {**ALL, "title": ["kinds.title"]}),
    "function": (lambda env: stream(env).map(lambda row: row), {}),
    "function that declares": (lambda env: stream(env).map(lambda row: row, returns=ROWS), {}),
    "behind a function": (
        lambda env: stream(env).map(lambda row: row, returns=ROWS).select("id", one=us.lit(1)),
        {"one": []},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_columns_are_traced(case: str) -> None:
    build, expected = CASES[case]
    assert of_columns(build) == expected


class Hook(us.SimpleSink):
    address = "https://hooks.example.org/a b"

    def write(self, rows: pa.RecordBatch) -> None: ...


@pytest.mark.parametrize("uid", ["", "lake"])
def test_a_graph_names_its_outputs_by_the_uids_of_their_commits(tmp_path: Path, uid: str) -> None:
    """Those that have no uid are shown once, too: with what they write, and what they have committed."""
    env = us.Environment()
    rows = stream(env)
    made = [rows.sink_to(sink) for sink in (us.FileSink(str(tmp_path / "a b"), format="csv"), Hook())]
    for number, sink in enumerate(made):
        if uid:
            sink.uid(f"{uid} {number}")
    graph = env.stream_graph()
    operators = [node.operator for node in graph.nodes]
    writers = [one.sink_uid for one in operators if isinstance(one, SinkWriterOperator)]
    committers = [one.sink_uid for one in operators if isinstance(one, CommitterOperator)]
    assert list(written_by(graph)) == writers
    assert committers == writers[:1]
    assert plain_sinks(graph) == tuple(writers[1:])


def test_a_pipeline_names_its_data_sets_and_what_comes_from_where(tmp_path: Path) -> None:
    env = us.Environment()
    orders = us.KafkaSource(
        bootstrap_servers="b1:9092,b2:9092",
        topic="orders",
        schema=ROWS,
        on_bad_record="dead-letter",
        properties={"sasl.plain.password": Secret("hunter2")},
    )
    history = us.FileSource(f"{tmp_path}/history/day=*/*.parquet", schema=ROWS)
    read = env.from_source(us.HybridSource(history, orders), NO_TIME, "orders").uid("orders")
    kind = pa.schema([("kind", pa.string())])
    kinds = us.FileSource(str(tmp_path / "kinds.csv"), format="csv", schema=kind)
    known = read.join(env.from_source(kinds, NO_TIME, "kinds").uid("kinds"), on="kind")
    with described():  # the table is not there, nor a network
        known.sink_to(us.DeltaSink("/not/there/orders")).uid("lake")
    read.dead_letters_to(us.FileSink(str(tmp_path / "bad")))
    graph = env.lineage()
    assert [(one.uid, one.bounded) for one in graph.sources] == [("orders", False), ("kinds", True)]
    assert [one.uri for one in graph.source(graph.sources[0].uid).datasets] == [
        f"file://{tmp_path}/history",
        "kafka://b1:9092/orders",
    ]
    lake, bad = graph.sinks
    assert (lake.uid, lake.sources) == ("lake", ("orders", "kinds"))
    assert lake.datasets == (LineageDataset("file", "/not/there/orders", "delta"),)
    assert (bad.uid, bad.dead_letters_of, bad.sources) == ("orders-dead-letters", "orders", ("orders",))
    assert bad.columns == {}, "they are raw bytes"
    assert bad.datasets == (LineageDataset("file", str(tmp_path / "bad"), "parquet"),)
    assert "hunter2" not in repr(graph)


def test_a_job_graph_has_the_places_of_its_sources_and_sinks(tmp_path: Path) -> None:
    """By operator; of a hybrid source both parts, and nothing of ends that do not say."""
    env = us.Environment()
    orders = us.KafkaSource(bootstrap_servers="b1:9092", topic="orders", schema=ROWS)
    history = us.FileSource(f"{tmp_path}/history", schema=ROWS)
    read = env.from_source(us.HybridSource(history, orders), NO_TIME).uid("orders")
    read.union(stream(env)).sink_to(us.FileSink(str(tmp_path / "out"))).uid("files")
    read.sink_to(us.BlackholeSink()).uid("nowhere")
    graph, _ = env.job_graph()
    assert graph.reads == {"orders": (f"file://{tmp_path}/history", "kafka://b1:9092/orders")}
    assert graph.writes == {"files": (f"file://{tmp_path}/out",)}


def test_ends_that_say_nothing_are_there_without_data_sets() -> None:
    env = us.Environment()
    stream(env).sink_to(us.BlackholeSink())
    graph = env.lineage()
    assert graph.sources[0].datasets == graph.sinks[0].datasets == ()
    assert isinstance(graph.sinks[0], SinkLineage)
    with pytest.raises(KeyError):
        graph.source(graph.sinks[0].uid)


@pytest.mark.parametrize(
    ("url", "namespace", "name", "uri"),
    [
        ("/lake/a b", "file", "/lake/a b", "file:///lake/a b"),
        ("file:///lake/orders/", "file", "/lake/orders", "file:///lake/orders"),
        ("s3://bucket/a/b", "s3://bucket", "a/b", "s3://bucket/a/b"),
        ("s3a://key:secret@bucket/a", "s3a://bucket", "a", "s3a://bucket/a"),
        ("gs://bucket", "gs://bucket", "", "gs://bucket/"),
        ("abfss://box@acct.net/a", "abfss://box@acct.net", "/a", "abfss://box@acct.net/a"),
        ("memory://a/b", "memory://a", "/b", "memory://a/b"),
    ],
)
def test_urls_are_named_as_openlineage_names_them(url: str, namespace: str, name: str, uri: str) -> None:
    found = dataset_at(url)
    assert (found.namespace, found.name, found.uri) == (namespace, name, uri)


def later(env: us.Environment) -> None:
    """Reads what is not there yet."""
    table = env.from_source(us.DeltaSource("/not/there/orders"), NO_TIME, "orders").uid("orders")
    kinds = us.FileSource("/not/there/kinds.csv", format="csv")
    names = env.from_source(kinds, NO_TIME, "kinds").uid("kinds")
    joined = table.join(names, on="kind").with_columns(twice=us.col("cents") * 2)
    joined.key_by("kind").window(us.TumblingEventTimeWindows.of("1 h")).aggregate(rows=us.count()).sink_to(
        us.DeltaSink("/not/there/daily")
    ).uid("daily")


def test_what_is_not_there_yet_is_described_as_far_as_it_is_known() -> None:
    env = us.Environment()
    with described():
        later(env)
        graph = env.lineage()
    assert [(one.uid, one.schema) for one in graph.sources] == [("orders", None), ("kinds", None)]
    [daily] = graph.sinks
    assert (daily.sources, daily.schema, daily.columns) == (("orders", "kinds"), None, {})
    with pytest.raises(us.ConfigError, match="/not/there/orders"):
        later(us.Environment())
