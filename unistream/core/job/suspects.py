"""Messages that nobody answered, or that came to a task which had ended: what is the cause? Pure.

A broken connection is often the first sign of a worker's end, but not its name. So what the failed message
means waits for `LOSS_GRACE_MS`: if the worker is lost, that is reported meanwhile, and is the root cause that
people see, whichever of the two was noticed first. So it is with a task that had ended when an order came:
its own report of that is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unistream.base.ids import AttemptId
from unistream.core.contract import Outbox, SetTimer, Timer, TimerKind
from unistream.core.execution import Execution, Executions, ExecutionState
from unistream.model.messages import TaskFailure

LOSS_GRACE_MS: Final = 2_000  # a host notices the end of one of its processes within a second


@dataclass(frozen=True, slots=True)
class Suspect:
    """`failure` of the attempt, if it is in one of `states` when the time is over: a task that was to be
    deployed and has come up had got the message after all.

    `needed`: without the message it cannot have done all its work, though it says so meanwhile.
    """

    attempt: AttemptId
    failure: TaskFailure
    states: tuple[ExecutionState, ...]
    needed: bool = False


class Suspects:
    """Those of one job, by the token of the message."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._open: dict[int, Suspect] = {}

    def add(self, token: int, suspect: Suspect) -> None:
        """Nobody answered that message."""
        self._open[token] = suspect
        timer = Timer(TimerKind.UNDELIVERED, token)
        self._outbox.add(SetTimer(timer=timer, delay_ms=LOSS_GRACE_MS))

    def ended(self, attempt: AttemptId) -> TaskFailure | None:
        """It says that it has ended well. What it fails by; None: it had all that it needs."""
        return next((d.failure for d in self._open.values() if d.attempt == attempt and d.needed), None)

    def over(self, token: int, executions: Executions) -> tuple[TaskFailure, Execution] | None:
        """The worker lives, so the message was lost: who fails by that. None: nobody (any more)."""
        suspect = self._open.pop(token, None)
        execution = None if suspect is None else executions.find(suspect.attempt)
        if suspect is None or execution is None or execution.state not in suspect.states:
            return None
        return suspect.failure, execution
