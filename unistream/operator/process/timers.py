"""Timers by key: a set that knows what is due, in order of time and registration."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any


class KeyedTimers:
    """(time, key) pairs, each at most once; keys are those of a state backend (`keys_of`)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._live: dict[tuple[int, Any], int] = {}
        self._count = 0

    def register(self, timestamp: int, key: Any) -> None:
        if (timestamp, key) not in self._live:
            self._count += 1
            self._live[timestamp, key] = self._count
            heapq.heappush(self._heap, (timestamp, self._count, key))

    def delete(self, timestamp: int, key: Any) -> None:
        self._live.pop((timestamp, key), None)  # `earliest` drops its heap entry

    def earliest(self) -> int | None:
        """The time of the next timer, ms."""
        while self._heap and self._live.get((self._heap[0][0], self._heap[0][2])) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[tuple[int, Any]]:
        """Removes and yields timers that are due at `now`, also those that are registered meanwhile."""
        while (earliest := self.earliest()) is not None and earliest <= now:
            timestamp, _, key = heapq.heappop(self._heap)
            del self._live[timestamp, key]
            yield timestamp, key

    def all(self) -> tuple[list[int], list[Any]]:
        """Times and keys of all timers."""
        pairs = list(self._live)
        return [timestamp for timestamp, _ in pairs], [key for _, key in pairs]

    def restore(self, timestamps: Iterable[int], keys: Iterable[Any]) -> None:
        for timestamp, key in zip(timestamps, keys, strict=True):
            self.register(timestamp, key)
