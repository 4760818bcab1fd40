"""Unaligned checkpoints of whole tasks: barriers overtake, rows in flight are stored and come back."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.support.harness.task import TaskJob
from tests.unit.worker.numbers import (
    ROWS_PER_POLL,
    deal_numbers,
    numbers_again,
    numbers_graph,
    numbers_job,
    shake,
)
from unistream.base.errors import ConfigError
from unistream.base.limits import LOCAL_QUEUE_BATCHES
from unistream.model.elements import Batch
from unistream.model.graph import JobGraph, Ship
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.model.snapshot_kind import SnapshotKind
from unistream.operator.common import BaseOperator
from unistream.worker.exchange.in_flight import FILE_HINT
from unistream.worker.task import TaskState, Waiting

UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
IN_TIME = UNALIGNED | {"execution.checkpointing.aligned-checkpoint-timeout": "5 ms"}
AT_LEAST_ONCE = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}


class Collect(BaseOperator):
    """What it has seen, in order, is its state: a list of one element."""

    def __init__(self, results: list[int]) -> None:
        self.results = results
        self.seen: list[int] = []

    def initialize_state(self, state: OperatorState) -> None:
        self.seen = [n for item in state.lists.get("seen", ()) for n in msgspec.msgpack.decode(item)]

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.seen += batch.records.column("v").to_pylist()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        items = (msgspec.msgpack.encode(self.seen),)
        return OperatorSnapshot(lists={"seen": OperatorListState(mode=ListMode.SPLIT, items=items)})

    def finish(self) -> None:
        self.results += self.seen


def _full(graph: JobGraph, results: list[int], *, rows: int = 700) -> TaskJob:
    """All but the consumers run until what they may queue is queued; consumers only start."""
    job = numbers_job(lambda: Collect(results), graph)
    deal_numbers(job, rows)
    for subtask in job.subtasks("K"):
        for _ in range(2):
            job.tasks[subtask].step()
    job.run(subtask for subtask in job.tasks if subtask.vertex != "K")
    return job


def _finish_again(last: TaskJob, results: list[int]) -> None:
    """From its newest checkpoint."""
    assert last.completed is not None
    numbers_again(last, lambda: Collect(results), rows=0).finish()


def test_barriers_overtake_all_that_waits_and_the_rows_are_restored_in_order() -> None:
    results: list[int] = []
    graph = numbers_graph(1, 1, config=UNALIGNED)
    job = _full(graph, results)
    before = job.task("K").counters.records_in
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.step_each(10)  # far fewer than what waits
    assert snapshot.completed
    assert before == 0
    source, consumer = (snapshot.acks[subtask] for vertex in "SK" for subtask in job.subtasks(vertex))
    assert source.unaligned
    assert consumer.unaligned
    assert source.persisted_bytes > LOCAL_QUEUE_BATCHES * ROWS_PER_POLL * 16
    assert source.state_bytes >= source.persisted_bytes
    _finish_again(job, results)
    assert results == list(range(700))


def test_a_barrier_overtakes_what_waits_before_a_task_that_may_not_read() -> None:
    """The output of M is full: it takes no rows, but the barrier."""
    results: list[int] = []
    job = _full(numbers_graph(middle=True, config=UNALIGNED), results, rows=1_400)
    stuck = [*job.subtasks("S"), *job.subtasks("M")]
    read = job.task("M").counters.records_in
    assert job.task("M").step() == Waiting(None, backpressured=True)
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run(stuck)
    assert snapshot.acks.keys() == set(stuck)
    assert all(ack.persisted_bytes for ack in snapshot.acks.values())
    assert job.task("M").counters.records_in == read
    job.run(job.subtasks("K"))
    assert snapshot.completed
    results.clear()
    _finish_again(job, results)
    assert results == list(range(1_400))


@pytest.mark.parametrize("config", [UNALIGNED, IN_TIME], ids=["at once", "after a timeout"])
@pytest.mark.parametrize("seed", range(12))
def test_rows_are_exact_wherever_it_is_killed_and_at_whatever_parallelism_it_goes_on(
    seed: int, config: dict[str, str]
) -> None:
    """Steps, checkpoints, aborts and deaths in random order; after each death the parallelism changes."""
    rng = random.Random(seed)
    results: list[int] = []
    job = numbers_job(lambda: Collect(results), numbers_graph(2, 2, config=config))
    numbers = deal_numbers(job, 200)
    for _ in range(4):  # deaths
        shake(job, rng, steps=rng.randrange(20, 200), checkpoints=0.04, aborts=0.2, sources=4)
        if job.failures:
            break
        done = job.completed
        other = numbers_graph(rng.randrange(1, 4), rng.randrange(1, 5), config=config)
        if done is None or not all(state.finished for state in done.acked.values()):
            results.clear()
        job = numbers_again(job, lambda: Collect(results), None if done is None else other, rows=200)
    job.finish()
    assert job.failures == {}
    assert sorted(results) == list(range(numbers))


def test_the_time_to_store_rows_in_flight_is_told() -> None:
    job = _full(numbers_graph(1, 1, config=UNALIGNED), [])

    class Slow(dict[str, bytes]):
        """A storage for which rows in flight take 40 ms."""

        def __setitem__(self, place: str, content: bytes) -> None:
            if FILE_HINT in place:
                job.clock.now_ms += 40
            super().__setitem__(place, content)

    job.store.files = Slow()
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert snapshot.completed
    reported = {ack.async_ms for ack in snapshot.acks.values() if ack.persisted_bytes}
    assert reported == {40}
    assert {ack.async_ms for ack in snapshot.acks.values() if not ack.persisted_bytes} <= {0}


@pytest.mark.parametrize("config", [UNALIGNED, IN_TIME], ids=["at once", "after a timeout"])
@pytest.mark.parametrize(
    ("kind", "aligned"),
    [
        pytest.param(SnapshotKind.SAVEPOINT, False, id="a savepoint"),
        pytest.param(SnapshotKind.CHECKPOINT, True, id="a checkpoint that is to be aligned"),
    ],
)
def test_some_snapshots_are_never_unaligned(
    kind: SnapshotKind, aligned: bool, config: dict[str, str]
) -> None:
    job = _full(numbers_graph(2, 2, config=config), [])
    snapshot = job.trigger(kind, aligned=aligned)
    job.run()
    assert snapshot.completed
    assert not any(ack.unaligned or ack.persisted_bytes for ack in snapshot.acks.values())


def test_forward_edges_are_aligned_and_the_next_edge_is_not() -> None:
    """What lies on a forward edge could not go to another parallelism, so nothing is stored of it."""
    job = _full(numbers_graph(2, 2, middle=True, config=UNALIGNED, ship=Ship.FORWARD), [])
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert snapshot.completed
    assert {s for s, ack in snapshot.acks.items() if ack.persisted_bytes} == set(job.subtasks("M"))


def test_a_barrier_waits_for_its_timeout_and_then_overtakes() -> None:
    results: list[int] = []
    graph = numbers_graph(1, 1, config=IN_TIME)
    job = _full(graph, results)
    (source,) = job.subtasks("S")
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run(job.subtasks("S", 0))
    assert snapshot.acks == {}
    job.clock.now_ms += 5
    job.run(job.subtasks("S", 0))
    assert snapshot.acks[source].persisted_bytes > 0
    assert job.tasks[source].state is TaskState.RUNNING
    job.run()
    assert snapshot.completed
    results.clear()
    _finish_again(job, results)
    assert results == list(range(700))


def test_a_barrier_that_is_read_in_time_stays_aligned() -> None:
    job = _full(numbers_graph(2, 2, config=IN_TIME), [])
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert snapshot.completed
    assert not any(ack.unaligned or ack.persisted_bytes for ack in snapshot.acks.values())


def test_at_least_once_blocks_nothing_and_loses_nothing() -> None:
    results: list[int] = []
    graph = numbers_graph(2, 1, config=AT_LEAST_ONCE)
    job = _full(graph, results, rows=400)
    consumer, source, other = job.task("K"), job.task("S", 0), job.task("S", 1)
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run(job.subtasks("S", 0))  # its barrier goes out, the other one's does not
    before = consumer.counters.records_in
    for _ in range(2_000):
        consumer.step()
        source.step()
    assert consumer.counters.records_in > before + 300
    assert other.state is TaskState.RUNNING
    for _ in range(40):
        other.step()
        consumer.step()
    assert job.completed is not None
    _finish_again(job, results)
    assert set(results) == set(range(800))
    assert len(results) > 800


def test_rows_on_an_edge_that_binds_them_are_refused_at_another_parallelism() -> None:
    job = _full(numbers_graph(1, 1, config=UNALIGNED), [])
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert job.completed is not None
    with pytest.raises(ConfigError, match=r"'S' -> 'K' \(forward\).*cannot be redistributed.*savepoint"):
        job.completed.restores(numbers_graph(2, 2, config=UNALIGNED, ship=Ship.FORWARD))
