"""Whole tasks with a blocking partition between them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.harness.task import TaskJob
from tests.unit.worker.numbers import deal_numbers, number_split, numbers_graph, numbers_job
from tests.unit.worker.worker_partitions import files_in, fill_disk, flip_bit
from unistream.model.elements import Batch
from unistream.model.partition_type import PartitionType
from unistream.operator.common import BaseOperator
from unistream.worker.exchange import BlockingPartition, BlockingPartitions
from unistream.worker.task import TaskState


class _Collect(BaseOperator):
    """Remembers the values."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.values += batch.records.column("v").to_pylist()


def _job(store: BlockingPartitions, values: list[int]) -> TaskJob:
    """Two subtasks each; S reads a split at once."""
    graph = numbers_graph(2, partition=PartitionType.BLOCKING)
    operator = _Collect(values)
    return numbers_job(lambda: operator, graph, rows_per_poll=5_000_000, checkpointing=False, blocking=store)


def test_producers_finish_without_waiting_for_anybody_who_reads(store: BlockingPartitions) -> None:
    values: list[int] = []
    job = _job(store, values)
    deal_numbers(job, 10_000)
    job.run(job.subtasks("S"))
    assert {job.task("S", n).state for n in range(2)} == {TaskState.FINISHED}
    assert values == []
    assert len(store.held) == 2
    job.run()
    assert set(job.states().values()) == {TaskState.FINISHED}
    assert sorted(values) == list(range(20_000))
    assert len(store.held) == 2, "what was read stays until it is released"
    assert job.task("S").metrics().records_out == 10_000


@pytest.mark.parametrize(("committables", "rows_out"), [(False, 10_000), (True, 0)])
def test_what_a_sink_has_prepared_is_no_row(committables: bool, rows_out: int) -> None:
    graph = numbers_graph()
    edges = tuple(structs.replace(edge, committables=committables) for edge in graph.edges)
    job = numbers_job(lambda: _Collect([]), structs.replace(graph, edges=edges), checkpointing=False)
    deal_numbers(job, 10_000)
    job.run()
    assert job.task("S").metrics().records_out == rows_out


def test_a_producer_that_meets_a_full_disk_fails_with_the_sentence(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    job = _job(store, [])
    partition = job.task("S").partitions[0]
    assert isinstance(partition, BlockingPartition)
    fill_disk(partition)
    deal_numbers(job, 10_000)
    job.run(job.subtasks("S", 0))
    assert job.task("S").state is TaskState.FAILED
    (failure,) = job.failures.values()
    assert "No space left on device" in failure.message
    assert failure.recoverable
    assert failure.lost_partition is None
    assert files_in(tmp_path) == []


def test_a_cancelled_producer_leaves_nothing(store: BlockingPartitions, tmp_path: Path) -> None:
    job = _job(store, [])
    job.assign("S", [number_split(0, 5_000_000)])
    job.run()
    assert files_in(tmp_path)
    job.cancel()
    job.run()
    assert set(job.states().values()) == {TaskState.CANCELED}
    assert files_in(tmp_path) == []


def test_a_consumer_of_a_damaged_partition_says_which_one_is_lost(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    job = _job(store, [])
    deal_numbers(job, 10_000)
    job.run(job.subtasks("S"))
    for path in files_in(tmp_path):
        if path.name == "1":
            flip_bit(path, os.path.getsize(path) // 2)
    job.run()
    assert job.task("K", 0).state is TaskState.FINISHED
    assert job.task("K", 1).state is TaskState.FAILED
    (failure,) = job.failures.values()
    assert str(failure.lost_partition) in {"S#0>e", "S#1>e"}
    assert failure.kind == "PartitionLost"


def test_a_consumer_of_a_partition_that_is_not_there_says_so_after_its_timeout(
    store: BlockingPartitions,
) -> None:
    job = _job(store, [])
    deal_numbers(job, 10_000)
    job.run(job.subtasks("S", 0))
    job.run(job.subtasks("K", 0))
    job.clock.now_ms += 10_000
    job.run(job.subtasks("K", 0))
    (failure,) = job.failures.values()
    assert str(failure.lost_partition) == "S#1>e"
    assert "did not appear in time" in failure.message
