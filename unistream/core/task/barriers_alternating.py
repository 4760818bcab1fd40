"""Exactly-once handling of barriers that may overtake rows: pure.

    WAITING ──barrier──► COLLECTING ──all barriers──► (snapshot, aligned) WAITING
       │ timeout             │ timeout
       ▼                     ▼ snapshot, unaligned
    OVERTAKING ─barrier─► PERSISTING ──all barriers──► WAITING
                 snapshot, unaligned

Aligned barriers with a timeout are handled as `BarrierAligner` does until the timeout, counted from the
barrier's own timestamp, expires; then announced barriers overtake the rows before them and the snapshot is
taken at once. The same happens without waiting if a barrier has overtaken already (at the producer, or
because unaligned checkpoints have no timeout). An aligned barrier without timeout (a savepoint's) never
leaves the upper row. (Flink's `SingleCheckpointBarrierHandler` with its states; FLIP-76, FLIP-182.)
"""

from __future__ import annotations

from enum import Enum, auto

from unistream.base.ids import CheckpointId
from unistream.core.task.barriers import (
    Abort,
    AbortReason,
    Action,
    ChannelAlignment,
    Prioritize,
    StartPersisting,
    StopPersisting,
    Trigger,
)
from unistream.model.elements import AlignmentType, CheckpointBarrier


class _BarrierHandlerState(Enum):
    WAITING = auto()
    COLLECTING = auto()
    OVERTAKING = auto()
    PERSISTING = auto()


