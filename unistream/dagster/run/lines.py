"""What a run's log says of a job while it runs: stages that have finished, failures that it has survived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final

from unistream.model.job_info import ExceptionInfo, JobInfo
from unistream.model.job_log_line import JobLogLine

FAILURES_EVERY_S: Final = 10.0  # Dagster's event log grows with each line and is never trimmed
FAILURE_LINES_MAX: Final = 3
FAILURE_LINES_A_DAY: Final = 200
FUNCTION_LINES_MAX: Final = 50
FUNCTION_LINES_A_DAY: Final = 2_000  # 1.7 MB in Dagster's SQLite: benchmarks/dagster_events.py
SAID_EVERY_S: Final = 3_600.0  # how many lines were left out, when the day's are used up
DAY_S: Final = 86_400.0
MESSAGE_CHARS_MAX: Final = 300


class StageLines:
    """The stages of a job that Spark runs, each as a line when it has finished."""

    def __init__(self) -> None:
        self._finished = 0

    def new_lines(self, info: JobInfo) -> list[str]:
        """Lines of the stages that have finished since the last call."""
        finished = list(takewhile(lambda stage: stage.finished >= stage.tasks, info.stages))
        new, self._finished = finished[self._finished :], len(finished)
        return [
            f"stage {number} of {len(info.stages)} ({stage.name}) has finished: {stage.tasks} tasks, "
            f"{stage.rows_in:,} rows in, {stage.rows_out:,} rows out, {stage.shuffle_bytes:,} bytes shuffled"
            for number, stage in enumerate(new, start=len(finished) - len(new) + 1)
        ]


class Allowance:
    """How many lines a log may take: those of a day at once, and as many again over each day.

    >>> lines = Allowance(a_day=100)
    >>> lines.spend(90)
    >>> lines.left(now_s=0), lines.left(now_s=DAY_S / 2), lines.left(now_s=9 * DAY_S)
    (10, 60, 100)
    """

    def __init__(self, a_day: int) -> None:
        self._a_day = a_day
        self._left = float(a_day)
        self._at_s: float | None = None

    def left(self, *, now_s: float) -> int:
        """How many lines may still be written now. `now_s`: monotonic."""
        passed_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._left, self._at_s = min(self._a_day, self._left + passed_s * self._a_day / DAY_S), now_s
        return max(0, int(self._left))

    def spend(self, lines: int) -> None:
        self._left -= lines


class FunctionLines:
    """What the functions of the pipeline have logged; a run that attaches also shows lines from before. At
    most FUNCTION_LINES_MAX a call, and FUNCTION_LINES_A_DAY at once and then a day: of many the newest ones,
    and how many there were before them.

    Args:
        read: The lines behind a number.
        job: Id or name, for people.
    """

    def __init__(self, read: Callable[[int], Sequence[JobLogLine]], job: str) -> None:
        self._read = read
        self._job = job
        self._seq: int | None = None
        self._allowance = Allowance(FUNCTION_LINES_A_DAY)
        self._left_out = 0  # since that was last said
        self._said_s = float("-inf")

    def new_lines(self, *, now_s: float, is_end: bool = False) -> list[tuple[str, str]]:
        """Level and text, oldest first. `now_s`: monotonic; `is_end`: of the job, whose last lines are shown
        in any case. Raises what `read` raises."""
        lines = self._read(self._seq or 0)
        self._seq = lines[-1].seq if lines else self._seq or 0
        wanted = lines[-FUNCTION_LINES_MAX:]
        room = len(wanted) if is_end else self._allowance.left(now_s=now_s)
        shown = wanted[max(0, len(wanted) - room) :]
        self._left_out += len(lines) - len(shown) + sum(line.dropped for line in lines)
        is_short = not is_end and room < FUNCTION_LINES_MAX
        more = self._more(is_short) if not is_short or now_s >= self._said_s + SAID_EVERY_S else []
        if more:
            self._left_out, self._said_s = 0, now_s
        self._allowance.spend(len(shown) + len(more))
        return more + [(one.level, f"{one.task}, {one.logger}: {one.message}") for one in shown]

    def _more(self, is_short: bool) -> list[tuple[str, str]]:
        if not self._left_out:
            return []
        limit = f", and this log takes some {FUNCTION_LINES_A_DAY:,} of them a day" if is_short else ""
        text = f"{self._left_out:,} more lines were logged{limit}: 'unistream logs {self._job}' shows those"
        return [("INFO", f"{text} that are kept")]


class FailureLines:
    """The failures of a job that it has recovered from, each as a line when all its tasks run again. Those
    before the first call are not this run's. At most FAILURE_LINES_MAX lines in FAILURES_EVERY_S, and
    FAILURE_LINES_A_DAY at once and then a day: of many failures the newest ones, and how many there were
    before them."""

    def __init__(self) -> None:
        self._known: set[tuple[int, str, str]] | None = None
        self._waiting: deque[ExceptionInfo] = deque(maxlen=FAILURE_LINES_MAX)
        self._failures = 0  # since the last lines; the history of the job is shorter
        self._next_s = float("-inf")
        self._allowance = Allowance(FAILURE_LINES_A_DAY)

    def new_lines(self, info: JobInfo, *, now_s: float) -> list[str]:
        """New lines, the oldest first. `now_s`: monotonic. A job that has finished has recovered from all of
        its failures, whenever the last lines were."""
        known, self._known = self._known, {_key(failure) for failure in info.exceptions}
        if known is not None:
            new = [one for one in reversed(info.exceptions) if _key(one) not in known]
            self._waiting.extend(new)
            self._failures += len(new)
        has_room = self._allowance.left(now_s=now_s) >= FAILURE_LINES_MAX
        is_due = info.all_tasks_run and now_s >= self._next_s and has_room
        if not self._failures or not (is_due or info.state == "FINISHED"):
            return []
        lines = self._lines(info)
        self._allowance.spend(len(lines))
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
