"""Blocking partitions between worker processes: read late, often, slowly, damaged, and after a kill."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa
import pytest

from tests.eventually import WAIT_S
from tests.single_messages import decode_single
from tests.walked import walked
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
from unistream.base.limits import MIB
from unistream.model import messages as msg
from unistream.model.chain import Chain, ChainNode, EdgeOutput, JobCode
from unistream.model.codec import encode
from unistream.model.deployment import ChannelDescriptor, GateDescriptor, PartitionDescriptor, TaskDeployment
from unistream.model.elements import Batch
from unistream.model.graph import JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.partition_type import PartitionType
from unistream.model.watermarks import WatermarkStrategy
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer
from unistream.operator.common import BaseOperator
from unistream.port.host import TaskManagerSpec
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows
from unistream.worker.code import artifact
from unistream.worker.exchange.sealed_partition import INDEX

JOB = JobId("b" * 32)
EDGE = EdgeId("e")
ROWS = 200_000
BATCH = 2_000
CONFIG = {
    "heartbeat.interval": "50 ms",
    "heartbeat.timeout": "30 s",
    "taskmanager.network.partition-request-timeout": "2 s",
}


class WideReader:
    """A split is a number of rows of 1 KB, and a file (or "") without which closing does not end."""

    def __init__(self) -> None:
        self.left = 0
        self.gate = ""
        self.last = False

    def open(self, context: ReaderContext) -> None:
        pass

    def add_splits(self, splits: list[msg.Split]) -> None:
        for split in splits:
            rows, _, self.gate = split.data.decode().partition(" ")
            self.left += int(rows)

    def no_more_splits(self) -> None:
        self.last = True

    def poll(self) -> Polled:
        if self.left > 0:
            rows, self.left = min(2_000, self.left), self.left - 2_000
            return Rows("s", pa.record_batch({"k": pa.array(range(rows)), "w": ["w" * 1000] * rows}), None)
        return Exhausted() if self.last else Idle()

    def snapshot(self) -> list[msg.Split]:
        return []

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        pass

    def close(self) -> None:
        if self.gate:
            Path(f"{self.gate}.reached").touch()
        while self.gate and not Path(self.gate).exists():
            time.sleep(0.01)


class WideSource:
    name = "wide"
    schema = pa.schema([("k", pa.int64()), ("w", pa.string())])

    def info(self) -> SourceInfo:
        return SourceInfo(connector="wide", options={}, bounded=True, pull=False)

    def create_reader(self) -> WideReader:
        return WideReader()


class Counting(BaseOperator):
    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.context.metrics.add("rows", batch.num_rows)


def _code() -> bytes:
    spec = SourceOperatorSpec(source=WideSource(), watermarks=WatermarkStrategy.no_watermarks())
    outputs = (EdgeOutput(edge=EDGE),)
    produce = ChainNode(uid=OperatorUid("S"), name="S", operator=spec, outputs=outputs)
    consume = ChainNode(uid=OperatorUid("K"), name="K", operator=Counting())
    chains = {VertexId("S"): Chain(nodes=(produce,)), VertexId("K"): Chain(nodes=(consume,))}
    return artifact.pack(JobCode(chains=chains), by_value=[sys.modules[__name__]])


class Cluster:
    """A master that answers, and worker processes of one machine that share a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.artifact = _code()
        self.heard: queue.Queue[msg.ToJobManager] = queue.Queue()
        self.metrics: dict[AttemptId, msg.TaskMetrics] = {}
        self.news = threading.Condition()
        self.addresses: dict[str, str] = {}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.server = FlightServer("127.0.0.1", control=self._handle, partitions=None)

    def _handle(self, request: bytes, caller: str = "", /) -> bytes:
        message = decode_single(request)
        with self.news:
            if isinstance(message, msg.Heartbeat):
                self.metrics.update(message.metrics)
            if isinstance(message, msg.TaskStateChanged) and message.metrics is not None:
                self.metrics[message.attempt] = message.metrics
            self.news.notify_all()
        self.heard.put(message)
        if isinstance(message, msg.FetchArtifact):
            return encode(msg.Artifact(content=self.artifact))
        return encode(msg.Ack())

    def start(self, name: str) -> int:
        """A worker that has registered; its pid."""
        config = {**CONFIG, "io.tmp.dirs": str(self.folder)}
        spec = TaskManagerSpec(id=TaskManagerId(name), master=self.server.address, slots=1, config=config)
        command = [sys.executable, "-m", "unistream.worker", msgspec.json.encode(spec).decode()]
        self.workers[name] = process = subprocess.Popen(command)
        registered = self.wait_for(msg.RegisterTaskManager, task_manager=name)
        self.addresses[name] = registered.address
        return process.pid

    def wait_for(self, kind: type[Any], **fields: Any) -> Any:
        deadline_s = time.monotonic() + WAIT_S
        while True:
            message = self.heard.get(timeout=max(0.0, deadline_s - time.monotonic()))
            if isinstance(message, kind) and all(getattr(message, k) == v for k, v in fields.items()):
                return message

    def wait_for_end(self, attempt: AttemptId) -> msg.TaskStateChanged:
        while True:
            message: msg.TaskStateChanged = self.wait_for(msg.TaskStateChanged, attempt=attempt)
            if message.state in {"FINISHED", "FAILED", "CANCELED"}:
                return message

    def wait_for_rows(self, attempt: AttemptId, least: int = 1) -> int:
        def seen() -> int:
            return self.metrics[attempt].records_in if attempt in self.metrics else 0

        with self.news:
            assert self.news.wait_for(lambda: seen() >= least, WAIT_S)
            return seen()

    def send(self, worker: str, message: msg.ToTaskManager) -> msg.Answer:
        client = FlightControlClient(self.addresses[worker])
        try:
            return client.call(message)
        finally:
            client.close()

    def deploy(
        self,
        worker: str,
        vertex: str,
        attempt: int = 0,
        *,
        reads: str = "",
        stored: bool = False,
        partitions: bool = False,
    ) -> AttemptId:
        """`reads`: the worker that has the output of S; `stored`: its files may be read."""
        identity = AttemptId(JOB, VertexId(vertex), 0, attempt)
        partition = PartitionDescriptor(
            edge=EDGE,
            ship=Ship.REBALANCE,
            consumers=(0,),
            consumer_parallelism=1,
            consumer_max_parallelism=128,
            type=PartitionType.BLOCKING,
        )
        channel = ChannelDescriptor(
            producer=AttemptId(JOB, VertexId("S"), 0, 0),
            edge=EDGE,
            subpartition=0,
            task_manager=TaskManagerId(reads),
            address=self.addresses.get(reads, ""),
            stored=stored,
        )
        deployment = TaskDeployment(
            attempt=identity,
            job_name="batch",
            lineage=LineageId("l"),
            epoch=LeaderEpoch(1),
            vertex=JobVertex(
                id=VertexId(vertex),
                name=vertex,
                operators=(OperatorInfo(uid=OperatorUid(vertex), name=vertex),),
                parallelism=1,
                max_parallelism=128,
                source=WideSource().info() if vertex == "S" else None,
                inputs=0 if vertex == "S" else 1,
            ),
            artifact=artifact.sha256(self.artifact),
            gates=(GateDescriptor(input_index=0, channels=(channel,)),) if reads else (),
            partitions=(partition,) if partitions else (),
            checkpoint_root=str(self.folder),
            checkpointing=False,
            allocation=AllocationId(f"{vertex}-{attempt}"),
        )
        assert self.send(worker, msg.DeployTask(deployment=deployment)) == msg.Ack()
        return identity

    def produce(self, worker: str, rows: int = ROWS) -> AttemptId:
        """S has FINISHED there."""
        attempt = self.deploy(worker, "S", partitions=True)
        splits = (msg.Split(id="s", data=str(rows).encode()),)
        assert self.send(worker, msg.AssignSplits(attempt=attempt, splits=splits, no_more=True)) == msg.Ack()
        assert self.wait_for_end(attempt).state == "FINISHED"
        return attempt

    def consume(
        self, worker: str, attempt: int, producer: str, *, stored: bool = False
    ) -> msg.TaskStateChanged:
        return self.wait_for_end(self.deploy(worker, "K", attempt, reads=producer, stored=stored))

    def files(self) -> list[Path]:
        return [p for p in walked(self.folder) if p.is_file() and p.name not in ("lock", INDEX)]

    def close(self) -> None:
        for name, process in self.workers.items():
            if process.poll() is None:
                self.send(name, msg.ReleaseTaskManager(task_manager=TaskManagerId(name), reason="the end"))
                process.wait(WAIT_S)
        self.server.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()
    assert list(tmp_path.iterdir()) == [], "workers that are released leave nothing"


