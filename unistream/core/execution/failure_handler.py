"""Which tasks restart after a failure, and when; or why the job fails. Pure.

The failover strategy chooses the tasks, the restart backoff decides whether and when. An unrecoverable
failure uses neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from unistream.base.config import RESTART_STRATEGY
from unistream.base.errors import UserCodeError
from unistream.base.ids import SubtaskId
from unistream.core.contract import RestartBackoff
from unistream.core.execution.failover import FailoverStrategy, FailoverView
from unistream.model.messages import TaskFailure

UNRECOVERABLE: Final = "The failure is not recoverable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDecision:
    """What follows from one failure.

    Attributes:
        is_global: All tasks restart, or would.
        is_new_attempt: False: the failure is concurrent to an earlier one, whose restart is still to come.
        error: Why there is no restart, with the cause; None if there is one.
        tasks: Those that restart, `delay_ms` from now.
    """

    is_global: bool
    is_new_attempt: bool
    error: str | None
    tasks: frozenset[SubtaskId] = frozenset()
    delay_ms: int = 0


def restart_verdict(
    failure: TaskFailure, backoff: RestartBackoff, now_ms: int, *, restarts_user_errors: bool
) -> tuple[bool, str | None]:
    """`FailureDecision.is_new_attempt` and `.error`. The backoff is notified of failures that a restart may
    mend."""
    if not failure.recoverable:
        return True, f"{UNRECOVERABLE}; {failure.kind}: {failure.message}"
    if failure.kind == UserCodeError.__name__ and not restarts_user_errors:
        return True, (
            f"Without {RESTART_STRATEGY.key} a BATCH job does not restart after an error of a function; "
            f"{failure.kind}: {failure.message}"
        )
    is_new_attempt = backoff.notify_failure(now_ms)
    if backoff.can_restart:
        return is_new_attempt, None
    by = backoff.describe()
    return is_new_attempt, f"Recovery is suppressed by {by}; {failure.kind}: {failure.message}"


class FailureHandler:
    """Decides on the failures of one job.

    Args:
        restarts_user_errors: False: an error of a user's function is final, as it would come again.
        restarts: What `number_of_restarts` begins with. They do not count for the backoff.

    Attributes:
        number_of_restarts: Decisions to restart so far; merged failures count once.
    """

    def __init__(
        self,
        strategy: FailoverStrategy,
        backoff: RestartBackoff,
        all_tasks: Iterable[SubtaskId],
        *,
        restarts_user_errors: bool = True,
        restarts: int = 0,
    ) -> None:
        self._strategy = strategy
        self._backoff = backoff
        self._all_tasks = frozenset(all_tasks)
        self._restarts_user_errors = restarts_user_errors
        self.number_of_restarts = restarts

    def handle(
        self, failed: SubtaskId | None, failure: TaskFailure, now_ms: int, view: FailoverView
    ) -> FailureDecision:
        """Decides on one failure. `failed` None: the job as a whole failed. `view`: the job before anything
        is done about the failure."""
        is_new_attempt, error = restart_verdict(
            failure, self._backoff, now_ms, restarts_user_errors=self._restarts_user_errors
        )
        is_global = failed is None
        if error is not None:
            return FailureDecision(is_global=is_global, is_new_attempt=is_new_attempt, error=error)
        self.number_of_restarts += is_new_attempt
        return FailureDecision(
            is_global=is_global,
            is_new_attempt=is_new_attempt,
            error=None,
            tasks=self._all_tasks
            if failed is None
            else self._strategy.tasks_to_restart(failed, failure.lost_partition, view),
            delay_ms=self._backoff.backoff_ms(now_ms),
        )
