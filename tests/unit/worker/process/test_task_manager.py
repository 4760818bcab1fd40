"""A real TaskManager on real Flight and real files; the test is its master."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pytest

from tests.eventually import WAIT_S
from tests.single_messages import decode_single
from unistream.base.errors import Unreachable
from unistream.base.ids import (
    AllocationId,
    AttemptId,
    CheckpointId,
    EdgeId,
    JobId,
    LeaderEpoch,
    LineageId,
    OperatorUid,
    TaskManagerId,
    VertexId,
)
from unistream.model.chain import Chain, ChainNode, EdgeOutput, JobCode
from unistream.model.codec import encode
from unistream.model.deployment import ChannelDescriptor, GateDescriptor, PartitionDescriptor, TaskDeployment
from unistream.model.elements import Batch
from unistream.model.graph import JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.messages import (
    Ack,
    Answer,
    Artifact,
    AssignSplits,
    CancelTask,
    CheckpointAcked,
    CheckpointCompleted,
    DeployTask,
    DrainTaskManager,
    FetchArtifact,
    Heartbeat,
    Refused,
    Registered,
    RegisterTaskManager,
    ReleaseTaskManager,
    Split,
    TaskStateChanged,
    ToJobManager,
    TriggerCheckpoint,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.watermarks import WatermarkStrategy
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer
from unistream.operator.common import BaseOperator
from unistream.port.host import TaskManagerSpec
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows
from unistream.worker.code import artifact
from unistream.worker.process import Ending, TaskManager, default_services, worker_ports

JOB = JobId("a" * 32)
FAST = {"heartbeat.interval": "50 ms", "heartbeat.timeout": "1 s"}


class CountingReader:
    """Each split is a number of rows."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.last = False

    def open(self, context: ReaderContext) -> None:
        pass

    def add_splits(self, splits: list[Split]) -> None:
        self.left |= {split.id: int(split.data) for split in splits}

    def no_more_splits(self) -> None:
        self.last = True

    def poll(self) -> Rows | Idle | Exhausted:
        for split_id, left in self.left.items():
            if left:
                rows = min(left, 1000)
                self.left[split_id] -= rows
                return Rows(split_id, pa.record_batch({"k": list(range(left - rows, left))}))
        return Exhausted() if self.last else Idle()

    def snapshot(self) -> list[Split]:
        return [Split(id=i, data=str(n).encode()) for i, n in self.left.items()]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass


class CountingSource:
    name = "counting"
    schema = pa.schema([("k", pa.int64())])

    def info(self) -> SourceInfo:
        return SourceInfo(connector="counting", options={}, bounded=True, pull=False)

    def create_reader(self) -> CountingReader:
        return CountingReader()


class Summing(BaseOperator):
    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.context.metrics.add("rows", batch.num_rows)
        self.context.metrics.add("sum", sum(batch.records.column("k").to_pylist()))


