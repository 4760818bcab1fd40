"""What a task sees of the output of one edge, whatever becomes of it: a stream, or files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unistream.base.ids import CheckpointId, EdgeId
from unistream.model.elements import Batch, CheckpointBarrier, Event
from unistream.worker.exchange.in_flight import Run


class OutputPartition(Protocol):
    """Output of one edge. Called by the producer's task only."""

    rows_out: int
    """Rows that were emitted so far."""

    @property
    def edge(self) -> EdgeId: ...

    @property
    def has_room(self) -> bool:
        """False: the task must not take more input."""

    @property
    def flush_at_ms(self) -> int | None:
        """Monotonic time by which gathered rows must leave."""

    def emit(self, batch: Batch) -> None:
        """Rows on their way; never waits for a consumer."""

    def broadcast(self, event: Event) -> None:
        """An event to every consumer, behind all rows so far."""

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        """To every consumer; rows that it overtakes here."""

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        """The barrier of `checkpoint_id`, which may time out, still waits here for some consumer."""

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        """The barrier of `checkpoint_id`, if it still waits here, goes before all rows: those rows."""

    def flush(self) -> None:
        """Gathered rows leave now."""

    def abandon(self) -> None:
        """The producer ended without success."""


class Outputs:
    """All that one task produces, for what concerns all of it."""

    def __init__(self, partitions: Sequence[OutputPartition]) -> None:
        self._partitions = partitions

    def broadcast(self, event: Event) -> None:
        """An event to every consumer of every edge, behind all rows so far."""
        for partition in self._partitions:
            partition.broadcast(event)

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        """To every consumer; rows that it overtakes."""
        return [run for partition in self._partitions for run in partition.send_barrier(barrier)]

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        """The barrier of `checkpoint_id`, which may time out, still waits for some consumer."""
        return any(partition.holds_barrier(checkpoint_id) for partition in self._partitions)

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        """The barrier of `checkpoint_id`, wherever it still waits, goes before all rows: those rows."""
        return [run for partition in self._partitions for run in partition.overtake(checkpoint_id)]
