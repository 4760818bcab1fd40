"""Timers and a mailbox in one: what a single-threaded shell waits for."""

from __future__ import annotations

import queue
from typing import Generic, TypeVar

from unistream.base.clock import Clock

E = TypeVar("E")
T = TypeVar("T")


class Mailbox(Generic[E, T]):
    """Events of any thread and timers of the owner's thread, taken by the owner one at a time.

    `post` may be called from any thread, all else from the owner's only. A timer that is due comes
    before an event, so that a flood of events cannot hold it back.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: queue.SimpleQueue[E] = queue.SimpleQueue()
        self._deadlines: dict[T, int] = {}

    def post(self, event: E) -> None:
        self._queue.put(event)

    def set_timer(self, timer: T, delay_ms: int) -> None:
        """Fires once, `delay_ms` from now; replaces the same timer."""
        self._deadlines[timer] = self._clock.monotonic_ms() + max(0, delay_ms)

    def cancel_timer(self, timer: T) -> None:
        """An unknown one is fine."""
        self._deadlines.pop(timer, None)

    def take(self, timeout_ms: int) -> tuple[E | None, T | None]:
        """(event, None), (None, timer that fired), or (None, None) after `timeout_ms`."""
        now = self._clock.monotonic_ms()
        wait_ms = timeout_ms
        if self._deadlines:
            timer = min(self._deadlines, key=self._deadlines.__getitem__)
            until_ms = self._deadlines[timer] - now
            if until_ms <= 0:
                del self._deadlines[timer]
                return None, timer
            wait_ms = min(wait_ms, until_ms)
        try:
            return self._queue.get(timeout=wait_ms / 1000), None
        except queue.Empty:
            return None, None

    def take_waiting(self) -> E | None:
        """The next event if there is one already; timers wait."""
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()
