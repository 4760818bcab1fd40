"""The two ends of a channel.

producer task ─ `Subpartition` ─┬─ `LocalInputChannel` ─ consumer task      (same process: by reference)
                                └─ net ══ net ─ `RemoteInputChannel` ─ consumer task

A subpartition is a queue that accepts everything it is given (an operator's output never blocks) but
says `has_room` only while it holds fewer than LOCAL_QUEUE_BATCHES batches and fewer bytes than one channel
may; its task takes no input while one of its subpartitions, or the network memory of all of them, has no
room. Between processes credits bound what is in flight, in bytes; events are free. What waits at either end
is counted in the process's network memory (`unistream.worker.network_memory`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from unistream.base.errors import PartitionLost, Transient
from unistream.base.ids import PartitionId
from unistream.base.limits import LOCAL_QUEUE_BATCHES
from unistream.model.elements import Batch, Element, EndOfPartition
from unistream.model.messages import ChannelDescriptor
from unistream.port.transport import DataClient, PartitionSource, RemoteInput, SubpartitionView
from unistream.worker.network_memory import GateMemory, PartitionMemory, batch_cost

Listener = Callable[[], None]


class Subpartition:
    """What one consumer subtask will read of one result partition, in order. Thread-safe.

    The producer's task adds; one consumer (a local channel or a server thread) polls. When one side
    ends early the other is not failed for it, so that the first failure is the one that the master
    hears of, and cancels the rest: a consumer that is gone turns this into a sink that drops everything,
    one that its producer has abandoned just has no end. (A process that is gone breaks its streams, and
    that does fail the consumers.)

    A batch counts until the next `poll`: so long it is in the hands of its reader, be it that a task works
    on it or that a server waits for the credit to send it.

    Args:
        memory: Where its batches are counted.
        on_polled: Called after a poll that let go of something: there may be room again.
        on_consumed: Called once, when it is released.
    """

    def __init__(self, memory: PartitionMemory, on_polled: Listener, on_consumed: Listener) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._elements: deque[tuple[Element, int]] = deque()  # with their cost
        self._batches = 0
        self._bytes = 0
        self._in_hand = 0  # cost of the batch that was polled last
        self._listener: Listener | None = None
        self._on_polled = on_polled
        self._on_consumed = on_consumed
        self._released = False
        self._abandoned = False

    @property
    def has_room(self) -> bool:
        return self._batches == 0 or (
            self._batches < LOCAL_QUEUE_BATCHES and self._bytes < self._memory.per_channel_max
        )

    @property
    def queued(self) -> int:
        """Batches that wait."""
        return self._batches

    @property
    def is_released(self) -> bool:
        """The consumer has read everything, or is gone."""
        return self._released

    def add(self, element: Element) -> None:
        """By the producer. Never blocks."""
        cost = batch_cost(element) if isinstance(element, Batch) else 0
        with self._lock:
            if self._released or self._abandoned:
                return
            self._elements.append((element, cost))
            if cost:
                self._batches += 1
                self._bytes += cost
                self._memory.charge(cost)
            listener = self._listener if len(self._elements) == 1 else None
        if listener is not None:
            listener()

    def abandon(self) -> None:
        """By the producer's end without EndOfPartition: nothing is added any more."""
        with self._lock:
            self._abandoned = True

    def attach(self, listener: Listener) -> None:
        """By the consumer: `listener` is called when `poll` has something after it had nothing."""
        with self._lock:
            self._listener = listener
            ready = bool(self._elements)
        if ready:
            listener()

    def poll(self) -> Element | None:
        """By the consumer: the next element, or None."""
        with self._lock:
            element, cost = self._elements.popleft() if self._elements else (None, 0)
            freed = self._in_hand or cost
            self._memory.discharge(self._in_hand)
            self._in_hand = cost
            if cost:
                self._batches -= 1
                self._bytes -= cost
        if freed:
            self._on_polled()
        if isinstance(element, EndOfPartition):
            self.release(None)
        return element

    def release(self, error: BaseException | None) -> None:
        """By the consumer's end; `error` None: it has read EndOfPartition. Repeating it is fine."""
        with self._lock:
            if self._released:
                return
            self._released = True
            self._elements.clear()
            self._memory.discharge(self._bytes + self._in_hand)
            self._batches = self._bytes = self._in_hand = 0
            self._listener = None
        self._on_polled()
        self._on_consumed()


class LocalPartitions(PartitionSource, Protocol):
    """What this process produces, for its own tasks."""

    def when_registered(self, channel: ChannelDescriptor, listener: Listener) -> None:
        """Calls `listener` once the partition is there; at once if it is."""


