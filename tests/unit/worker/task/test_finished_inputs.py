"""Whole tasks: a fact stream that goes idle and comes back loses no row because another source has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tests.support.harness.task import Snapshot, TaskJob
from unistream.base.ids import CheckpointId, EdgeId, OperatorUid, VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.chain import Chain, ChainNode, EdgeOutput
from unistream.model.elements import Batch
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.messages import Split
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common import BaseOperator
from unistream.operator.join import BroadcastLookupJoin, JoinKind
from unistream.port.operator import Operator, SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows
from unistream.worker.task import TaskState

DIMENSION = pa.schema([("k", pa.int64()), ("name", pa.string())])
IDLE_MS = 1_000


@dataclass
class Feed:
    """Event times that a source may read; closed: these are all."""

    times: list[int] = field(default_factory=list)
    closed: bool = False


class FeedReader:
    def __init__(self, feed: Feed, rows: Callable[[list[int]], pa.RecordBatch]) -> None:
        self.feed, self.rows = feed, rows
        self.position: int | None = None

    def open(self, context: ReaderContext) -> None:
        pass

    def add_splits(self, splits: list[Split]) -> None:
        (split,) = splits
        self.position = int(split.data)

    def no_more_splits(self) -> None:
        pass

    def poll(self) -> Polled:
        if self.position is None:
            return Idle(retry_ms=1)
        times = self.feed.times[self.position :]
        if not times:
            return Exhausted() if self.feed.closed else Idle(retry_ms=1)
        self.position += len(times)
        return Rows("split", self.rows(times), pa.array(times, pa.int64()))

    def snapshot(self) -> list[Split]:
        return [] if self.position is None else [Split(id="split", data=str(self.position).encode())]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass


class FeedSource:
    name = "feed"
    schema = DIMENSION

    def __init__(self, feed: Feed, rows: Callable[[list[int]], pa.RecordBatch]) -> None:
        self.feed, self.rows = feed, rows

    def info(self) -> SourceInfo:
        return SourceInfo(connector="feed", options={}, bounded=False, pull=False)

    def create_reader(self) -> FeedReader:
        return FeedReader(self.feed, self.rows)


class Arrivals(BaseOperator):
    """Which event times came, and which of them behind the watermark."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.late: list[int] = []
        self.said: list[int] = []

    def process_batch(self, batch: Batch, input_index: int) -> None:
        assert batch.timestamps is not None
        reached = self.said[-1] if self.said else MIN_WATERMARK
        for time in batch.timestamps.to_pylist():
            (self.late if time <= reached else self.times).append(time)

    def process_watermark(self, timestamp: int) -> None:
        self.said.append(timestamp)


@dataclass
class Pipeline:
    """Facts (F), and a second source (D) that ends early, both into J, and J into W.

    `union`: D sends facts too, into the same input; else it is a dimension that J joins.
    """

    union: bool
    facts: Feed = field(default_factory=Feed)
    other: Feed = field(default_factory=Feed)
    arrivals: Arrivals = field(default_factory=Arrivals)

    def job(self, restore: TaskJob | None = None) -> TaskJob:
        snapshot: Snapshot | None = restore.completed if restore else None
        job = TaskJob(
            self._graph(),
            {v: self._chain(v) for v in map(VertexId, "FDJW")},
            restore=snapshot,
            store=restore.store if restore else None,
            first_checkpoint=snapshot.checkpoint_id + 1 if snapshot else 1,
        )
        if restore is None:
            for vertex in "FD":
                job.assign(vertex, [Split(id="split", data=b"0")])
        return job

    def _graph(self) -> JobGraph:
        def vertex(name: str, inputs: int) -> JobVertex:
            return JobVertex(
                id=VertexId(name),
                name=name,
                operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
                parallelism=1,
                max_parallelism=8,
                source=FeedSource(Feed(), _facts).info() if inputs == 0 else None,
                inputs=inputs,
            )

        def edge(source: str, target: str, input_index: int = 0) -> JobEdge:
            return JobEdge(
                id=EdgeId(source + target),
                source=VertexId(source),
                target=VertexId(target),
                ship=Ship.REBALANCE,
                input_index=input_index,
            )

        vertices = (vertex("F", 0), vertex("D", 0), vertex("J", 1 if self.union else 2), vertex("W", 1))
        edges = (edge("F", "J"), edge("D", "J", 0 if self.union else 1), edge("J", "W"))
        return JobGraph(name="facts", vertices=vertices, edges=edges)

    def _chain(self, vertex: VertexId) -> Chain:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(f"{IDLE_MS} ms")
        operators: dict[str, Operator | SourceOperatorSpec] = {
            "F": SourceOperatorSpec(source=FeedSource(self.facts, _facts), watermarks=strategy),
            "D": SourceOperatorSpec(
                source=FeedSource(self.other, _facts if self.union else _dimension),
                watermarks=strategy if self.union else WatermarkStrategy.no_watermarks(),
            ),
            "J": BaseOperator()
            if self.union
            else BroadcastLookupJoin([("k", "k")], DIMENSION, JoinKind.LEFT),
            "W": self.arrivals,
        }
        outputs = {"F": "FJ", "D": "DJ", "J": "JW"}
        edges = (EdgeOutput(edge=EdgeId(outputs[vertex])),) if vertex in outputs else ()
        node = ChainNode(uid=OperatorUid(vertex), name=vertex, operator=operators[vertex], outputs=edges)
        return Chain(nodes=(node,))


