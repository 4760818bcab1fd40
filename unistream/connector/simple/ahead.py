"""Where the author's methods run: on a thread of the reader, so that a poll may wait, or in place."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from unistream.connector.simple.polls import NewSplits, Polled, Polls, Turn, Wait
from unistream.port.metrics import Metrics

READY_MAX: Final = 2  # batches that wait for the task; after a failure they are polled again
CLOSE_TIMEOUT_S: Final = 3.0  # a poll that waits longer is left alone: the thread is a daemon

_log = logging.getLogger(__name__)

Command = Callable[[Polls, int], None]
"""What the task's thread asks for, with the time in ms."""


class PollsElsewhere(Protocol):
    """Calls the author's methods, and has what they return."""

    def submit(self, command: Command) -> None: ...

    def take(self) -> Turn:
        """What has come. `Wait(None)`: nothing, until there is a wake or a command. Raises what the author's
        methods raise."""

    def close(self) -> None: ...


class PollsInPlace:
    """Polls when it is asked for more. Its time goes on only by the waits that it has returned, so that a
    simulation is the same each time."""

    def __init__(self, polls: Polls) -> None:
        self._polls = polls
        self._now_ms = 0

    def submit(self, command: Command) -> None:
        command(self._polls, self._now_ms)

    def take(self) -> Turn:
        turn = self._polls.turn(self._now_ms)
        if isinstance(turn, Wait) and turn.for_ms is not None:
            self._now_ms += turn.for_ms
        return turn

    def close(self) -> None:
        self._polls.close()


class PollsAhead:
    """Polls on a thread of its own, which begins with the first command and also closes the source.

    Args:
        wake: Called (without a lock) when something has come.
    """

    def __init__(self, polls: Polls, wake: Callable[[], None]) -> None:
        self._polls = polls
        self._wake = wake
        self._changed = threading.Condition()
        self._commands: deque[Command] = deque()
        self._ready: deque[Polled | NewSplits | BaseException] = deque()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, command: Command) -> None:
        with self._changed:
            assert not self._closed, "submit after close"
            self._commands.append(command)
            self._changed.notify_all()
        if self._thread is None:
            context = contextvars.copy_context()  # what the author logs is the task's
            self._thread = threading.Thread(
                target=context.run, args=(self._run,), name="polling-source", daemon=True
            )
            self._thread.start()

    def take(self) -> Turn:
        with self._changed:
            if not self._ready:
                return Wait(None)
            self._changed.notify_all()
            turn = self._ready.popleft()
        if isinstance(turn, BaseException):
            raise turn
        return turn

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while self._may_poll():
                turn = self._polls.turn(_now_ms())
                if isinstance(turn, Wait):
                    self._wait(turn)
                else:
                    self._put(turn)
        except BaseException as error:  # after `sys.exit()`, too, or the task would wait for ever
            self._put(error)
        finally:
            self._close_source()

    def _close_source(self) -> None:
        try:
            self._polls.close()
        except Exception:  # the task has ended, or fails by an earlier error
            _log.warning("event=source_not_closed", exc_info=True)

    def _may_poll(self) -> bool:
        """Waits for room, and does what was submitted. False: the reader was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._ready) < READY_MAX)
            commands = list(self._commands)
            self._commands.clear()
            is_open = not self._closed
        for command in commands if is_open else ():
            command(self._polls, _now_ms())
        return is_open

    def _wait(self, wait: Wait) -> None:
        timeout_s = None if wait.for_ms is None else wait.for_ms / 1000
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._commands, timeout_s)

    def _put(self, turn: Polled | NewSplits | BaseException) -> None:
        with self._changed:
            self._ready.append(turn)
        self._wake()


class LaterMetrics:
    """Metrics that another thread than the task's counts, until the task has them counted."""

    def __init__(self) -> None:
        self._counted: deque[tuple[bool, str, int]] = deque()

    def add(self, name: str, amount: int) -> None:
        self._counted.append((True, name, amount))

    def set(self, name: str, value: int) -> None:
        self._counted.append((False, name, value))

    def count_in(self, metrics: Metrics) -> None:
        """Called by the task's thread."""
        while self._counted:
            adds, name, value = self._counted.popleft()
            if adds:
                metrics.add(name, value)
            else:
                metrics.set(name, value)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
