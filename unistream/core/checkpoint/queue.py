"""Which snapshot is taken next: requests of users in Flink's order, and periodic checkpoints by timers.

    user ── put ─► requests (savepoints first) ─┐
    timers ── schedule.is_due ──────────────────┴─ next ─► SnapshotRequest, when there is room for it

Savepoints do not wait for checkpoints in progress, as long as no barrier overtakes data; all else waits until
fewer than `execution.checkpointing.max-concurrent-checkpoints` are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from unistream.core.checkpoint.requests import QueuedRequest, RequestQueue
from unistream.core.checkpoint.schedule import CheckpointSchedule
from unistream.core.contract import CommandOutbox, JobSettings, SnapshotRequest
from unistream.model.failure_reason import FailureReason
from unistream.model.snapshot_kind import SnapshotKind

Refuse = Callable[[SnapshotRequest, str], None]

PERIODIC: Final = SnapshotRequest(kind=SnapshotKind.CHECKPOINT)
"""What the schedule requests."""

PERIODIC_ALIGNED: Final = SnapshotRequest(kind=SnapshotKind.CHECKPOINT, aligned=True)
"""What the schedule requests where no row may stay in flight."""


class SnapshotQueue:
    """What waits to be taken.

    Args:
        refuse: Answers a request that will not be served.

    Attributes:
        schedule: Of the periodic checkpoints.
        stop: The stop in progress, from its request to the end of the job; with it there are no more
            periodic checkpoints.
    """

    def __init__(self, settings: JobSettings, outbox: CommandOutbox, refuse: Refuse) -> None:
        self._refuse_to = refuse
        self._concurrent_max = settings.concurrent_checkpoints_max
        self._savepoints_wait = settings.unaligned_checkpoints
        self.schedule = CheckpointSchedule(
            outbox,
            settings.checkpoint_interval_ms,
            settings.checkpoint_min_pause_ms,
            settings.checkpoint_backlog_interval_ms,
            settings.first_checkpoint_pause_ms,
        )
        self._requests: RequestQueue[SnapshotRequest] = RequestQueue(concurrent_max=self._concurrent_max)
        self._numbers: dict[str, int] = {}  # by request id; a request that is repeated is one request
        self.stop: SnapshotRequest | None = None

    def is_repeated(self, request: SnapshotRequest) -> bool:
        """Whether it came before; the first time it is remembered."""
        known = len(self._numbers)
        return self._numbers.setdefault(request.id, known) != known

    def put(self, request: SnapshotRequest) -> None:
        """Adds a new request."""
        if request.kind.is_synchronous:
            self.stop = request
        self.put_back(request)

    def put_back(self, request: SnapshotRequest) -> None:
        """Adds a request again whose snapshot was aborted for no fault of its own: the next of its kind."""
        is_savepoint = request.kind is not SnapshotKind.CHECKPOINT
        rejected = self._requests.offer(
            QueuedRequest(
                what=request,
                number=self._numbers[request.id],
                is_savepoint=is_savepoint,
                is_forced=is_savepoint and not self._savepoints_wait,
            )
        )
        if rejected is not None:
            self.refuse(rejected.what, FailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value)

    def next(self, pending: int) -> SnapshotRequest | None:
        """What is to be taken now. `pending`: so many snapshots are in progress, and all have started."""
        queued = self._requests.take(pending)
        if queued is not None:
            return queued.what
        has_room = pending < self._concurrent_max
        return PERIODIC if has_room and self.stop is None and self.schedule.is_due else None

    def refuse(self, request: SnapshotRequest, error: str) -> None:
        """It will not be served; if it was a stop, the job is not stopping any more."""
        if not request.is_answered:
            return
        self._refuse_to(request, error)
        if self.stop is request:
            self.stop = None

    def clear(self, error: str) -> None:
        """Nothing is taken any more: all requests that wait are refused."""
        self.schedule.end()
        for waiting in self._requests.clear():
            self.refuse(waiting.what, error)
