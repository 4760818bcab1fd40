"""The way from other threads to a task: they post, the task's thread takes.

Mail is taken in order, except that checkpoint notifications overtake the rest (they never wait behind
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
    """A snapshot is stored and acknowledged; the task may be able to finish now."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNotStored:
    """The background part of a snapshot failed."""

    checkpoint_id: CheckpointId
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundDone:
    """Background work of an operator is done. `finish`: called on the task's thread; may raise."""

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
    """Thread-safe; also what a task's thread waits on."""

    def __init__(self) -> None:
        self._urgent: deque[Mail] = deque()
        self._normal: deque[Mail] = deque()
        self._signal = threading.Event()
        self._cancelled = threading.Event()

    def post(self, mail: Mail) -> None:
        """Puts a mail into the box, from any thread. Ignored after the task has ended."""
        urgent = isinstance(mail, CheckpointCompleted | CheckpointAborted)
        (self._urgent if urgent else self._normal).append(mail)
        self._signal.set()

    def take(self) -> Mail | None:
        """Takes the next mail, or None; called by the task's thread."""
        if self._urgent:
            return self._urgent.popleft()
        if self._normal:
            return self._normal.popleft()
        return None

    def cancel(self) -> None:
        """Makes the task end at its next step; called from any thread."""
        self._cancelled.set()
        self._signal.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def wake(self) -> None:
        """Makes the task step again; called from any thread."""
        self._signal.set()

    def prepare_wait(self) -> None:
        """Makes a `wake` from now on end the next `wait`; called by the task's thread before a step."""
        self._signal.clear()

    def wait(self, timeout_s: float | None) -> None:
        """Waits until the task has something to do, after a step that waits; called by the task's thread. A
        timeout beyond the platform's limit (a timer in 300 years) is cut: waking early does no harm."""
        self._signal.wait(None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
