"""Pauses between two looks at the same thing."""

from __future__ import annotations

import threading
import time
from typing import Final

POLL_S: Final = (0.05, 0.05, 0.1, 0.2, 0.4)  # pauses; all later ones are POLL_MAX_S
POLL_MAX_S: Final = 0.5


class Poll:
    """Pauses that grow: ``while poll.next(): ask()``."""

    def __init__(self, timeout_s: float | None) -> None:
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._pauses = iter(POLL_S)
        self._began = False
        self._never = threading.Event()

    @property
    def left_s(self) -> float | None:
        """Seconds until the timeout; None: there is none."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def next(self) -> bool:
        """Waits a little longer than the last time; False after `timeout_s`."""
        if self._began:
            pause_s = next(self._pauses, POLL_MAX_S)
            left_s = self.left_s
            if left_s is not None:
                if left_s <= 0:
                    return False
                pause_s = min(pause_s, left_s)
            self._never.wait(pause_s)
        self._began = True
        return True
