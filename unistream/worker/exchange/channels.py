"""The two ends of a channel.

producer task ─ `Subpartition` ─┬─ `LocalInputChannel` ─ consumer task      (same process: by reference)
                                └─ net ══ net ─ `RemoteInputChannel` ─ consumer task  (remote_channel.py)

A subpartition is a queue that accepts every element (an operator's output never blocks) but has room only
while it holds fewer than LOCAL_QUEUE_BATCHES batches and fewer bytes than one channel may; its task takes no
input while one of its subpartitions, or the network memory of all of them, has no room. Between processes
credits limit the bytes in flight; events are free. Batches that wait at either end count in the process's
network memory (`unistream.worker.exchange.network_memory`).

A barrier that overtakes is *urgent*: it precedes all elements that wait at either end. The owner of that end
collects the rows that it overtakes: the producer when it sends the barrier, the consumer when it reads it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from unistream.base.errors import PartitionLost, Transient
from unistream.base.ids import CheckpointId, PartitionId
from unistream.base.limits import LOCAL_QUEUE_BATCHES
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Batch, CheckpointBarrier, Element, EndOfPartition, Event
from unistream.port.transport import Subpartitions, SubpartitionView
from unistream.worker.exchange.network_memory import PartitionMemory, batch_cost
from unistream.worker.exchange.remote_queue import Announcement, is_in_flight

Listener = Callable[[], None]


class Subpartition:
    """The elements of one result partition for one consumer subtask, in order. Thread-safe.

    The producer's task adds; one consumer (a local channel or a server thread) polls. When one side ends
    early the other does not fail, so that the master receives the first failure and cancels the rest:
    after its consumer has ended, a subpartition drops everything; after its producer has ended, it has no
    end. (A process that ends breaks its streams, which does fail the consumers.)

    A batch counts until the next `poll`: until then a task processes it, or a server waits for credit.

    Args:
        memory: Where its batches are counted.
        on_polled: Called after a poll that freed memory: there may be room again.
        on_consumed: Called once, when it is released.
        on_barrier_left: Called when `holds_barrier` becomes false.
    """

    def __init__(
        self,
        memory: PartitionMemory,
        on_polled: Listener,
        on_consumed: Listener,
        on_barrier_left: Listener = lambda: None,
    ) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._elements: deque[tuple[Element, int]] = deque()  # with their cost
        self._urgent: deque[Event] = deque()
        self._held: CheckpointId | None = None  # of a barrier that may time out here
        self._on_barrier_left = on_barrier_left
        self._batches = 0
        self._bytes = 0
        self._in_hand = 0  # cost of the batch that was polled last
        self._listener: Listener | None = None
        self._on_polled = on_polled
        self._on_consumed = on_consumed
        self.is_released = False  # the consumer has read everything, or has ended
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

    def add(self, element: Element) -> None:
        """Adds an element, on the producer's thread. Never blocks."""
        cost = batch_cost(element) if isinstance(element, Batch) else 0
        with self._lock:
            if self.is_released or self._abandoned:
                return
            self._elements.append((element, cost))
            if isinstance(element, CheckpointBarrier) and element.may_time_out:
                self._held = element.checkpoint_id
            if cost:
                self._batches += 1
                self._bytes += cost
                self._memory.charge(cost)
            listener = self._listener if len(self._elements) == 1 else None
        if listener is not None:
            listener()

    def abandon(self) -> None:
        """Drops later elements: the producer, which calls it, ends without EndOfPartition."""
        with self._lock:
            self._abandoned = True

    def attach(self, listener: Listener) -> None:
        """Sets what the consumer, which calls it, wants called when there is an element after there was
        none."""
        with self._lock:
            self._listener = listener
            ready = bool(self._elements) or bool(self._urgent)
        if ready:
            listener()

    # --- barriers that overtake -------------------------------------------------------------------

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        """The barrier of `checkpoint_id`, which may time out, still waits here."""
        return self._held == checkpoint_id

    def overtake(self, checkpoint_id: CheckpointId) -> list[Element]:
        """Lets the barrier of `checkpoint_id`, if it is still here, overtake all elements; called by the
        producer. Returns the rows among them, in order."""
        with self._lock:
            place = self._place_of(checkpoint_id)
            if place is None:
                return []
            passed = [element for element, _ in islice(self._elements, place) if is_in_flight(element)]
            barrier, _ = self._elements[place]
            assert isinstance(barrier, CheckpointBarrier)
            del self._elements[place]
            self._urgent.append(barrier.overtaking())
            self._held = None
            listener = self._listener
        if listener is not None:
            listener()
        return passed

    def _place_of(self, checkpoint_id: CheckpointId) -> int | None:
        for place, (element, _) in enumerate(self._elements):
            if isinstance(element, CheckpointBarrier) and element.checkpoint_id == checkpoint_id:
                return place
        return None

    # --- reading ----------------------------------------------------------------------------------

    @property
    def has_urgent(self) -> bool:
        """`poll_urgent` has something."""
        return bool(self._urgent)

    def poll_urgent(self) -> Event | None:
        """Takes the next barrier that overtakes, or None; called by the consumer. The batch polled last still
        counts."""
        with self._lock:
            return self._urgent.popleft() if self._urgent else None

    def peek(self) -> Element | None:
        """The element that `poll` returns next; called by the consumer. The batch polled last is freed."""
        with self._lock:
            freed, self._in_hand = self._in_hand, 0
            self._memory.discharge(freed)
            if self._urgent:
                head: Element | None = self._urgent[0]
            else:
                head = self._elements[0][0] if self._elements else None
        if freed:
            self._on_polled()
        return head

    def poll(self) -> Element | None:
        """Takes the next element, or None; called by the consumer."""
        left = False
        with self._lock:
            element: Element | None = None
            cost = 0
            if self._urgent:
                element = self._urgent.popleft()
            elif self._elements:
                element, cost = self._elements.popleft()
                left = isinstance(element, CheckpointBarrier) and element.checkpoint_id == self._held
                if left:
                    self._held = None
            freed = self._in_hand or cost
            self._memory.discharge(self._in_hand)
            self._in_hand = cost
            if cost:
                self._batches -= 1
                self._bytes -= cost
        if freed:
            self._on_polled()
        if left:
            self._on_barrier_left()
        if isinstance(element, EndOfPartition):
            self.release(None)
        return element

    def release(self, error: BaseException | None) -> None:
        """Frees all elements when the consumer, which calls it, ends; `error` None: it has read
        EndOfPartition. May be repeated."""
        with self._lock:
            if self.is_released:
                return
            self.is_released = True
            self._elements.clear()
            self._urgent.clear()
            left, self._held = self._held is not None, None
            self._memory.discharge(self._bytes + self._in_hand)
            self._batches = self._bytes = self._in_hand = 0
            self._listener = None
        self._on_polled()
        if left:
            self._on_barrier_left()
        self._on_consumed()