class InputChannel(Protocol):
    """The consumer's end, as its gate sees it. Called by the task's thread only."""

    def open(self, notify: Listener) -> None:
        """Start reading; `notify` (from any thread): `poll` may have something."""

    def poll(self) -> Element | None:
        """Next element or None. Raises Transient when the channel broke."""

    @property
    def queued(self) -> int:
        """Batches that wait; from any thread."""

    def close(self) -> None:
        """Stop reading."""


class LocalInputChannel:
    """Reads a subpartition of a task in the same process; waits for it to be registered."""

    def __init__(self, descriptor: ChannelDescriptor, partitions: LocalPartitions) -> None:
        self._descriptor = descriptor
        self._partitions = partitions
        self._notify: Listener | None = None
        self._view: SubpartitionView | None = None
        self._ended = False

    def open(self, notify: Listener) -> None:
        self._notify = notify
        if not self._attach():
            self._partitions.when_registered(self._descriptor, notify)

    @property
    def is_attached(self) -> bool:
        """The producer was there."""
        return self._view is not None or self._ended

    @property
    def queued(self) -> int:
        return self._view.queued if isinstance(self._view, Subpartition) else 0

    def poll(self) -> Element | None:
        if self._ended or (self._view is None and not self._attach()):
            return None
        assert self._view is not None
        element = self._view.poll()
        if isinstance(element, EndOfPartition):
            self._ended = True
        return element

    def require_attached(self) -> None:
        """Raises PartitionLost unless the producer was there."""
        if not self.is_attached:
            channel = self._descriptor
            raise PartitionLost(
                f"the partition of {channel.producer} did not appear in time",
                PartitionId(channel.producer.subtask, channel.edge),
            )

    def close(self) -> None:
        view, self._view = self._view, None
        if view is not None and not self._ended:
            view.release(Transient("the consumer ended early"))
        self._ended = True

    def _attach(self) -> bool:
        assert self._notify is not None, "open comes first"
        self._view = self._partitions.open_subpartition(self._descriptor, self._notify)
        return self._view is not None


class RemoteInputChannel:
    """Reads a subpartition of a task in another process; implements `port.transport.InputSink`.

    Net's thread adds, the task polls. The credit for a batch goes back when the task has taken it, unless
    another channel of the gate needs it more; net gathers what goes back.

    Args:
        memory, number: The credits of its gate, and its own number there.
    """

    def __init__(
        self, descriptor: ChannelDescriptor, client: DataClient, memory: GateMemory, number: int
    ) -> None:
        self._descriptor = descriptor
        self._client = client
        self._memory = memory
        self._number = number
        self._lock = threading.Lock()  # guards the two below
        self._remote: RemoteInput | None = None
        self._owed = 0  # grants from before `connect` has returned
        self._elements: deque[tuple[Element, int]] = deque()  # with their cost
        self._notify: Listener | None = None
        self._error: BaseException | None = None
        self._ended = False

    def open(self, notify: Listener) -> None:
        self._notify = notify
        credit = self._memory.open(self._number, self._grant)
        remote = self._client.connect(self._descriptor, self, credit)
        with self._lock:
            self._remote = remote
            owed, self._owed = self._owed, 0
        if owed:
            remote.grant(owed)

    @property
    def queued(self) -> int:
        return len(self._elements)

    def on_element(self, element: Element, size: int) -> None:
        """By net's thread."""
        if isinstance(element, EndOfPartition):
            self._ended = True
        if size:
            self._memory.received(self._number, size)
        self._elements.append((element, size))
        assert self._notify is not None
        self._notify()

    def on_need(self, size: int) -> None:
        """By net's thread."""
        self._memory.need(self._number, size)

    def on_error(self, error: BaseException) -> None:
        """By net's thread."""
        if self._ended:
            return
        self._error = error
        assert self._notify is not None
        self._notify()

    def poll(self) -> Element | None:
        if self._error is not None:
            raise Transient(
                f"the input from {self._descriptor.producer} broke: {self._error}"
            ) from self._error
        try:
            element, size = self._elements.popleft()
        except IndexError:
            return None
        if size:
            self._memory.consumed(self._number, size)
        return element

    def close(self) -> None:
        self._ended = True
        with self._lock:
            remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()
        self._elements.clear()
        self._memory.close(self._number)

    def _grant(self, size: int) -> None:
        """From any thread: the producer may send so many more bytes."""
        with self._lock:
            remote = self._remote
            if remote is None:  # the first rows may come before `connect` has returned
                self._owed += size
        if remote is not None:
            remote.grant(size)
