"""Which snapshot is taken next: wishes of users in Flink's order, and periodic checkpoints by timers.

    user ── put ─► wishes (savepoints first) ─┐
    timers ── schedule.is_due ────────────────┴─ next ─► Wish, when there is room for it

Savepoints do not wait for checkpoints that are under way, as long as no barrier overtakes data; all else
waits until fewer than `execution.checkpointing.max-concurrent-checkpoints` are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unistream.core.checkpoint.pending import Request
from unistream.core.checkpoint.requests import CheckpointRequestDecider, TriggerRequest
from unistream.core.checkpoint.schedule import CheckpointSchedule
from unistream.core.contract import JobSettings, Outbox
from unistream.model.elements import SnapshotKind

Refuse = Callable[[Request, str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """A snapshot to be taken now. `request` None: a periodic checkpoint."""

    request: Request | None

    @property
    def kind(self) -> SnapshotKind:
        return SnapshotKind.CHECKPOINT if self.request is None else self.request.kind


class SnapshotQueue:
    """What waits to be taken.

    Args:
        refuse: Tells who asked that it will not be served.

    Attributes:
        schedule: Of the periodic checkpoints.
        stop: The stop that is under way, from its request to the end of the job; with it there are no more
            periodic checkpoints.
    """

    def __init__(self, settings: JobSettings, outbox: Outbox, refuse: Refuse) -> None:
        self._refuse_to = refuse
        self._concurrent_max = settings.concurrent_checkpoints_max
        self._savepoints_wait = settings.unaligned_checkpoints
        self.schedule = CheckpointSchedule(
            outbox, settings.checkpoint_interval_ms, settings.checkpoint_min_pause_ms
        )
        self._wishes: CheckpointRequestDecider[Request] = CheckpointRequestDecider(
            concurrent_max=self._concurrent_max, pause_ms=settings.checkpoint_min_pause_ms
        )
        self._count = 0
        self._seen: set[str] = set()  # a request that is repeated is one request
        self.stop: Request | None = None

    def is_repeated(self, request: Request) -> bool:
        """It came before; the first time it is remembered."""
        if request.id in self._seen:
            return True
        self._seen.add(request.id)
        return False

    def put(self, request: Request) -> None:
        """A new wish."""
        if request.kind.is_synchronous:
            self.stop = request
        self._count += 1
        request.number = self._count
        self.put_back(request)

    def put_back(self, request: Request) -> None:
        """A wish whose snapshot was given up for no fault of its own is the next of its kind again."""
        is_savepoint = request.kind is not SnapshotKind.CHECKPOINT
        wish = TriggerRequest(
            what=request,
            is_savepoint=is_savepoint,
            is_forced=is_savepoint and not self._savepoints_wait,
            is_periodic=False,
            timestamp_ms=request.number,
        )
        decision = self._wishes.offer(wish, now_ms=0, pending=0, is_triggering=True, last_completion_ms=0)
        for rejected, reason in decision.rejected:
            self.refuse(rejected.what, reason.value)

    def next(self, pending: int) -> Wish | None:
        """What is to be taken now. `pending`: so many are under way, none of them just being started."""
        choice = self._wishes.choose(now_ms=0, pending=pending, is_triggering=False, last_completion_ms=0)
        if choice.execute is not None:
            return Wish(choice.execute.what)
        has_room = pending < self._concurrent_max
        return Wish(None) if has_room and self.stop is None and self.schedule.is_due else None

    def refuse(self, request: Request, error: str) -> None:
        """It will not be served; if it was a stop, there is none any more."""
        self._refuse_to(request, error)
        if self.stop is request:
            self.stop = None

    def clear(self, error: str) -> None:
        """Nothing is taken any more: all who wait are told."""
        self.schedule.end()
        for waiting in self._wishes.clear():
            self.refuse(waiting.what, error)
