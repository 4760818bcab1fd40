"""What a person sees of a job that runs attached: its progress, and each failure after which it restarts."""

from __future__ import annotations

from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from unistream.base.closing import Closing
from unistream.cli.output import duration, moment
from unistream.client.reported import Survived, said
from unistream.core.memory import describe_bytes
from unistream.master.job_info import JobInfo

STAGES_SHOWN_MAX: Final = 12
BAR_CHARS: Final = 24
COMPILING_SAID: Final = "compiling what reads records, once on this machine"


class Progress(Closing):
    """One line that changes in place until it is closed, and a bar for each stage of a job on Spark."""

    def __init__(self, info: JobInfo) -> None:
        self._spinner = Spinner("dots", text=line(info))
        self._live = Live(
            self._spinner, console=Console(highlight=False), refresh_per_second=8, transient=True
        )
        self._live.start()

    def close(self) -> None:
        self._live.stop()

    def update(self, info: JobInfo) -> None:
        self._spinner.update(text=line(info))
        shown: RenderableType = self._spinner
        if shows_stages(info):
            shown = Group(self._spinner, stage_bars(info))
        self._live.update(shown)


def line(info: JobInfo) -> str:
    """State, tasks, rows, checkpoints and restarts on one line."""
    running = sum(subtask.state == "RUNNING" for subtask in info.subtasks)
    parts = [info.state, f"{running}/{len(info.subtasks)} tasks running"]
    out = sum(s.metrics.records_out for s in info.subtasks)
    if out:
        parts.append(f"{out:,} rows out")
    committed = info.metrics.get("rows_committed")
    if committed:
        parts.append(f"{committed:,} rows committed")
    if info.job_type != "BATCH":  # it takes none
        parts.append(f"{info.checkpoints_completed} checkpoints")
    if info.checkpoints and info.checkpoints[0].duration_ms is not None:
        parts.append(f"the last took {duration(info.checkpoints[0].duration_ms)}")
    if info.is_compiling:
        parts.append(COMPILING_SAID)
    if info.restarts:
        parts.append(f"{info.restarts} restarts")
    return " · ".join(parts)


def shows_stages(info: JobInfo) -> bool:
    """Spark runs the job, or just now the bounded part of a stream."""
    if info.job_type == "BATCH":
        return bool(info.stages)
    return any(stage.finished < stage.tasks for stage in info.stages)


def stage_bars(info: JobInfo) -> Table:
    """A row for each stage: name, bar, tasks, rows, bytes. Of many stages the last ones that have begun."""
    table = Table.grid(padding=(0, 1))
    begun = max((n for n, stage in enumerate(info.stages, 1) if stage.running or stage.finished), default=1)
    first = max(0, min(begun + 1, len(info.stages)) - STAGES_SHOWN_MAX)
    for stage in info.stages[first : first + STAGES_SHOWN_MAX]:
        failed = f", {stage.failed} failed" if stage.failed else ""
        table.add_row(
            stage.name,
            ProgressBar(stage.tasks, min(stage.finished, stage.tasks), width=BAR_CHARS),
            f"{min(stage.finished, stage.tasks)}/{stage.tasks} tasks{failed}",
            f"{stage.rows_out:,} rows out" if stage.finished else "",
            f"{describe_bytes(stage.shuffle_bytes)} shuffled" if stage.shuffle_bytes else "",
        )
    return table


class Restarts:
    """Failures that a job survived; each is reported once, in one line."""

    def __init__(self) -> None:
        self._survived = Survived()

    def new_lines(self, info: JobInfo) -> list[str]:
        """See `Survived.since`."""
        new, more = self._survived.since(info)
        lines = [f"{moment(entry.at_ms)} {said(entry)}" for entry in new]
        return [f"{more} more failures: unistream exceptions {info.job[:8]}", *lines] if more else lines
