"""The loop of a single-threaded shell: its mailbox, its timers, and the thread that takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from unistream.base.clock import Clock
from unistream.master.timers import Mailbox

E = TypeVar("E")
T = TypeVar("T")


class Loop(Protocol[E, T]):
    """What a shell waits for, and who steps it. `post` may be called from any thread, before `start` too."""

    def start(self, begin: Callable[[], bool], step: Callable[[], bool]) -> None:
        """Calls `begin` once, then `step` again and again, until one of them returns False. A step takes
        what it works on from here."""

    def post(self, event: E) -> None:
        """Never blocks."""

    def set_timer(self, timer: T, delay_ms: int) -> None:
        """Fires once, `delay_ms` from now; replaces the same timer."""

    def cancel_timer(self, timer: T) -> None:
        """An unknown one is fine."""

    def take(self, timeout_ms: int) -> tuple[E | None, T | None]:
        """(event, None), (None, timer that fired), or (None, None) after `timeout_ms`."""

    def take_waiting(self) -> E | None:
        """The next event if there is one already; timers wait."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def is_own_thread(self) -> bool:
        """The caller is a step of it."""

    def join(self, timeout_s: float) -> bool:
        """True: it has ended, or was never started."""


CreateLoop = Callable[[str], Loop[Any, Any]]
"""Name -> a loop that is not started."""


class ThreadLoop(Mailbox[E, T]):
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