class LocalPartitions(Subpartitions, Protocol):
    """The partitions of this process, for its own tasks."""

    def when_registered(self, channel: ChannelDescriptor, listener: Listener) -> None:
        """Calls `listener` once the partition is there; at once if it is."""


class InputChannel(Protocol):
    """The consumer's end, as its gate sees it. Used by the task's thread only."""

    @property
    def descriptor(self) -> ChannelDescriptor:
        """The channel's producer and subpartition."""

    def open(self, notify: Listener) -> None:
        """Starts reading; `notify` (from any thread): an element may have arrived."""

    def poll(self) -> Element | Announcement | None:
        """The next element or None; urgent ones first. Raises Transient if the channel broke."""

    @property
    def has_urgent(self) -> bool:
        """`poll_urgent` would return an element; from any thread."""

    def poll_urgent(self) -> Element | Announcement | None:
        """The next barrier that overtakes, or announcement, or None."""

    def overtaken(self) -> Sequence[Element]:
        """The rows that the barrier polled last has overtaken here, in order; they are still to be polled."""

    def prioritize(self, checkpoint_id: CheckpointId) -> None:
        """The announced barrier of `checkpoint_id` overtakes the waiting elements."""

    @property
    def queued(self) -> int:
        """Waiting batches; from any thread."""

    def close(self) -> None:
        """Stops reading the channel."""


class LocalInputChannel:
    """Reads a subpartition of a task in the same process; waits for it to be registered."""

    def __init__(self, descriptor: ChannelDescriptor, partitions: LocalPartitions) -> None:
        self.descriptor = descriptor
        self._partitions = partitions
        self._notify: Listener | None = None
        self._view: SubpartitionView | None = None
        self._ended = False

    def open(self, notify: Listener) -> None:
        self._notify = notify
        if not self._attach():
            self._partitions.when_registered(self.descriptor, notify)

    @property
    def is_attached(self) -> bool:
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

    @property
    def has_urgent(self) -> bool:
        return isinstance(self._view, Subpartition) and self._view.has_urgent

    def poll_urgent(self) -> Element | None:
        return self._view.poll_urgent() if isinstance(self._view, Subpartition) else None

    def overtaken(self) -> Sequence[Element]:
        """The producer collects the rows that its barrier overtakes."""
        return ()

    def prioritize(self, checkpoint_id: CheckpointId) -> None:
        """The producer handles its timeouts."""

    def require_attached(self) -> None:
        """Raises PartitionLost if the producer's partition was never there."""
        if not self.is_attached:
            channel = self.descriptor
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
        self._view = self._partitions.open_subpartition(self.descriptor, self._notify)
        return self._view is not None
