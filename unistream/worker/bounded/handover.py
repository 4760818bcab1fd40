"""Pieces on their way from the thread of a task to the thread that passes them on.

A task that has sorted its rows emits all of its results in one step. It runs on a thread of its own, so that
it can wait in the middle of that step until what it has made is taken.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from unistream.base.limits import MIB
from unistream.worker.bounded.pieces import Piece

WAITING_BYTES: Final = 16 * MIB
"""How much may wait to be passed on; a task that has put more waits, too."""


class Handover:
    """One thread puts, one takes.

    Args:
        wake: Called by the thread that takes when there is room again.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._pieces: deque[Piece] = deque()
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None

    @property
    def has_room(self) -> bool:
        return self._bytes < WAITING_BYTES

    def put(self, piece: Piece) -> None:
        """Hands a piece over; never waits."""
        with self._changed:
            self._pieces.append(piece)
            self._bytes += len(piece.content)
            self._changed.notify()

    def end(self, error: BaseException | None = None) -> None:
        """No piece follows. `error`: raised where the pieces are taken, behind the last one."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify()

    def take(self) -> Iterator[Piece]:
        """All pieces, as they come, until the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pieces or self._ended)
                if not self._pieces:
                    break
                piece = self._pieces.popleft()
                was_full = not self.has_room
                self._bytes -= len(piece.content)
                has_room_again = was_full and self.has_room
            if has_room_again:
                self._wake()
            yield piece
        if self._error is not None:
            raise self._error
