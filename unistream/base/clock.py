"""Time as an argument: code that decides does not read a clock of its own."""

from __future__ import annotations

import time
from typing import Final, Protocol

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Two clocks: monotonic for decisions, wall for display and event-time sources."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never decrease; only differences are meaningful."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clocks; the only place that reads them.

    Who waits for others takes `base.awake_clock.AwakeClock`: this one goes on while the process stands still.
    """

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class BootClock(SystemClock):
    """Its monotonic clock goes on while the whole machine sleeps (a suspended laptop), for a right that
    others take away meanwhile. Where the system has no such clock it is the usual one."""

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_BOOT) // 1_000_000
