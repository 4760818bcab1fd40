"""Which stored exchanges are read bucket by bucket: those before an operator that sorts its only input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.modes import STREAMING
from unistream.api.stream import DataStream
from unistream.base.ids import SubtaskId
from unistream.core.graph import ExecutionPlan
from unistream.model.graph import Ship

ROWS = pa.table({"k": [1], "at": pa.array([1], pa.int64())})
EVENT_TIME = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
RULES = us.MapStateDescriptor("rules", pa.int64(), key_type=pa.int64())


class Rows(us.KeyedProcessFunction):
    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit(row)


class Batches(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit(batch.records)


class Limits(us.BroadcastProcessFunction):
    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit(row)

    def process_broadcast_element(self, row: dict, context: Any, out: us.Collector) -> None:
        """Takes no limit."""


def source(env: us.Environment, name: str = "rows") -> DataStream:
    return env.from_source(us.StaticSource(ROWS), EVENT_TIME, name).uid(name)


def rows(env: us.Environment) -> DataStream:
    return source(env).key_by("k").process(Rows(), returns=ROWS.schema)


def windows(env: us.Environment) -> DataStream:
    keyed = source(env).key_by("k")
    return keyed.window(us.TumblingEventTimeWindows.of("1 s")).aggregate(n=us.count())


def union(env: us.Environment) -> DataStream:
    both = source(env).union(source(env, "others"))
    return both.key_by("k").process(Rows(), returns=ROWS.schema)


def broadcast(env: us.Environment) -> DataStream:
    rules = source(env, "rules")
    return source(env).key_by("k").connect(rules, RULES).process(Limits(), returns=ROWS.schema)


def stateless(env: us.Environment) -> DataStream:
    return source(env).rebalance().filter(us.col("k") > 0)


PIPELINED = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED"}


@pytest.mark.parametrize(
    ("build", "config", "buckets"),
    [
        pytest.param(rows, {}, [16], id="a function per row"),
        pytest.param(windows, {}, [16], id="windows"),
        pytest.param(union, {}, [16, 16], id="two exchanges to one input"),
        pytest.param(rows, {"parallelism.default": "9"}, [4], id="less of more consumers"),
        pytest.param(rows, {"parallelism.default": "40"}, [0], id="none of many"),
        pytest.param(rows, PIPELINED, [0], id="pipelined: nothing is stored"),
        pytest.param(rows, STREAMING, [0], id="a stream sorts nothing"),
        pytest.param(broadcast, {}, [0], id="it waits for the broadcast input"),
        pytest.param(stateless, {}, [], id="no keys"),
    ],
)
def test_buckets_of_keyed_exchanges(
    build: Callable[[us.Environment], DataStream],
    config: Mapping[str, str],
    buckets: list[int],
    tmp_path: Any,
) -> None:
    env = us.Environment({"parallelism.default": "2", **config})
    build(env).sink_to(us.CollectSink(str(tmp_path))).uid("out")
    graph, _ = env.job_graph()
    plan = ExecutionPlan(graph)
    found = {}
    for vertex in graph.vertices:
        for partition in plan.partitions(SubtaskId(vertex.id, 0)):
            found[partition.edge] = partition.buckets
    keyed = [found[edge.id] for edge in graph.edges if edge.ship is Ship.HASH]
    assert keyed == buckets
    assert sum(found.values()) == sum(keyed), "no other exchange has any"
