"""Aligned, exactly-once handling of checkpoint barriers: pure.

A channel is blocked at its barrier until all open channels have delivered theirs; then the snapshot
is taken and all go on. At most one checkpoint is pending; a newer barrier gives up the older one, and
whatever belongs to an id that was triggered, cancelled or given up is ignored. A channel at its end
counts as having delivered every barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from unistream.base.ids import CheckpointId


class AbortReason(Enum):
    """Flink's names (`CheckpointFailureReason`)."""

    SUBSUMED = "CHECKPOINT_DECLINED_SUBSUMED"
    CANCELLED = "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER"


@dataclass(frozen=True, slots=True)
class Trigger:
    """All barriers are there: take the snapshot now."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Abort:
    """The snapshot will not be taken here."""

    checkpoint_id: CheckpointId
    reason: AbortReason


Action = Trigger | Abort


class BarrierAligner:
    """Decides which channels of one task may be read; channels are numbered over all its gates."""

    def __init__(self, channels: int) -> None:
        self._open = set(range(channels))
        self._blocked: set[int] = set()
        self._aligned: set[int] = set()
        self._latest: CheckpointId | None = None
        self._pending: CheckpointId | None = None

    @property
    def latest(self) -> CheckpointId | None:
        """The newest id that was seen; older ones are ignored."""
        return self._latest

    @property
    def pending(self) -> CheckpointId | None:
        """The checkpoint that is being aligned."""
        return self._pending

    @property
    def blocked(self) -> frozenset[int]:
        """Channels that must not be read. A channel that ended while blocked stays listed."""
        return frozenset(self._blocked)

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""
        return len(self._open)

    def is_blocked(self, channel: int) -> bool:
        return channel in self._blocked

    def on_barrier(self, channel: int, checkpoint_id: CheckpointId) -> list[Action]:
        """The barrier of `checkpoint_id` arrived on `channel`."""
        if channel not in self._open:
            return []
        actions: list[Action] = []
        if checkpoint_id != self._pending:
            if self._latest is not None and checkpoint_id <= self._latest:
                return []
            if self._pending is not None:
                actions.append(Abort(self._pending, AbortReason.SUBSUMED))
                self._release()
            self._latest = self._pending = checkpoint_id
        self._aligned.add(channel)
        self._blocked.add(channel)
        return actions + self._trigger_if_complete()

    def on_cancel(self, channel: int, checkpoint_id: CheckpointId) -> list[Action]:
        """The barrier of `checkpoint_id` will not come on `channel`."""
        return self.cancel(checkpoint_id) if channel in self._open else []

    def cancel(self, checkpoint_id: CheckpointId) -> list[Action]:
        """`checkpoint_id` is given up, from wherever that is known; reported once."""
        if checkpoint_id != self._pending and self._latest is not None and checkpoint_id <= self._latest:
            return []
        self._latest = checkpoint_id
        self._release()
        return [Abort(checkpoint_id, AbortReason.CANCELLED)]

    def on_end_of_partition(self, channel: int) -> list[Action]:
        """Nothing follows on `channel`."""
        self._open.discard(channel)
        return self._trigger_if_complete()

    def _trigger_if_complete(self) -> list[Action]:
        if self._pending is None or not self._open <= self._aligned:
            return []
        triggered = self._pending
        self._release()
        return [Trigger(triggered)]

    def _release(self) -> None:
        self._pending = None
        self._aligned.clear()
        self._blocked -= self._open
