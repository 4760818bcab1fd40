"""What a person sees of a job that runs attached: its progress, and each failure after which it restarts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from unistream.base.closing import Closing
from unistream.cli.formats import count, duration, moment, rate, several, size
from unistream.client.job.reported import Survived, said
from unistream.model.job_figures import bytes_left, read_per_s, rows_left, rows_read, rows_written
from unistream.model.job_info import JobInfo

STAGES_SHOWN_MAX: Final = 12
BAR_CHARS: Final = 24
SPINNER_CHARS: Final = 2
COMPILING_SAID: Final = "compiling what reads records, once on this machine"


class ProgressLine(Closing):
    """One line that changes in place until it is closed, and a bar for each stage of a job on Spark."""

    def __init__(self, info: JobInfo) -> None:
        self._console = Console(highlight=False)
        self._spinner = Spinner("dots", text=self._line(info))
        self._live = Live(self._spinner, console=self._console, refresh_per_second=8, transient=True)
        self._live.start()

    def close(self) -> None:
        self._live.stop()

    def update(self, info: JobInfo) -> None:
        self._spinner.update(text=self._line(info))
        shown: RenderableType = self._spinner
        if shows_stages(info):
            shown = Group(self._spinner, stage_bars(info))
        self._live.update(shown)

    def _line(self, info: JobInfo) -> str:
        return line(info, self._console.width - SPINNER_CHARS)


def line(info: JobInfo, width: int | None = None) -> str:
    """State, rows, what is left, tasks, checkpoints and restarts on one line. In so many columns, if they are
    given: what says least is left out."""
    parts = [(0, info.state), *_rows(info)]
    running = sum(subtask.state == "RUNNING" for subtask in info.subtasks)
    if not info.is_terminal:
        parts.append((4, f"{running}/{len(info.subtasks)} tasks running"))
    if info.job_type != "BATCH":  # it takes none
        parts.append((5, several(info.checkpoints_completed, "checkpoint")))
    if info.checkpoints and info.checkpoints[0].duration_ms is not None:
        parts.append((7, f"the last took {duration(info.checkpoints[0].duration_ms)}"))
    if info.is_compiling:
        parts.append((1, COMPILING_SAID))
    if info.restarts:
        parts.append((1, several(info.restarts, "restart")))
    while width is not None and len(" · ".join(text for _, text in parts)) > width and len(parts) > 1:
        parts.remove(max(parts, key=lambda part: part[0]))
    return " · ".join(text for _, text in parts)


def _rows(info: JobInfo) -> Iterator[tuple[int, str]]:
    """Each with its rank."""
    read, per_s, left = rows_read(info), read_per_s(info), rows_left(info)
    if read:
        yield 0, f"{count(read)} rows read" + (f", {rate(per_s)}" if per_s is not None else "")
    if left is not None:
        yield (
            1,
            f"{count(left)} left"
            + (f", about {duration(math.ceil(left / per_s) * 1_000)}" if per_s and left else ""),
        )
    elif (left_bytes := bytes_left(info)) is not None:
        yield 1, f"{size(left_bytes)} left"
    elif info.records_behind:
        yield 1, f"{count(info.records_behind)} behind"
    committed, written = info.metrics.get("rows_committed"), rows_written(info)
    if written and (info.restarts or written > (committed or 0)):
        yield 3, f"{count(written)} written"
    if committed:
        yield 2, f"{count(committed)} committed"


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
            f"{size(stage.shuffle_bytes)} shuffled" if stage.shuffle_bytes else "",
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
