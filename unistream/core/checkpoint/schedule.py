"""When periodic checkpoints are due, by timers alone.

One is due when the interval since the start of the last one and the least pause since the end of the last
snapshot (savepoints too) have both passed; the first one right after the least pause, or a longer one for it
alone.

While a source reads a backlog another interval may apply, or none is due at all (FLIP-309). When it is read,
one is due at once: a source with phases goes on when that is complete.
"""

from __future__ import annotations

from typing import Final

from unistream.core.contract import CancelTimer, CommandOutbox, SetTimer, Timer, TimerKind

INTERVAL: Final = Timer(TimerKind.CHECKPOINT_INTERVAL, 0)
PAUSE: Final = Timer(TimerKind.CHECKPOINT_INTERVAL, 1)


class CheckpointSchedule:
    """Set `urgent` to have a checkpoint as soon as possible, whatever the timers say.

    Args:
        backlog_interval_ms: Takes the place of `interval_ms` while a backlog is read; 0: none is due then.
        first_pause_ms: Least time between `begin` and the first one, also after restarts.
    """

    def __init__(
        self,
        outbox: CommandOutbox,
        interval_ms: int | None,
        pause_ms: int,
        backlog_interval_ms: int | None = None,
        first_pause_ms: int = 0,
    ) -> None:
        self._outbox = outbox
        self._interval_ms = interval_ms
        self._pause_ms = pause_ms
        self._first_pause_ms = max(first_pause_ms, pause_ms)
        self._backlog_interval_ms = interval_ms if backlog_interval_ms is None else backlog_interval_ms
        self._backlog = False
        self._running = False
        self._interval_over = False
        self._pause_over = False
        self.urgent = False

    @property
    def is_due(self) -> bool:
        by_time = self._interval_over and self._pause_over and self._current_ms != 0
        return self._running and (self.urgent or by_time)

    def begin(self, *, backlog: bool = False) -> None:
        """All tasks run (again). `backlog`: a source reads one."""
        self._running = True
        self._backlog = backlog
        self._interval_over = True
        self.urgent = False
        self._pause(self._first_pause_ms)

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
            if self._current_ms:
                self._outbox.add(SetTimer(timer=INTERVAL, delay_ms=self._current_ms))

    def backlog(self, backlog: bool) -> None:
        """Whether a source reads a backlog."""
        self.urgent = self.urgent or (self._running and self._backlog and not backlog)
        self._backlog = backlog

    def completed(self) -> None:
        """A checkpoint or savepoint is durable."""
        self._first_pause_ms = self._pause_ms
        if self._running:
            self._pause(self._pause_ms)

    def fired(self, timer: Timer) -> None:
        if timer == INTERVAL:
            self._interval_over = True
        elif timer == PAUSE:
            self._pause_over = True

    @property
    def _current_ms(self) -> int | None:
        return self._backlog_interval_ms if self._backlog else self._interval_ms

    def _pause(self, pause_ms: int) -> None:
        self._pause_over = pause_ms == 0
        if not self._pause_over:
            self._outbox.add(SetTimer(timer=PAUSE, delay_ms=pause_ms))
