"""What a job's machine shows, for callers on other threads: pictures that its own thread takes.

A view changes by events and timers alone. So until there is one the last view serves again, without the job's
thread: a list of twenty jobs would wait for twenty threads, one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from unistream.base.clock import Clock
from unistream.core.contract import JobView
from unistream.master.loop import Loop
from unistream.model.checkpoint_figures import CheckpointsInfo

TIMEOUT_S: Final = 1.0  # a caller that waits longer gets an older picture

_NEVER: Final = -1


class Shows(Protocol):
    """The part of a job's machine that is read."""

    def view(self) -> JobView: ...

    def checkpoints(self, now_ms: int, wall_ms: int) -> CheckpointsInfo: ...


class Picture:
    """An event of the job's loop: it runs `take`, and the caller waits for `taken`."""

    def __init__(self, take: Callable[[], None]) -> None:
        self.take = take
        self.taken = threading.Event()


class Pictures:
    """The newest pictures of one job.

    `new_view` and `new_checkpoints` may be called from any thread until the job has ended, the others from
    the job's own.
    """

    def __init__(self, machine: Shows, clock: Clock, loop: Loop[Any, Any]) -> None:
        self._machine = machine
        self._clock = clock
        self._loop = loop
        self.view = machine.view()
        self.checkpoints = CheckpointsInfo()
        self._view_at = _NEVER  # what the loop had `posted` when the view was taken

    def new_view(self) -> JobView:
        """A view of the job after all events that were posted before the call."""
        if self._view_at != self._loop.posted:
            self._refresh(self._take_view)
        return self.view

    def outdate(self) -> None:
        """The machine is about to change."""
        self._view_at = _NEVER

    def new_checkpoints(self) -> CheckpointsInfo:
        """The job's checkpoints after all events that were posted before the call."""
        self._refresh(self._take_checkpoints)
        return self.checkpoints

    def take(self) -> None:
        """Takes both pictures, on the job's thread."""
        self._take_view()
        self._take_checkpoints()

    def keep_last(self) -> None:
        """The job has ended: callers that wait get its last pictures, and other events are dropped."""
        while not self._loop.is_empty:
            event, _ = self._loop.take(0)
            if isinstance(event, Picture):
                event.taken.set()

    def _refresh(self, take: Callable[[], None]) -> None:
        if self._loop.is_own_thread:
            take()
            return
        wanted = Picture(take)
        self._loop.post(wanted)
        wanted.taken.wait(TIMEOUT_S)

    def _take_view(self) -> None:
        posted = self._loop.posted
        is_last = self._loop.is_empty  # asked after `posted`: else an event between them is never seen
        self.view = self._machine.view()
        self._view_at = posted if is_last else _NEVER

    def _take_checkpoints(self) -> None:
        self.checkpoints = self._machine.checkpoints(self._clock.monotonic_ms(), self._clock.wall_ms())
