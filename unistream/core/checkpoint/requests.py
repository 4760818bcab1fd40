"""Which request for a snapshot is served next, in the order of Flink's CheckpointRequestDecider. Pure.

Savepoints go first, then forced requests, then those of users, then periodic checkpoints; among equals the
older one. The queue is bounded: the last one in that order is rejected. The least pause between checkpoints
is kept by `schedule`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

R = TypeVar("R")

REQUESTS_MAX: Final = 1_000  # that wait, as in Flink


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRequest(Generic[R]):
    """A request that waits.

    Attributes:
        what: The caller's own.
        number: Grows with the age of requests; the smaller one is the older one.
        is_forced: It does not wait for snapshots in progress.
        is_periodic: The schedule's, not a user's.
    """

    what: R
    number: int
    is_savepoint: bool
    is_forced: bool
    is_periodic: bool = False

    @property
    def place(self) -> tuple[bool, bool, bool, int]:
        """Sorts requests in the order in which they are served."""
        return (not self.is_savepoint, not self.is_forced, self.is_periodic, self.number)


class RequestQueue(Generic[R]):
    """The queue of one job.

    Args:
        concurrent_max: Snapshots in progress at the same time.
    """

    def __init__(self, *, concurrent_max: int, waiting_max: int = REQUESTS_MAX) -> None:
        self._concurrent_max = concurrent_max
        self._waiting_max = waiting_max
        self._waiting: list[QueuedRequest[R]] = []  # in the order in which they are served

    def offer(self, request: QueuedRequest[R]) -> QueuedRequest[R] | None:
        """Adds a request; returns the one that is rejected because the queue is full."""
        if len(self) >= self._waiting_max and not self._waiting[-1].is_periodic:
            return request
        self._waiting = sorted([*self._waiting, request], key=lambda queued: queued.place)
        return self._waiting.pop() if len(self) > self._waiting_max else None

    def take(self, pending: int) -> QueuedRequest[R] | None:
        """Removes and returns the first request if it may be served while `pending` snapshots are in
        progress."""
        if not self._waiting or (pending >= self._concurrent_max and not self._waiting[0].is_forced):
            return None
        return self._waiting.pop(0)

    def clear(self) -> tuple[QueuedRequest[R], ...]:
        """Removes and returns all requests."""
        waiting, self._waiting = tuple(self._waiting), []
        return waiting

    def __len__(self) -> int:
        return len(self._waiting)
