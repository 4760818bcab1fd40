"""Unaligned checkpoints of whole tasks: barriers overtake, rows in flight are stored and come back."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, OperatorUid, SubtaskId, VertexId
from unistream.base.limits import LOCAL_QUEUE_BATCHES
from unistream.core.in_flight import with_in_flight
from unistream.core.state_assignment import assign_state
from unistream.model.chain import Chain, ChainNode, EdgeOutput
from unistream.model.elements import Batch, SnapshotKind
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.messages import CheckpointAcked, Split
from unistream.model.snapshot import ListMode, ListState, OperatorSnapshot, OperatorState
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.base import BaseOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows
from unistream.testing.task_harness import Snapshot, TaskJob
from unistream.worker.task_state import TaskState

KEYS = 13
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
IN_TIME = UNALIGNED | {"execution.checkpointing.aligned-checkpoint-timeout": "5 ms"}
AT_LEAST_ONCE = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}


class NumberReader:
    """Split "i": numbers position..end, rows (number mod KEYS, number); a few at a time."""

    def __init__(self) -> None:
        self.position: dict[str, tuple[int, int]] = {}
        self.last = False

    def open(self, context: ReaderContext) -> None:
        pass

    def add_splits(self, splits: list[Split]) -> None:
        for split in splits:
            start, end = split.data.decode().split("-")
            self.position[split.id] = (int(start), int(end))

    def no_more_splits(self) -> None:
        self.last = True

    def poll(self) -> Polled:
        for split_id, (start, end) in self.position.items():
            if start < end:
                stop = min(end, start + 7)
                self.position[split_id] = (stop, end)
                numbers = pa.array(range(start, stop), pa.int64())
                keys = pa.array([n % KEYS for n in range(start, stop)], pa.int64())
                return Rows(split_id, pa.record_batch({"k": keys, "v": numbers}), numbers)
        return Exhausted() if self.last else Idle()

    def snapshot(self) -> list[Split]:
        return [Split(id=i, data=f"{start}-{end}".encode()) for i, (start, end) in self.position.items()]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        pass

    def close(self) -> None:
        pass


class NumberSource:
    name = "numbers"
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])

    def info(self) -> SourceInfo:
        return SourceInfo(connector="numbers", options={}, bounded=True, pull=False)

    def create_reader(self) -> NumberReader:
        return NumberReader()


class Collect(BaseOperator):
    """What it has seen is its state, a union list that each subtask takes its own keys of; a key's numbers
    of one split must come in order."""

    def __init__(self, results: list[int]) -> None:
        self.results = results
        self.seen: list[int] = []

    def initialize_state(self, state: OperatorState) -> None:
        self.seen = [n for item in state.lists.get("seen", ()) for n in msgspec.msgpack.decode(item)]

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.seen += batch.records.column("v").to_pylist()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        items = (msgspec.msgpack.encode(self.seen),)
        return OperatorSnapshot(lists={"seen": ListState(mode=ListMode.SPLIT, items=items)})

    def finish(self) -> None:
        self.results += self.seen


def _graph(sources: int, consumers: int, config: dict[str, str], ship: Ship = Ship.HASH) -> JobGraph:
    def vertex(name: str, parallelism: int) -> JobVertex:
        return JobVertex(
            id=VertexId(name),
            name=name,
            operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
            parallelism=parallelism,
            max_parallelism=32,
            source=NumberSource().info() if name == "S" else None,
            inputs=0 if name == "S" else 1,
        )

    edge = JobEdge(id=EdgeId("e"), source=VertexId("S"), target=VertexId("K"), ship=ship, key_columns=("k",))
    vertices = (vertex("S", sources), vertex("K", consumers))
    return JobGraph(name="numbers", vertices=vertices, edges=(edge,), config=config)


class _Chains(dict[VertexId, Chain]):
    """New operators for each task, as an artifact gives."""

    def __init__(self, consumer: Callable[[], object]) -> None:
        super().__init__()
        self.consumer = consumer

    def __getitem__(self, vertex: VertexId) -> Chain:
        if vertex == "K":
            return Chain(nodes=(ChainNode(uid=OperatorUid("K"), name="K", operator=self.consumer()),))
        spec = SourceOperatorSpec(
            source=NumberSource(), watermarks=WatermarkStrategy.for_monotonous_timestamps()
        )
        outputs = (EdgeOutput(edge=EdgeId("e")),)
        return Chain(nodes=(ChainNode(uid=OperatorUid("S"), name="S", operator=spec, outputs=outputs),))


def _job(
    graph: JobGraph, results: list[int], *, rows: int = 0, last: TaskJob | None = None, first: int = 1
) -> TaskJob:
    """A job from the newest checkpoint of `last`, if that has one; else it reads `rows` for each source."""
    snapshot = None if last is None else last.completed
    job = TaskJob(
        graph,
        _Chains(lambda: Collect(results)),
        restore=snapshot,
        restores=None if snapshot is None or last is None else _restores(snapshot, graph),
        store=None if last is None else last.store,
        first_checkpoint=first,
    )
    for index in range(graph.vertices[0].parallelism):
        splits = (
            [] if snapshot else [Split(id=f"s{index}", data=f"{index * rows}-{(index + 1) * rows}".encode())]
        )
        job.assign("S", splits, index=index, no_more=True)
    return job


def _restores(snapshot: Snapshot, new: JobGraph) -> dict:  # type: ignore[type-arg]
    manifest = snapshot.manifest()
    restores = assign_state(manifest, snapshot.directory, new, allow_non_restored=False)
    return with_in_flight(restores, manifest, snapshot.directory, new, allow_non_restored=False)


def _finish(job: TaskJob) -> None:
    for _ in range(20):
        if set(job.states().values()) == {TaskState.FINISHED}:
            return
        job.run()
        job.trigger(SnapshotKind.CHECKPOINT)
        job.run()
    raise AssertionError(f"it does not end: {job.states()}, {job.failures}")


def _fill(job: TaskJob) -> None:
    """Sources run until all that they may queue is queued; consumers only start."""
    for subtask, task in job.tasks.items():
        if subtask.vertex == "K":
            task.step()
            task.step()
    job.run([s for s in job.tasks if s.vertex == "S"])


def _acks(job: TaskJob) -> dict[SubtaskId, CheckpointAcked]:
    return {m.attempt.subtask: m for m in job.reports if isinstance(m, CheckpointAcked)}


def test_barriers_overtake_all_that_waits_and_the_rows_are_restored_in_order() -> None:
    results: list[int] = []
    graph = _graph(1, 1, UNALIGNED)
    job = _job(graph, results, rows=700)
    _fill(job)
    before = job.task("K").counters.records_in
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    for _ in range(10):  # far fewer than what waits
        for task in job.tasks.values():
            task.step()
    assert snapshot.completed
    assert before == 0
    acks = _acks(job)
    source, consumer = acks[SubtaskId(VertexId("S"), 0)], acks[SubtaskId(VertexId("K"), 0)]
    assert source.unaligned
    assert consumer.unaligned
    assert source.persisted_bytes > LOCAL_QUEUE_BATCHES * 7 * 16
    assert source.state_bytes >= source.persisted_bytes
    again = _job(graph, results, last=job, first=2)
    _finish(again)
    assert results == list(range(700))


@pytest.mark.parametrize("config", [UNALIGNED, IN_TIME], ids=["at once", "after a timeout"])
@pytest.mark.parametrize("seed", range(12))
def test_rows_are_exact_wherever_it_is_killed_and_at_whatever_parallelism_it_goes_on(
    seed: int, config: dict[str, str]
) -> None:
    """Steps, checkpoints, aborts and deaths in random order; after each death the parallelism changes."""
    rng = random.Random(seed)
    results: list[int] = []
    rows, sources = 200, 2
    job = _job(_graph(sources, 2, config), results, rows=rows)
    first = 1
    for _ in range(4):  # deaths
        for _ in range(rng.randrange(20, 200)):
            if rng.random() < 0.04:
                snapshot = job.trigger(SnapshotKind.CHECKPOINT)
                first = snapshot.checkpoint_id + 1
                if rng.random() < 0.2:
                    job.abort(snapshot.checkpoint_id)
            job.clock.now_ms += rng.randrange(3)
            weights = [1 if s.vertex == "K" else 4 for s in job.tasks]
            rng.choices(list(job.tasks.values()), weights)[0].step()
        if job.failures:
            break
        done = job.completed
        other = _graph(rng.randrange(1, 4), rng.randrange(1, 5), config)
        graph = job.graph if done is None else other
        if done is None or not all(state.finished for state in done.acked.values()):
            results.clear()
        job = _job(graph, results, rows=rows, last=job, first=first)
    _finish(job)
    assert job.failures == {}
    assert sorted(results) == list(range(sources * rows))


def test_a_savepoint_is_never_unaligned() -> None:
    job = _job(_graph(2, 2, UNALIGNED), [], rows=700)
    _fill(job)
    snapshot = job.trigger(SnapshotKind.SAVEPOINT)
    job.run()
    assert snapshot.completed
    assert not any(ack.unaligned or ack.persisted_bytes for ack in _acks(job).values())


def test_forward_edges_are_aligned_and_the_next_edge_is_not() -> None:
    """What lies on a forward edge could not go to another parallelism, so nothing is stored of it."""
    job = _job(_graph(2, 2, UNALIGNED, Ship.FORWARD), [], rows=700)
    _fill(job)
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert snapshot.completed
    assert not any(ack.persisted_bytes for ack in _acks(job).values())


def test_a_barrier_waits_for_its_timeout_and_then_overtakes() -> None:
    results: list[int] = []
    graph = _graph(1, 1, IN_TIME)
    job = _job(graph, results, rows=700)
    _fill(job)
    source = job.tasks[SubtaskId(VertexId("S"), 0)]
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run([SubtaskId(VertexId("S"), 0)])
    assert _acks(job) == {}
    job.clock.now_ms += 5
    job.run([SubtaskId(VertexId("S"), 0)])
    assert _acks(job)[SubtaskId(VertexId("S"), 0)].persisted_bytes > 0
    assert source.state is TaskState.RUNNING
    job.run()
    assert snapshot.completed
    results.clear()
    _finish(_job(graph, results, last=job, first=2))
    assert results == list(range(700))


def test_a_barrier_that_is_read_in_time_stays_aligned() -> None:
    job = _job(_graph(2, 2, IN_TIME), [], rows=700)
    _fill(job)
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert snapshot.completed
    assert not any(ack.unaligned or ack.persisted_bytes for ack in _acks(job).values())


def test_at_least_once_blocks_nothing_and_loses_nothing() -> None:
    results: list[int] = []
    graph = _graph(2, 1, AT_LEAST_ONCE)
    job = _job(graph, results, rows=400)
    _fill(job)
    consumer, other = job.task("K"), job.task("S", 1)
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run([SubtaskId(VertexId("S"), 0)])  # its barrier goes out, the other one's does not
    before = consumer.counters.records_in
    for _ in range(2_000):
        consumer.step()
        job.tasks[SubtaskId(VertexId("S"), 0)].step()
    assert consumer.counters.records_in > before + 300
    assert other.state is TaskState.RUNNING
    for _ in range(40):
        other.step()
        consumer.step()
    assert job.completed is not None
    _finish(_job(graph, results, last=job, first=2))
    assert set(results) == set(range(800))
    assert len(results) > 800


def test_rows_on_an_edge_that_binds_them_are_refused_at_another_parallelism() -> None:
    job = _job(_graph(1, 1, UNALIGNED), [], rows=700)
    _fill(job)
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert job.completed is not None
    with pytest.raises(ConfigError, match=r"'S' -> 'K' \(forward\).*cannot be dealt out.*savepoint"):
        _restores(job.completed, _graph(2, 2, UNALIGNED, Ship.FORWARD))
