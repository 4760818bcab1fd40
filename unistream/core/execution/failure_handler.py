"""What a failure means for a job: which tasks start again, and when; or that it is the end. Pure.

The failover strategy says which tasks, the restart backoff whether and when. A failure that restarting cannot
help asks neither. What to do about the decision (cancel, wait, deploy) is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from unistream.base.ids import SubtaskId
from unistream.core.contract import RestartBackoff
from unistream.core.execution.failover import FailoverStrategy, FailoverView
from unistream.model.messages import TaskFailure

UNRECOVERABLE: Final = "The failure is not recoverable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDecision:
    """What follows from one failure.

    Attributes:
        failed: The task; None for a failure of the job as a whole.
        is_global: Everything starts again, or would.
        is_new_attempt: False: it is part of the restart that an earlier failure has announced, and one of
            the concurrent exceptions of that one.
        error: Why there is no restart, with the cause; None if there is one.
    """

    failed: SubtaskId | None
    failure: TaskFailure
    at_ms: int
    is_global: bool
    is_new_attempt: bool
    error: str | None
    _tasks: frozenset[SubtaskId] = frozenset()
    _delay_ms: int = 0

    @property
    def can_restart(self) -> bool:
        return self.error is None

    @property
    def tasks(self) -> frozenset[SubtaskId]:
        """All that start again. Only of a decision that restarts."""
        assert self.can_restart, f"no restart: {self.error}"
        return self._tasks

    @property
    def delay_ms(self) -> int:
        """Wait before they do, from `at_ms` on. Only of a decision that restarts."""
        assert self.can_restart, f"no restart: {self.error}"
        return self._delay_ms


class FailureHandler:
    """Decides on the failures of one job.

    Attributes:
        number_of_restarts: Decisions to restart so far; merged failures count once.
    """

    def __init__(
        self,
        strategy: FailoverStrategy,
        backoff: RestartBackoff,
        all_tasks: Iterable[SubtaskId],
    ) -> None:
        self._strategy = strategy
        self._backoff = backoff
        self._all_tasks = frozenset(all_tasks)
        self.number_of_restarts = 0

    def handle(
        self, failed: SubtaskId | None, failure: TaskFailure, now_ms: int, view: FailoverView
    ) -> FailureDecision:
        """Decides on one failure. `failed` None: the job as a whole failed.

        `view` is handed to the failover strategy: states of the tasks and availability of partitions, as they
        are before anything is done about the failure.
        """
        is_new_attempt, error = True, None
        if not failure.recoverable:
            error = f"{UNRECOVERABLE}; {failure.kind}: {failure.message}"
        else:
            is_new_attempt = self._backoff.notify_failure(now_ms)
            if not self._backoff.can_restart:
                by = self._backoff.describe()
                error = f"Recovery is suppressed by {by}; {failure.kind}: {failure.message}"
        restarts = error is None
        if restarts and is_new_attempt:
            self.number_of_restarts += 1
        return FailureDecision(
            failed=failed,
            failure=failure,
            at_ms=now_ms,
            is_global=failed is None,
            is_new_attempt=is_new_attempt,
            error=error,
            _tasks=self._tasks(failed, failure, view) if restarts else frozenset(),
            _delay_ms=self._backoff.backoff_ms(now_ms) if restarts else 0,
        )

    def _tasks(
        self, failed: SubtaskId | None, failure: TaskFailure, view: FailoverView
    ) -> frozenset[SubtaskId]:
        if failed is None:
            return self._all_tasks
        return self._strategy.tasks_to_restart(failed, failure.lost_partition, view)
