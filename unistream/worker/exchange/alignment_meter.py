"""How long a task's barriers were on their way, and what it did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId
from unistream.core.task import PENDING_MAX
from unistream.model.elements import Batch, CheckpointBarrier, Element

MEASURED_MAX: Final = PENDING_MAX  # more are never under way at one task; those given up are among them


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


@dataclass(frozen=True, slots=True)
class _Begun:
    """What was known at the first barrier of a checkpoint. `at_ms`: monotonic."""

    at_ms: int
    delay_ms: int
    bytes_before: int


class AlignmentMeter:
    """Measures each checkpoint from its first barrier on: without alignment several are under way. Used by
    one task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: dict[CheckpointId, _Begun] = {}  # ascending
        self._newest: CheckpointId | None = None
        self._bytes = 0  # of all rows so far

    def on_barrier(self, barrier: CheckpointBarrier) -> None:
        """A barrier is there; the first of a newer checkpoint starts it."""
        if self._newest is not None and barrier.checkpoint_id <= self._newest:
            return
        self._newest = barrier.checkpoint_id
        delay_ms = max(0, self._clock.wall_ms() - barrier.timestamp_ms)
        self._begun[barrier.checkpoint_id] = _Begun(self._clock.monotonic_ms(), delay_ms, self._bytes)
        if len(self._begun) > MEASURED_MAX:
            del self._begun[next(iter(self._begun))]

    def on_element(self, element: Element) -> None:
        """Something was taken in."""
        if self._begun and isinstance(element, Batch):
            self._bytes += element.nbytes

    def stop(self, checkpoint_id: CheckpointId) -> AlignmentFigures:
        """All its barriers are there, or it is given up; older ones will not be whole any more."""
        begun = self._begun.get(checkpoint_id)
        self._begun = {n: found for n, found in self._begun.items() if n > checkpoint_id}
        if begun is None:
            return AlignmentFigures()
        return AlignmentFigures(
            alignment_ms=self._clock.monotonic_ms() - begun.at_ms,
            start_delay_ms=begun.delay_ms,
            processed_bytes=self._bytes - begun.bytes_before,
        )
