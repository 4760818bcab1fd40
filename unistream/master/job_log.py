"""What the functions of a job have logged: the newest lines, numbered."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import msgspec

from unistream.base.clock import Clock
from unistream.base.ids import SubtaskId
from unistream.model.messages import LogReported

LINES_KEPT_MAX: Final = 1_000


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        seq: Grows with each line, also under a later leader, which does not have those of before.
        at_ms: Of the worker's clock.
        level: As Python names it: INFO, WARNING, …
        task: Such as ``count (2/4)``.
        message: At most 4,000 characters, with the traceback if there is one.
        dropped: How many of the task's lines before this one were dropped: it logs too much.
    """

    seq: int
    at_ms: int
    level: str
    logger: str
    task: str
    message: str
    dropped: int = 0


class JobLog:
    """Thread-safe. `clock`: lines are counted from the time in ms at which the leader begins with the job, so
    that numbers of a later one are higher."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._lines: deque[JobLine] = deque(maxlen=LINES_KEPT_MAX)
        self._seq = clock.wall_ms()
        self._dropped: dict[str, int] = {}  # of a task, of which no line has come since
        self._newest: dict[SubtaskId, tuple[int, int]] = {}  # number of the attempt, and of its report

    def add(self, report: LogReported, task: str) -> None:
        """Lines of a task. What it has dropped came behind them, so its next line says so. A report that
        comes again changes nothing."""
        this, subtask = (report.attempt.attempt, report.number), report.attempt.subtask
        with self._lock:
            if this <= self._newest.get(subtask, (-1, 0)):
                return
            self._newest[subtask] = this
            for line in report.lines:
                self._seq += 1
                self._lines.append(
                    JobLine(
                        seq=self._seq,
                        at_ms=line.at_ms,
                        level=line.level,
                        logger=line.logger,
                        task=task,
                        message=line.message,
                        dropped=self._dropped.pop(task, 0),
                    )
                )
            if report.dropped:
                self._dropped[task] = self._dropped.get(task, 0) + report.dropped

    def after(self, seq: int, limit: int) -> list[JobLine]:
        """The oldest ones behind line `seq`; 0: from the first that is kept."""
        with self._lock:
            return [line for line in self._lines if line.seq > seq][:limit]
