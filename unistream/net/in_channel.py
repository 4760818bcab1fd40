"""One channel of a shared stream as its consumer sees it.

It is requested until it is there, and is then read to its end:

    WAITING ──Open──► REQUESTED ──Accepted──► OPEN ──EndOfPartition──► DONE ──delivered──► (removed)
      ▲                 │                       └──ChannelFailed, close──► (removed)
      └──Absent─────────┘

If it is absent, or nothing listens, it is requested again after a growing pause, until its deadline; then it
is lost, as it is if the producer does not answer until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from unistream.base.errors import ConfigError, PartitionLost, ProtocolError
from unistream.base.ids import PartitionId
from unistream.model.credentials import shown_address
from unistream.model.deployment import ChannelDescriptor
from unistream.net import frames, wire
from unistream.net.wire import CREDITS_MAX
from unistream.port.transport import InputSink

ANSWER_MS_MIN: Final = 1_000  # a producer that is there answers within it
BACKOFF_MS_MIN: Final = 100  # taskmanager.network.request-backoff.initial
BACKOFF_MS_MAX: Final = 10_000  # taskmanager.network.request-backoff.max


class State(Enum):
    """See the module."""

    WAITING = auto()
    REQUESTED = auto()
    OPEN = auto()
    DONE = auto()


REQUESTED: Final = frozenset({State.REQUESTED})
READING: Final = frozenset({State.OPEN})
EXPECTED: Final[Mapping[type[frames.Answer], frozenset[State]]] = {
    frames.Accepted: REQUESTED,
    frames.Absent: REQUESTED,
    frames.ChannelFailed: REQUESTED | READING,
    frames.Sent: READING,
    frames.Need: READING,
}
"""Answer -> states of its channel."""


@dataclass(slots=True, init=False)
class Credit:
    """The credit of one channel as its consumer sees it. Grants are held back until they are half of the
    largest credit so far.

    That cannot starve the producer: if its credit is too small for its next batch it sends `Need`, and held
    back grants are sent as soon as they suffice.

    Attributes:
        room: Bytes that may still arrive.
        held_back: The part of `room` that was not sent to the producer yet.
        needed: Bytes that the producer waits for; 0: none.
    """

    room: int
    held_back: int
    needed: int
    _room_most: int

    def __init__(self, first: int) -> None:
        if not 1 <= first <= CREDITS_MAX:
            raise ConfigError(f"a channel opens with 1 to {CREDITS_MAX} bytes of credit, not {first}")
        self.room = self._room_most = first
        self.held_back = self.needed = 0

    def open(self) -> int:
        """All credit, for an `Open`."""
        self.held_back = self.needed = 0
        return self.room

    def grant(self, size: int) -> None:
        self.room += size
        self._room_most = max(self._room_most, self.room)
        self.held_back += size

    def arrived(self, size: int) -> None:
        """Raises ProtocolError if there was no credit for it."""
        self.room -= size
        self.needed = 0
        if self.room < 0:
            raise ProtocolError("it sent more bytes than it had credit for")

    def need(self, size: int) -> bool:
        """The producer waits for `size` bytes; True: they were granted already."""
        self.needed = size
        return self.room >= size

    def take_due(self) -> int:
        """The grant to send to the producer now; 0: none."""
        is_awaited = 0 < self.needed <= self.room
        if not is_awaited and self.held_back < self._room_most // 2:
            return 0
        due, self.held_back = self.held_back, 0
        return due


class StreamOfChannel(Protocol):
    """What a channel needs of its stream; from any thread."""

    def grant(self, channel: InChannel, size: int) -> None: ...

    def leave(self, channel: InChannel) -> None: ...

    def end(self, patience_s: float) -> None: ...


class InChannel:
    """One subpartition as its consumer reads it (port.transport.RemoteInput). Its stream guards its state."""

    __slots__ = (
        "answer_by_ms",
        "credit",
        "deadline_ms",
        "descriptor",
        "number",
        "pause_ms",
        "request_at_ms",
        "sink",
        "state",
        "stream",
    )

    def __init__(
        self,
        stream: StreamOfChannel,
        number: int,
        descriptor: ChannelDescriptor,
        sink: InputSink,
        *,
        credit: int,
        now_ms: int,
        timeout_ms: int,
    ) -> None:
        self.stream = stream
        self.number = number
        self.descriptor = descriptor
        self.sink = sink
        self.credit = Credit(credit)
        self.state = State.WAITING
        self.deadline_ms = now_ms + timeout_ms
        self.request_at_ms = now_ms
        self.answer_by_ms = 0
        self.pause_ms = BACKOFF_MS_MIN

    def __str__(self) -> str:
        return f"{wire.describe(self.descriptor)} at {shown_address(self.descriptor.address)}"

    def grant(self, credits: int) -> None:
        self.stream.grant(self, credits)

    def close(self) -> None:
        """Does not wait. A delivery in progress may still finish."""
        self.stream.leave(self)

    def end(self, patience_s: float) -> None:
        """Waits until no sink is called any more, after `close` of all channels of its stream."""
        self.stream.end(patience_s)

    def request(self, now_ms: int) -> frames.Open:
        self.state = State.REQUESTED
        self.answer_by_ms = now_ms + max(ANSWER_MS_MIN, self.deadline_ms - now_ms)
        return frames.Open(self.number, self.credit.open(), self.descriptor)

    def postpone(self, now_ms: int) -> bool:
        """It is requested again, later. False: its deadline has passed."""
        self.state = State.WAITING
        left_ms = self.deadline_ms - now_ms
        self.request_at_ms = now_ms + min(self.pause_ms, left_ms)
        self.pause_ms = min(2 * self.pause_ms, BACKOFF_MS_MAX)
        return left_ms > 0

    def lost(self, why: str) -> PartitionLost:
        channel = self.descriptor
        return PartitionLost(f"{self} {why}", PartitionId(channel.producer.subtask, channel.edge))
