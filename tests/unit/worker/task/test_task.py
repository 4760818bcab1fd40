"""Whole tasks, several at a time, stepped by the test: exactly once, backpressure, what a snapshot holds."""

from __future__ import annotations

import random

import msgspec
import pyarrow as pa
import pytest

from tests.support.harness.task import TaskJob
from tests.unit.worker.numbers import (
    SumByKey,
    deal_numbers,
    number_split,
    numbers_again,
    numbers_graph,
    numbers_job,
    shake,
    split_range,
    sums_of,
)
from unistream.base.ids import OperatorUid
from unistream.base.limits import LOCAL_QUEUE_BATCHES, MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.graph import Ship
from unistream.model.messages import Split
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.operator.common import BaseOperator
from unistream.worker.task import TaskState, Waiting
from unistream.worker.task.state import Progressed

# --- exactly once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_sums_are_exact_whatever_the_order_of_steps_and_wherever_it_is_killed(seed: int) -> None:
    """Steps, checkpoints, aborts and deaths in random order: each restart begins at the newest completed
    checkpoint, and the end result is that of a run without faults (I5, I9)."""
    rng = random.Random(seed)
    results: dict[int, int] = {}
    job = numbers_job(lambda: SumByKey(results), numbers_graph(3))
    numbers = deal_numbers(job, 150, splits=2)
    for _ in range(3):  # deaths
        shake(job, rng, steps=rng.randrange(20, 400), checkpoints=0.02, aborts=0.3)
        if not _sums_are_out(job):
            results.clear()
        job = numbers_again(job, lambda: SumByKey(results), rows=150, splits=2)
    job.finish()
    assert job.failures == {}
    assert results == sums_of(numbers)


def _sums_are_out(job: TaskJob) -> bool:
    """The newest completed checkpoint was taken after every sum was out, so none comes again."""
    return job.completed is not None and job.completed.finished.issuperset(job.subtasks("K"))


def test_a_snapshot_holds_exactly_the_rows_before_its_barrier() -> None:
    job = numbers_job(lambda: SumByKey({}), numbers_graph(2))
    deal_numbers(job, 100, splits=2)
    job.step_each(15)
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.step_until(lambda: snapshot.completed)
    read = 0
    for subtask in job.subtasks("S"):
        state = snapshot.acked[subtask].operators[OperatorUid("S")]
        for item in state.lists[0].inline or ():
            start, stop = split_range(msgspec.msgpack.decode(item, type=Split))
            read += sum(range(stop - 100, start))
    stored = 0
    for subtask in job.subtasks("K"):
        handle = snapshot.acked[subtask].operators[OperatorUid("K")].keyed[0]
        content = job.store.reader(snapshot.directory).read(handle.file)
        table = pa.ipc.open_file(content).read_all()
        stored += sum(table.column("value").to_pylist())
    assert 0 < stored == read


@pytest.mark.parametrize(
    ("newest", "last", "watermark"),
    [
        pytest.param(None, False, MIN_WATERMARK, id="before the first rows there is none"),
        pytest.param(99, False, 98, id="an operator behind an exchange has the source's"),
        pytest.param(99, True, MAX_WATERMARK, id="at the end of all data it is the last"),
    ],
)
def test_a_snapshot_tells_the_watermark_of_each_operator(
    newest: int | None, last: bool, watermark: int
) -> None:
    job = numbers_job(lambda: SumByKey({}), numbers_graph(2))
    for index in range(2):
        job.assign("S", [] if newest is None else [number_split(0, newest + 1)], index=index, no_more=last)
    job.run()
    job.clock.now_ms += 1_000  # longer than the interval of watermarks
    job.run()
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert {str(s): task.watermarks for s, task in snapshot.acked.items()} == {
        f"{vertex}#{index}": {OperatorUid(vertex): watermark} for vertex in "SK" for index in range(2)
    }


CANONICAL, NATIVE = SavepointFormat


