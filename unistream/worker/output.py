"""What a task sees of the output of one edge, whatever becomes of it: a stream, or files."""

from __future__ import annotations

from typing import Protocol

from unistream.base.ids import EdgeId
from unistream.model.elements import Batch, Event


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

    def flush(self) -> None:
        """Gathered rows leave now."""

    def abandon(self) -> None:
        """The producer ended without success."""
