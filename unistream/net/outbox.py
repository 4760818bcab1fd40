"""The work queue of the writing thread of a stream, and its channels.

    a channel is   ready    when its view may have an element, or its credit has become sufficient
                   parked   while its view is empty (the listener wakes it), while its batch costs more than
                            its credit (a grant or the listener wakes it), and after EndOfPartition (until the
                            consumer sends `Close`)

Ready channels are served in turn. The caller that takes a channel out of the outbox releases its view.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice

import pyarrow as pa

from unistream.base.errors import ProtocolError, UnistreamError
from unistream.model.deployment import ChannelDescriptor
from unistream.net import frames, wire
from unistream.port.transport import SubpartitionView


class OutChannel:
    """One subpartition of a stream. Its credit and `is_queued` belong to the `StreamOutbox`."""

    __slots__ = (
        "credit",
        "descriptor",
        "is_complete",
        "is_queued",
        "lacks",
        "number",
        "pieces",
        "reported_need",
        "view",
    )

    def __init__(self, number: int, credit: int, descriptor: ChannelDescriptor) -> None:
        self.number = number
        self.credit = credit
        self.descriptor = descriptor
        self.view: SubpartitionView | None = None  # None: its partition is being opened
        self.lacks = 0  # cost of what waits for credit; 0: nothing does
        self.is_queued = False
        self.is_complete = False  # EndOfPartition was sent
        self.reported_need = 0  # cost in the last `Need`
        self.pieces: deque[pa.RecordBatch] = deque()  # of a batch that is larger than a message

    def __str__(self) -> str:
        return wire.describe(self.descriptor)


class StreamOutbox:
    """Work of the writing thread. Thread-safe; nothing is called under its lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._channels: dict[int, OutChannel] = {}
        self._numbers = -1  # the largest that was opened
        self._answers: list[frames.Answer] = []
        self._ready: deque[OutChannel] = deque()
        self._stopped = False
        self.reason: UnistreamError | None = None
        """Why it stopped, for the consumer; None: the consumer has left."""

    def take(self) -> list[frames.Answer] | OutChannel | None:
        """Waits for work. None: stop."""
        with self._changed:
            while not self._stopped:
                if self._answers:
                    gathered = list(islice(self._answers, frames.ANSWERS_MAX))
                    del self._answers[: len(gathered)]
                    return gathered
                if self._ready:
                    channel = self._ready.popleft()
                    channel.is_queued = False  # before it is served: later elements queue it again
                    return channel
                self._changed.wait()
            return None

    def stop(self, reason: UnistreamError | None) -> None:
        with self._changed:
            if not self._stopped:
                self._stopped, self.reason = True, reason
                self._changed.notify()

    # --- channels ---------------------------------------------------------------------------------

    def check_new(self, number: int) -> None:
        """Raises ProtocolError unless a channel may have this number."""
        with self._changed:
            if number in self._channels:
                raise ProtocolError(f"channel {number} is open and was opened again")
            if len(self._channels) >= frames.CHANNELS_MAX:
                raise ProtocolError(f"a stream has at most {frames.CHANNELS_MAX} open channels")
            self._numbers = max(self._numbers, number)

    def answer(self, answer: frames.Answer) -> None:
        """Sends it before all elements."""
        with self._changed:
            self._answers.append(answer)
            self._changed.notify()

    def add(self, channel: OutChannel) -> None:
        """Accepts it; its view may have an element."""
        with self._changed:
            self._channels[channel.number] = channel
            self._answers.append(frames.Accepted(channel.number))
            self._enqueue(channel)

    def drop(self, number: int) -> OutChannel | None:
        """Takes a channel out; None: it was removed before. The caller releases its view."""
        with self._changed:
            self._check_known(number)
            return self._channels.pop(number, None)

    def drop_all(self) -> list[OutChannel]:
        with self._changed:
            channels = list(self._channels.values())
            self._channels.clear()
            return channels

    @property
    def was_used(self) -> bool:
        """A channel was requested."""
        return self._numbers >= 0

    def has(self, channel: OutChannel) -> bool:
        """It was not dropped."""
        return self._channels.get(channel.number) is channel

    # --- wake-ups ---------------------------------------------------------------------------------

    def wake(self, channel: OutChannel) -> None:
        """Looks at a channel again, whose view may have an element; called from any thread."""
        with self._changed:
            if channel.view is not None:  # while it is being opened `add` follows
                self._enqueue(channel)

    def grant(self, number: int, size: int) -> None:
        """Adds credit to a channel; ignored for a removed one."""
        with self._changed:
            self._check_known(number)
            channel = self._channels.get(number)
            if channel is None:
                return
            channel.credit += size
            if 0 < channel.lacks <= channel.credit:
                self._enqueue(channel)

    def has_credit(self, channel: OutChannel, cost: int) -> bool:
        """False: the grant that suffices will wake it."""
        with self._changed:
            channel.lacks = 0 if channel.credit >= cost else cost
            return channel.lacks == 0

    def spend(self, channel: OutChannel, cost: int) -> None:
        """A batch was sent."""
        with self._changed:
            channel.credit -= cost

    def _enqueue(self, channel: OutChannel) -> None:
        if not channel.is_queued:
            channel.is_queued = True
            self._ready.append(channel)
            self._changed.notify()

    def _check_known(self, number: int) -> None:
        if number > self._numbers:
            raise ProtocolError(f"channel {number} was never opened")
