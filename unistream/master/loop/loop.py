"""The loop of a single-threaded shell: its mailbox, its timers and its thread."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from unistream.base.clock import Clock

E = TypeVar("E")
T = TypeVar("T")


class Loop(Protocol[E, T]):
    """Events, timers and steps of a shell. `post` may be called from any thread, also before `start`."""

    def start(self, begin: Callable[[], bool], step: Callable[[], bool]) -> None:
        """Calls `begin` once, then `step` repeatedly until one of them returns False. A step takes events and
        timers with `take`."""

    def post(self, event: E) -> None:
        """Puts an event into the mailbox; never blocks."""

    def set_timer(self, timer: T, delay_ms: int) -> None:
        """Fires once, `delay_ms` from now; replaces the same timer."""

    def cancel_timer(self, timer: T) -> None:
        """An unknown timer is ignored."""

    def take(self, timeout_ms: int) -> tuple[E | None, T | None]:
        """(event, None), (None, timer that fired), or (None, None) after `timeout_ms`."""

    def take_waiting(self) -> E | None:
        """The next event if there is one; timers are ignored."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def posted(self) -> int:
        """How many events were posted: another number after each `post` that has returned."""

    @property
    def is_own_thread(self) -> bool:
        """The caller runs on the loop's thread."""

    def join(self, timeout_s: float) -> bool:
        """True: it has ended, or was never started."""


CreateLoop = Callable[[str], Loop[Any, Any]]
"""Name -> a loop that is not started."""


class LoopMailbox(Generic[E, T]):
    """Events and timers of a `Loop`, taken by its thread one at a time.

    `post` may be called from any thread, the other methods from the owner's only. A timer that is due comes
    before an event, so that a flood of events cannot delay it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: queue.SimpleQueue[E] = queue.SimpleQueue()
        self._deadlines: dict[T, int] = {}
        self._numbers = itertools.count(1)
        self._posted = 0

    def post(self, event: E) -> None:
        self._queue.put(event)
        self._posted = next(self._numbers)  # no number comes twice, whatever threads are between

    def set_timer(self, timer: T, delay_ms: int) -> None:
        self._deadlines[timer] = self._clock.monotonic_ms() + max(0, delay_ms)

    def cancel_timer(self, timer: T) -> None:
        self._deadlines.pop(timer, None)

    def take(self, timeout_ms: int) -> tuple[E | None, T | None]:
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
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()

    @property
    def posted(self) -> int:
        return self._posted


class ThreadLoop(LoopMailbox[E, T]):
    """A `Loop` with a thread of its own."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(clock)
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self, begin: Callable[[], bool], step: Callable[[], bool]) -> None:
        def run() -> None:
            goes_on = begin()
            while goes_on:
                goes_on = step()

        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def join(self, timeout_s: float) -> bool:
        thread = self._thread
        if thread is None:
            return True
        if thread is not threading.current_thread():
            thread.join(timeout_s)
        return not thread.is_alive()
