"""The output of a task, as the task sees it: each edge is a stream or files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unistream.base.ids import CheckpointId, EdgeId
from unistream.model.elements import Batch, CheckpointBarrier, Event
from unistream.worker.exchange.in_flight import Run


class OutputPartition(Protocol):
    """Output of one edge. Used by the producer's task only."""

    edge: EdgeId
    rows_out: int
    """Rows emitted so far."""

    @property
    def has_room(self) -> bool:
        """False: the task must not take more input."""

    @property
    def flush_at_ms(self) -> int | None:
        """Monotonic time by which gathered rows must be sent."""

    def emit(self, batch: Batch) -> None:
        """Never waits for a consumer."""

    def broadcast(self, event: Event) -> None:
        """Sends an event to every consumer, after all rows so far."""

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        """Sends it to every consumer; returns the rows that it overtakes here."""

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        """The barrier of `checkpoint_id`, which may time out, still waits here for some consumer."""

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        """The barrier of `checkpoint_id`, if it still waits here, overtakes all rows; returns them."""

    def flush(self) -> None:
        """Sends gathered rows."""

    def abandon(self) -> None:
        """The producer ended without EndOfPartition."""


class EndOnlyOutput:
    """The methods that an `OutputPartition` has for barriers, of one that keeps its rows until its task ends:
    none overtakes rows in it."""

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        raise AssertionError(f"{barrier} in a bounded job")

    def holds_barrier(self, _checkpoint_id: CheckpointId, /) -> bool:
        return False

    def overtake(self, _checkpoint_id: CheckpointId, /) -> list[Run]:
        return []

    def flush(self) -> None:
        """Nothing is due before the end."""


class Outputs:
    """All outputs of one task; see `OutputPartition`."""

    def __init__(self, partitions: Sequence[OutputPartition]) -> None:
        self._partitions = partitions

    def broadcast(self, event: Event) -> None:
        for partition in self._partitions:
            partition.broadcast(event)

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        return [run for partition in self._partitions for run in partition.send_barrier(barrier)]

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        return any(partition.holds_barrier(checkpoint_id) for partition in self._partitions)

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        return [run for partition in self._partitions for run in partition.overtake(checkpoint_id)]
