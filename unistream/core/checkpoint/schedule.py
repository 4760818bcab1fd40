"""When periodic checkpoints are due, by timers alone.

One is due when the interval since the start of the last one and the least pause since the end of the last
snapshot (savepoints too) have both passed; the first one right after the least pause.
"""

from __future__ import annotations

from typing import Final

from unistream.core.contract import CancelTimer, Outbox, SetTimer, Timer, TimerKind

INTERVAL: Final = Timer(TimerKind.CHECKPOINT_INTERVAL, 0)
PAUSE: Final = Timer(TimerKind.CHECKPOINT_INTERVAL, 1)


class CheckpointSchedule:
    """Set `urgent` to have a checkpoint as soon as possible, whatever the timers say."""

    def __init__(self, outbox: Outbox, interval_ms: int | None, pause_ms: int) -> None:
        self._outbox = outbox
        self._interval_ms = interval_ms
        self._pause_ms = pause_ms
        self._running = False
        self._interval_over = False
        self._pause_over = False
        self.urgent = False

    @property
    def is_due(self) -> bool:
        return self._running and (self.urgent or (self._interval_over and self._pause_over))

    def begin(self) -> None:
        """All tasks run (again)."""
        self._running = True
        self._interval_over = True
        self.urgent = False
        self._pause()

    def end(self) -> None:
        if self._running:
            self._running = False
            self.urgent = False
            self._outbox.add(CancelTimer(INTERVAL))
            self._outbox.add(CancelTimer(PAUSE))

    def started(self) -> None:
        """A checkpoint has started; the next follows after the interval."""
        self.urgent = False
        if self._running and self._interval_ms is not None:
            self._interval_over = False
            self._outbox.add(SetTimer(timer=INTERVAL, delay_ms=self._interval_ms))

    def completed(self) -> None:
        """A checkpoint or savepoint is durable."""
        if self._running:
            self._pause()

    def fired(self, timer: Timer) -> None:
        if timer == INTERVAL:
            self._interval_over = True
        elif timer == PAUSE:
            self._pause_over = True

    def _pause(self) -> None:
        self._pause_over = self._pause_ms == 0
        if not self._pause_over:
            self._outbox.add(SetTimer(timer=PAUSE, delay_ms=self._pause_ms))