class AlternatingAligner(ChannelAlignment):
    """The handler for jobs with unaligned checkpoints. `deadline_ms`: when the pending alignment becomes
    unaligned."""

    def __init__(self, channels: int, *, after_tasks_finish: bool = True) -> None:
        super().__init__(channels, after_tasks_finish=after_tasks_finish)
        self._phase = _BarrierHandlerState.WAITING
        self._announced: dict[int, None] = {}  # in the order of their announcements
        self._target = 0

    def persists(self, channel: int) -> bool:
        waits = self._phase is _BarrierHandlerState.PERSISTING
        return waits and channel in self._open and channel not in self._aligned

    # --- events -----------------------------------------------------------------------------------

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ms: int) -> list[Action]:
        if channel not in self._open or self._is_obsolete(barrier.checkpoint_id):
            return []
        actions = self._begin_if_new(barrier)
        self._aligned.add(channel)
        actions += self._received(channel, barrier, now_ms)
        self._end_if_all()
        return actions

    def on_announcement(self, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        if channel not in self._open or self._is_obsolete(barrier.checkpoint_id):
            return []
        actions = self._begin_if_new(barrier)
        if self._phase in (_BarrierHandlerState.OVERTAKING, _BarrierHandlerState.PERSISTING):
            return [*actions, Prioritize(channel)]
        self._announced[channel] = None
        if barrier.alignment is AlignmentType.UNALIGNED:  # waits for nothing, nor does what it announces
            actions += self._time_out(barrier)
        return actions

    def on_cancel(self, channel: int, checkpoint_id: CheckpointId) -> list[Action]:
        """A barrier that was only announced so far stays: its first barrier begins it, and the master's abort
        ends it, as in Flink."""
        if channel not in self._open:
            return []
        is_begun = checkpoint_id == self.pending and bool(self._aligned)
        if is_begun or self._is_new(checkpoint_id):
            return self._give_up(checkpoint_id, AbortReason.CANCELLED)
        return []

    def cancel(self, checkpoint_id: CheckpointId) -> list[Action]:
        if checkpoint_id == self.pending or self._is_new(checkpoint_id):
            return self._give_up(checkpoint_id, AbortReason.CANCELLED)
        return []

    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]:
        """Counts as the barrier of the pending checkpoint."""
        self._open.discard(channel)
        if self._barrier is None:
            return []
        if not self._after_tasks_finish:
            return self._give_up(self._barrier.checkpoint_id, AbortReason.INPUT_ENDED)
        self._aligned.add(channel)
        self._blocked.discard(channel)
        self._announced.pop(channel, None)
        actions = self._ended(self._barrier, now_ms)
        self._end_if_all()
        return actions

    def on_time(self, now_ms: int) -> list[Action]:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        self.deadline_ms = None
        assert self._barrier is not None, "only what is pending has a deadline"
        return self._time_out(self._barrier)

    # --- one checkpoint ---------------------------------------------------------------------------

    def _is_new(self, checkpoint_id: CheckpointId) -> bool:
        return self._latest is None or checkpoint_id > self._latest

    def _is_obsolete(self, checkpoint_id: CheckpointId) -> bool:
        return not self._is_new(checkpoint_id) and checkpoint_id != self.pending

    def _begin_if_new(self, barrier: CheckpointBarrier) -> list[Action]:
        if not self._is_new(barrier.checkpoint_id):
            return []
        actions: list[Action] = []
        if self._barrier is not None:
            actions = self._give_up(self._barrier.checkpoint_id, AbortReason.SUBSUMED)
        self._latest, self._barrier = barrier.checkpoint_id, barrier
        self._aligned.clear()
        self._target = len(self._open)
        if barrier.may_time_out:
            self.deadline_ms = barrier.deadline_ms
        return actions

    def _received(self, channel: int, barrier: CheckpointBarrier, now_ms: int) -> list[Action]:
        overtook = barrier.alignment is AlignmentType.UNALIGNED
        if self._phase in (_BarrierHandlerState.WAITING, _BarrierHandlerState.COLLECTING):
            if overtook:
                return self._time_out(barrier) + self._received(channel, barrier, now_ms)
            self._announced.pop(channel, None)
            self._blocked.add(channel)
            if self._all_there:
                return self._trigger_aligned(barrier)
            if barrier.is_timed_out(now_ms):
                return self._time_out(barrier) + self._received(channel, barrier.overtaking(), now_ms)
            self._phase = _BarrierHandlerState.COLLECTING
            return []
        if not overtook:
            self._blocked.add(channel)
        actions = self._trigger_unaligned(barrier) if self._phase is _BarrierHandlerState.OVERTAKING else []
        return actions + self._stop_if_all()

    def _ended(self, barrier: CheckpointBarrier, now_ms: int) -> list[Action]:
        if self._phase is _BarrierHandlerState.COLLECTING:
            if self._all_there:
                return self._trigger_aligned(barrier)
            if barrier.is_timed_out(now_ms):
                return self._time_out(barrier)
        return self._stop_if_all() if self._phase is _BarrierHandlerState.PERSISTING else []

    def _time_out(self, barrier: CheckpointBarrier) -> list[Action]:
        """Lets barriers overtake from here on; a snapshot whose first barrier has arrived is taken at
        once."""
        if self._phase in (_BarrierHandlerState.OVERTAKING, _BarrierHandlerState.PERSISTING):
            return []
        actions: list[Action] = [Prioritize(channel) for channel in self._announced]
        self._announced.clear()
        if self._phase is _BarrierHandlerState.WAITING:
            self._phase = _BarrierHandlerState.OVERTAKING
            return actions
        return actions + self._trigger_unaligned(barrier)

    def _trigger_aligned(self, barrier: CheckpointBarrier) -> list[Action]:
        self._release()
        return [Trigger(barrier)]

    def _trigger_unaligned(self, barrier: CheckpointBarrier) -> list[Action]:
        self._phase = _BarrierHandlerState.PERSISTING
        return [StartPersisting(barrier.checkpoint_id), Trigger(barrier.overtaking())]

    def _stop_if_all(self) -> list[Action]:
        if not self._all_there:
            return []
        assert self._barrier is not None, "something is pending"
        self._release()
        return [StopPersisting(self._barrier.checkpoint_id)]

    @property
    def _all_there(self) -> bool:
        return len(self._aligned) == self._target

    def _end_if_all(self) -> None:
        if self._all_there:
            self._barrier = self.deadline_ms = None
            self._aligned.clear()

    def _give_up(self, checkpoint_id: CheckpointId, reason: AbortReason) -> list[Action]:
        persisting = self._phase is _BarrierHandlerState.PERSISTING
        if self._is_new(checkpoint_id):
            self._latest = checkpoint_id
        self._barrier = self.deadline_ms = None
        self._aligned.clear()
        self._release()
        stop: list[Action] = [StopPersisting(checkpoint_id)] if persisting else []
        return [*stop, Abort(checkpoint_id, reason)]

    def _release(self) -> None:
        self._blocked.clear()
        self._announced.clear()
        self._phase = _BarrierHandlerState.WAITING
