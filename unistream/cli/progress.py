"""What a person sees of a job that runs attached to a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.live import Live
from rich.spinner import Spinner

from unistream.cli.output import console, duration
from unistream.client.job_client import JobInfo


class Progress:
    """One line that changes in place until the job has ended."""

    def __init__(self, info: JobInfo) -> None:
        self._spinner = Spinner("dots", text=line(info))
        self._live = Live(self._spinner, console=console(), refresh_per_second=8, transient=True)

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
