"""At-least-once handling of checkpoint barriers: pure.

No channel waits: rows behind its barrier are processed before the others' barriers have arrived, so that they
are read again after a restore. Several checkpoints may be pending; the first complete one drops all older
ones. (Flink's `CheckpointBarrierTracker`.)
"""

from __future__ import annotations

from collections import deque
from typing import Final

from unistream.base.ids import CheckpointId
from unistream.core.task.barriers import Abort, AbortReason, Action, BarrierHandler, Trigger
from unistream.model.elements import CheckpointBarrier

PENDING_MAX: Final = 50  # as Flink: of checkpoints that never complete the oldest are dropped


class _BarrierCount:
    """A checkpoint of which some barriers have arrived."""

    def __init__(self, checkpoint_id: CheckpointId, barrier: CheckpointBarrier | None, target: int) -> None:
        self.checkpoint_id = checkpoint_id
        self.barrier = barrier  # None: it was canceled before its first
        self.target = target
        self.seen: set[int] = set()
        self.aborted = False

    def see(self, channel: int) -> bool:
        """True: `channel` was the last."""
        self.seen.add(channel)
        return len(self.seen) == self.target

    def abort(self, reason: AbortReason) -> list[Action]:
        """Reported the first time only."""
        if self.aborted:
            return []
        self.aborted = True
        return [Abort(self.checkpoint_id, reason)]


class BarrierTracker(BarrierHandler):
    """Never blocks a channel."""

    def __init__(self, channels: int, *, after_tasks_finish: bool = True) -> None:
        super().__init__(channels, after_tasks_finish=after_tasks_finish)
        self._pending: deque[_BarrierCount] = deque()  # ascending ids
        self._newest: CheckpointId | None = None  # that was ever pending

    @property
    def latest(self) -> CheckpointId | None:
        return self.pending

    @property
    def pending(self) -> CheckpointId | None:
        return self._pending[-1].checkpoint_id if self._pending else None  # a canceled one counts

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ms: int) -> list[Action]:
        """Triggers if it is the last barrier."""
        if channel not in self._open:
            return []
        is_new = self._is_new(barrier.checkpoint_id)
        if is_new and len(self._open) == 1:
            return [Trigger(barrier)]
        for place, pending in enumerate(self._pending):
            if pending.checkpoint_id == barrier.checkpoint_id:
                return self._complete(place) if pending.see(channel) else []
        if is_new:
            self._add(barrier.checkpoint_id, barrier).see(channel)
            if len(self._pending) > PENDING_MAX:
                self._pending.popleft()
        return []

    def on_cancel(self, channel: int, checkpoint_id: CheckpointId) -> list[Action]:
        """Older barriers will not arrive on it either."""
        if channel not in self._open:
            return []
        is_new = self._is_new(checkpoint_id)
        if is_new and len(self._open) == 1:
            return [Abort(checkpoint_id, AbortReason.CANCELLED)]
        actions: list[Action] = []
        while self._pending and self._pending[0].checkpoint_id < checkpoint_id:
            actions += self._pending.popleft().abort(AbortReason.CANCELLED)
        if self._pending and self._pending[0].checkpoint_id == checkpoint_id:
            actions += self._pending[0].abort(AbortReason.CANCELLED)
            if self._pending[0].see(channel):
                self._pending.popleft()
        elif is_new:
            marker = self._add(checkpoint_id, None)
            marker.see(channel)
            actions += marker.abort(AbortReason.CANCELLED)
        return actions

    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]:
        self._open.discard(channel)
        if not self._after_tasks_finish:
            ended = [pending.abort(AbortReason.INPUT_ENDED) for pending in self._pending]
            self._pending.clear()
            return [action for actions in ended for action in actions]
        for place in range(len(self._pending) - 1, -1, -1):
            if self._pending[place].see(channel):
                return self._complete(place)
        return []

    def cancel(self, checkpoint_id: CheckpointId) -> list[Action]:
        for pending in self._pending:
            if pending.checkpoint_id == checkpoint_id:
                return pending.abort(AbortReason.CANCELLED)
        if not self._is_new(checkpoint_id):
            return []
        if len(self._open) <= 1:
            return [Abort(checkpoint_id, AbortReason.CANCELLED)]
        return self._add(checkpoint_id, None).abort(AbortReason.CANCELLED)

    def _is_new(self, checkpoint_id: CheckpointId) -> bool:
        return self._newest is None or checkpoint_id > self._newest

    def _add(self, checkpoint_id: CheckpointId, barrier: CheckpointBarrier | None) -> _BarrierCount:
        self._newest = checkpoint_id
        pending = _BarrierCount(checkpoint_id, barrier, len(self._open))
        self._pending.append(pending)
        return pending

    def _complete(self, place: int) -> list[Action]:
        """All barriers of the one at `place` have arrived; those before it cannot complete any more."""
        for _ in range(place):
            self._pending.popleft()
        done = self._pending.popleft()
        if done.aborted:
            return []
        assert done.barrier is not None, "only a canceled one has no barrier"
        return [Trigger(done.barrier)]
