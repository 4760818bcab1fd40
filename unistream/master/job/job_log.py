"""What the functions of a job have logged: the newest lines, numbered."""

from __future__ import annotations

import threading
from collections import deque

from unistream.base.clock import Clock
from unistream.base.ids import SubtaskId
from unistream.model.job_log_line import LINES_KEPT_MAX, JobLogLine
from unistream.model.messages import LogReported


class JobLogBuffer:
    """Thread-safe. `clock`: lines are counted from the time in ms at which the leader begins with the job, so
    that numbers of a later one are higher."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._lines: deque[JobLogLine] = deque(maxlen=LINES_KEPT_MAX)
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
                    JobLogLine(
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

    def after(self, seq: int, limit: int) -> list[JobLogLine]:
        """The oldest ones behind line `seq`; 0: from the first that is kept."""
        with self._lock:
            return [line for line in self._lines if line.seq > seq][:limit]
