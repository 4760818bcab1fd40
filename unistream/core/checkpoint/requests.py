"""Which wish for a snapshot is next: Flink's CheckpointRequestDecider. Pure.

Savepoints go first, then forced requests, then what a user asked for, then periodic checkpoints; among equals
the older one. The queue is bounded: what is last in that order is rejected. A periodic checkpoint that comes
within the least pause after the last completion is rejected too, and says when to try again; nothing else
waits for the pause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from unistream.core.contract import FailureReason

R = TypeVar("R")

REQUESTS_MAX: Final = 1_000  # that wait, as in Flink


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRequest(Generic[R]):
    """A wish for a snapshot.

    Attributes:
        what: The caller's own.
        is_forced: It does not wait for snapshots that are under way.
        is_periodic: The schedule's, not a user's.
    """

    what: R
    is_savepoint: bool
    is_forced: bool
    is_periodic: bool
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R]):
    """What follows from one offer or one look.

    Attributes:
        execute: To be taken now; it has left the queue.
        rejected: Requests that will not be served, and why.
        reschedule_in_ms: When the periodic checkpoint that was rejected is due.
    """

    execute: TriggerRequest[R] | None = None
    rejected: tuple[tuple[TriggerRequest[R], FailureReason], ...] = ()
    reschedule_in_ms: int | None = None


class CheckpointRequestDecider(Generic[R]):
    """The queue of one job.

    Args:
        concurrent_max: Snapshots under way at the same time.
        pause_ms: Least pause between the end of one and a periodic one.
    """

    def __init__(self, *, concurrent_max: int, pause_ms: int, waiting_max: int = REQUESTS_MAX) -> None:
        self._concurrent_max = concurrent_max
        self._pause_ms = pause_ms
        self._waiting_max = waiting_max
        self._waiting: list[TriggerRequest[R]] = []  # in the order in which they are served

    def offer(
        self,
        request: TriggerRequest[R],
        *,
        now_ms: int,
        pending: int,
        is_triggering: bool,
        last_completion_ms: int,
        cleaning: int = 0,
    ) -> Decision[R]:
        """A new request. `is_triggering`: one is just being started. `cleaning`: snapshots being removed."""
        if len(self._waiting) >= self._waiting_max and not self._waiting[-1].is_periodic:
            return Decision(rejected=((request, FailureReason.TOO_MANY_CHECKPOINT_REQUESTS),))
        self._waiting = sorted([*self._waiting, request], key=_place)
        dropped = self._waiting.pop() if len(self._waiting) > self._waiting_max else None
        decision = self.choose(
            now_ms=now_ms,
            pending=pending,
            is_triggering=is_triggering,
            last_completion_ms=last_completion_ms,
            cleaning=cleaning,
        )
        if dropped is None:
            return decision
        rejected = ((dropped, FailureReason.TOO_MANY_CHECKPOINT_REQUESTS), *decision.rejected)
        return Decision(
            execute=decision.execute, rejected=rejected, reschedule_in_ms=decision.reschedule_in_ms
        )

    def choose(
        self, *, now_ms: int, pending: int, is_triggering: bool, last_completion_ms: int, cleaning: int = 0
    ) -> Decision[R]:
        """The next one, if it may be served now."""
        if is_triggering or not self._waiting or cleaning > self._concurrent_max:
            return Decision()
        first = self._waiting[0]
        if pending >= self._concurrent_max and not first.is_forced:
            return Decision()
        del self._waiting[0]
        wait_ms = self._pause_ms - (now_ms - last_completion_ms)
        if first.is_periodic and not first.is_forced and wait_ms > 0:
            reason = FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
            return Decision(rejected=((first, reason),), reschedule_in_ms=wait_ms)
        return Decision(execute=first)

    def clear(self) -> tuple[TriggerRequest[R], ...]:
        """Nothing is served any more; returns what waited."""
        waiting, self._waiting = tuple(self._waiting), []
        return waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[TriggerRequest[R]]:
        return iter(self._waiting)


def _place(request: TriggerRequest[R]) -> tuple[bool, bool, bool, int]:
    return (
        not request.is_savepoint,
        not request.is_forced,
        request.is_periodic,
        request.timestamp_ms,
    )
