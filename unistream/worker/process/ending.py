"""Why a worker ends: the first reason counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum


class Ending(Enum):
    """Decides what the process of an ended worker does next."""

    RELEASED = "released"  # by the master or a signal
    MASTER_LOST = "master lost"  # no answer, or unknown there: it may register again
    FENCED = "fenced"  # its master considered it lost and replaced it
    BROKEN = "broken"  # an error of its own


class Exit:
    """The end of one worker, decided once. Thread-safe.

    Args:
        on_end: Called once with the reason, on the thread that decides.

    Attributes:
        decided: Set when the worker has to end; `reason` and `ending` are final then.
    """

    def __init__(self, on_end: Callable[[str], None] = lambda _reason: None) -> None:
        self.decided = threading.Event()
        self.reason = ""
        self.ending = Ending.RELEASED
        self._on_end = on_end
        self._lock = threading.Lock()

    def end(self, reason: str, ending: Ending = Ending.BROKEN) -> None:
        """Decides the end of the worker, from any thread. Only the first call has an effect."""
        with self._lock:
            if self.decided.is_set():
                return
            self.reason, self.ending = reason, ending
            self.decided.set()
        self._on_end(reason)
