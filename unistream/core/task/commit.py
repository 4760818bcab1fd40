"""Which checkpoint notifications a task's operators get, and when the task may end: pure.

The master's notifications arrive at least once, late and out of order; an operator gets each completion at
most once and in ascending order. A task that has sent EndOfData stays until the output that it has prepared
is committed: until a checkpoint that began afterwards has completed, or, once a stop-with-savepoint has
begun, until exactly that savepoint has completed.
"""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.ids import CheckpointId
from unistream.model.snapshot_kind import SnapshotKind


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """All operators: everything up to `checkpoint_id` is durable; commit it."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """All operators: `checkpoint_id` will not complete."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class StopFailed:
    """The savepoint that was to stop the task failed; its operators have stopped, so the task must fail and
    be restored."""

    checkpoint_id: CheckpointId


CheckpointNotification = NotifyComplete | NotifyAborted | StopFailed


class TaskCheckpoints:
    """The checkpoints of one attempt."""

    def __init__(self, restored: CheckpointId | None) -> None:
        self._notified = restored
        self._begun: CheckpointId | None = None
        self._aborted: set[CheckpointId] = set()
        self._stopping: CheckpointId | None = None
        self._data_ended = False
        self._first_after_end: CheckpointId | None = None
        self._final_completed = False

    @property
    def stopping(self) -> CheckpointId | None:
        """The synchronous savepoint that has begun."""
        return self._stopping

    @property
    def final_completed(self) -> bool:
        """The checkpoint that the task waits for after its EndOfData has completed."""
        return self._final_completed

    def begin(self, checkpoint_id: CheckpointId, kind: SnapshotKind) -> bool:
        """A trigger or complete alignment: True if the snapshot is to be taken. False: it is older than one
        that began (repeated or late), or was aborted before it began."""
        if self._begun is not None and checkpoint_id <= self._begun:
            return False
        self._begun = checkpoint_id
        was_aborted = checkpoint_id in self._aborted
        self._aborted = {c for c in self._aborted if c > checkpoint_id}
        if was_aborted:
            return False
        if kind.is_synchronous:
            self._stopping = checkpoint_id
        if self._data_ended and self._first_after_end is None:
            self._first_after_end = checkpoint_id
        return True

    def is_aborted(self, checkpoint_id: CheckpointId) -> bool:
        """It was aborted and has not begun here."""
        return checkpoint_id in self._aborted

    def on_end_of_data(self) -> None:
        """EndOfData was sent; the next snapshot that begins is the first that may be the last."""
        self._data_ended = True

    def on_completed(self, checkpoint_id: CheckpointId) -> list[CheckpointNotification]:
        if self._notified is not None and checkpoint_id <= self._notified:
            return []
        self._notified = checkpoint_id
        if self._stopping is not None:
            self._final_completed |= checkpoint_id == self._stopping
        elif self._first_after_end is not None:
            self._final_completed |= checkpoint_id >= self._first_after_end
        return [NotifyComplete(checkpoint_id)]

    def on_aborted(
        self, checkpoint_id: CheckpointId, latest_completed: CheckpointId | None
    ) -> list[CheckpointNotification]:
        """The master has given up `checkpoint_id`; a missed completion comes first."""
        found = [] if latest_completed is None else self.on_completed(latest_completed)
        if self._begun is None or checkpoint_id > self._begun:
            self._aborted.add(checkpoint_id)
        if checkpoint_id == self._stopping:
            return [*found, StopFailed(checkpoint_id)]
        return [*found, NotifyAborted(checkpoint_id)]

    def on_declined(self, checkpoint_id: CheckpointId) -> list[CheckpointNotification]:
        """This task cannot take (or store) `checkpoint_id`."""
        return [StopFailed(checkpoint_id)] if checkpoint_id == self._stopping else []
