"""The two ends of a channel.

producer task ─ `Subpartition` ─┬─ `LocalInputChannel` ─ consumer task      (same process: by reference)
                                └─ net ══ net ─ `RemoteInputChannel` ─ consumer task  (remote_channel.py)

A subpartition is a queue that accepts everything it is given (an operator's output never blocks) but
says `has_room` only while it holds fewer than LOCAL_QUEUE_BATCHES batches and fewer bytes than one channel
may; its task takes no input while one of its subpartitions, or the network memory of all of them, has no
room. Between processes credits bound what is in flight, in bytes; events are free. What waits at either end
is counted in the process's network memory (`unistream.worker.exchange.network_memory`).

A barrier that overtakes is *urgent*: it goes before all that waits at either end. What it passes by is asked
for by whoever owns that end, at the producer when the barrier goes out, at the consumer when it is read.
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
from unistream.model.elements import Batch, CheckpointBarrier, Element, EndOfPartition, Event
from unistream.model.messages import ChannelDescriptor
from unistream.port.transport import PartitionSource, SubpartitionView
from unistream.worker.exchange.network_memory import PartitionMemory, batch_cost
from unistream.worker.exchange.remote_queue import Announcement, is_in_flight

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
        """By the producer's end without EndOfPartition: nothing is added any more."""
        with self._lock:
            self._abandoned = True

    def attach(self, listener: Listener) -> None:
        """By the consumer: `listener` is called when `poll` has something after it had nothing."""
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
        """By the producer: the barrier of `checkpoint_id` goes before all that waits. What it passes by, in
        order; nothing if it has left."""
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
        """By the consumer: the next barrier that has overtaken, or None. What it has in hand stays so."""
        with self._lock:
            return self._urgent.popleft() if self._urgent else None

    def peek(self) -> Element | None:
        """By the consumer: what `poll` would return now. It has nothing in hand any more."""
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
        """By the consumer: the next element, or None."""
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
        """By the consumer's end; `error` None: it has read EndOfPartition. Repeating it is fine."""
        with self._lock:
            if self._released:
                return
            self._released = True
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


class LocalPartitions(PartitionSource, Protocol):
    """What this process produces, for its own tasks."""

    def when_registered(self, channel: ChannelDescriptor, listener: Listener) -> None:
        """Calls `listener` once the partition is there; at once if it is."""


class InputChannel(Protocol):
    """The consumer's end, as its gate sees it. Called by the task's thread only."""

    @property
    def descriptor(self) -> ChannelDescriptor:
        """What it reads."""

    def open(self, notify: Listener) -> None:
        """Start reading; `notify` (from any thread): `poll` or `poll_urgent` may have something."""

    def poll(self) -> Element | Announcement | None:
        """Next element or None; what is urgent first. Raises Transient when the channel broke."""

    @property
    def has_urgent(self) -> bool:
        """`poll_urgent` has something; from any thread."""

    def poll_urgent(self) -> Element | Announcement | None:
        """Next barrier that has overtaken, or announcement, or None."""

    def overtaken(self) -> Sequence[Element]:
        """What waited here when the barrier that was polled last passed by, in order; it is still to be
        polled."""

    def prioritize(self, checkpoint_id: CheckpointId) -> None:
        """The announced barrier of `checkpoint_id` goes before what waits here."""

    @property
    def queued(self) -> int:
        """Batches that wait; from any thread."""

    def close(self) -> None:
        """Stop reading."""


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

    @property
    def has_urgent(self) -> bool:
        return isinstance(self._view, Subpartition) and self._view.has_urgent

    def poll_urgent(self) -> Element | None:
        return self._view.poll_urgent() if isinstance(self._view, Subpartition) else None

    def overtaken(self) -> Sequence[Element]:
        """Nothing waits here: the producer has asked for what its barrier passed by."""
        return ()

    def prioritize(self, checkpoint_id: CheckpointId) -> None:
        """Never announced: the producer sees to it."""

    def require_attached(self) -> None:
        """Raises PartitionLost unless the producer was there."""
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
