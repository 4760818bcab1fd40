"""Data and control between processes. `unistream.net` implements it with Arrow Flight.

Data: a consumer opens a channel for each subpartition it reads and grants it credits, in bytes: a batch is
sent when there is credit for all of it. Events cost no credit but keep their place. Channels are independent,
also if they share a stream: none blocks another, and each ends or breaks by itself.
Control: one request, one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from unistream.base.ids import JobId
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Element, Event
from unistream.model.messages import Answer, Request


class SubpartitionView(Protocol):
    """The producer's end of one channel, as the server that sends it sees it. Thread-safe."""

    def peek(self) -> Element | None:
        """The result of `poll` now; a barrier may overtake it before `poll`."""

    def poll(self) -> Element | None:
        """Next element in order, or None: then `listener` is called when there is one."""

    def poll_urgent(self) -> Event | None:
        """Next barrier that has overtaken, or None; `listener` was called when it did."""

    def release(self, error: BaseException | None) -> None:
        """The consumer has disconnected (None: it has read EndOfPartition)."""


class Subpartitions(Protocol):
    """Finds what a consumer reads."""

    def open_subpartition(
        self, channel: ChannelDescriptor, listener: Callable[[], None]
    ) -> SubpartitionView | None:
        """None: it does not exist (yet); the consumer retries with backoff."""


class PartitionSource(Subpartitions, Protocol):
    """Finds what this process produces, for other processes. Implemented by the worker."""

    def takes(self, job: JobId, token: str) -> bool:
        """Whether a consumer with this token may read what tasks of the job produce here."""


class InputSink(Protocol):
    """The consumer's end of one remote channel. Implemented by the worker; called by net's thread."""

    def on_element(self, element: Element, size: int) -> None:
        """`size`: bytes of credit that it used; 0 for an event."""

    def on_need(self, size: int) -> None:
        """The producer has a batch of `size` bytes and less credit. A sufficient grant must follow, at the
        latest when all batches so far are consumed."""

    def on_error(self, error: BaseException) -> None:
        """The channel broke before EndOfPartition: the task fails."""


class RemoteInput(Protocol):
    """An open channel from another process."""

    def grant(self, credits: int) -> None:
        """The receiver has room for this many more bytes."""

    def close(self) -> None:
        """Cancels the channel. Does not wait."""


class GateInput(Protocol):
    """The channels of one gate from other processes. Those of one edge from one process share a stream."""

    def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> RemoteInput:
        """Returns at once with `credits` bytes granted; connects in the background, with backoff until
        `taskmanager.network.partition-request-timeout`, then `sink.on_error` with PartitionLost."""

    def close(self) -> None:
        """Closes all channels. Does not wait."""


class DataClient(Protocol):
    """Opens channels to partitions of other processes."""

    def gate(self, token: str) -> GateInput:
        """The channels of one gate of one task; none is connected yet. `token`: of its job."""

    def close(self) -> None:
        """Closes all channels; no sink is called any more."""


class ControlClient(Protocol):
    """Requests to one peer. Answers come within RPC_TIMEOUT_S."""

    def call(self, message: Request) -> Answer:
        """Raises Unreachable (unknown whether it was sent) or ProtocolError."""

    def close(self) -> None: ...


class Server(Protocol):
    """Listens on one address for both kinds."""

    @property
    def address(self) -> str:
        """Flight location that peers connect to."""

    def close(self) -> None: ...


class ControlHandler(Protocol):
    """Answers control messages, on threads of a server."""

    def __call__(self, request: bytes, caller: str = "", /) -> bytes:
        """Encoded request -> encoded answer; must not block for long. `caller`: whom the certificate of the
        sender names (`Credentials.name`); "": nobody else reaches the server."""
