"""What handlers of checkpoint barriers share: their messages and their interface. Pure.

A task has one handler for all its input channels. Its input is what arrives (barriers, announcements, cancel
markers, ends) and the time; its output are actions, which the task performs in order:

    `BarrierAligner`       exactly once: a channel waits at its barrier   `alignment`
    `BarrierTracker`       at least once: nothing waits                   `barriers_tracker`
    `AlternatingAligner`   exactly once: waits up to a timeout, then (or from the beginning) barriers overtake
                           rows, which become part of the snapshot        `barriers_alternating`

An unaligned snapshot begins with `StartPersisting` and `Trigger`, and is complete at `StopPersisting`: until
then every row of a channel that `persists` belongs to it. (FLIP-76; FLIP-182 for the timeout.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from unistream.base.ids import CheckpointId
from unistream.model.elements import CheckpointBarrier


class AbortReason(Enum):
    """Flink's names (`CheckpointFailureReason`)."""

    SUBSUMED = "CHECKPOINT_DECLINED_SUBSUMED"
    CANCELLED = "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER"
    INPUT_ENDED = "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM"


@dataclass(frozen=True, slots=True)
class Trigger:
    """Take the snapshot now and forward `barrier`: aligned, or overtaking."""

    barrier: CheckpointBarrier

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self.barrier.checkpoint_id


@dataclass(frozen=True, slots=True)
class Abort:
    """The snapshot is not taken here, or stays incomplete."""

    checkpoint_id: CheckpointId
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class StartPersisting:
    """Rows that arrive from now on before their channel's barrier, and rows that a barrier overtakes, are
    part of the snapshot."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class StopPersisting:
    """No more rows belong to the snapshot: all barriers have arrived, or it is given up (then `Abort`
    follows)."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Prioritize:
    """The announced barrier of `channel` overtakes the rows before it."""

    channel: int


Action = Trigger | Abort | StartPersisting | StopPersisting | Prioritize


class BarrierHandler(ABC):
    """Barriers of one task; channels are numbered over all its gates. Times are wall-clock ms.

    What belongs to an id that was triggered, canceled or given up is ignored, as is everything of a channel
    that has ended. A channel at its end counts as having delivered every barrier.

    Args:
        after_tasks_finish: False: a channel that ends gives up the pending checkpoints.

    Attributes:
        deadline_ms: When `on_time` has something to do; None: no timer is needed.
    """

    def __init__(self, channels: int, *, after_tasks_finish: bool = True) -> None:
        self._open = set(range(channels))
        self._after_tasks_finish = after_tasks_finish
        self.deadline_ms: int | None = None

    @property
    @abstractmethod
    def latest(self) -> CheckpointId | None:
        """The newest id that matters; older ones are ignored."""

    @property
    @abstractmethod
    def pending(self) -> CheckpointId | None:
        """The (newest) checkpoint of which barriers are missing; its snapshot may have been triggered."""

    @property
    def blocked(self) -> frozenset[int]:
        """Channels that must not be read, including some that have ended."""
        return frozenset()

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""
        return len(self._open)

    def is_blocked(self, channel: int) -> bool:
        """Whether `channel` is one of `blocked`."""
        return False

    def persists(self, channel: int) -> bool:
        """Rows of `channel` that are read now belong to the snapshot that was triggered."""
        return False

    @abstractmethod
    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ms: int) -> list[Action]:
        """A barrier has arrived: in its place, or having overtaken rows."""

    def on_announcement(self, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        """A barrier that may time out has arrived behind rows that were not read yet."""
        return []

    @abstractmethod
    def on_cancel(self, channel: int, checkpoint_id: CheckpointId) -> list[Action]:
        """The barrier of `checkpoint_id` will not arrive on `channel`."""

    @abstractmethod
    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]:
        """Nothing follows on `channel`."""

    def on_time(self, now_ms: int) -> list[Action]:
        """It may be `deadline_ms`."""
        return []

    @abstractmethod
    def cancel(self, checkpoint_id: CheckpointId) -> list[Action]:
        """`checkpoint_id` is given up, from whatever source; reported once."""


class ChannelAlignment(BarrierHandler):
    """The state of both exactly-once handlers: at most one checkpoint is pending."""

    def __init__(self, channels: int, *, after_tasks_finish: bool = True) -> None:
        super().__init__(channels, after_tasks_finish=after_tasks_finish)
        self._blocked: set[int] = set()
        self._aligned: set[int] = set()  # the barrier, or the end, has arrived
        self._latest: CheckpointId | None = None
        self._barrier: CheckpointBarrier | None = None  # None: no checkpoint is pending

    @property
    def latest(self) -> CheckpointId | None:
        return self._latest

    @property
    def pending(self) -> CheckpointId | None:
        return None if self._barrier is None else self._barrier.checkpoint_id

    @property
    def blocked(self) -> frozenset[int]:
        return frozenset(self._blocked)

    def is_blocked(self, channel: int) -> bool:
        return channel in self._blocked
