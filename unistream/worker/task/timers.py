"""Timers of one task, fired by its own thread between two elements."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.base.ids import OperatorUid

Action = Callable[[int], None]


class TaskTimers:
    """`unistream.port.operator.ProcessingTimers` on the wall clock of the task, for all its operators.

    They end operator by operator, between the end of an operator's input and its `finish` (Flink's
    StreamOperatorWrapper), so that timers of later operators still fire for rows that it emits in `finish`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, OperatorUid | None, Action]] = []
        self._sequence = 0
        self._quiesced: set[OperatorUid | None] = set()
        self._all_quiesced = False

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def register(self, at_ms: int, action: Action, owner: OperatorUid | None = None) -> None:
        """`owner`: the operator that it belongs to; None: the task."""
        if self._all_quiesced or owner in self._quiesced:
            return
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, owner, action))

    def fire_due(self) -> bool:
        """Fires the earliest timer if it is due. True: it fired one."""
        if not self._heap or self._heap[0][0] > self._clock.wall_ms():
            return False
        at_ms, _, _, action = heapq.heappop(self._heap)
        action(at_ms)
        return True

    def quiesce(self, owner: OperatorUid) -> None:
        """Fires the due timers of one operator; all others of it, and new ones, never fire."""
        self._quiesced.add(owner)
        own = sorted((entry for entry in self._heap if entry[2] == owner), key=lambda entry: entry[:2])
        self._heap = [entry for entry in self._heap if entry[2] != owner]
        heapq.heapify(self._heap)
        now_ms = self._clock.wall_ms()
        for at_ms, _, _, action in own:
            if at_ms <= now_ms:
                action(at_ms)

    def quiesce_all(self) -> None:
        """Fires the due ones of all remaining timers, of operators and of the task; all others, and new ones,
        never fire."""
        self._all_quiesced = True
        left, self._heap = sorted(self._heap, key=lambda entry: entry[:2]), []
        now_ms = self._clock.wall_ms()
        for at_ms, _, _, action in left:
            if at_ms <= now_ms:
                action(at_ms)

    @property
    def next_monotonic_ms(self) -> int | None:
        """When the next timer is due, on the monotonic clock."""
        if not self._heap:
            return None
        return self._clock.monotonic_ms() + max(0, self._heap[0][0] - self._clock.wall_ms())
