"""Stored results that a worker was asked to release, and has not answered: pure.

    asked ─► answered                      done; a worker that refuses has nothing, or ends
       └──► no answer ─► LOSS_GRACE_MS ─► asked again, while its worker may live, RELEASE_TRIES times in all

A release that is lost would fill the disk of a worker that lives on, and nothing else would notice. What is
still open when the job ends is settled by the worker: its heartbeat names the jobs that it stores results
for, and the answer names those that are over. Flink's TaskExecutor does that when the connection to the
job's master ends; the release itself is a call without an answer there, on a connection that loses nothing.
"""

from __future__ import annotations

from typing import Final

from unistream.base.ids import TaskManagerId
from unistream.core.contract import Outbox, Send, SetTimer, Timer, TimerKind, Undelivered
from unistream.core.job.suspects import LOSS_GRACE_MS

RELEASE_TRIES: Final = 10  # a job does not hear of the end of a worker where it has no slot


class Releases:
    """Those of one job. They may be said any number of times, and in any order."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._open: dict[int, Send] = {}  # by the token of what was lost
        self._tries: dict[int, int] = {}  # by the token of what is under way, if it is not the first
        self._gone: set[TaskManagerId] = set()

    def undelivered(self, send: Send, event: Undelivered) -> None:
        """Nobody has answered `send`, or its worker has refused it."""
        tries = self._tries.get(event.token, 1)
        if event.refused or send.task_manager in self._gone or tries >= RELEASE_TRIES:
            return
        self._open[event.token] = send
        timer = Timer(TimerKind.RELEASE, event.token)
        self._outbox.add(SetTimer(timer=timer, delay_ms=LOSS_GRACE_MS))

    def overdue(self, token: int) -> None:
        """The worker was not lost meanwhile: it is asked again."""
        send = self._open.pop(token, None)
        tries = self._tries.pop(token, 1)
        if send is not None:
            self._tries[self._outbox.send_tracked(send.task_manager, send.message)] = tries + 1

    def lost(self, task_manager: TaskManagerId) -> None:
        """It is gone, with all that it had."""
        self._gone.add(task_manager)
        self._open = {token: send for token, send in self._open.items() if send.task_manager != task_manager}
