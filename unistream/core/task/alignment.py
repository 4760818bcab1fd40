"""Aligned, exactly-once handling of checkpoint barriers: pure.

A channel is blocked at its barrier until all open channels have delivered theirs; then the snapshot is taken
and all are released. A newer barrier gives up the older checkpoint.
"""

from __future__ import annotations

from unistream.base.ids import CheckpointId
from unistream.core.task.barriers import Abort, AbortReason, Action, ChannelAlignment, Trigger
from unistream.model.elements import CheckpointBarrier


class BarrierAligner(ChannelAlignment):
    """Blocks channels; no barrier overtakes."""

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ms: int) -> list[Action]:
        """Blocks the channel, or triggers if it is the last one."""
        if channel not in self._open:
            return []
        actions: list[Action] = []
        if barrier.checkpoint_id != self.pending:
            if self._latest is not None and barrier.checkpoint_id <= self._latest:
                return []
            if self._barrier is not None:
                actions.append(Abort(self._barrier.checkpoint_id, AbortReason.SUBSUMED))
                self._release()
            self._latest, self._barrier = barrier.checkpoint_id, barrier
        self._aligned.add(channel)
        self._blocked.add(channel)
        return actions + self._trigger_if_complete()

    def on_cancel(self, channel: int, checkpoint_id: CheckpointId) -> list[Action]:
        return self.cancel(checkpoint_id) if channel in self._open else []

    def cancel(self, checkpoint_id: CheckpointId) -> list[Action]:
        if checkpoint_id != self.pending and self._latest is not None and checkpoint_id <= self._latest:
            return []
        return self._give_up(checkpoint_id, AbortReason.CANCELLED)

    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]:
        self._open.discard(channel)
        if not self._after_tasks_finish and self._barrier is not None:
            return self._give_up(self._barrier.checkpoint_id, AbortReason.INPUT_ENDED)
        return self._trigger_if_complete()

    def _give_up(self, checkpoint_id: CheckpointId, reason: AbortReason) -> list[Action]:
        self._latest = checkpoint_id
        self._release()
        return [Abort(checkpoint_id, reason)]

    def _trigger_if_complete(self) -> list[Action]:
        if self._barrier is None or not self._open <= self._aligned:
            return []
        triggered = self._barrier
        self._release()
        return [Trigger(triggered)]

    def _release(self) -> None:
        self._barrier = None
        self._aligned.clear()
        self._blocked -= self._open
