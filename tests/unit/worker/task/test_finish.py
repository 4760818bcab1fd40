"""`finish` is called once for what a function holds, also if the job starts again right behind it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import unistream as us
from tests.support.harness.task import TaskJob
from tests.unit.worker.numbers import number_split, numbers_again, numbers_graph, numbers_job
from unistream.model.graph import Ship
from unistream.model.snapshot_kind import SnapshotKind
from unistream.operator.process import ProcessOperator
from unistream.worker.task import TaskState

FORWARD, HASH = Ship.FORWARD, Ship.HASH
ROWS = 10
FIRST, SECOND = sum(range(ROWS)), sum(range(ROWS, 2 * ROWS))  # of the numbers of each subtask of S


class Held(us.ProcessFunction):
    """Keeps all numbers in a list, and says their sum at the end, also if it has none."""

    numbers = us.OperatorListDescriptor("numbers", pa.int64(), us.ListMode.SPLIT)

    def __init__(self, said: list[int]) -> None:
        self.said = said

    def open(self, context: us.FunctionContext) -> None:
        self.held = context.operator_state(self.numbers)

    def process_element(self, row: dict, context: us.FunctionContext, out: us.Collector) -> None:
        self.held.add(row["v"])

    def finish(self, context: us.FunctionContext, out: us.Collector) -> None:
        self.said.append(sum(self.held.get()))


def job_of(said: list[int], ship: Ship, *, ends: tuple[bool, bool]) -> TaskJob:
    """Two subtasks of everything; `ends`: whose numbers are all there are."""
    job = numbers_job(lambda: ProcessOperator(Held(said)), numbers_graph(2, ship=ship))
    for index, is_last in enumerate(ends):
        split = number_split(index * ROWS, (index + 1) * ROWS)
        job.assign("S", [split], index=index, no_more=is_last)
    job.run()
    return job


def again(last: TaskJob, said: list[int], parallelism: int, ship: Ship) -> TaskJob:
    graph = numbers_graph(parallelism, ship=ship)
    return numbers_again(last, lambda: ProcessOperator(Held(said)), graph, rows=ROWS)


def checkpoint(job: TaskJob) -> None:
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert snapshot.completed


@pytest.mark.parametrize("parallelism", [2, 3, 1])
@pytest.mark.parametrize("ship", [FORWARD, HASH], ids=["forward", "by key"])
def test_a_job_that_starts_behind_finish_does_not_call_it(ship: Ship, parallelism: int) -> None:
    said: list[int] = []
    job = job_of(said, ship, ends=(True, True))
    assert (len(said), sum(said)) == (2, FIRST + SECOND)
    for _ in range(2):  # the second time from a checkpoint that the restored tasks take before anything else
        checkpoint(job)
        job = again(job, said, parallelism, ship)
    job.finish()
    assert (len(said), sum(said)) == (2, FIRST + SECOND)
    assert job.failures == {}


@pytest.mark.parametrize(
    ("parallelism", "calls"),
    [
        pytest.param(2, 1, id="the other one calls it"),
        pytest.param(3, 3, id="the subtasks that share what the other one holds call it"),
        pytest.param(1, 1, id="the only one calls it"),
    ],
)
@pytest.mark.parametrize("has_ended", [False, True], ids=["it waits", "it has ended"])
def test_where_only_one_subtask_has_called_it(has_ended: bool, parallelism: int, calls: int) -> None:
    said: list[int] = []
    job = job_of(said, FORWARD, ends=(True, False))
    assert said == [FIRST]
    checkpoint(job)
    if has_ended:
        assert job.task("K", 0).state is TaskState.FINISHED
        checkpoint(job)
    job = again(job, said, parallelism, FORWARD)
    job.finish()
    assert said[0] == FIRST
    assert (len(said) - 1, sum(said[1:])) == (calls, SECOND)
    assert job.failures == {}


def test_lists_that_finish_has_used_up_are_in_no_later_snapshot() -> None:
    job = numbers_job(lambda: ProcessOperator(Held([])))
    counts = []
    for is_last in (False, True):
        job.assign("S", [number_split(0, ROWS)], no_more=is_last)
        job.run()
        checkpoint(job)
        assert job.completed is not None
        stored = job.completed.acked[job.subtasks("K")[0]].operators
        counts.append([handle.count for operator in stored.values() for handle in operator.lists])
    assert counts == [[ROWS], []]