@pytest.mark.parametrize(
    ("backend", "incremental", "kind", "form", "stored"),
    [
        ("rocksdb", "true", SnapshotKind.CHECKPOINT, CANONICAL, "shared files"),
        ("rocksdb", "false", SnapshotKind.CHECKPOINT, CANONICAL, "tables"),
        ("rocksdb", "true", SnapshotKind.SAVEPOINT, CANONICAL, "tables"),
        ("rocksdb", "true", SnapshotKind.SAVEPOINT, NATIVE, "files"),
        ("rocksdb", "false", SnapshotKind.SAVEPOINT, NATIVE, "files"),
        ("rocksdb", "true", SnapshotKind.SUSPEND, NATIVE, "files"),
        ("rocksdb", "true", SnapshotKind.TERMINATE, NATIVE, "files"),
        ("hashmap", "true", SnapshotKind.CHECKPOINT, CANONICAL, "tables"),
        ("hashmap", "true", SnapshotKind.SAVEPOINT, NATIVE, "tables"),
    ],
)
def test_what_a_snapshot_stores_of_keyed_state(
    backend: str, incremental: str, kind: SnapshotKind, form: SavepointFormat, stored: str
) -> None:
    config = {"state.backend.type": backend, "execution.checkpointing.incremental": incremental}
    job = numbers_job(lambda: SumByKey({}), numbers_graph(config=config))
    deal_numbers(job, 20, splits=2)
    job.step_until(lambda: job.task("K").metrics().records_in > 0)
    before = job.trigger(SnapshotKind.CHECKPOINT)  # its files must not be referred to by a savepoint
    job.step_until(lambda: before.completed)
    snapshot = job.trigger(kind, form)
    job.run()
    job.cancel()
    job.run()
    handle = snapshot.acked[job.subtasks("K")[0]].operators[OperatorUid("K")]
    refs = [file.ref for native in handle.native for file in native.files]
    shared = [ref for ref in refs if ref.shared]
    assert (bool(handle.keyed), bool(refs), bool(shared)) == {
        "tables": (True, False, False),
        "files": (False, True, False),
        "shared files": (False, True, True),
    }[stored]


# --- backpressure ---------------------------------------------------------------------------------


def _full() -> TaskJob:
    """S has filled its output, and K has read nothing."""
    job = numbers_job(lambda: SumByKey({}), numbers_graph(ship=Ship.FORWARD), rows_per_poll=1)
    deal_numbers(job, 2_000)
    job.run(job.subtasks("S"))
    return job


def test_no_input_is_taken_while_an_output_is_full() -> None:
    job = _full()
    source, consumer = job.task("S"), job.task("K")
    assert source.step() == Waiting(200, backpressured=True)
    assert source.counters.records_in == LOCAL_QUEUE_BATCHES
    source.mailbox.prepare_wait()
    while consumer.counters.records_in == 0:
        assert isinstance(consumer.step(), Progressed)
    source.mailbox.wait(0)
    assert isinstance(source.step(), Progressed)
    assert source.counters.records_in == LOCAL_QUEUE_BATCHES + 1


def test_a_checkpoint_passes_a_full_output() -> None:
    job = _full()
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run(job.subtasks("S"))
    assert set(job.subtasks("S")) <= snapshot.acked.keys()


def test_rows_that_are_gathered_leave_in_time() -> None:
    config = {"execution.buffer-timeout.interval": "50 ms"}
    job = numbers_job(lambda: SumByKey({}), numbers_graph(2, config=config))
    job.assign("S", [number_split(0, 40)])
    job.run()
    assert sum(job.task("K", i).counters.records_in for i in range(2)) == 0
    waiting = job.task("S").step()
    assert waiting == Waiting(50)
    job.clock.now_ms = 50
    job.run()
    assert sum(job.task("K", i).counters.records_in for i in range(2)) == 40


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "state"),
    [
        pytest.param({}, TaskState.RUNNING, id="it waits for its last checkpoint"),
        pytest.param(
            {"execution.checkpointing.checkpoints-after-tasks-finish": "false"},
            TaskState.FINISHED,
            id="there will be none",
        ),
    ],
)
def test_how_a_task_ends_whose_data_has_ended(config: dict[str, str], state: TaskState) -> None:
    results: dict[int, int] = {}
    job = numbers_job(lambda: SumByKey(results), numbers_graph(config=config))
    numbers = deal_numbers(job, 50, splits=2)
    job.run()
    assert set(job.states().values()) == {state}
    assert results == sums_of(numbers)


class Ends(BaseOperator):
    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.heard.append("rows")

    def end_input(self, input_index: int) -> None:
        self.heard.append(f"end of input {input_index}")

    def finish(self) -> None:
        self.heard.append("finish")


def test_an_input_ends_with_the_last_of_its_channels() -> None:
    heard: list[str] = []
    job = numbers_job(lambda: Ends(heard), numbers_graph(2, 1))
    for index in range(2):  # all that one source has, and its end, before anything of the other
        job.assign("S", [number_split(0, 5)], index=index, no_more=True)
        job.run()
        assert heard == (["rows"] if index == 0 else ["rows", "rows", "end of input 0", "finish"])


class Unclosable(BaseOperator):
    def close(self) -> None:
        raise OSError("the disk is gone")


def test_a_task_that_cannot_close_its_operators_has_not_ended_for_those_behind_it() -> None:
    job = numbers_job(lambda: SumByKey({}), numbers_graph(middle=True), middle=Unclosable)
    deal_numbers(job, 50)
    job.run()
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert job.states() == {"S#0": TaskState.FINISHED, "M#0": TaskState.FAILED, "K#0": TaskState.RUNNING}
    (failure,) = job.failures.values()
    assert failure.message == "operator 'M' (uid 'M'), subtask 1/1, closing: OSError: the disk is gone"