def _facts(times: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array([t % 3 for t in times], pa.int64())})


def _dimension(times: list[int]) -> pa.RecordBatch:
    keys = [t % 3 for t in times]
    return pa.RecordBatch.from_pydict({"k": keys, "name": [str(k) for k in keys]}, schema=DIMENSION)


def pass_time(job: TaskJob, ms: int) -> None:
    """In steps of the watermark interval."""
    for _ in range(ms // 200):
        job.clock.now_ms += 200
        job.run()


@pytest.mark.parametrize("union", [False, True], ids=["dimension of a join", "other side of a union"])
@pytest.mark.parametrize(
    "idle_first", [False, True], ids=["ends before the facts idle", "ends while they do"]
)
def test_facts_that_come_back_are_on_time_though_the_other_source_has_finished(
    union: bool, idle_first: bool
) -> None:
    pipeline = Pipeline(union)
    job = pipeline.job()
    pipeline.facts.times += [100, 101]
    pipeline.other.times += [1, 2] if not union else [90, 95]
    pass_time(job, 400)
    if idle_first:
        pass_time(job, 2 * IDLE_MS)
    pipeline.other.closed = True
    pass_time(job, 2 * IDLE_MS)
    assert pipeline.arrivals.said[-1:] == [100]  # what the facts have said of themselves
    pipeline.facts.times += [102, 150]
    pass_time(job, 400)
    assert pipeline.arrivals.said[-1] == 149
    pipeline.facts.times += [200]
    pipeline.facts.closed = True
    pass_time(job, 400)
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert pipeline.arrivals.late == []
    expected = {100, 101, 102, 150, 200} | (set(pipeline.other.times) if union else set())
    assert sorted(pipeline.arrivals.times) == sorted(expected)
    assert pipeline.arrivals.said[-1] == MAX_WATERMARK
    assert pipeline.arrivals.said.count(MAX_WATERMARK) == 1
    assert set(job.states().values()) == {TaskState.FINISHED}
    assert job.failures == {}


@pytest.mark.parametrize("union", [False, True], ids=["dimension of a join", "other side of a union"])
def test_a_restore_behind_the_end_of_the_other_source_keeps_idle_facts_on_time(union: bool) -> None:
    """D is restored as finished: it runs no code, but says the end of event time again, at once."""
    pipeline = Pipeline(union)
    job = pipeline.job()
    pipeline.other.times += [1, 2] if not union else [90, 95]
    pipeline.other.closed = True
    pipeline.facts.times += [100]
    pass_time(job, 400)
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert job.task("D").state is TaskState.FINISHED
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()

    pipeline.arrivals = Arrivals()
    again = pipeline.job(restore=job)
    pass_time(again, 3 * IDLE_MS)
    assert again.task("D").state in {TaskState.RUNNING, TaskState.FINISHED}
    assert pipeline.arrivals.said == []
    pipeline.facts.times += [101, 130]
    pass_time(again, 400)
    pass_time(again, 2 * IDLE_MS)
    pipeline.facts.times += [131]
    pass_time(again, 400)
    assert pipeline.arrivals.late == []
    assert pipeline.arrivals.times == [101, 130, 131]
    assert MAX_WATERMARK not in pipeline.arrivals.said
    assert again.failures == {}


def test_facts_that_wait_for_the_dimension_leave_before_its_end_makes_the_join_idle() -> None:
    """Consumers no longer wait for an idle task, so what it holds back must be out."""
    pipeline = Pipeline(union=False)
    job = pipeline.job()
    pipeline.facts.times += [100, 101]
    pass_time(job, 2 * IDLE_MS)
    assert pipeline.arrivals.times == []
    pipeline.other.closed = True
    pass_time(job, 200)
    assert sorted(pipeline.arrivals.times) == [100, 101]
    assert pipeline.arrivals.late == []
    assert pipeline.arrivals.said == [100]
