"""What a run's log says of a job while it runs: stages that have finished, failures that it has survived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final

from unistream.master.job_info import ExceptionInfo, JobInfo
from unistream.master.job_log import JobLine

FAILURES_EVERY_S: Final = 10.0  # Dagster's event log grows with each line and is never trimmed
FAILURE_LINES_MAX: Final = 3
FUNCTION_LINES_MAX: Final = 50
MESSAGE_CHARS_MAX: Final = 300


class StageLines:
    """The stages of a job that Spark runs, each as a line when it has finished."""

    def __init__(self) -> None:
        self._finished = 0

    def new_lines(self, info: JobInfo) -> list[str]:
        """Of the stages that have finished since the last call."""
        finished = list(takewhile(lambda stage: stage.finished >= stage.tasks, info.stages))
        new, self._finished = finished[self._finished :], len(finished)
        return [
            f"stage {number} of {len(info.stages)} ({stage.name}) has finished: {stage.tasks} tasks, "
            f"{stage.rows_in:,} rows in, {stage.rows_out:,} rows out, {stage.shuffle_bytes:,} bytes shuffled"
            for number, stage in enumerate(new, start=len(finished) - len(new) + 1)
        ]


class FunctionLines:
    """What the functions of the pipeline have logged; a run that attaches also shows lines from before. At
    most FUNCTION_LINES_MAX a call: of many the newest ones, and how many there were before them."""

    def __init__(self, read: Callable[[int], Sequence[JobLine]]) -> None:
        self._read = read
        self._seq: int | None = None

    def new_lines(self) -> list[tuple[str, str]]:
        """Level and text, oldest first. Raises what `read` raises."""
        lines = self._read(self._seq or 0)
        self._seq = lines[-1].seq if lines else self._seq or 0
        shown = lines[-FUNCTION_LINES_MAX:]
        left_out = len(lines) - len(shown) + sum(line.dropped for line in lines)
        text = f"{left_out:,} more lines were logged: 'unistream logs' shows those that are kept"
        more = [("INFO", text)] if left_out else []
        return more + [(one.level, f"{one.task}, {one.logger}: {one.message}") for one in shown]


class FailureLines:
    """The failures of a job that it has recovered from, each as a line when all its tasks run again. Those
    before the first call are not this run's. At most FAILURE_LINES_MAX lines in FAILURES_EVERY_S: of many
    failures the newest ones, and how many there were before them."""

    def __init__(self) -> None:
        self._known: set[tuple[int, str, str]] | None = None
        self._waiting: deque[ExceptionInfo] = deque(maxlen=FAILURE_LINES_MAX)
        self._failures = 0  # since the last lines; the history of the job is shorter
        self._next_s = float("-inf")

    def new_lines(self, info: JobInfo, *, now_s: float) -> list[str]:
        """Oldest first. `now_s`: monotonic. A job that has finished has recovered from all of its failures,
        whenever the last lines were."""
        known, self._known = self._known, {_key(failure) for failure in info.exceptions}
        if known is not None:
            new = [one for one in reversed(info.exceptions) if _key(one) not in known]
            self._waiting.extend(new)
            self._failures += len(new)
        is_due = info.all_tasks_run and now_s >= self._next_s
        if not self._failures or not (is_due or info.state == "FINISHED"):
            return []
        lines = self._lines(info)
        self._waiting.clear()
        self._failures, self._next_s = 0, now_s + FAILURES_EVERY_S
        return lines

    def _lines(self, info: JobInfo) -> list[str]:
        shown = list(self._waiting)
        if self._failures == len(shown):
            return [_failure_line(failure) for failure in shown]
        shown = shown[1:]
        before = self._failures - len(shown)
        more = f"the job has recovered from {before} failures before these: 'unistream exceptions {info.job}'"
        return [more, *(_failure_line(failure) for failure in shown)]


def _key(failure: ExceptionInfo) -> tuple[int, str, str]:
    return failure.at_ms, failure.kind, failure.message


def _failure_line(failure: ExceptionInfo) -> str:
    message = failure.message.partition("\n")[0]
    if len(message) > MESSAGE_CHARS_MAX:
        message = f"{message[:MESSAGE_CHARS_MAX]}…"
    task = "" if failure.task_name is None else f" in {failure.task_name}"
    worker = "" if failure.endpoint is None else f" on {failure.endpoint}"
    others = f", and {len(failure.concurrent)} more at the same time" if failure.concurrent else ""
    return f"the job has recovered from {failure.kind}{task}{worker}: {message}{others}"
