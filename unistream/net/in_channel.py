"""One channel of a shared stream as its consumer sees it.

It is asked for until it is there, and is then read to its end:

    WAITS ──ask──► ASKED ──Accepted──► OPEN ──EndOfPartition──► DONE ──delivered──► (gone)
      ▲              │                   └──Failed, close──► (gone)
      └──Absent──────┘

Absent, or nobody listens: it is asked for again after a pause that grows, until its own deadline; then it is
lost, as it is when the producer says nothing until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, Protocol

from unistream.base.errors import PartitionLost
from unistream.base.ids import PartitionId
from unistream.model.messages import ChannelDescriptor
from unistream.net import frames, wire
from unistream.net.credit import Credit
from unistream.port.transport import InputSink

ANSWER_MS_MIN: Final = 1_000  # a producer that is there says what it has within it
BACKOFF_MS_MIN: Final = 100  # taskmanager.network.request-backoff.initial
BACKOFF_MS_MAX: Final = 10_000  # taskmanager.network.request-backoff.max


class State(Enum):
    """See the module."""

    WAITS = auto()
    ASKED = auto()
    OPEN = auto()
    DONE = auto()


ASKING: Final = frozenset({State.ASKED})
READING: Final = frozenset({State.OPEN})
EXPECTED: Final[Mapping[type[frames.Answer], frozenset[State]]] = {
    frames.Accepted: ASKING,
    frames.Absent: ASKING,
    frames.Failed: ASKING | READING,
    frames.Sent: READING,
    frames.Need: READING,
}
"""Answer -> states of its channel."""


class StreamOfChannel(Protocol):
    """What a channel asks of its stream, from any thread."""

    def grant(self, channel: InChannel, size: int) -> None: ...

    def leave(self, channel: InChannel) -> None: ...

    def end(self, patience_s: float) -> None: ...


class InChannel:
    """One subpartition as its consumer reads it (port.transport.RemoteInput).

    Its state belongs to its stream.
    """

    __slots__ = (
        "answer_by_ms",
        "ask_at_ms",
        "credit",
        "deadline_ms",
        "descriptor",
        "number",
        "pause_ms",
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
        self.state = State.WAITS
        self.deadline_ms = now_ms + timeout_ms
        self.ask_at_ms = now_ms
        self.answer_by_ms = 0
        self.pause_ms = BACKOFF_MS_MIN

    def __str__(self) -> str:
        return f"{wire.describe(self.descriptor)} at {self.descriptor.address}"

    def grant(self, credits: int) -> None:
        self.stream.grant(self, credits)

    def close(self) -> None:
        """Does not wait. A delivery in progress may still finish."""
        self.stream.leave(self)

    def end(self, patience_s: float) -> None:
        """After `close` of all channels of its stream: waits until no sink is called any more."""
        self.stream.end(patience_s)

    def asked(self, now_ms: int) -> frames.Open:
        """It is asked for now."""
        self.state = State.ASKED
        self.answer_by_ms = now_ms + max(ANSWER_MS_MIN, self.deadline_ms - now_ms)
        return frames.Open(self.number, self.credit.open(), self.descriptor)

    def postpone(self, now_ms: int) -> bool:
        """It is asked for again, later. False: its time is over."""
        self.state = State.WAITS
        left_ms = self.deadline_ms - now_ms
        self.ask_at_ms = now_ms + min(self.pause_ms, left_ms)
        self.pause_ms = min(2 * self.pause_ms, BACKOFF_MS_MAX)
        return left_ms > 0

    def lost(self, why: str) -> PartitionLost:
        channel = self.descriptor
        return PartitionLost(f"{self} {why}", PartitionId(channel.producer.subtask, channel.edge))
