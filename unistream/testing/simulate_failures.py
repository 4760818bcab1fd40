"""A job that fails again and again in the same way: known by its failures, long before its time is over.

A failure is counted if an operator has raised it, and if it is not the simulation's own: what user code
raises always, errors such as `Unreachable` only when no fault is left. Two are equal if they differ in
numbers alone (addresses, transactions, subtasks). Counts begin anew with every checkpoint that completes: a
job that comes on is not stuck, however often it fails on the way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from unistream.core.exception_history import SUPPRESSED_KIND
from unistream.master.job_info import ExceptionInfo

EQUAL_MAX: Final = 20  # a right pipeline has none; a flaky system behind a sink of the user's own has a few
_NUMBERS: Final = re.compile(r"[0-9a-f]{8,}|\d+")
_DOING: Final = re.compile(r"(\(uid .*?\), subtask \d+/\d+), [^:]*:")
USER: Final = "UserCodeError"


class Failures:
    """Of one run. A leader forgets what a former one has seen; this does not."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str | None]] = set()
        self._since: Counter[str] = Counter()
        self._all: Counter[str] = Counter()
        self._shown: dict[str, str] = {}
        self._progress = 0

    def look(self, found: Iterable[ExceptionInfo], checkpoint: int, *, healed: bool) -> str | None:
        """Takes note of the failures in `found` that are new; `checkpoint` is the newest complete one.

        Returns a sentence if the job is stuck.
        """
        if checkpoint != self._progress:
            self._progress = checkpoint
            self._since.clear()
        for failure in found:
            identity = failure.at_ms, failure.attempt
            if identity in self._seen:
                continue
            self._seen.add(identity)
            if failure.kind != USER and not (healed and "in operator " in failure.message):
                continue
            key = _NUMBERS.sub("…", _DOING.sub(r"\1:", f"{failure.kind} {failure.message}"))
            self._since[key] += 1
            self._all[key] += 1
            self._shown[key] = said(failure)
            if self._since[key] >= EQUAL_MAX:
                return (
                    f"the job fails again and again: {EQUAL_MAX} times, with no checkpoint in between, "
                    f"{self._shown[key]}"
                )
        return None

    def most(self) -> str:
        """The failure that came most often, as a clause; empty: there was none."""
        for key, count in self._all.most_common(1):
            return f"; most often, {count} times: {self._shown[key]}"
        return ""


def said(failure: ExceptionInfo) -> str:
    """In one sentence, with its operator or task. Of a job that may not restart: why it had to."""
    if failure.kind == SUPPRESSED_KIND and failure.concurrent:
        return said(failure.concurrent[0])
    text = failure.message.partition("\n")[0]
    if failure.kind == USER:
        return text  # names the operator
    where = "" if "in operator " in text or failure.task_name is None else f" (in {failure.task_name})"
    return f"{failure.kind}: {text}{where}"
