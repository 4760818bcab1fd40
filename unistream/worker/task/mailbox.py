"""How other threads reach a task: they post, the task's thread takes.

Mail is taken in order, except that checkpoint notices overtake the rest (they never wait behind
splits or triggers; a trigger whose abort came first is recognised and skipped).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from unistream.base.ids import CheckpointId
from unistream.model.messages import (
    AssignSplits,
    CheckpointAborted,
    CheckpointCompleted,
    TriggerCheckpoint,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStored:
    """All of a snapshot is stored and acknowledged: who waited for that to end goes on."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNotStored:
    """The background part of a snapshot failed."""

    checkpoint_id: CheckpointId
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundDone:
    """What an operator did beside the task is done. `finish`: its end, on the task's thread; it may raise."""

    finish: Callable[[], None]


Mail = (
    TriggerCheckpoint
    | CheckpointCompleted
    | CheckpointAborted
    | AssignSplits
    | SnapshotStored
    | SnapshotNotStored
    | BackgroundDone
)


class Mailbox:
    """Thread-safe; also the one thing that a task's thread sleeps on."""

    def __init__(self) -> None:
        self._urgent: deque[Mail] = deque()
        self._normal: deque[Mail] = deque()
        self._signal = threading.Event()
        self._cancelled = threading.Event()

    def post(self, mail: Mail) -> None:
        """From any thread. After the task has ended, mail is kept and never read."""
        urgent = isinstance(mail, CheckpointCompleted | CheckpointAborted)
        (self._urgent if urgent else self._normal).append(mail)
        self._signal.set()

    def take(self) -> Mail | None:
        """By the task's thread: the next mail, or None."""
        if self._urgent:
            return self._urgent.popleft()
        if self._normal:
            return self._normal.popleft()
        return None

    def cancel(self) -> None:
        """From any thread: the task shall end before it does anything else."""
        self._cancelled.set()
        self._signal.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def wake(self) -> None:
        """From any thread: something that the task may be waiting for has changed."""
        self._signal.set()

    def prepare_wait(self) -> None:
        """By the task's thread before a step: a `wake` from now on ends the next `wait`."""
        self._signal.clear()

    def wait(self, timeout_s: float | None) -> None:
        """By the task's thread, when a step said that it waits. A time beyond what the platform can wait (a
        timer in 300 years) is cut short: to wake too early does no harm."""
        self._signal.wait(None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
