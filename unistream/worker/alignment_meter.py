"""How long a task's barriers were on their way, and what it did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch, CheckpointBarrier, Element


@dataclass(frozen=True, slots=True)
class AlignmentFigures:
    """Of one checkpoint at one task.

    Attributes:
        alignment_ms: From the first barrier to the last.
        start_delay_ms: From the barrier's creation to its first arrival; clocks of two hosts may differ.
        processed_bytes: Rows that were taken in between the first barrier and the last.
    """

    alignment_ms: int = 0
    start_delay_ms: int = 0
    processed_bytes: int = 0


class AlignmentMeter:
    """Measures the newest checkpoint only. Used by one task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._id: CheckpointId | None = None
        self._since_ms: int | None = None  # monotonic; None: nothing is measured
        self._delay_ms = 0
        self._bytes = 0

    def on_barrier(self, barrier: CheckpointBarrier) -> None:
        """A barrier is there; the first of a newer checkpoint starts it."""
        if self._id is not None and barrier.checkpoint_id <= self._id:
            return
        self._id = barrier.checkpoint_id
        self._since_ms = self._clock.monotonic_ms()
        self._delay_ms = max(0, self._clock.wall_ms() - barrier.timestamp_ms)
        self._bytes = 0

    def on_element(self, element: Element) -> None:
        """Something was taken in."""
        if self._since_ms is not None and isinstance(element, Batch):
            self._bytes += element.nbytes

    def stop(self) -> AlignmentFigures:
        """All barriers are there."""
        since_ms, self._since_ms = self._since_ms, None
        waited_ms = 0 if since_ms is None else self._clock.monotonic_ms() - since_ms
        return AlignmentFigures(waited_ms, self._delay_ms, self._bytes)