class Master:
    """Answers a worker and keeps what it said."""

    def __init__(self, code: JobCode) -> None:
        self.artifact = artifact.pack(code)
        self.heard: queue.Queue[ToJobManager] = queue.Queue()
        self.refuse: type[Any] | None = None
        self.terms: Registered | None = None
        self.fetched = 0
        self.server = FlightServer("127.0.0.1", control=self._handle, partitions=None)

    def _handle(self, request: bytes, caller: str = "", /) -> bytes:
        return encode(self._answer(decode_single(request)))

    def _answer(self, message: ToJobManager) -> Answer:
        self.heard.put(message)
        if self.refuse is not None and isinstance(message, self.refuse):
            return Refused(reason="as the test says")
        if isinstance(message, FetchArtifact):
            self.fetched += 1
            return Artifact(content=self.artifact)
        if isinstance(message, RegisterTaskManager) and self.terms is not None:
            return self.terms
        return Ack()

    def wait_for(self, kind: type[Any], **fields: Any) -> Any:
        """The next message of `kind` with these fields."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            message = self.heard.get(timeout=max(0.0, deadline_s - time.monotonic()))
            failure = message.failure if isinstance(message, TaskStateChanged) else None
            assert failure is None or fields.get("state") == "FAILED", failure
            if isinstance(message, kind) and all(getattr(message, k) == v for k, v in fields.items()):
                return message


def _vertex(name: str, *, source: bool) -> JobVertex:
    return JobVertex(
        id=VertexId(name),
        name=name,
        operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
        parallelism=1,
        max_parallelism=128,
        source=CountingSource().info() if source else None,
        inputs=0 if source else 1,
    )


def _code() -> JobCode:
    source = SourceOperatorSpec(source=CountingSource(), watermarks=WatermarkStrategy.no_watermarks())
    edge = EdgeOutput(edge=EdgeId("e"))
    return JobCode(
        chains={
            VertexId("S"): Chain(
                nodes=(ChainNode(uid=OperatorUid("S"), name="S", operator=source, outputs=(edge,)),)
            ),
            VertexId("K"): Chain(nodes=(ChainNode(uid=OperatorUid("K"), name="K", operator=Summing()),)),
        }
    )


def _attempt(vertex: str, attempt: int = 0) -> AttemptId:
    return AttemptId(JOB, VertexId(vertex), 0, attempt)


def _deployment(
    master: Master, root: Path, vertex: str, producer: TaskManager | None = None
) -> TaskDeployment:
    gates: tuple[GateDescriptor, ...] = ()
    partitions: tuple[PartitionDescriptor, ...] = ()
    if vertex == "S":
        partitions = (
            PartitionDescriptor(
                edge=EdgeId("e"),
                ship=Ship.HASH,
                consumers=(0,),
                consumer_parallelism=1,
                consumer_max_parallelism=128,
                key_columns=("k",),
            ),
        )
    else:
        assert producer is not None
        channel = ChannelDescriptor(
            producer=_attempt("S"),
            edge=EdgeId("e"),
            subpartition=0,
            task_manager=producer.id,
            address=producer.address,
        )
        gates = (GateDescriptor(input_index=0, channels=(channel,)),)
    return TaskDeployment(
        attempt=_attempt(vertex),
        job_name="test",
        lineage=LineageId("l"),
        epoch=LeaderEpoch(1),
        vertex=_vertex(vertex, source=vertex == "S"),
        artifact=artifact.sha256(master.artifact),
        gates=gates,
        partitions=partitions,
        checkpoint_root=str(root),
        checkpointing=True,
        allocation=AllocationId("alloc-1"),
    )


class Cluster:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.master = Master(_code())
        self.managers: list[TaskManager] = []
        self.clients: dict[str, FlightControlClient] = {}

    def start(self, name: str = "tm-1", **config: str) -> TaskManager:
        spec = TaskManagerSpec(
            id=TaskManagerId(name), master=self.master.server.address, slots=1, config={**FAST, **config}
        )
        manager = TaskManager(spec, worker_ports(spec, default_services()))
        self.managers.append(manager)
        manager.start()
        self.clients[name] = FlightControlClient(manager.address)
        return manager

    def close(self) -> None:
        for manager in self.managers:
            assert manager.close()
        for client in self.clients.values():
            client.close()
        self.master.server.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("workers", [1, 2], ids=["by reference", "between two workers"])
def test_a_job_from_deployment_to_its_last_commit(cluster: Cluster, workers: int) -> None:
    master = cluster.master
    names = ["tm-1", f"tm-{workers}"]
    managers = [cluster.start(name) for name in dict.fromkeys(names)]
    assert master.wait_for(RegisterTaskManager, task_manager="tm-1").address == managers[0].address
    on = {"S": cluster.clients[names[0]], "K": cluster.clients[names[1]]}
    for vertex in ("K", "S"):  # the consumer may be there first
        deployment = _deployment(master, cluster.root, vertex, managers[0])
        assert on[vertex].call(DeployTask(deployment=deployment)) == Ack()
        assert on[vertex].call(DeployTask(deployment=deployment)) == Ack()
    splits = (Split(id="a", data=b"4000"), Split(id="b", data=b"2500"))
    assert on["S"].call(AssignSplits(attempt=_attempt("S"), splits=splits, no_more=True)) == Ack()
    _reach_end_of_data(master)
    _checkpoint(cluster, on, 1)
    ended = [master.wait_for(TaskStateChanged, state="FINISHED") for _ in range(2)]
    last = {message.attempt: message.metrics for message in ended}
    assert last[_attempt("S")].records_out == 6500
    metrics = last[_attempt("K")]
    assert (metrics.records_in, metrics.user["K.rows"]) == (6500, 6500)
    assert metrics.user["K.sum"] == sum(range(4000)) + sum(range(2500))
    assert master.fetched == workers


def _reach_end_of_data(master: Master) -> None:
    from unistream.model.messages import EndOfDataReached

    assert {master.wait_for(EndOfDataReached).attempt for _ in range(2)} == {_attempt("S"), _attempt("K")}


def _checkpoint(cluster: Cluster, on: dict[str, FlightControlClient], number: int) -> None:
    directory = cluster.root / f"chk-{number}"
    trigger = TriggerCheckpoint(
        attempt=_attempt("S"),
        checkpoint_id=CheckpointId(number),
        timestamp_ms=0,
        kind=SnapshotKind.CHECKPOINT,
        directory=str(directory),
    )
    assert on["S"].call(trigger) == Ack()
    acks = [cluster.master.wait_for(CheckpointAcked) for _ in range(2)]
    assert {ack.attempt for ack in acks} == {_attempt("S"), _attempt("K")}
    assert all(ack.snapshot.finished for ack in acks)
    source = next(ack for ack in acks if ack.attempt == _attempt("S"))
    (splits,) = source.snapshot.operators[OperatorUid("S")].lists
    assert [msgspec.msgpack.decode(item, type=Split).data for item in splits.inline or ()] == [b"0", b"0"]
    for vertex in ("S", "K"):
        completed = CheckpointCompleted(
            attempt=_attempt(vertex), checkpoint_id=CheckpointId(number), epoch=LeaderEpoch(1)
        )
        assert on[vertex].call(completed) == Ack()


def test_messages_for_attempts_that_are_not_here(cluster: Cluster) -> None:
    cluster.start()
    client = cluster.clients["tm-1"]
    unknown = _attempt("S", 7)
    for message in (
        AssignSplits(attempt=unknown, splits=()),
        CheckpointCompleted(attempt=unknown, checkpoint_id=CheckpointId(1), epoch=LeaderEpoch(1)),
        CancelTask(attempt=unknown),
        ReleaseTaskManager(task_manager=TaskManagerId("another"), reason="?"),
    ):
        assert isinstance(client.call(message), Refused)


def test_a_cancelled_attempt_ends_and_late_messages_do_no_harm(cluster: Cluster) -> None:
    cluster.start()
    client = cluster.clients["tm-1"]
    deployment = _deployment(cluster.master, cluster.root, "S")
    client.call(DeployTask(deployment=deployment))
    cluster.master.wait_for(TaskStateChanged, state="RUNNING")
    for _ in range(2):
        assert client.call(CancelTask(attempt=_attempt("S"))) == Ack()
    cluster.master.wait_for(TaskStateChanged, state="CANCELED")
    while isinstance(client.call(AssignSplits(attempt=_attempt("S"), splits=())), Ack):
        cluster.master.wait_for(Heartbeat)  # it reports first and is forgotten then
    assert client.call(DeployTask(deployment=deployment)) == Ack()
    assert client.call(CancelTask(attempt=_attempt("S"))) == Ack()
    completed = CheckpointCompleted(
        attempt=_attempt("S"), checkpoint_id=CheckpointId(1), epoch=LeaderEpoch(1)
    )
    assert client.call(completed) == Ack()


def test_an_attempt_older_than_a_known_one_is_refused(cluster: Cluster) -> None:
    cluster.start()
    client = cluster.clients["tm-1"]
    deployment = _deployment(cluster.master, cluster.root, "S")
    newer = msgspec.structs.replace(deployment, attempt=_attempt("S", 3))
    assert client.call(DeployTask(deployment=newer)) == Ack()
    assert isinstance(client.call(DeployTask(deployment=deployment)), Refused)


def test_an_attempt_that_was_cancelled_before_its_deployment_came_never_starts(cluster: Cluster) -> None:
    cluster.start()
    client = cluster.clients["tm-1"]
    assert isinstance(client.call(CancelTask(attempt=_attempt("S"))), Refused)
    late = DeployTask(deployment=_deployment(cluster.master, cluster.root, "S"))
    assert isinstance(client.call(late), Refused)


def test_code_that_is_not_what_was_deployed_fails_the_task_unopened(cluster: Cluster) -> None:
    cluster.start()
    deployment = msgspec.structs.replace(_deployment(cluster.master, cluster.root, "S"), artifact="0" * 64)
    cluster.clients["tm-1"].call(DeployTask(deployment=deployment))
    failed = cluster.master.wait_for(TaskStateChanged, state="FAILED")
    assert failed.failure.kind == "ProtocolError"
    assert "not opened" in failed.failure.message


def test_code_of_another_graph_fails_the_task_for_good(cluster: Cluster) -> None:
    cluster.start()
    deployment = _deployment(cluster.master, cluster.root, "S")
    vertex = msgspec.structs.replace(deployment.vertex, id=VertexId("other"), name="other")
    attempt = msgspec.structs.replace(deployment.attempt, vertex=vertex.id)
    deployment = msgspec.structs.replace(deployment, vertex=vertex, attempt=attempt)
    cluster.clients["tm-1"].call(DeployTask(deployment=deployment))
    failed = cluster.master.wait_for(TaskStateChanged, state="FAILED")
    assert (failed.failure.kind, failed.failure.recoverable) == ("ConfigError", False)
    assert "the job's code has no vertex 'other': it belongs to another graph" in failed.failure.message


def test_a_release_ends_it(cluster: Cluster) -> None:
    manager = cluster.start()
    message = ReleaseTaskManager(task_manager=TaskManagerId("tm-1"), reason="not needed")
    assert cluster.clients["tm-1"].call(message) == Ack()
    assert manager.wait(WAIT_S)
    assert (manager.reason, manager.ending) == ("not needed", Ending.RELEASED)
    refused = cluster.clients["tm-1"].call(
        DeployTask(deployment=_deployment(cluster.master, cluster.root, "S"))
    )
    assert isinstance(refused, Refused)


def test_a_refused_heartbeat_ends_it(cluster: Cluster) -> None:
    manager = cluster.start()
    cluster.master.refuse = Heartbeat
    assert manager.wait(WAIT_S)
    assert "as the test says" in manager.reason
    assert manager.ending is not Ending.RELEASED


def test_a_refused_registration_ends_it(cluster: Cluster) -> None:
    cluster.master.refuse = RegisterTaskManager
    manager = cluster.start()
    assert manager.wait(WAIT_S)


def test_a_worker_keeps_to_the_times_of_its_master(cluster: Cluster) -> None:
    """Its own would have it beat, and give up, after the test's patience."""
    cluster.master.terms = Registered(heartbeat_interval_ms=20, heartbeat_timeout_ms=500)
    slow = {"heartbeat.interval": "1 h", "heartbeat.timeout": "2 h", "heartbeat.rpc-failure-threshold": "-1"}
    manager = cluster.start(**slow)
    for _ in range(3):
        cluster.master.wait_for(Heartbeat)
    cluster.master.server.close()
    assert manager.wait(WAIT_S)
    assert manager.ending is Ending.MASTER_LOST


