"""One thread of a shell that reacts: actions in the order in which they came, and some at a time.

The election and its contender have such threads; a simulation has them perform the same actions in its own
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from unistream.base.clock import Clock

Action = Callable[[], None]
Cancel = Callable[[], None]
"""Prevents an action that has not begun; safe to repeat, and once it has begun."""


class EventLoop(Protocol):
    """Performs actions one at a time. What comes before `start` waits for it."""

    @property
    def clock(self) -> Clock:
        """The clock by which it performs what is for later."""
        ...

    def start(self) -> None:
        """Begins to perform."""
        ...

    def call_soon(self, action: Action) -> None:
        """Performs an action after those that came before. From any thread; returns at once."""
        ...

    def call_at(self, at_ms: int, action: Action) -> Cancel:
        """Performs an action once it is `at_ms` by the monotonic clock, after what is due without waiting.
        From the own thread, and before `start`."""
        ...

    def stop(self) -> None:
        """Ends after what came before; what comes later, or is for later, is not performed."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Waits for the end. True: it has ended, was never started, or this is its own thread."""
        ...


CreateEventLoop = Callable[[str], EventLoop]
"""Name -> a loop that is not started."""