def test_one_partition_is_read_late_often_slowly_and_from_anywhere(cluster: Cluster) -> None:
    producer_pid = cluster.start("tm-1")
    consumer_pid = cluster.start("tm-2")
    cluster.produce("tm-1")
    producer = psutil.Process(producer_pid)
    before = producer.memory_info().rss

    slow = cluster.deploy("tm-2", "K", 0, reads="tm-1")
    cluster.wait_for_rows(slow)
    os.kill(consumer_pid, signal.SIGSTOP)
    try:
        growth = producer.memory_info().rss - before
        assert growth < 100 * MIB, "a reader that stands still costs what its credits allow"
    finally:
        os.kill(consumer_pid, signal.SIGCONT)
    assert cluster.wait_for_end(slow).state == "FINISHED"
    assert cluster.wait_for_rows(slow, ROWS) == ROWS

    for attempt, worker, stored in ((1, "tm-2", False), (2, "tm-1", False), (3, "tm-2", True)):
        assert cluster.consume(worker, attempt, "tm-1", stored=stored).state == "FINISHED"
        again = AttemptId(JOB, VertexId("K"), 0, attempt)
        assert cluster.wait_for_rows(again, ROWS) == ROWS


@pytest.mark.parametrize(("reader", "stored"), [("tm-1", False), ("tm-2", False), ("tm-2", True)])
def test_a_consumer_of_a_damaged_or_released_partition_names_it_as_lost(
    cluster: Cluster, reader: str, stored: bool
) -> None:
    cluster.start("tm-1")
    cluster.start("tm-2")
    produced = cluster.produce("tm-1", 20_000)
    (file,) = cluster.files()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes(content)
    damaged = cluster.consume(reader, 0, "tm-1", stored=stored).failure
    assert damaged is not None
    assert str(damaged.lost_partition) == "S#0>e"
    assert str(file) in damaged.message
    assert "does not match its checksum" in damaged.message
    assert damaged.recoverable

    release = msg.ReleasePartitions(job=JOB, partitions=((produced, EDGE), (produced, EdgeId("unknown"))))
    assert cluster.send("tm-1", release) == msg.Ack()
    assert cluster.send("tm-1", release) == msg.Ack()
    released = cluster.consume(reader, 1, "tm-1", stored=stored).failure
    assert released is not None
    assert str(released.lost_partition) == "S#0>e"
    found_before = stored and "cannot be read: No such file" in released.message
    assert "did not appear" in released.message or found_before, "files are deleted after the answer"
    assert cluster.files() == []