def test_a_silent_master_ends_it(cluster: Cluster) -> None:
    manager = cluster.start()
    cluster.master.wait_for(Heartbeat)
    cluster.master.server.close()
    assert manager.wait(WAIT_S)
    assert "nothing listened at the master's address for 2 heartbeats in a row" in manager.reason
    assert manager.ending is Ending.MASTER_LOST


def test_reports_to_a_master_that_is_lost_hold_nobody_up(cluster: Cluster) -> None:
    manager = cluster.start(**{"heartbeat.timeout": "1 h", "heartbeat.rpc-failure-threshold": "-1"})
    cluster.clients["tm-1"].call(DeployTask(deployment=_deployment(cluster.master, cluster.root, "S")))
    cluster.master.wait_for(TaskStateChanged, state="RUNNING")
    cluster.master.server.close()
    manager.release("another one leads", rejoin=True)
    assert manager.close(timeout_s=10_000), "the end of its task is not reported any more"


def test_a_master_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    server = FlightServer("127.0.0.1", control=lambda request, _caller="": request, partitions=None)
    address = server.address
    server.close()
    config = {"heartbeat.timeout": "200 ms"}
    spec = TaskManagerSpec(id=TaskManagerId("tm"), master=address, slots=1, config=config)
    manager = TaskManager(spec, worker_ports(spec, default_services()))
    with pytest.raises(Unreachable):
        manager.start()
    assert manager.close()


