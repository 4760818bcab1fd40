"""Rows are for tasks of the same job: workers of a cluster have certificates, and a job has a token."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from tests.eventually import WAIT_S
from tests.support.authorities import DAY_MS, NOW_MS, authority
from tests.unit.worker.worker_partitions import batch_of, descriptor_of
from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId, JobId, TaskManagerId, VertexId
from unistream.base.limits import MIB
from unistream.model.codec import encode
from unistream.model.credentials import Credentials
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Batch, Element
from unistream.model.graph import Ship
from unistream.model.messages import Ack
from unistream.net.client import FlightDataClient
from unistream.net.server import FlightServer
from unistream.testing.harness.operators import ManualClock
from unistream.worker.exchange import NetworkMemory, PartitionRegistry, ResultPartition, Shares

JOB, OTHER_JOB = JobId("0" * 32), JobId("1" * 32)
ATTEMPT = AttemptId(JOB, VertexId("v"), 0, 0)
CREDITS = MIB


def issued(name: str) -> Credentials:
    return authority().issue(name, now_ms=NOW_MS, lasts_ms=DAY_MS)


def answered(_body: bytes, _caller: str = "", /) -> bytes:
    return encode(Ack())


class Sink:
    """What has come: an element, or why none does."""

    def __init__(self) -> None:
        self.came: queue.Queue[Element | BaseException] = queue.Queue()

    def on_element(self, element: Element, size: int) -> None:
        self.came.put(element)

    def on_need(self, size: int) -> None:
        pass

    def on_error(self, error: BaseException) -> None:
        self.came.put(error)


@pytest.fixture
def channel() -> Iterator[ChannelDescriptor]:
    """Of a partition with rows, in a worker that has a task of its job and of another one."""
    shares = Shares(segment=MIB, exclusive=2 * MIB, floating=8 * MIB, per_channel_max=10 * MIB)
    partition = ResultPartition(
        descriptor_of(Ship.FORWARD, 1),
        0,
        clock=ManualClock(),
        buffer_timeout_ms=100,
        on_room=lambda: None,
        memory=NetworkMemory(64 * MIB, shares).partition("out", 1),
    )
    partition.emit(batch_of(10))
    registry = PartitionRegistry()
    registry.expect(JOB, "of the job")
    registry.expect(OTHER_JOB, "of another job")
    registry.register(ATTEMPT, partition)
    server = FlightServer(
        "127.0.0.1", control=answered, partitions=registry, unix=False, credentials=issued("tm-1")
    )
    yield ChannelDescriptor(
        edge=partition.edge,
        producer=ATTEMPT,
        subpartition=0,
        task_manager=TaskManagerId("tm-1"),
        address=server.address,
    )
    server.close()


def first_of(channel: ChannelDescriptor, token: str) -> Element | BaseException:
    client, sink = FlightDataClient(5_000, credentials=issued("tm-2")), Sink()
    try:
        client.gate(token).connect(channel, sink, CREDITS)
        return sink.came.get(timeout=WAIT_S)
    finally:
        client.close()


def test_rows_are_given_to_who_has_the_token_of_their_job(channel: ChannelDescriptor) -> None:
    assert isinstance(first_of(channel, "of the job"), Batch)


@pytest.mark.parametrize("token", ["", "of another job", "of the jo", "of the job "])
def test_rows_of_another_job_are_given_to_nobody(channel: ChannelDescriptor, token: str) -> None:
    refused = first_of(channel, token)
    assert isinstance(refused, ProtocolError)
    assert "was requested without the token of its job" in str(refused)
    assert isinstance(first_of(channel, "of the job"), Batch), "nothing was taken away"
