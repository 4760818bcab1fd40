"""Data between simulated processes: ordered streams with credits, which may break."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from unistream.base.errors import PartitionLost, Transient, UnistreamError, Unreachable
from unistream.base.ids import PartitionId
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Batch, Element, EndOfPartition
from unistream.port.transport import InputSink, PartitionSource, SubpartitionView
from unistream.testing.sim.world import Process, World
from unistream.worker.exchange import batch_cost

BACKOFF_MS: Final = 100
ELEMENTS_PER_TURN: Final = 8


class Producer(Protocol):
    """A process that serves partitions."""

    @property
    def process(self) -> Process: ...

    @property
    def partitions(self) -> PartitionSource: ...


class Streams:
    """All streams of a run. `find`: the process at an address."""

    def __init__(self, world: World, find: Callable[[str], Producer | None]) -> None:
        self.world = world
        self.find = find
        self._open: dict[SubpartitionStream, None] = {}

    def add(self, stream: SubpartitionStream) -> None:
        self._open[stream] = None

    def remove(self, stream: SubpartitionStream) -> None:
        self._open.pop(stream, None)

    def process_died(self, process: Process) -> None:
        """Breaks its connections; the peers get the error a little later."""
        for stream in list(self._open):
            stream.on_process_died(process)


class SimDataClient:
    """`port.transport.DataClient` of one process."""

    def __init__(self, streams: Streams, process: Process, timeout_ms: int) -> None:
        self._streams = streams
        self._process = process
        self._timeout_ms = timeout_ms

    def gate(self, token: str) -> SimDataClient:
        """Each channel is a stream of its own."""
        return self

    def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> SubpartitionStream:
        stream = SubpartitionStream(
            self._streams, self._process, channel, sink, credits, timeout_ms=self._timeout_ms
        )
        self._streams.add(stream)
        stream.start()
        return stream

    def close(self) -> None:
        """Streams end with their process."""


class SubpartitionStream:
    """The stream of one subpartition (`port.transport.RemoteInput`)."""

    def __init__(
        self,
        streams: Streams,
        consumer: Process,
        channel: ChannelDescriptor,
        sink: InputSink,
        credits: int,
        *,
        timeout_ms: int,
    ) -> None:
        self._streams = streams
        self._world = streams.world
        self._consumer = consumer
        self._channel = channel
        self._sink = sink
        self._credits = credits
        self._deadline_ms = self._world.now + timeout_ms
        self._producer: Process | None = None
        self._view: SubpartitionView | None = None
        self._next: Batch | None = None  # polled, and waits for credit
        self._in_flight: deque[tuple[Element | None, int]] = (
            deque()
        )  # None: the producer needs so much credit
        self._arrival_ms = 0.0
        self._pumping = False
        self._ended = False  # closed, broken or complete: the consumer gets nothing more

    def start(self) -> None:
        self._world.at(self._world.between(0.2, 3), self._ask, self._consumer)

    def grant(self, credits: int) -> None:
        self._world.at(self._world.between(0.1, 2), lambda: self._granted(credits), self._producer)

    def close(self) -> None:
        """Closes the stream; called by the consumer. The producer is notified later."""
        if not self._ended:
            self._ended = True
            self._world.at(self._world.between(0.1, 3), self._release, self._producer)
            self._streams.remove(self)

    # --- opening ----------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._ended:
            return
        producer = self._streams.find(self._channel.address)
        if producer is not None and producer.process.is_alive and not producer.process.is_paused:
            self._producer = producer.process
            self._view = producer.partitions.open_subpartition(self._channel, self._wake)
            if self._view is not None:
                self._wake()
                return
            self._producer = None
        if self._world.now >= self._deadline_ms:
            self._world.sometimes("a partition did not appear in time")
            where = f"{self._channel.producer} at {self._channel.address}"
            lost = PartitionId(self._channel.producer.subtask, self._channel.edge)
            self._end(PartitionLost(f"{where}: its partition did not appear", lost))
            return
        self._world.at(BACKOFF_MS, self._ask, self._consumer)

    # --- the producer's side ----------------------------------------------------------------------

    def _granted(self, credits: int) -> None:
        self._credits += credits
        self._wake()

    def _wake(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._world.at(self._world.between(0.05, 1), self._pump, self._producer)

    def _pump(self) -> None:
        self._pumping = False
        view = self._view
        if view is None or self._ended:
            return
        for _ in range(ELEMENTS_PER_TURN):
            waited = self._next is not None
            try:
                element = self._next or view.poll()
            except UnistreamError as error:  # forwarded to the consumer
                self._release()
                self._world.at(1, lambda error=error: self._end(error), self._consumer)  # type: ignore[misc]
                return
            if element is None:
                return
            cost = batch_cost(element) if isinstance(element, Batch) else 0
            if isinstance(element, Batch) and cost > self._credits:
                self._next = element
                if not waited:
                    self._send(None, cost)
                return
            self._next = None
            self._credits -= cost
            self._send(element, cost)
        self._wake()

    def _send(self, element: Element | None, cost: int) -> None:
        world = self._world
        if world.chance(world.faults.stream_break):
            world.sometimes("a data stream broke")
            self._release()
            world.at(1, lambda: self._fail("the connection was reset"), self._consumer)
            return
        self._in_flight.append((element, cost))
        self._arrival_ms = max(self._arrival_ms, world.now + world.between(0.2, 3))
        world.at(self._arrival_ms - world.now, self._deliver, self._consumer)

    def _release(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.release(Transient("the consumer has closed the stream"))

    # --- the consumer's side ----------------------------------------------------------------------

    def _deliver(self) -> None:
        if self._ended or not self._in_flight:
            return
        element, cost = self._in_flight.popleft()
        if element is None:
            self._sink.on_need(cost)
            return
        if isinstance(element, EndOfPartition):
            self._ended = True
            self._streams.remove(self)
        self._sink.on_element(element, cost)

    def _fail(self, why: str) -> None:
        self._end(Unreachable(f"{self._channel.producer} at {self._channel.address}: {why}"))

    def _end(self, error: UnistreamError) -> None:
        if not self._ended:
            self._ended = True
            self._streams.remove(self)
            self._sink.on_error(error)

    def on_process_died(self, process: Process) -> None:
        if process is self._producer:
            self._view = None
            self._world.at(
                self._world.between(0.5, 50), lambda: self._fail("the process ended"), self._consumer
            )
        elif process is self._consumer:
            self._ended = True
            self._streams.remove(self)
            self._world.at(self._world.between(0.5, 50), self._release, self._producer)
