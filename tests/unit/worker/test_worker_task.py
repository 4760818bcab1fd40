"""Whole tasks, several at a time, stepped by the test."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, EdgeId, OperatorUid, SubtaskId, VertexId
from unistream.base.limits import LOCAL_QUEUE_BATCHES, MAX_WATERMARK, MIN_WATERMARK
from unistream.model.chain import Chain, ChainNode, EdgeOutput, LocalOutput
from unistream.model.elements import Batch, SavepointFormat, SnapshotKind
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.messages import CheckpointAborted, CheckpointDeclined, Split, TriggerCheckpoint
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.model.state import StateOptions, ValueStateDescriptor
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.base import BaseOperator
from unistream.port.operator import CommitPermit, SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows
from unistream.testing.task_harness import Snapshot, TaskJob
from unistream.worker.task_state import Done, Progressed, TaskState, Waiting

KEYS = 13
KEY = pa.schema([("k", pa.int64())])


class NumberReader:
    """Split "i": rows position..end of the numbers; keys are number mod KEYS."""

    def __init__(self, rows_per_poll: int) -> None:
        self.rows_per_poll = rows_per_poll
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
                stop = min(end, start + self.rows_per_poll)
                self.position[split_id] = (stop, end)
                numbers = pa.array(range(start, stop), pa.int64())
                keys = pa.array([n % KEYS for n in range(start, stop)], pa.int64())
                return Rows(split_id, pa.record_batch({"k": keys, "v": numbers}), numbers)
        return Exhausted() if self.last else Idle()

    def snapshot(self) -> list[Split]:
        return [Split(id=i, data=f"{start}-{end}".encode()) for i, (start, end) in self.position.items()]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass


class NumberSource:
    name = "numbers"
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])

    def __init__(self, rows_per_poll: int = 7) -> None:
        self.rows_per_poll = rows_per_poll

    def info(self) -> SourceInfo:
        return SourceInfo(connector="numbers", options={}, bounded=True, pull=False)

    def create_reader(self) -> NumberReader:
        return NumberReader(self.rows_per_poll)


class SumByKey(BaseOperator):
    """Keyed value state; its sums are out when it finishes."""

    def __init__(self, results: dict[int, int]) -> None:
        self.results = results

    def initialize_state(self, state: OperatorState) -> None:
        self.context.state.restore(state.state)
        self.sums = self.context.state.state(ValueStateDescriptor("sum", pa.int64()))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        keys = self.context.state.keys_of(batch.records.select(KEY.names))
        for key, value in zip(keys, batch.records.column("v").to_pylist(), strict=True):
            self.context.state.set_current(key)
            self.sums.update((self.sums.value() or 0) + value)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(state=self.context.state.snapshot(checkpoint_id))

    def finish(self) -> None:
        numbers = [key[0] for key in self.context.state.keys("sum")]
        keys = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=KEY.names)
        for number, key in zip(numbers, self.context.state.keys_of(keys), strict=True):
            assert number not in self.results, "one owner for each key"
            self.context.state.set_current(key)
            self.results[number] = self.sums.value()  # type: ignore[index]


def _graph(parallelism: int, *, ship: Ship = Ship.HASH, config: dict[str, str] | None = None) -> JobGraph:
    def vertex(name: str, inputs: int) -> JobVertex:
        return JobVertex(
            id=VertexId(name),
            name=name,
            operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
            parallelism=parallelism,
            max_parallelism=32,
            source=NumberSource().info() if inputs == 0 else None,
            inputs=inputs,
        )

    edge = JobEdge(id=EdgeId("e"), source=VertexId("S"), target=VertexId("K"), ship=ship, key_columns=("k",))
    return JobGraph(
        name="sums", vertices=(vertex("S", 0), vertex("K", 1)), edges=(edge,), config=config or {}
    )


class _Chains(dict[VertexId, Chain]):
    """New operators for each task, as an artifact gives."""

    def __init__(self, consumer: Callable[[], object], rows_per_poll: int = 7) -> None:
        super().__init__()
        self.consumer = consumer
        self.rows_per_poll = rows_per_poll

    def __getitem__(self, vertex: VertexId) -> Chain:
        if vertex == "K":
            return Chain(nodes=(ChainNode(uid=OperatorUid("K"), name="K", operator=self.consumer()),))
        spec = SourceOperatorSpec(
            source=NumberSource(self.rows_per_poll), watermarks=WatermarkStrategy.for_monotonous_timestamps()
        )
        outputs = (EdgeOutput(edge=EdgeId("e")),)
        return Chain(nodes=(ChainNode(uid=OperatorUid("S"), name="S", operator=spec, outputs=outputs),))


def _assign(job: TaskJob, parallelism: int, rows: int) -> None:
    for index in range(parallelism):
        splits = [Split(id=f"{index}-{i}", data=f"{i * rows}-{(i + 1) * rows}".encode()) for i in range(2)]
        job.assign("S", splits, index=index, no_more=True)


def _expected(parallelism: int, rows: int) -> dict[int, int]:
    sums = dict.fromkeys(range(KEYS), 0)
    for number in range(2 * rows):
        sums[number % KEYS] += parallelism * number
    return sums


# --- exactly once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_sums_are_exact_whatever_the_order_of_steps_and_wherever_it_is_killed(seed: int) -> None:
    """Steps, checkpoints, aborts and deaths in random order: each restart begins at the newest completed
    checkpoint, and the end result is that of a run without faults (I5, I9)."""
    rng = random.Random(seed)
    parallelism, rows = 3, 150
    results: dict[int, int] = {}
    job = TaskJob(_graph(parallelism), _Chains(lambda: SumByKey(results)))
    _assign(job, parallelism, rows)
    next_id = 1
    for _ in range(3):  # deaths
        for _ in range(rng.randrange(20, 400)):
            if rng.random() < 0.02:
                snapshot = job.trigger(SnapshotKind.CHECKPOINT)
                next_id = snapshot.checkpoint_id + 1
                if rng.random() < 0.3:
                    job.abort(snapshot.checkpoint_id)
            job.clock.now_ms += rng.randrange(3)
            rng.choice(list(job.tasks.values())).step()
        restore = job.completed
        if not _sums_are_out(job):
            results.clear()
        job = TaskJob(
            _graph(parallelism),
            _Chains(lambda: SumByKey(results)),
            restore=restore,
            store=job.store,
            first_checkpoint=next_id,
        )
        if restore is None:
            _assign(job, parallelism, rows)
        for index in range(parallelism):
            job.assign("S", [], index=index, no_more=True)
    while set(job.states().values()) != {TaskState.FINISHED}:
        job.run()
        job.trigger(SnapshotKind.CHECKPOINT)
        job.run()
    assert job.failures == {}
    assert results == _expected(parallelism, rows)


def _sums_are_out(job: TaskJob) -> bool:
    """The newest completed checkpoint was taken after every sum was out, so none comes again."""
    consumers = [subtask for subtask in job.tasks if subtask.vertex == "K"]
    done = job.completed
    return done is not None and all(
        s in done.finished_before or (s in done.acked and done.acked[s].finished) for s in consumers
    )


def test_a_snapshot_holds_exactly_the_rows_before_its_barrier() -> None:
    job = TaskJob(_graph(2), _Chains(lambda: SumByKey({})))
    _assign(job, 2, 100)
    for _ in range(15):
        for task in job.tasks.values():
            task.step()
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    while not snapshot.completed:
        for task in job.tasks.values():
            task.step()
    read = 0
    for index in range(2):
        state = snapshot.acked[SubtaskId(VertexId("S"), index)].operators[OperatorUid("S")]
        for item in state.lists[0].inline or ():
            start, end = msgspec.msgpack.decode(item, type=Split).data.decode().split("-")
            read += sum(range(int(end) - 100, int(start)))
    stored = 0
    for index in range(2):
        handle = snapshot.acked[SubtaskId(VertexId("K"), index)].operators[OperatorUid("K")].keyed[0]
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
    job = TaskJob(_graph(2), _Chains(lambda: SumByKey({})))
    for index in range(2):
        splits = [] if newest is None else [Split(id="0", data=f"0-{newest + 1}".encode())]
        job.assign("S", splits, index=index, no_more=last)
    job.run()
    job.clock.now_ms += 1_000  # longer than the interval of watermarks
    job.run()
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert {str(s): task.watermarks for s, task in snapshot.acked.items()} == {
        f"{vertex}#{index}": {OperatorUid(vertex): watermark} for vertex in "SK" for index in range(2)
    }


# --- backpressure ---------------------------------------------------------------------------------


def test_no_input_is_taken_while_an_output_is_full() -> None:
    job = TaskJob(_graph(1, ship=Ship.FORWARD), _Chains(lambda: SumByKey({}), rows_per_poll=1))
    _assign(job, 1, 1_000)
    source, consumer = job.task("S"), job.task("K")
    job.run([SubtaskId(VertexId("S"), 0)])
    assert source.step() == Waiting(200, backpressured=True)
    assert source.counters.records_in == LOCAL_QUEUE_BATCHES
    source.mailbox.prepare_wait()
    while consumer.counters.records_in == 0:
        assert isinstance(consumer.step(), Progressed)
    source.mailbox.wait(0)
    assert isinstance(source.step(), Progressed)
    assert source.counters.records_in == LOCAL_QUEUE_BATCHES + 1


def test_a_checkpoint_passes_a_full_output() -> None:
    job = TaskJob(_graph(1, ship=Ship.FORWARD), _Chains(lambda: SumByKey({}), rows_per_poll=1))
    _assign(job, 1, 1_000)
    job.run([SubtaskId(VertexId("S"), 0)])
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run([SubtaskId(VertexId("S"), 0)])
    assert SubtaskId(VertexId("S"), 0) in snapshot.acked


def test_rows_that_are_gathered_leave_in_time() -> None:
    config = {"execution.buffer-timeout.interval": "50 ms"}
    job = TaskJob(_graph(2, config=config), _Chains(lambda: SumByKey({})))
    job.assign("S", [Split(id="a", data=b"0-40")])
    job.run()
    assert sum(job.task("K", i).counters.records_in for i in range(2)) == 0
    waiting = job.task("S").step()
    assert waiting == Waiting(50)
    job.clock.now_ms = 50
    job.run()
    assert sum(job.task("K", i).counters.records_in for i in range(2)) == 40


# --- errors ---------------------------------------------------------------------------------------


class Failing(BaseOperator):
    """Fails in one way."""

    def __init__(self, error: Callable[[BaseOperator], Exception], where: str) -> None:
        self.error = error
        self.where = where

    def initialize_state(self, state: OperatorState) -> None:
        if self.where == "restore":
            raise self.error(self)

    def open(self) -> None:
        if self.where == "timer":
            self.context.timers.register(self.context.timers.now_ms() + 10, self._fire)

    def _fire(self, at_ms: int) -> None:
        raise self.error(self)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if self.where == "rows":
            raise self.error(self)


@pytest.mark.parametrize(
    ("error", "where", "kind", "message", "recoverable"),
    [
        pytest.param(
            lambda _: KeyError("nope"),
            "rows",
            "UserCodeError",
            "operator 'K' (uid 'K'), subtask 1/1, processing rows: KeyError: 'nope'",
            True,
            id="anything that a user's function raises",
        ),
        pytest.param(
            lambda op: op.user_error("function 'f'", ValueError("bad"), 3),
            "rows",
            "UserCodeError",
            "operator 'K', subtask 0: function 'f' raised ValueError: bad at row 3 of the batch",
            True,
            id="an operator that knows the row",
        ),
        pytest.param(
            lambda _: ConfigError("no such column"),
            "rows",
            "ConfigError",
            "no such column (in operator 'K' (uid 'K'), subtask 1/1, processing rows)",
            False,
            id="what a restart cannot help",
        ),
        pytest.param(
            lambda _: OSError("gone"),
            "timer",
            "UserCodeError",
            "operator 'K' (uid 'K'), subtask 1/1, firing a timer: OSError: gone",
            True,
            id="a timer",
        ),
        pytest.param(
            lambda _: OSError("gone"),
            "restore",
            "UserCodeError",
            "operator 'K' (uid 'K'), subtask 1/1, restoring its state: OSError: gone",
            True,
            id="restoring",
        ),
    ],
)
def test_a_failure_says_where(
    error: Callable[[BaseOperator], Exception], where: str, kind: str, message: str, recoverable: bool
) -> None:
    job = TaskJob(_graph(1), _Chains(lambda: Failing(error, where)))
    job.assign("S", [Split(id="a", data=b"0-10")])
    job.run()
    job.clock.now_ms = 200
    job.run()
    failure = job.failures[SubtaskId(VertexId("K"), 0)]
    assert (failure.kind, failure.message, failure.recoverable) == (kind, message, recoverable)
    assert "test_worker_task.py" in failure.traceback
    assert isinstance(job.task("K").step(), Done)
    assert job.task("S").state is TaskState.RUNNING  # the master cancels it


class Unfit(SumByKey):
    """Its state is declared as numbers, and is given texts."""

    def process_batch(self, batch: Batch, input_index: int) -> None:
        for key in self.context.state.keys_of(batch.records.select(KEY.names)):
            self.context.state.set_current(key)
            self.sums.update("not a number")

    def close(self) -> None:
        self.context.state.close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_state_that_is_not_as_declared_fails_the_task_and_not_only_the_checkpoint(
    backend: str, kind: SnapshotKind
) -> None:
    graph = _graph(1, config={"state.backend.type": backend})
    job = TaskJob(graph, _Chains(lambda: Unfit({})))
    _assign(job, 1, 20)
    consumer = job.task("K")
    while consumer.metrics().records_in == 0:
        for task in job.tasks.values():
            task.step()
    job.trigger(kind)
    job.run()
    failure = job.failures[SubtaskId(VertexId("K"), 0)]
    assert failure.kind == "UserCodeError"
    assert failure.message.startswith(
        "operator 'K' (uid 'K'), subtask 1/1: state 'sum' holds a value that is "
    )
    assert "not of its declared type int64" in failure.message
    assert "not a number" in failure.traceback
    assert not any(isinstance(report, CheckpointDeclined) for report in job.reports)


CANONICAL, NATIVE = SavepointFormat


class Closing(SumByKey):
    def close(self) -> None:
        self.context.state.close()


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
    job = TaskJob(_graph(1, config=config), _Chains(lambda: Closing({})))
    _assign(job, 1, 20)
    while job.task("K").metrics().records_in == 0:
        for task in job.tasks.values():
            task.step()
    before = job.trigger(SnapshotKind.CHECKPOINT)  # its files must not be referred to by a savepoint
    while not before.completed:
        for task in job.tasks.values():
            task.step()
    snapshot = job.trigger(kind, form)
    job.run()
    job.cancel()
    job.run()
    handle = snapshot.acked[SubtaskId(VertexId("K"), 0)].operators[OperatorUid("K")]
    refs = [file.ref for native in handle.native for file in native.files]
    shared = [ref for ref in refs if ref.shared]
    assert (bool(handle.keyed), bool(refs), bool(shared)) == {
        "tables": (True, False, False),
        "files": (False, True, False),
        "shared files": (False, True, True),
    }[stored]


class Locks(SumByKey):
    """Its state is declared as pickled, and is given what cannot be pickled."""

    def initialize_state(self, state: OperatorState) -> None:
        self.context.state.declare_keys(KEY)
        options = StateOptions(pickled=True)
        self.sums = self.context.state.state(ValueStateDescriptor("locks", pa.binary(), options=options))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        for key in self.context.state.keys_of(batch.records.select(KEY.names)):
            self.context.state.set_current(key)
            self.sums.update(threading.Lock())

    def finish(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        self.context.state.close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_what_cannot_be_pickled_fails_the_task_at_once_or_at_the_first_checkpoint(backend: str) -> None:
    graph = _graph(1, config={"state.backend.type": backend})
    job = TaskJob(graph, _Chains(lambda: Locks({})))
    _assign(job, 1, 20)
    for _ in range(20):
        for task in job.tasks.values():
            task.step()
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    failure = job.failures[SubtaskId(VertexId("K"), 0)]
    assert failure.kind == "UserCodeError"
    assert failure.message.startswith("operator 'K' (uid 'K'), subtask 1/1")
    assert "state 'locks' of key (k int64) was given an object of _thread.lock, which" in failure.message
    assert not any(isinstance(report, CheckpointDeclined) for report in job.reports)


def test_a_failure_inside_a_chain_names_the_operator_that_failed() -> None:
    job = TaskJob(_chained_graph(), _ChainedChains())
    job.assign("S", [Split(id="a", data=b"0-5")])
    job.run()
    failure = job.failures[SubtaskId(VertexId("S"), 0)]
    assert failure.message == "operator 'last' (uid 'last'), subtask 1/1, processing rows: RuntimeError: boom"
    assert "The above exception was the direct cause" in failure.traceback


def _chained_graph() -> JobGraph:
    uids = ("S", "middle", "last")
    vertex = JobVertex(
        id=VertexId("S"),
        name="S",
        operators=tuple(OperatorInfo(uid=OperatorUid(u), name=u) for u in uids),
        parallelism=1,
        max_parallelism=32,
        source=NumberSource().info(),
    )
    return JobGraph(name="chained", vertices=(vertex,), edges=())


class _ChainedChains(dict[VertexId, Chain]):
    def __getitem__(self, vertex: VertexId) -> Chain:
        spec = SourceOperatorSpec(source=NumberSource(), watermarks=WatermarkStrategy.no_watermarks())
        operators: list[Any] = [spec, BaseOperator(), Failing(lambda _: RuntimeError("boom"), "rows")]
        names = ["S", "middle", "last"]
        return Chain(
            nodes=tuple(
                ChainNode(
                    uid=OperatorUid(name),
                    name=name,
                    operator=operator,
                    outputs=(LocalOutput(target=i + 1),) if i < 2 else (),
                )
                for i, (name, operator) in enumerate(zip(names, operators, strict=True))
            )
        )


# --- late, repeated and overtaking messages -------------------------------------------------------


class Noting(BaseOperator):
    notices: list[str]

    def __init__(self, notices: list[str]) -> None:
        self.notices = notices

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        self.notices.append(f"snapshot {checkpoint_id}")
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.notices.append(f"complete {permit.checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self.notices.append(f"abort {checkpoint_id}")


def _noting_job() -> tuple[TaskJob, list[str]]:
    notices: list[str] = []
    job = TaskJob(_graph(1), _Chains(lambda: Noting(notices)))
    job.run()
    return job, notices


def test_a_repeated_trigger_takes_one_snapshot() -> None:
    job, notices = _noting_job()
    job.trigger(SnapshotKind.CHECKPOINT)
    _trigger(job, 1)
    job.run()
    _trigger(job, 1)
    job.run()
    assert notices == ["snapshot 1", "complete 1"]


def test_an_abort_that_overtakes_its_trigger_cancels_it_everywhere() -> None:
    job, notices = _noting_job()
    job.trigger(SnapshotKind.CHECKPOINT)
    source = job.task("S")
    source.mailbox.post(_abort(job, 1))
    job.run()
    assert "snapshot 1" not in notices
    assert [r.checkpoint_id for r in job.reports if isinstance(r, CheckpointDeclined)] == [1]
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert notices[-2:] == ["snapshot 2", "complete 2"]


def test_a_completion_that_was_lost_comes_with_the_next_abort() -> None:
    job, notices = _noting_job()
    for task in job.tasks.values():
        task.mailbox.post(
            CheckpointAborted(
                attempt=task.deployment.attempt,
                checkpoint_id=CheckpointId(4),
                latest_completed=CheckpointId(3),
            )
        )
    job.complete(CheckpointId(3))
    job.run()
    assert notices == ["complete 3", "abort 4"]


def test_messages_after_the_end_are_ignored() -> None:
    job, notices = _noting_job()
    job.cancel()
    job.run()
    job.complete(CheckpointId(1))
    _trigger(job, 1)
    job.run()
    assert notices == []
    assert set(job.states().values()) == {TaskState.CANCELED}


def _trigger(job: TaskJob, number: int) -> None:
    task = job.task("S")
    job.snapshots.setdefault(
        CheckpointId(number), Snapshot(CheckpointId(number), SnapshotKind.CHECKPOINT, set(job.tasks))
    )
    task.mailbox.post(
        TriggerCheckpoint(
            attempt=task.deployment.attempt,
            checkpoint_id=CheckpointId(number),
            timestamp_ms=0,
            kind=SnapshotKind.CHECKPOINT,
            directory=f"chk-{number}",
        )
    )


def _abort(job: TaskJob, number: int) -> CheckpointAborted:
    return CheckpointAborted(
        attempt=job.task("S").deployment.attempt, checkpoint_id=CheckpointId(number), latest_completed=None
    )


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
    job = TaskJob(_graph(1, config=config), _Chains(lambda: SumByKey(results)))
    _assign(job, 1, 50)
    job.run()
    assert set(job.states().values()) == {state}
    assert results == _expected(1, 50)
