"""Timers of one task, fired by its own thread between two elements."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from unistream.base.clock import Clock

Action = Callable[[int], None]


class TaskTimers:
    """`unistream.port.operator.ProcessingTimers` on the wall clock of the task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Action]] = []
        self._sequence = 0
        self._quiesced = False

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def register(self, at_ms: int, action: Action) -> None:
        if self._quiesced:
            return
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, action))

    def fire_due(self, limit_ms: int | None = None) -> bool:
        """Fires the earliest timer if it is due now (or by `limit_ms`). True: it fired one."""
        if not self._heap:
            return False
        at_ms = self._heap[0][0]
        if at_ms > (self._clock.wall_ms() if limit_ms is None else limit_ms):
            return False
        _, _, action = heapq.heappop(self._heap)
        action(at_ms)
        return True

    def quiesce(self) -> None:
        """Fires what is due already, then nothing any more: not what these timers register either."""
        self._quiesced = True
        now_ms = self._clock.wall_ms()
        while self.fire_due(now_ms):
            pass
        self._heap.clear()

    @property
    def next_monotonic_ms(self) -> int | None:
        """When the next timer is due, on the monotonic clock."""
        if not self._heap:
            return None
        return self._clock.monotonic_ms() + max(0, self._heap[0][0] - self._clock.wall_ms())
