"""Time that passes only while this process runs.

A process that stood still (SIGSTOP, a stopped virtual machine, a frozen container, a machine so busy that
nothing ran) finds all its timeouts over at once, although the others it waits for had no chance to be
heard: it would declare healthy workers lost, give checkpoints up whose acknowledgements lie in its own
mailbox, and take splits for idle that it has not asked. So what such a timeout measures is the time in
which this process could have heard something. The owner of a right that others take away by *their* clock
(the lease of a leader, the lease of a worker) needs `SystemClock` instead, or `BootClock`.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from unistream.base.clock import Clock, SystemClock
from unistream.base.closing import Closing

READ_MS: Final = 500  # a running process reads its clock at least so often
LATE_MS: Final = 2_000  # between two readings; a busy machine is late by less

_log = logging.getLogger(__name__)


class AwakeTime:
    """A time that passes only between readings of a monotonic clock that follow each other soon; they come in
    any order. Pure.

    Of a longer pause only `READ_MS` count, so that time goes on also where each step is slow.

    >>> time = AwakeTime()
    >>> [time.at(reading) for reading in (1_000, 1_500, 61_500, 62_000)]
    [1000, 1500, 2000, 2500]
    """

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self.slept_ms = 0

    def at(self, reading_ms: int) -> int:
        """The time at `reading_ms`; it never decreases."""
        last_ms = reading_ms if self._last_ms is None else self._last_ms
        if reading_ms - last_ms > LATE_MS:
            self.slept_ms += reading_ms - last_ms - READ_MS
        self._last_ms = max(last_ms, reading_ms)
        return self._last_ms - self.slept_ms


class AwakeClock(Closing):
    """`AwakeTime` of this process, from construction until `close`; then it goes on as it was read.

    A thread of its own reads it regularly, so that a process in which nobody asks for the time is not taken
    for one that stood still. Thread-safe.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._time = AwakeTime()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
        self._thread.start()

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        with self._lock:
            slept_ms = self._time.slept_ms
            now_ms = self._time.at(self._clock.monotonic_ms())
            slept_ms = self._time.slept_ms - slept_ms
        if slept_ms:
            _log.warning("event=process_stood_still for_ms=%d: its timeouts begin again", slept_ms)
        return now_ms

    def wall_ms(self) -> int:
        """See `Clock`."""
        return self._clock.wall_ms()

    def close(self) -> None:
        """Safe to repeat."""
        self._closed.set()
        self._thread.join(READ_MS / 1000)

    def _run(self) -> None:
        while not self._closed.wait(READ_MS / 1000):
            self.monotonic_ms()
