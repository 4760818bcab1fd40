"""What a person sees of a job that runs attached: how it is, and each failure after which it starts again."""

from __future__ import annotations

from itertools import takewhile
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from unistream.cli.output import duration, moment
from unistream.master.job_info import ExceptionInfo, JobInfo

FAILURES_SHOWN: Final = 3  # of one look: without a pause before restarts there are more than one reads
MESSAGE_CHARS_MAX: Final = 400
_BY_FAILURE: Final = frozenset({"FAILING", "FAILED"})


class Progress:
    """One line that changes in place until the job has ended."""

    def __init__(self, info: JobInfo) -> None:
        self._spinner = Spinner("dots", text=line(info))
        self._live = Live(
            self._spinner, console=Console(highlight=False), refresh_per_second=8, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def update(self, info: JobInfo) -> None:
        self._spinner.update(text=line(info))


def line(info: JobInfo) -> str:
    """State, tasks, rows, checkpoints and restarts on one line."""
    running = sum(subtask.state == "RUNNING" for subtask in info.subtasks)
    parts = [info.state, f"{running}/{len(info.subtasks)} tasks run"]
    out = sum(s.metrics.records_out for s in info.subtasks)
    if out:
        parts.append(f"{out:,} rows out")
    committed = info.metrics.get("rows_committed")
    if committed:
        parts.append(f"{committed:,} rows committed")
    parts.append(f"{info.checkpoints_completed} checkpoints")
    if info.checkpoints and info.checkpoints[0].duration_ms is not None:
        parts.append(f"the last took {duration(info.checkpoints[0].duration_ms)}")
    if info.restarts:
        parts.append(f"{info.restarts} restarts")
    return " · ".join(parts)


class Restarts:
    """Failures that a job survived: each is told once, in one line."""

    def __init__(self) -> None:
        self._told: tuple[object, ...] = ()

    def news(self, info: JobInfo) -> list[str]:
        """What happened since the last call, oldest first. What ends the job is not among it: that is told
        with its result."""
        survived = info.exceptions[1:] if info.state in _BY_FAILURE else info.exceptions
        if not survived:
            return []
        new = list(takewhile(lambda entry: _identity(entry) != self._told, survived))
        self._told = _identity(survived[0])
        lines = [_in_one_line(entry) for entry in reversed(new[:FAILURES_SHOWN])]
        if len(new) > FAILURES_SHOWN:
            lines.insert(0, f"{len(new) - FAILURES_SHOWN} more failures: unistream exceptions {info.job[:8]}")
        return lines


def _identity(entry: ExceptionInfo) -> tuple[object, ...]:
    """What failed along with it may still grow."""
    return (entry.at_ms, entry.attempt, entry.kind, entry.message)


def _in_one_line(entry: ExceptionInfo) -> str:
    what = (entry.message.splitlines() or [""])[0][:MESSAGE_CHARS_MAX]
    who = entry.task_name or entry.attempt or "the job"
    return f"{moment(entry.at_ms)} {who} failed and starts again: {entry.kind}: {what}"
