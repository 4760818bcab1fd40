"""Detects a job that keeps failing in the same way, long before it times out.

A failure counts if an operator has raised it and it is not the simulation's own: errors of user code always,
others such as `Unreachable` only after healing. Failures that differ in numbers only (addresses,
transactions, subtasks) are equal. Each completed checkpoint resets the counts, as a job that makes progress
is not stuck. A job that fails after each checkpoint makes none: its source positions stay, which a higher
limit detects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from unistream.core.job import SUPPRESSED_KIND
from unistream.model.job_info import ExceptionInfo
from unistream.model.snapshot import Manifest
from unistream.worker.task import SPLITS_STATE

EQUAL_MAX: Final = 20  # a correct pipeline has none; a flaky system behind a user's sink causes a few
STANDING_MAX: Final = 2 * EQUAL_MAX  # with checkpoints in between, but no input
_NUMBERS: Final = re.compile(r"[0-9a-f]{8,}|\d+")
_DOING: Final = re.compile(r"(\(uid .*?\), subtask \d+/\d+), [^:]*:")
USER: Final = "UserCodeError"


class Failures:
    """All failures of one run, under any leader."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str | None]] = set()
        self._since: Counter[str] = Counter()
        self._standing: Counter[str] = Counter()
        self._all: Counter[str] = Counter()
        self._shown: dict[str, str] = {}
        self._checkpoint = 0
        self._reached: object = None

    def look(
        self, found: Iterable[ExceptionInfo], checkpoint: int, *, healed: bool, reached: object = None
    ) -> str | None:
        """Counts the new failures in `found`; `checkpoint` is the newest completed one, and `reached` its
        source positions (see `reached`).

        Returns a sentence if the job is stuck.
        """
        if checkpoint != self._checkpoint:
            self._checkpoint = checkpoint
            self._since.clear()
        if reached is None or reached != self._reached:
            self._reached = reached
            self._standing.clear()
        for failure in found:
            identity = failure.at_ms, failure.attempt
            if identity in self._seen:
                continue
            self._seen.add(identity)
            if failure.kind != USER and not (healed and "in operator " in failure.message):
                continue
            key = _NUMBERS.sub("…", _DOING.sub(r"\1:", f"{failure.kind} {failure.message}"))
            for counter in (self._since, self._standing, self._all):
                counter[key] += 1
            self._shown[key] = said(failure)
            if self._since[key] >= EQUAL_MAX:
                return self._stuck(EQUAL_MAX, "no checkpoint in between", key)
            if self._standing[key] >= STANDING_MAX:
                return self._stuck(STANDING_MAX, "checkpoints in between, but no input", key)
        return None

    def _stuck(self, times: int, between: str, key: str) -> str:
        return f"the job keeps failing: {times} times, with {between}, {self._shown[key]}"

    def most(self) -> str:
        """The most frequent failure, as a clause; empty: there was none."""
        for key, count in self._all.most_common(1):
            return f"; most often, {count} times: {self._shown[key]}"
        return ""


def reached(manifest: Manifest) -> object:
    """Source positions and finished tasks of a job; two are equal if there was no progress in between.

    It does not depend on the assignment of splits to subtasks.
    """
    places, lists = [], []
    for vertex in manifest.vertices:
        places.append((vertex.coordinator, vertex.finished_subtasks))
        for task in vertex.subtasks:
            for handle in () if task is None else task.operators.values():
                lists += [one for one in handle.lists if one.name == SPLITS_STATE]
    items = sorted(item for one in lists for item in one.inline or ())
    return places, items, sorted(one.file.sha256 for one in lists if one.file is not None)


def said(failure: ExceptionInfo) -> str:
    """The failure in one sentence, with its operator or task; its cause, if it is a suppressed restart."""
    if failure.kind == SUPPRESSED_KIND and failure.concurrent:
        return said(failure.concurrent[0])
    text = failure.message.partition("\n")[0]
    if failure.kind == USER:
        return text  # names the operator
    where = "" if "in operator " in text or failure.task_name is None else f" (in {failure.task_name})"
    return f"{failure.kind}: {text}{where}"
