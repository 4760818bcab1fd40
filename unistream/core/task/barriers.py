"""What handlers of checkpoint barriers share: their messages and their interface. Pure.

A task has one handler for all its input channels. It is told what arrives (barriers, announcements, cancel
markers, ends) and what time it is, and answers with actions, which the task performs in order:

    `BarrierAligner`       exactly once: a channel waits at its barrier   `alignment`
    `BarrierTracker`       at least once: nothing waits                   `barriers_tracker`
    `AlternatingAligner`   exactly once: waits up to a timeout, then (or from the beginning) barriers overtake
                           rows, which become part of the snapshot        `barriers_alternating`

An unaligned snapshot begins with `StartPersisting` and `Trigger`, and is whole at `StopPersisting`: until
then every row of a channel for which `persists` says so belongs to it. (FLIP-76; FLIP-182 for the timeout.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from unistream.base.ids import CheckpointId
from unistream.model.elements import CheckpointBarrier


class AbortReason(Enum):
    """Flink's names (`CheckpointFailureReason`)."""

    SUBSUMED = "CHECKPOINT_DECLINED_SUBSUMED"
    CANCELLED = "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER"
    INPUT_ENDED = "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM"


@dataclass(frozen=True, slots=True)
class Trigger:
    """Take the snapshot now. `barrier` is as it shall go on: aligned, or overtaking."""

    barrier: CheckpointBarrier

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self.barrier.checkpoint_id


@dataclass(frozen=True, slots=True)
class Abort:
    """The snapshot will not be taken here, or will not be whole."""

    checkpoint_id: CheckpointId
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class StartPersisting:
    """Rows that come from now on before their channel's barrier, and rows that a barrier overtakes, are
    part of the snapshot."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class StopPersisting:
    """No more rows belong to the snapshot that was begun: all barriers are there, or it is given up (then
    `Abort` follows)."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Prioritize:
    """The announced barrier of `channel` shall overtake what is before it."""

    channel: int


Action = Trigger | Abort | StartPersisting | StopPersisting | Prioritize


class BarrierHandler(Protocol):
    """Barriers of one task; channels are numbered over all its gates. Times are wall-clock ms.

    What belongs to an id that was triggered, cancelled or given up is ignored, as is everything of a channel
    that has ended. A channel at its end counts as having delivered every barrier.
    """

    @property
    def latest(self) -> CheckpointId | None:
        """The newest id that matters; older ones are ignored."""

    @property
    def pending(self) -> CheckpointId | None:
        """The (newest) checkpoint whose barriers are not all there."""

    @property
    def blocked(self) -> frozenset[int]:
        """Channels that must not be read."""

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""

    @property
    def deadline_ms(self) -> int | None:
        """When `on_time` has something to do; None: no timer is wanted."""

    def is_blocked(self, channel: int) -> bool:
        """Whether `channel` is one of `blocked`."""

    def persists(self, channel: int) -> bool:
        """Rows of `channel` that are read now belong to the snapshot that was triggered."""

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ms: int) -> list[Action]:
        """A barrier has arrived."""

    def on_announcement(self, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        """A barrier that may time out has arrived behind rows that were not read yet."""

    def on_cancel(self, channel: int, checkpoint_id: CheckpointId) -> list[Action]:
        """The barrier of `checkpoint_id` will not come on `channel`."""

    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]:
        """Nothing follows on `channel`."""

    def on_time(self, now_ms: int) -> list[Action]:
        """The time has come that `deadline_ms` said, or not yet."""

    def cancel(self, checkpoint_id: CheckpointId) -> list[Action]:
        """`checkpoint_id` is given up, from wherever that is known; reported once."""


class ChannelAlignment:
    """Where the channels of a task stand while one checkpoint at most is pending: what both handlers that are
    exactly once know."""

    def __init__(self, channels: int) -> None:
        self._open = set(range(channels))
        self._blocked: set[int] = set()
        self._aligned: set[int] = set()  # the barrier, or the end, is there
        self._latest: CheckpointId | None = None
        self._barrier: CheckpointBarrier | None = None  # None: no checkpoint is pending

    @property
    def latest(self) -> CheckpointId | None:
        """The newest id that was seen; older ones are ignored."""
        return self._latest

    @property
    def pending(self) -> CheckpointId | None:
        """The checkpoint whose barriers are not all there; its snapshot may have been triggered."""
        return None if self._barrier is None else self._barrier.checkpoint_id

    @property
    def blocked(self) -> frozenset[int]:
        """Channels whose barrier came in its place; they wait for the others'. One that ended meanwhile stays
        listed."""
        return frozenset(self._blocked)

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""
        return len(self._open)

    def is_blocked(self, channel: int) -> bool:
        return channel in self._blocked