def test_a_task_that_holds_on_after_its_cancellation_takes_the_worker_with_it(cluster: Cluster) -> None:
    manager = cluster.start(**{"task.cancellation.timeout": "100 ms"})
    entered, leave = threading.Event(), threading.Event()
    STUCK["entered"], STUCK["leave"] = entered, leave
    node = ChainNode(uid=OperatorUid("K"), name="K", operator=Stuck())
    cluster.master.artifact = artifact.pack(JobCode(chains={VertexId("K"): Chain(nodes=(node,))}))
    deployment = _deployment(cluster.master, cluster.root, "K", manager)
    client = cluster.clients["tm-1"]
    client.call(DeployTask(deployment=deployment))
    assert entered.wait(WAIT_S)
    client.call(CancelTask(attempt=_attempt("K")))
    assert manager.wait(WAIT_S)
    assert "did not end" in manager.reason
    leave.set()


STUCK: dict[str, threading.Event] = {}


class Stuck(BaseOperator):
    def open(self) -> None:
        from sys import modules

        # by name, because the operator travels and the events do not
        events = modules[type(self).__module__].STUCK
        events["entered"].set()
        events["leave"].wait(WAIT_S)


class TestLeaving:
    """A worker whose tasks are to move before it ends."""

    SLOW: ClassVar = {"heartbeat.interval": "1 h", "heartbeat.timeout": "2 h"}

    def test_it_says_so_until_its_master_releases_it(self, cluster: Cluster) -> None:
        manager = cluster.start(**self.SLOW, **{"taskmanager.drain.timeout": "1 h"})
        manager.leave("SIGTERM")
        for _ in range(2):
            beat = cluster.master.wait_for(Heartbeat)
            assert 0 < beat.leaves_in_ms <= 3_600_000
        assert not manager.wait(0)
        cluster.clients["tm-1"].call(ReleaseTaskManager(task_manager=TaskManagerId("tm-1"), reason="moved"))
        assert manager.wait(WAIT_S)
        assert manager.ending is Ending.RELEASED

    def test_a_master_that_does_not_know_it_any_more_has_released_it(self, cluster: Cluster) -> None:
        manager = cluster.start(**self.SLOW, **{"taskmanager.drain.timeout": "1 h"})
        cluster.master.refuse = Heartbeat
        manager.leave("SIGTERM")
        assert manager.wait(WAIT_S)
        assert manager.ending is Ending.RELEASED

    def test_it_does_not_wait_for_ever(self, cluster: Cluster) -> None:
        manager = cluster.start(**self.SLOW, **{"taskmanager.drain.timeout": "1 ms"})
        manager.leave("SIGTERM")
        manager.wait_to_leave()
        assert "taskmanager.drain.timeout" in manager.reason
        assert manager.ending is Ending.RELEASED

    @pytest.mark.parametrize("timeout", ["1 h", "0 ms"], ids=["a second signal", "no time for it"])
    def test_it_ends_at_once(self, cluster: Cluster, timeout: str) -> None:
        manager = cluster.start(**self.SLOW, **{"taskmanager.drain.timeout": timeout})
        manager.leave("SIGTERM")
        if timeout == "1 h":
            assert not manager.wait(0)
            manager.leave("SIGTERM")
        assert manager.wait(0)
        assert manager.reason == "SIGTERM"

    def test_one_that_was_drained_by_its_master_ends_with_it(self, cluster: Cluster) -> None:
        manager = cluster.start()
        message = DrainTaskManager(task_manager=TaskManagerId("tm-1"))
        assert cluster.clients["tm-1"].call(message) == Ack()
        assert manager.is_draining
        other = DrainTaskManager(task_manager=TaskManagerId("tm-2"))
        assert isinstance(cluster.clients["tm-1"].call(other), Refused)
