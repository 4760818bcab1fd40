"""Time as an argument: code that decides does not read a clock of its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: monotonic for decisions, wall for display and event-time sources."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never decrease; only differences are meaningful."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clocks; the only place that reads them."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