def test_a_task_that_ends_well_although_it_was_cancelled_keeps_nothing(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    gate = tmp_path_factory.mktemp("gate") / "open"
    reached = Path(f"{gate}.reached")
    cluster.start("tm-1")
    attempt = cluster.deploy("tm-1", "S", partitions=True)
    splits = (msg.Split(id="s", data=f"20000 {gate}".encode()),)
    assert cluster.send("tm-1", msg.AssignSplits(attempt=attempt, splits=splits, no_more=True)) == msg.Ack()
    while not reached.exists():
        cluster.wait_for(msg.Heartbeat)
    assert cluster.files(), "all of it is stored"
    assert cluster.send("tm-1", msg.CancelTask(attempt=attempt)) == msg.Ack()
    gate.touch()
    assert cluster.wait_for_end(attempt).state == "FINISHED", "it was too late"
    while cluster.files():
        cluster.wait_for(msg.Heartbeat)


def test_a_killed_worker_leaves_nothing_that_the_next_one_trips_over(cluster: Cluster) -> None:
    pid = cluster.start("tm-1")
    cluster.produce("tm-1", 20_000)
    os.kill(pid, signal.SIGKILL)
    cluster.workers["tm-1"].wait(WAIT_S)
    assert cluster.files(), "nobody could tidy up"
    cluster.start("tm-2")
    assert cluster.files() == []
    lost = cluster.consume("tm-2", 0, "tm-1").failure
    assert lost is not None
    assert str(lost.lost_partition) == "S#0>e", "whose worker is gone with it"


def test_half_a_gigabyte_is_written_in_little_memory() -> None:
    command = [sys.executable, "-m", "benchmarks.blocking", "--mb", "500", "--consumers", "64"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S * 2)
    measured = json.loads(run.stdout)
    assert measured["mb"] >= 500
    assert measured["rss_growth_mb"] <= 100
    assert measured["overhead_percent"] < 5
