"""The credit of one channel as its consumer sees it: what may still arrive, and what is worth a message."""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.errors import ConfigError, ProtocolError
from unistream.net.wire import CREDITS_MAX


@dataclass(slots=True, init=False)
class Credit:
    """Grants are held back until they are half of the most that could be on its way.

    That cannot starve the producer: where its credit does not reach for its next batch it says so, and
    what is held back goes out as soon as both together do.

    Attributes:
        room: Bytes that may still arrive.
        held_back: Of them: granted, and the producer does not know it yet.
        needed: What the producer waits for; 0: it does not say.
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
        """All of it: what the producer is told when it is asked (again)."""
        self.held_back = self.needed = 0
        return self.room

    def grant(self, size: int) -> None:
        """The consumer has room for `size` more bytes."""
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
        """The producer waits for so much; True: it was granted already."""
        self.needed = size
        return self.room >= size

    def take_due(self) -> int:
        """What is to be sent to the producer now; 0: nothing."""
        is_awaited = 0 < self.needed <= self.room
        if not is_awaited and self.held_back < self._room_most // 2:
            return 0
        due, self.held_back = self.held_back, 0
        return due
