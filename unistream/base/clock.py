"""Time as an argument: nothing that decides reads a clock of its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: monotonic decides, wall is for display and for event-time sources."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; only differences mean something."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clocks; the only place that reads them."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
