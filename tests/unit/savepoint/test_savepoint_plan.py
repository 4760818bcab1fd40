"""`unistream plan` knows every kind of state that a job may have: a savepoint of one that has them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.core.restore import StateOutcome
from unistream.savepoint.plan import plan
from unistream.testing.mini_cluster import MiniCluster

FAR = 10**15
LIMITS = us.MapStateDescriptor("limits", pa.int32(), key_type=pa.string())


class Mean:
    def create_accumulator(self) -> Any:
        return {"sum": 0, "count": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"sum": accumulator["sum"] + value, "count": accumulator["count"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["sum"] / accumulator["count"]

    def merge(self, one: Any, other: Any) -> Any:
        return {name: one[name] + other[name] for name in one}


def plus(one: Any, other: Any) -> Any:
    return one + other


class ByRow(us.KeyedProcessFunction):
    value: Any = us.ValueStateDescriptor("value", pa.int32())
    listed = us.ListStateDescriptor("listed", pa.int64())
    mapped = us.MapStateDescriptor("mapped", pa.int64(), key_type=pa.string())
    reduced = us.ReducingStateDescriptor("reduced", pa.int64(), reduce=plus)
    aggregated = us.AggregatingStateDescriptor(
        "aggregated", pa.struct([("sum", pa.int64()), ("count", pa.int64())]), aggregate=Mean()
    )

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        context.state(self.value).update(1)
        context.state(self.listed).update([row["n"]])
        context.state(self.mapped).put("x", row["n"])
        context.state(self.reduced).add(1)
        context.state(self.aggregated).add(1)
        context.register_event_time_timer(FAR)
        context.register_processing_time_timer(FAR)


class ByBatch(us.KeyedBatchFunction):
    column: Any = us.ValueStateDescriptor("column", pa.int32())

    def process_batch(self, batch: Any, context: Any, out: Any) -> None:
        context.column(self.column).put(pa.array(np.ones(batch.keys.num_rows, np.int32)))
        context.register_event_time_timers(FAR)
        context.register_processing_time_timers(FAR)


class Lists(us.ProcessFunction):
    split: Any = us.OperatorListDescriptor("split", pa.int32())
    union: Any = us.OperatorListDescriptor("union", pa.int32(), us.ListMode.UNION)
    broadcast: Any = us.OperatorListDescriptor("broadcast", pa.int32(), us.ListMode.BROADCAST)

    def open(self, context: Any) -> None:
        self.undeclared = context.operator_state("undeclared", pa.int32())

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        for one in (self.split, self.union, self.broadcast):
            context.operator_state(one).update([1])
        self.undeclared.update([1])


class Rules(us.BroadcastProcessFunction):
    seen: Any = us.ValueStateDescriptor("seen", pa.int32())

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        context.state(self.seen).update(1)

    def process_broadcast_element(self, row: Any, context: Any, out: Any) -> None:
        context.broadcast_state(LIMITS).put("x", 1)


def pipeline(
    lists: type[Lists] = Lists,
    by_row: type[ByRow] = ByRow,
    by_batch: type[ByBatch] = ByBatch,
    limits: us.MapStateDescriptor = LIMITS,
) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": "2", "pipeline.max-parallelism": "16"})
    columns = {"user": us.datagen.RandomInt(0, 9), "n": us.datagen.Sequential()}
    source = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=2_000)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    keyed, returns = rows.key_by("user"), {"n": pa.int64()}
    made = {
        "row": keyed.process(by_row(), returns=returns),
        "batch": keyed.process_batch(by_batch(), returns=returns),
        "lists": rows.process(lists(), returns=returns),
        "rules": keyed.connect(rows, limits).process(Rules(), returns=returns),
    }
    for uid, stream in made.items():
        stream.uid(uid).sink_to(us.BlackholeSink()).uid(f"sink of {uid}")
    return env


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[us.Savepoint]:
    folder = tmp_path_factory.mktemp("job")
    with MiniCluster(task_managers=1, slots=2) as cluster:
        graph, code = pipeline().job_graph("kinds")
        job = cluster.submit(graph, code)
        job.wait_for(lambda info: info.metrics.get("records_in", 0) > 4_000, WAIT_S)
        yield us.read_savepoint(job.stop(target=str(folder)))


def fates(savepoint: us.Savepoint, env: us.Environment) -> dict[tuple[str, str], tuple[StateOutcome, str]]:
    found = plan(savepoint, *env.job_graph(), Configuration())
    return {(op.uid, one.state): (one.outcome, one.why) for op in found.operators for one in op.states}


EVERY_STATE = {
    ("rows", "splits"),
    *(("row", name) for name in ("value", "listed", "mapped", "reduced", "aggregated")),
    *((face, f"__{clock}_timers") for face in ("row", "batch") for clock in ("event", "processing")),
    ("batch", "column"),
    *(("lists", name) for name in ("split", "union", "broadcast")),
    ("rules", "limits"),
    ("rules", "seen"),
}


def test_every_kind_of_state_of_the_same_pipeline_is_kept(stopped: us.Savepoint) -> None:
    found = fates(stopped, pipeline())
    unknown = found.pop(("lists", "undeclared"))
    assert unknown == (StateOutcome.UNKNOWN, "dropped unless the operator requests it in open()")
    assert set(found) >= EVERY_STATE
    assert {outcome for outcome, _ in found.values()} == {StateOutcome.KEPT}


class OtherRows(ByRow):
    value = us.ValueStateDescriptor("value", pa.string())


class OtherColumns(ByBatch):
    column = us.ValueStateDescriptor("column", pa.string())


class OtherLists(Lists):
    split = us.OperatorListDescriptor("split", pa.string())
    union = us.OperatorListDescriptor("union", pa.int64(), us.ListMode.UNION)
    broadcast = us.OperatorListDescriptor("broadcast", pa.int32())


def test_every_kind_of_state_is_judged(stopped: us.Savepoint) -> None:
    limits = replace(LIMITS, type=pa.string())
    found = fates(stopped, pipeline(OtherLists, OtherRows, OtherColumns, limits))
    changed = {name: outcome for name, outcome in found.items() if outcome[0] is not StateOutcome.KEPT}
    text = (StateOutcome.REFUSED, "int32 cannot become string")
    assert changed == {
        ("lists", "undeclared"): changed["lists", "undeclared"],
        ("row", "value"): text,
        ("batch", "column"): text,
        ("rules", "limits"): text,
        ("lists", "split"): text,
        ("lists", "union"): (StateOutcome.MIGRATED, "int32 to int64"),
        ("lists", "broadcast"): (
            StateOutcome.REFUSED,
            "it was stored as broadcast list, and is declared as split list",
        ),
    }
