"""Which failures a job had: root causes with what failed along with them, and the attempts of each task.

A failure that led to a restart (or to the end) of its own is a root cause. One that came while that restart
was already on its way is concurrent: it is shown below its root cause, not as another one. Both are bounded,
the oldest goes first. Pure: times and places are given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from unistream.base.ids import AttemptId, SubtaskId
from unistream.model.messages import TaskFailure

CONCURRENT_MAX: Final = 64  # per root cause; a lost worker takes all its tasks along, and they say the same
SUPPRESSED_KIND: Final = "JobFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionEntry:
    """One failure. Times are wall-clock ms since the epoch.

    Attributes:
        attempt: Of the task that failed; None for a failure of the job as a whole.
        task_name: See `task_name`; None for a failure of the job as a whole.
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
    """How people know a task.

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
        """`is_root`: it is a new attempt's (`FailureDecision.is_new_attempt`); else it joins the latest one.

        The first failure of all is a root cause, whatever is said of it.
        """
        if is_root or not self._roots:
            self._push(RootException(cause=entry))
            return
        root = self._roots[-1]
        if len(root.concurrent) < CONCURRENT_MAX:
            self._roots[-1] = replace(root, concurrent=(*root.concurrent, entry))
        else:
            self._roots[-1] = replace(root, dropped=root.dropped + 1)

    def suppressed(self, error: str, entry: ExceptionEntry) -> None:
        """`entry` is the end of the job: the root cause is the decision (`error`), the failure its reason."""
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
        """Newest first."""
        return iter(tuple(reversed(self._roots)))

    def __len__(self) -> int:
        return len(self._roots)

    @property
    def latest(self) -> RootException | None:
        return self._roots[-1] if self._roots else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt:
    """An attempt that has ended. `failure`: why, if it failed."""

    attempt: AttemptId
    state: str
    ended_ms: int
    task_manager: str | None = None
    failure: TaskFailure | None = None


class AttemptsHistory:
    """Former attempts of every subtask, at most `size` of each.

    The size is `jobmanager.execution.attempts-history-size`.

    How many there were is known beyond that: attempt numbers grow and are never given out twice.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._past: dict[SubtaskId, deque[PastAttempt]] = {}

    def add(self, past: PastAttempt) -> None:
        """The newest attempt of its subtask that has ended; reported again, it is the same one."""
        known = self._past.setdefault(past.attempt.subtask, deque(maxlen=self._size))
        if known and known[-1].attempt == past.attempt:
            known[-1] = past
            return
        assert not known or known[-1].attempt.attempt < past.attempt.attempt, "attempts end in order"
        known.append(past)

    def failed(self, attempt: AttemptId, failure: TaskFailure) -> None:
        """Why it failed, if it is the latest of its subtask that has ended."""
        known = self._past.get(attempt.subtask)
        if known and known[-1].attempt == attempt:
            known[-1] = replace(known[-1], failure=failure)

    def of(self, subtask: SubtaskId) -> tuple[PastAttempt, ...]:
        """Oldest first."""
        return tuple(self._past.get(subtask, ()))

    def find(self, attempt: AttemptId) -> PastAttempt | None:
        """None: it never was, has not ended, or is too long ago."""
        return next((past for past in self.of(attempt.subtask) if past.attempt == attempt), None)
