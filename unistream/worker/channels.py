"""The two ends of a channel.

producer task ─ `Subpartition` ─┬─ `LocalInputChannel` ─ consumer task      (same process: by reference)
                                └─ net ══ net ─ `RemoteInputChannel` ─ consumer task

A subpartition is a queue that accepts everything it is given (an operator's output never blocks) but
says `has_room` only while it holds fewer than LOCAL_QUEUE_BATCHES batches; its task takes no input
while one of its subpartitions has no room. Between processes credits bound what is in flight: one
credit is one batch, events are free.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from unistream.base.errors import Transient, Unreachable
from unistream.base.limits import EXCHANGE_CREDITS, LOCAL_QUEUE_BATCHES
from unistream.model.elements import Batch, Element, EndOfPartition
from unistream.model.messages import ChannelDescriptor
from unistream.port.transport import DataClient, PartitionSource, RemoteInput, SubpartitionView

Listener = Callable[[], None]


class Subpartition:
    """What one consumer subtask will read of one result partition, in order. Thread-safe.

    The producer's task adds; one consumer (a local channel or a server thread) polls. When one side
    ends early the other is not failed for it, so that the first failure is the one that the master
    hears of, and cancels the rest: a consumer that is gone turns this into a sink that drops everything,
    one that its producer has abandoned just has no end. (A process that is gone breaks its streams, and
    that does fail the consumers.)
    """

    def __init__(self, on_room: Listener, on_consumed: Listener) -> None:
        self._lock = threading.Lock()
        self._elements: deque[Element] = deque()
        self._batches = 0
        self._listener: Listener | None = None
        self._on_room = on_room
        self._on_consumed = on_consumed
        self._released = False
        self._abandoned = False

    @property
    def has_room(self) -> bool:
        return self._batches < LOCAL_QUEUE_BATCHES

    @property
    def is_released(self) -> bool:
        """The consumer has read everything, or is gone."""
        return self._released

    def add(self, element: Element) -> None:
        """By the producer. Never blocks."""
        with self._lock:
            if self._released or self._abandoned:
                return
            self._elements.append(element)
            if isinstance(element, Batch):
                self._batches += 1
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
            if not self._elements:
                return None
            element = self._elements.popleft()
            freed = False
            if isinstance(element, Batch):
                self._batches -= 1
                freed = self._batches == LOCAL_QUEUE_BATCHES - 1
        if freed:
            self._on_room()
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
            self._batches = 0
            self._listener = None
        self._on_room()
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

    def poll(self) -> Element | None:
        if self._ended or (self._view is None and not self._attach()):
            return None
        assert self._view is not None
        element = self._view.poll()
        if isinstance(element, EndOfPartition):
            self._ended = True
        return element

    def require_attached(self) -> None:
        """Raises Unreachable unless the producer was there."""
        if not self.is_attached:
            raise Unreachable(f"the partition of {self._descriptor.producer} did not appear in time")

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

    Net's thread adds, the task polls. A credit goes back for each batch that the task has taken; net
    gathers them.
    """

    def __init__(self, descriptor: ChannelDescriptor, client: DataClient) -> None:
        self._descriptor = descriptor
        self._client = client
        self._elements: deque[Element] = deque()
        self._notify: Listener | None = None
        self._remote: RemoteInput | None = None
        self._error: BaseException | None = None
        self._consumed = 0
        self._ended = False

    def open(self, notify: Listener) -> None:
        self._notify = notify
        self._remote = self._client.connect(self._descriptor, self, EXCHANGE_CREDITS)

    def on_element(self, element: Element) -> None:
        """By net's thread."""
        if isinstance(element, EndOfPartition):
            self._ended = True
        self._elements.append(element)
        assert self._notify is not None
        self._notify()

    def on_error(self, error: BaseException) -> None:
        """By net's thread."""
        if self._ended:
            return
        self._error = error
        assert self._notify is not None
        self._notify()

    def poll(self) -> Element | None:
        if self._error is not None:
            raise Transient(f"the input from {self._descriptor.producer} broke: {self._error}")
        try:
            element = self._elements.popleft()
        except IndexError:
            return None
        if isinstance(element, Batch):
            self._consumed += 1
            if self._remote is not None:  # the first rows may come before `connect` has returned
                self._remote.grant(self._consumed)
                self._consumed = 0
        return element

    def close(self) -> None:
        self._ended = True
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()
        self._elements.clear()
