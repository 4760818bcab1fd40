"""What users' functions log, as reports to the master, or to the engine that runs a bounded job.

A handler of the root logger takes what is logged on the threads of tasks, and on threads that run in a copy
of their context, by loggers that are not the runtime's own or its libraries'. Lines of a task go together: at
most once a second, with each heartbeat, and before its state changes. Between two reports there are LINES_MAX
at most, and what is dropped is counted: a function that logs each row does not slow the job down by it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from unistream.base.clock import Clock
from unistream.base.ids import AttemptId
from unistream.model.messages import LogLine, LogReported, TaskStateChanged, ToJobManager

LINES_MAX: Final = 100
LINE_CHARS_MAX: Final = 4_000
REPORT_EVERY_MS: Final = 1_000
OWN: Final = ("unistream", "deltalake", "fsspec", "kafka", "kazoo", "py4j", "pyspark", "urllib3")
"""Loggers of the runtime and of what it calls."""

Post = Callable[[ToJobManager], None]

_HERE: Final[ContextVar[tuple[logging.Handler | None, TaskLog | None]]] = ContextVar(
    "user_log", default=(None, None)
)
"""The log of the task that this context is of, and the handler that has it."""


def _sendable(text: str) -> str:
    """The text of a line as it can be sent: without halves of characters, and not too long."""
    return text[:LINE_CHARS_MAX].encode("utf-8", "backslashreplace").decode()


class TaskLog:
    """Lines of one attempt that are not reported yet. Thread-safe."""

    def __init__(self, attempt: AttemptId, post: Post, clock: Clock) -> None:
        self._attempt, self._post, self._clock = attempt, post, clock
        self._lock = threading.Lock()
        self._lines: list[LogLine] = []
        self._dropped = self._reports = 0
        self._next_ms = clock.monotonic_ms()

    def has_room(self) -> bool:
        """False: the line is counted as dropped; do not format it."""
        with self._lock:
            if len(self._lines) < LINES_MAX:
                return True
            self._dropped += 1
        self._report_if_due()
        return False

    def add(self, line: LogLine) -> None:
        with self._lock:
            self._lines.append(line)
        self._report_if_due()

    def report(self) -> None:
        """Reports the lines that there are."""
        with self._lock:
            self._next_ms = self._clock.monotonic_ms() + REPORT_EVERY_MS
            if not self._lines and not self._dropped:
                return
            self._reports += 1
            report = LogReported(
                attempt=self._attempt,
                number=self._reports,
                lines=tuple(self._lines),
                dropped=self._dropped,
            )
            self._lines.clear()
            self._dropped = 0
        self._post(report)

    def post(self, message: ToJobManager) -> None:
        """Posts another report of the task, behind its lines if it may be the last one."""
        if isinstance(message, TaskStateChanged):
            self.report()
        self._post(message)

    def _report_if_due(self) -> None:
        if self._clock.monotonic_ms() >= self._next_ms:
            self.report()


class LogTail:
    """The newest lines of an attempt that reports at its end only. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque(maxlen=LINES_MAX)
        self._count = 0

    def add(self, report: LogReported) -> None:
        with self._lock:
            self._lines.extend(report.lines)
            self._count += len(report.lines) + report.dropped

    def reports(self, attempt: AttemptId) -> tuple[LogReported, ...]:
        """How many lines are not kept, then those that are."""
        with self._lock:
            lines, dropped = tuple(self._lines), self._count - len(self._lines)
        parts: list[tuple[tuple[LogLine, ...], int]] = [((), dropped)] if dropped else []
        parts += [(lines, 0)] if lines else []
        return tuple(
            LogReported(attempt=attempt, number=number, lines=kept, dropped=lost)
            for number, (kept, lost) in enumerate(parts, start=1)
        )


class UserLog(logging.Handler):
    """The log of one TaskManager's tasks, or of one subtask of a bounded job. `begin` is called on the thread
    of the task."""

    def __init__(self, post: Post, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._report_to, self._clock = post, clock
        self._logs: dict[AttemptId, TaskLog] = {}

    def of(self, attempt: AttemptId) -> TaskLog:
        """The task's log, the same one until `end`."""
        return self._logs.setdefault(attempt, TaskLog(attempt, self._report_to, self._clock))

    def begin(self, attempt: AttemptId) -> TaskLog:
        """What this thread logs from now on is the task's."""
        found = self.of(attempt)
        _HERE.set((self, found))
        return found

    def end(self, attempt: AttemptId) -> None:
        log = self._logs.pop(attempt, None)
        if log is not None:
            log.report()

    def report(self) -> None:
        """Lines of all tasks."""
        for log in list(self._logs.values()):
            log.report()

    def emit(self, record: logging.LogRecord) -> None:
        handler, log = _HERE.get()
        if handler is not self or log is None or record.name.partition(".")[0] in OWN or not log.has_room():
            return
        try:
            message = self.format(record)
        except Exception:  # a format string that does not fit its arguments: logging says so on stderr
            self.handleError(record)
            return
        log.add(
            LogLine(
                at_ms=int(record.created * 1000),
                level=record.levelname,
                logger=_sendable(record.name),
                message=_sendable(message),
            )
        )

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handles what is logged, in a process of its own: INFO is let through. What a root logger without
        handlers prints, which is what is grave, it still does."""
        root = logging.getLogger()
        added = [self, logging.lastResort] if logging.lastResort and not root.handlers else [self]
        for handler in added:
            root.addHandler(handler)
        if root.getEffectiveLevel() > logging.INFO:
            root.setLevel(logging.INFO)
        try:
            yield
        finally:
            for handler in added:
                root.removeHandler(handler)
