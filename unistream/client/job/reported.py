"""The result of a job, and meanwhile what it has survived: a program that waits must not say nothing while
its job restarts again and again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final

from unistream.base.errors import NotFound, Unreachable
from unistream.client.remote.job_client import JobClient, JobResult, checked
from unistream.model.job_info import ExceptionInfo, JobInfo

POLL_S: Final = 1.0
FAILURES_SHOWN: Final = 3  # at a time: without a delay before restarts there are more than a person can read
MESSAGE_CHARS_MAX: Final = 400
_BY_FAILURE: Final = frozenset({"FAILING", "FAILED"})

_log = logging.getLogger(__name__)


def reported_result(job: JobClient) -> JobResult:
    """Waits for the result as `JobClient.result`, and logs each failure that the job survives as a
    warning."""
    survived = Survived()
    while True:
        try:
            return checked(job.wait(POLL_S))
        except TimeoutError:
            pass  # it runs
        with suppress(NotFound, Unreachable):  # `wait` knows how long this may last
            info = job.status()
            new, more = survived.since(info)
            if more:
                _log.warning("event=job_failures job=%s more=%d", info.job, more)
            for entry in new:
                what = said(entry)
                _log.warning("event=job_restarts job=%s restarts=%d: %s", info.job, info.restarts, what)


class Survived:
    """Failures that a job survived; each is named once."""

    def __init__(self) -> None:
        self._reported: tuple[object, ...] = ()

    def since(self, info: JobInfo) -> tuple[Sequence[ExceptionInfo], int]:
        """The newest failures since the last call, oldest first, and how many there were before these.
        Without the one that ends the job: it is reported with the result."""
        survived = info.exceptions[1:] if info.state in _BY_FAILURE else info.exceptions
        if not survived:
            return (), 0
        new = list(takewhile(lambda entry: _identity(entry) != self._reported, survived))
        self._reported = _identity(survived[0])
        return new[:FAILURES_SHOWN][::-1], max(0, len(new) - FAILURES_SHOWN)


def said(entry: ExceptionInfo) -> str:
    """One line that says of a failure who failed and why."""
    what = (entry.message.splitlines() or [""])[0][:MESSAGE_CHARS_MAX]
    who = entry.task_name or entry.attempt or "the job"
    return f"{who} failed and restarts: {entry.kind}: {what}"


def _identity(entry: ExceptionInfo) -> tuple[object, ...]:
    """What makes a failure the same one, without its concurrent failures, to which more may be added."""
    return (entry.at_ms, entry.attempt, entry.kind, entry.message)
