"""The API builds the right graph, and refuses what cannot work before anything starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.api.stream import DataStream
from unistream.base.errors import ConfigError
from unistream.model.graph import Ship

FLIGHTS = pa.table(
    {
        "origin": ["JFK"],
        "carrier": ["AA"],
        "at": pa.array([1], pa.timestamp("ms")),
        "delay": [1.5],
        "seats": [5],
    }
)
AIRLINES = pa.table({"carrier": ["AA"], "name": ["American"]})
EVENT_TIME = us.WatermarkStrategy.for_bounded_out_of_orderness("5 s").with_timestamp_column("at")
NO_TIME = us.WatermarkStrategy.no_watermarks()


def flights(env: us.Environment | None = None, strategy: us.WatermarkStrategy = EVENT_TIME) -> DataStream:
    return (env or us.Environment()).from_source(us.StaticSource(FLIGHTS), strategy, "flights")


def hourly(stream: DataStream) -> DataStream:
    windows = us.TumblingEventTimeWindows.of("1 h")
    return stream.key_by("origin", "carrier").window(windows).aggregate(n=us.count(), avg=us.mean("delay"))


def test_a_pipeline_becomes_chains_and_exchanges(tmp_path: Any) -> None:
    env = us.Environment({"parallelism.default": "2"})
    airlines = env.from_source(us.StaticSource(AIRLINES), NO_TIME, "airlines").uid("airlines")
    flown = flights(env).uid("flights").side_output("cancelled", us.col("delay").is_null())
    hours = hourly(flown.join(airlines, on="carrier").uid("join")).uid("hourly").name("hourly")
    hours.sink_to(us.CollectSink(str(tmp_path))).uid("out")
    flown.get_side_output("cancelled").print().name("show")
    graph, code = env.job_graph("flights per hour")
    assert graph.name == "flights per hour"
    assert [[o.name for o in v.operators] for v in graph.vertices] == [
        ["airlines"],
        ["flights", "split cancelled", "show"],
        ["inner join", "pre-aggregate"],
        ["hourly", "collect"],
        ["collect committer"],
    ]
    ships = {(edge.ship, edge.input_index, edge.key_columns) for edge in graph.edges}
    assert ships == {
        (Ship.FORWARD, 0, ()),
        (Ship.BROADCAST, 1, ()),
        (Ship.HASH, 0, ("origin", "carrier")),
        (Ship.GLOBAL, 0, ()),
    }
    assert [v.parallelism for v in graph.vertices] == [2, 2, 2, 2, 1]
    named = {o.uid for v in graph.vertices for o in v.operators if not o.generated_uid}
    assert named == {"airlines", "flights", "join", "hourly", "out", "out-committer"}
    stateful = {o.name for v in graph.vertices for o in v.operators if o.stateful}
    assert "pre-aggregate" not in stateful
    assert {"flights", "inner join", "hourly", "collect", "collect committer"} <= stateful
    assert cloudpickle.loads(cloudpickle.dumps(code)).chains.keys() == code.chains.keys()


def test_explain_shows_chains_and_where_rows_go() -> None:
    env = us.Environment(STREAMING)
    hourly(flights(env)).name("hourly").print()
    text = env.explain()
    assert "  1 -> 2 hash by origin, carrier: exchange, the edge is hash\n" in text
    assert "[1] flights -> pre-aggregate  (parallelism 1 of 128, slots default)\n" in text
    assert "[2] hourly -> print  (parallelism 1 of 128, slots default)\n" in text
    assert "  [1] -> [2] ALL_TO_ALL: 1 partition PIPELINED_BOUNDED of 1 subpartition\n" in text


@pytest.mark.parametrize(
    ("named", "name", "uid"),
    [
        pytest.param(
            lambda hours: hours, "tumbling window of 1 h", "tumbling-window-of-3600000-ms-2", id="by us"
        ),
        pytest.param(lambda hours: hours.name("hourly"), "hourly", "hourly-2", id="by the user"),
    ],
)
def test_a_window_is_named_for_people_and_keeps_the_uid_of_older_snapshots(
    named: Callable[[DataStream], DataStream], name: str, uid: str
) -> None:
    env = us.Environment(STREAMING)
    named(hourly(flights(env))).print()
    graph, _ = env.job_graph()
    [found] = [one for vertex in graph.vertices for one in vertex.operators if one.name == name]
    assert (found.uid, found.generated_uid) == (uid, True)


def test_schemas_are_followed_through_every_operator() -> None:
    stream = flights()
    assert stream.select("seats", late=us.col("delay") > 1).schema == pa.schema(
        [("seats", pa.int64()), ("late", pa.bool_())]
    )
    assert stream.with_columns(seats=us.col("delay")).schema.field("seats").type == pa.float64()
    assert stream.filter(us.col("seats") > 1).schema == stream.schema
    assert stream.map(lambda row: row).schema is None
    assert stream.map(lambda row: row, returns={"n": pa.int8()}).schema == pa.schema([("n", pa.int8())])
    assert hourly(stream).schema == pa.schema(
        [
            ("origin", pa.string()),
            ("carrier", pa.string()),
            ("window_start", pa.timestamp("ms", "UTC")),
            ("window_end", pa.timestamp("ms", "UTC")),
            ("n", pa.int64()),
            ("avg", pa.float64()),
        ]
    )
    keyed = stream.key_by(lambda row: row["seats"] % 2, returns=pa.int64())
    assert keyed.key_columns == ("key",)
    assert keyed.schema is not None
    assert keyed.schema.field("key").type == pa.int64()
    keyed.uid("seats-key").name("seats")
    assert ("seats-key", "seats") in [(node.uid, node.name) for node in keyed._builder.graph.nodes]


def test_columns_that_are_not_known_are_not_refused() -> None:
    opaque = flights().map_batches(lambda records: records)
    assert (
        opaque.key_by("anything").window(us.TumblingEventTimeWindows.of(5)).aggregate(n=us.count()).schema
        is None
    )


def with_env(build: Callable[[us.Environment], object]) -> Callable[[], object]:
    return lambda: build(us.Environment())


def dimension(env: us.Environment, table: pa.Table = AIRLINES, strategy: Any = NO_TIME) -> DataStream:
    return env.from_source(us.StaticSource(table), strategy, "airlines")


OFFLOAD = {"execution.batch.offload-bounded-regions": "true"}


def places(env: us.Environment, at: pa.DataType) -> us.DataStream:
    return env.from_collection([], pa.schema([("carrier", pa.string()), ("at", at)]), name="places")


REFUSED = [
    pytest.param(
        lambda env: flights(env, us.WatermarkStrategy.no_watermarks().with_timestamp_column("when")),
        "no column 'when' among origin, carrier, at",
        id="timestamp column missing",
    ),
    pytest.param(
        lambda env: flights(env, us.WatermarkStrategy.no_watermarks().with_timestamp_column("origin")),
        "'origin' is string; it must be int64",
        id="timestamp column is not a time",
    ),
    pytest.param(
        lambda env: flights(env).key_by("orign"), "no column 'orign' among origin", id="unknown key"
    ),
    pytest.param(lambda env: flights(env).key_by(), "names of one or more columns", id="no key"),
    pytest.param(lambda env: flights(env).key_by(len), "returns=pa.string", id="key function without type"),
    pytest.param(lambda env: flights(env).select("x"), "select: there is no column 'x'", id="unknown column"),
    pytest.param(
        lambda env: flights(env).with_columns(x=us.col("y")),
        "with_columns: x = y cannot be computed",
        id="expression",
    ),
    pytest.param(
        lambda env: flights(env).filter(us.col("seats") + 1), "int64, not a boolean", id="filter by number"
    ),
    pytest.param(
        lambda env: hourly(flights(env).select("origin", "carrier")),
        "no column 'delay'",
        id="aggregate of nothing",
    ),
    pytest.param(
        lambda env: (
            flights(env)
            .key_by("origin")
            .window(us.TumblingEventTimeWindows.of(1))
            .aggregate(s=us.sum("carrier"))
        ),
        "sum of a column of type string",
        id="sum of text",
    ),
    pytest.param(lambda _: us.TumblingEventTimeWindows.of("0 s"), "must be positive", id="empty window"),
    pytest.param(lambda _: us.SlidingEventTimeWindows.of(5, 10), "would be lost", id="gaps between windows"),
    pytest.param(
        lambda env: (flights(env).uid("a"), flights(env).uid("a")),
        "uid 'a' is given to two operators",
        id="duplicate uid",
    ),
    pytest.param(
        lambda env: (flights(env).uid("out-committer"), flights(env).sink_to(us.CollectSink("x")).uid("out")),
        "uid 'out-committer' is given to two",
        id="duplicate uid of a committer",
    ),
    pytest.param(
        lambda env: flights(env).set_parallelism(0),
        "parallelism 0 is not between 1 and 4096; change set_parallelism",
        id="parallelism 0",
    ),
    pytest.param(
        lambda env: flights(env).set_max_parallelism("4"), "'4' is not a whole number", id="max as text"
    ),
    pytest.param(lambda env: flights(env).uid("a\nb"), "another control character", id="uid of two lines"),
    pytest.param(
        lambda env: flights(env).set_max_parallelism(4).set_parallelism(5),
        "above the max parallelism 4; change set_parallelism",
        id="above max",
    ),
    pytest.param(
        lambda env: env.set_max_parallelism(2).set_parallelism(3),
        "environment: parallelism 3 is above",
        id="environment",
    ),
    pytest.param(
        lambda _: us.Environment({"paralelism.default": "2"}), "did you mean", id="unknown key of config"
    ),
    pytest.param(
        lambda env: flights(env).union(dimension(env)), "union needs streams with the same", id="union"
    ),
    pytest.param(
        lambda env: flights(env).union(flights()),
        "different environments cannot be combined",
        id="environments",
    ),
    pytest.param(
        lambda env: flights(env).union(flights(env)).uid("u"),
        "union or an exchange, not an operator",
        id="uid of a union",
    ),
    pytest.param(
        lambda env: flights(env).join(dimension(env), on="name"),
        "join: there is no column 'name'",
        id="join key",
    ),
    pytest.param(
        lambda env: flights(env).join(dimension(env), on={"seats": "carrier"}),
        "key 'seats' is int64, that of the dimension, 'carrier', is string",
        id="join key types",
    ),
    pytest.param(
        lambda env: flights(env).join(places(env, pa.decimal128(9, 2)), on="carrier", latest_by="since"),
        "join, latest_by: there is no column 'since'",
        id="versions that the dimension has not",
    ),
    pytest.param(
        lambda env: flights(env).join(places(env, pa.list_(pa.int8())), on="carrier", latest_by="at"),
        "latest_by='at' is list<item: int8>, which has no order; cast it",
        id="versions without an order",
    ),
    pytest.param(
        lambda env: flights(env).join(places(env, pa.list_(pa.int8())), on={"carrier": "at"}),
        "key 'at' of the dimension is list<item: int8>, which cannot be a key; cast it",
        id="a list as a join key",
    ),
    pytest.param(
        lambda env: flights(env).join(flights(env, NO_TIME), on="carrier"),
        "both sides have a column 'origin'",
        id="columns",
    ),
    pytest.param(
        lambda env: flights(env).join(dimension(env, strategy=NO_TIME.with_idleness(5)), on="carrier"),
        "has watermarks or idleness",
        id="dimension with idleness",
    ),
    pytest.param(
        lambda env: flights(env).join(dimension(env).map(dict), on="carrier"),
        "pass returns= to the function before it",
        id="d",
    ),
    pytest.param(
        lambda env: flights(env).join(
            env.from_source(
                us.DatagenSource({"carrier": us.datagen.Sequential()}, rows=None, bounded=False), NO_TIME
            ).select(carrier=us.col("carrier").cast("string")),
            on="carrier",
        ),
        "is unbounded",
        id="unbounded dimension",
    ),
    pytest.param(
        lambda env: flights(env).join(dimension(env), on="carrier", how="outer"), "not 'inner' or", id="how"
    ),
    pytest.param(lambda env: env.explain(), "the pipeline is empty", id="empty"),
]


@pytest.mark.parametrize(("build", "text"), REFUSED)
def test_what_cannot_work_is_refused_at_build_time(
    build: Callable[[us.Environment], object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        build(us.Environment())


@pytest.mark.parametrize(
    ("endless", "config", "refused"),
    [
        pytest.param(True, {}, True, id="without the option"),
        pytest.param(True, OFFLOAD, False, id="with the option"),
        pytest.param(False, OFFLOAD, False, id="a bounded job with it"),
        pytest.param(
            False, OFFLOAD | STREAMING, True, id="a bounded stream with it, as nothing runs before that"
        ),
    ],
)
def test_a_dimension_with_watermarks_is_for_a_bounded_part(
    endless: bool, config: dict[str, str], refused: bool
) -> None:
    env = us.Environment(config)
    orders = us.DatagenSource(
        {"n": us.datagen.Sequential()}, rows=None if endless else 5, bounded=not endless
    )
    stream = env.from_source(orders, NO_TIME).select(carrier=us.col("n").cast("string"))
    names = dimension(env, strategy=NO_TIME.with_idleness(5))

    def build() -> str:
        stream.join(names, on="carrier").print()
        return env.explain()

    if refused:
        with pytest.raises(
            ConfigError, match=r"has watermarks or idleness; use WatermarkStrategy\.no_w"
        ) as error:
            build()
        assert ("set execution.batch.offload-bounded-regions" in str(error.value)) is not bool(config)
    else:
        assert ("bounded part, runs before the stream" in build()) is endless


def test_pre_aggregation_takes_the_parallelism_of_its_producer_whenever_it_is_set() -> None:
    env = us.Environment({"parallelism.default": "4"})
    source = flights(env)
    hourly(source).print()
    source.set_parallelism(2)
    graph, _ = env.job_graph()
    assert [(v.parallelism, len(v.operators)) for v in graph.vertices] == [(2, 2), (4, 2)]


def test_each_stream_of_a_union_is_pre_aggregated_where_it_is() -> None:
    env = us.Environment()
    hourly(flights(env).union(flights(env))).print()
    graph, _ = env.job_graph()
    assert [v.operators[-1].name for v in graph.vertices] == ["pre-aggregate", "pre-aggregate", "print"]


def test_late_rows_as_a_side_output_have_the_schema_of_the_input() -> None:
    stream = flights()
    windows = (
        stream.key_by("origin").window(us.TumblingEventTimeWindows.of("1 h")).side_output_late_data("late")
    )
    assert windows.aggregate(n=us.count()).get_side_output("late").schema == stream.schema


class OfRows(us.ProcessFunction):
    def process_element(self, row: dict, context: us.FunctionContext, out: us.Collector) -> None:
        out.emit_side("odd", row)


class OfKeys(us.KeyedProcessFunction):
    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit_side("odd", row)


class OfBatches(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit_side("odd", batch.records)


class OfBoth(us.BroadcastProcessFunction):
    def process_element(self, row: dict, context: Any, out: us.Collector) -> None:
        out.emit_side("odd", row)

    def process_broadcast_element(self, row: dict, context: Any, out: us.Collector) -> None:
        out.emit_side("odd", row)


def processed(stream: DataStream, kind: str, **options: Any) -> DataStream:
    """`stream` behind a function of that kind."""
    keyed = stream.key_by("origin")
    limits = us.MapStateDescriptor("limits", pa.int64(), key_type=pa.string())
    match kind:
        case "rows":
            return stream.process(OfRows(), **options)
        case "keys":
            return keyed.process(OfKeys(), **options)
        case "batches":
            return keyed.process_batch(OfBatches(), **options)
        case _:
            return keyed.connect(stream, limits).process(OfBoth(), **options)


@pytest.mark.parametrize("kind", ["rows", "keys", "batches", "both"])
def test_a_side_output_has_the_columns_that_are_declared(kind: str) -> None:
    stream = processed(flights(), kind, side_outputs={"odd": {"n": pa.int64()}, "even": None})
    assert stream.get_side_output("odd").schema == pa.schema({"n": pa.int64()})
    assert stream.get_side_output("even").schema is None
    with pytest.raises(ConfigError, match="'origin'"):
        stream.get_side_output("odd").key_by("origin")


@pytest.mark.parametrize("kind", ["rows", "keys", "batches", "both"])
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("odd", r"takes the columns of each side output by its tag, like \{'late'"),
        ({"": {"n": pa.int64()}}, "the tag of a side output has 1 to 200 printable characters, not ''"),
        ({"odd": 5}, "side_outputs= of 'odd' takes a pyarrow.Schema"),
    ],
)
def test_columns_of_side_outputs_that_are_none(kind: str, given: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        processed(flights(), kind, side_outputs=given)


def test_an_exchange_is_what_was_asked_for() -> None:
    env = us.Environment({"parallelism.default": "2"})
    stream = flights(env)
    for ship in (
        stream.rebalance(),
        stream.rescale(),
        stream.broadcast(),
        stream.global_(),
        stream.forward(),
    ):
        ship.print()
    ships = [edge.ship for edge in env.stream_graph().edges]
    assert ships == [Ship.REBALANCE, Ship.RESCALE, Ship.BROADCAST, Ship.GLOBAL, Ship.FORWARD]


def test_a_slot_sharing_group_is_inherited() -> None:
    env = us.Environment()
    flights(env).slot_sharing_group("heavy").filter(us.col("seats") > 1).print()
    graph, _ = env.job_graph()
    assert {vertex.slot_sharing_group for vertex in graph.vertices} == {"heavy"}


def test_a_stream_graph_does_not_change_with_the_environment() -> None:
    env = us.Environment()
    stream = flights(env)
    graph = env.stream_graph()
    stream.uid("later").print()
    assert (len(graph.nodes), graph.nodes[0].uid) == (1, None)


def test_importing_unistream_loads_no_heavy_library() -> None:
    heavy = "{'pyarrow', 'pyspark', 'numba', 'kafka', 'deltalake', 'sqlalchemy', 'fastapi', 'dagster'}"
    script = f"import sys, unistream; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert found.stdout.strip() == "[]"


def test_every_public_name_resolves() -> None:
    assert [name for name in us.__all__ if getattr(us, name) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        us.Nonsense  # noqa: B018
