"""The failures of a job: root causes with their concurrent failures, and the past attempts of each task.
Pure.

A failure that caused a restart (or the end of the job) is a root cause. One that came before that restart is
concurrent: it is shown below its root cause. A worker that was lost takes the place of a connection that
broke first: those who read from it notice its end before the master does. Both are bounded; the oldest are
dropped first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from unistream.base.errors import RemoteTransportError
from unistream.base.ids import AttemptId, SubtaskId
from unistream.model.messages import TaskFailure

CONCURRENT_MAX: Final = 64  # per root cause; all tasks of a lost worker report the same
SUPPRESSED_KIND: Final = "JobFailed"
LOST_KIND: Final = "TaskManagerLost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionEntry:
    """One failure. Times are wall-clock ms since the epoch.

    Attributes:
        attempt, task_name: Of the task that failed; None for a failure of the job as a whole.
        task_manager, endpoint: Worker and ``host:port`` where it happened, if known.
    """

    at_ms: int
    failure: TaskFailure
    attempt: AttemptId | None = None
    task_name: str | None = None
    task_manager: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RootException:
    """A root cause. `dropped`: concurrent failures beyond `CONCURRENT_MAX`, counted only."""

    cause: ExceptionEntry
    concurrent: tuple[ExceptionEntry, ...] = ()
    dropped: int = 0


def task_name(vertex_name: str, index: int, parallelism: int, attempt: int) -> str:
    """The name of a task, for people.

    >>> task_name("Source: numbers -> Map", 1, 2, 0)
    'Source: numbers -> Map (2/2) - execution #0'
    """
    return f"{vertex_name} ({index + 1}/{parallelism}) - execution #{attempt}"


class ExceptionHistory:
    """Root causes of one job, at most `size` of them (`web.exception-history-size`)."""

    def __init__(self, size: int) -> None:
        self._roots: deque[RootException] = deque(maxlen=size)
        self.dropped = 0

    def add(self, entry: ExceptionEntry, *, is_root: bool) -> None:
        """`is_root`: see `FailureDecision.is_new_attempt`; otherwise it joins the latest root cause, if
        any."""
        if is_root or not self._roots:
            self._push(RootException(cause=entry))
            return
        root = self._roots[-1]
        if entry.failure.kind == LOST_KIND and root.cause.failure.kind == RemoteTransportError.__name__:
            root, entry = replace(root, cause=entry), root.cause
            self._roots[-1] = root
        if len(root.concurrent) < CONCURRENT_MAX:
            self._roots[-1] = replace(root, concurrent=(*root.concurrent, entry))
        else:
            self._roots[-1] = replace(root, dropped=root.dropped + 1)

    def suppressed(self, error: str, entry: ExceptionEntry) -> None:
        """`entry` ends the job: the root cause is the decision (`error`), and the failure its reason."""
        cause = entry.failure
        decision = ExceptionEntry(
            at_ms=entry.at_ms,
            failure=TaskFailure(
                kind=SUPPRESSED_KIND,
                message=error,
                traceback=f"Caused by: {cause.kind}: {cause.message}\n{cause.traceback}",
                recoverable=False,
            ),
        )
        self._push(RootException(cause=decision, concurrent=(entry,)))

    def _push(self, root: RootException) -> None:
        if len(self._roots) == self._roots.maxlen:
            self.dropped += 1
        self._roots.append(root)

    def __iter__(self) -> Iterator[RootException]:
        """Goes over the root causes, the newest first."""
        return iter(tuple(reversed(self._roots)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt:
    """An attempt that has ended. `failure`: why, if it failed."""

    attempt: AttemptId
    state: str
    ended_ms: int
    task_manager: str | None = None
    failure: TaskFailure | None = None


class AttemptsHistory:
    """Past attempts, at most `size` of each subtask (`jobmanager.execution.attempts-history-size`)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._past: dict[SubtaskId, deque[PastAttempt]] = {}

    def add(self, past: PastAttempt) -> None:
        """The newest attempt of its subtask that has ended; it may be reported again."""
        known = self._past.setdefault(past.attempt.subtask, deque(maxlen=self._size))
        if known and known[-1].attempt == past.attempt:
            known[-1] = past
            return
        assert not known or known[-1].attempt.attempt < past.attempt.attempt, "attempts end in order"
        known.append(past)

    def failed(self, attempt: AttemptId, failure: TaskFailure) -> None:
        """The failure of the attempt, if it is the latest of its subtask that has ended."""
        known = self._past.get(attempt.subtask)
        if known and known[-1].attempt == attempt:
            known[-1] = replace(known[-1], failure=failure)

    def of(self, subtask: SubtaskId) -> tuple[PastAttempt, ...]:
        """The past attempts of a subtask, the oldest first."""
        return tuple(self._past.get(subtask, ()))

    def find(self, attempt: AttemptId) -> PastAttempt | None:
        """None: it has not ended, or is no longer in the history."""
        return next((past for past in self.of(attempt.subtask) if past.attempt == attempt), None)
