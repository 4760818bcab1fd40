"""Producers and consumers in memory, and servers and clients between them, for the tests of transports."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa

from tests.eventually import WAIT_S
from tests.support.authorities import DAY_MS, NOW_MS, authority
from unistream.base.ids import (
    AttemptId,
    EdgeId,
    JobId,
    TaskManagerId,
    VertexId,
)
from unistream.base.limits import KIB, MIB
from unistream.model import elements as el
from unistream.model.codec import encode
from unistream.model.credentials import Credentials
from unistream.model.deployment import ChannelDescriptor
from unistream.model.messages import Ack
from unistream.net.client import FlightControlClient, FlightDataClient
from unistream.net.in_channel import InChannel
from unistream.net.server import FlightServer
from unistream.port.transport import ControlHandler

COST = 4 * KIB + 8  # of a batch with one row of one integer


class Partition:
    """One subpartition in memory, and its view."""

    def __init__(self, elements: list[el.Element] | None = None) -> None:
        self.lock = threading.Lock()
        self.elements: deque[el.Element] = deque(elements or [])
        self.urgent: deque[el.Event] = deque()
        self.listener: Callable[[], None] = lambda: None
        self.released: queue.Queue[BaseException | None] = queue.Queue()
        self.polled = 0
        self.failure: Exception | None = None

    def add(self, *elements: el.Element) -> None:
        with self.lock:
            self.elements.extend(elements)
        self.listener()

    def fail(self, error: Exception) -> None:
        self.failure = error
        self.listener()

    def poll(self) -> el.Element | None:
        if self.failure:
            raise self.failure
        with self.lock:
            waiting = self.urgent or self.elements
            self.polled += bool(waiting)
            return waiting.popleft() if waiting else None

    def peek(self) -> el.Element | None:
        if self.failure:
            raise self.failure
        with self.lock:
            return (self.urgent or self.elements or [None])[0]

    def poll_urgent(self) -> el.Event | None:
        with self.lock:
            return self.urgent.popleft() if self.urgent else None

    def overtake(self, barrier: el.CheckpointBarrier) -> None:
        with self.lock:
            self.urgent.append(barrier)
        self.listener()

    def release(self, error: BaseException | None) -> None:
        self.released.put(error)


@dataclass
class Partitions:
    """What a worker produces. A channel that is asked for while absent is counted."""

    by_subpartition: dict[int, Partition] = field(default_factory=dict)
    asked: queue.Queue[ChannelDescriptor] = field(default_factory=queue.Queue)

    def takes(self, job: JobId, token: str) -> bool:
        return True

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> Partition | None:
        self.asked.put(channel)
        found = self.by_subpartition.get(channel.subpartition)
        if found:
            found.listener = listener
        return found


class Sink:
    """Collects; what arrives can be awaited."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[el.Element] = queue.Queue()
        self.errors: queue.Queue[BaseException] = queue.Queue()
        self.needs: queue.Queue[int] = queue.Queue()
        self.costs: list[int] = []  # of all that arrived

    def on_element(self, element: el.Element, size: int) -> None:
        self.costs.append(size)
        self.arrived.put(element)

    def on_need(self, size: int) -> None:
        self.needs.put(size)

    def on_error(self, error: BaseException) -> None:
        self.errors.put(error)

    def take(self, count: int) -> list[el.Element]:
        return [self.arrived.get(timeout=WAIT_S) for _ in range(count)]

    def error(self) -> BaseException:
        return self.errors.get(timeout=WAIT_S)


@dataclass
class Wire:
    """Servers and clients of one kind of transport; all closed at the end of the test. `kind`: unix, tcp, or
    tls, where both ends show certificates."""

    kind: str
    stack: ExitStack

    def _credentials(self, name: str) -> Credentials | None:
        return authority().issue(name, now_ms=NOW_MS, lasts_ms=DAY_MS) if self.kind == "tls" else None

    def serve(
        self,
        partitions: Partitions | None = None,
        control: ControlHandler = lambda _, _caller="": encode(Ack()),
    ) -> FlightServer:
        server = FlightServer(
            "127.0.0.1",
            control=control,
            partitions=partitions,
            unix=self.kind == "unix",
            credentials=self._credentials("tm-server"),
        )
        self.stack.callback(server.close)
        return server

    def control(self, address: str, timeout_s: float = WAIT_S) -> FlightControlClient:
        client = FlightControlClient(address, timeout_s, credentials=self._credentials("tm-client"))
        self.stack.callback(client.close)
        return client

    def data(self, timeout_ms: int = 10_000) -> FlightDataClient:
        client = FlightDataClient(timeout_ms, credentials=self._credentials("tm-client"))
        self.stack.callback(client.close)
        return client

    def stream(
        self, partition: Partition, credit: int = MIB, sink: Sink | None = None
    ) -> tuple[InChannel, Sink]:
        sink = sink or Sink()
        server = self.serve(Partitions({0: partition}))
        return self.data().gate().connect(channel(server.address), sink, credit), sink


def channel(address: str, subpartition: int = 0) -> ChannelDescriptor:
    return ChannelDescriptor(
        producer=AttemptId(JobId("0" * 32), VertexId("1" * 32), 0, 1),
        edge=EdgeId("edge"),
        subpartition=subpartition,
        task_manager=TaskManagerId("tm-1"),
        address=address,
    )


def rows(*values: int, timestamps: bool = False) -> el.Batch:
    column = pa.array(values, pa.int64())
    return el.Batch(pa.record_batch({"value": column}), column if timestamps else None)


def values(elements: list[el.Element]) -> list[object]:
    """Batches as their values, events as they are."""
    return [e.records["value"].to_pylist() if isinstance(e, el.Batch) else e for e in elements]
