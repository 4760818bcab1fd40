"""`unistream exceptions`: why a job failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich.text import Text

from unistream.base.clock import SystemClock
from unistream.cli.formats import since
from unistream.cli.options import AsJson, Defines, Job, JobManager, configuration
from unistream.cli.output import console, print_json, styled
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn
from unistream.client.job.lookup import find_shown_job
from unistream.model.job_info import ExceptionInfo, JobInfo, SubtaskInfo

Attempts = Annotated[bool, typer.Option("--attempts", help="Show former attempts of every subtask instead.")]


def exceptions(
    job: Job,
    attempts: Attempts = False,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show the failures of one job, newest first; concurrent failures are indented below the first."""
    now_ms = SystemClock().wall_ms()
    with find_shown_job(configuration(defines, jobmanager=jobmanager), job) as client:
        details = client.status()
    if as_json:
        print_json({"job": details.job, "exceptions": details.exceptions, "subtasks": details.subtasks})
    elif attempts:
        console().print(past_attempts(details.subtasks, now_ms))
    else:
        out = console()
        for part in shown(details, now_ms):
            out.print(part, markup=False)


def past_attempts(subtasks: Iterable[SubtaskInfo], now_ms: int) -> Grid:
    """One line for each attempt that has ended and was followed by another one."""
    grid = Grid(
        PrintedColumn("TASK", fit=Fit.MIDDLE),
        PrintedColumn("ATTEMPT", right=True),
        PrintedColumn("ENDED"),
        PrintedColumn("STATE"),
        PrintedColumn("WHERE", fit=Fit.MIDDLE, rank=1),
        PrintedColumn("WHY", fit=Fit.WORDS),
    )
    for subtask in subtasks:
        for past in subtask.past:
            why = (past.failure or "").splitlines() or [""]
            grid.add(
                f"{subtask.vertex_name} ({subtask.index + 1})",
                str(past.attempt),
                since(past.ended_ms, now_ms),
                styled(past.state),
                past.task_manager or "",
                why[0],
            )
    return grid


def shown(info: JobInfo, now_ms: int) -> Iterator[Grid | Cell]:
    """A table, and the root cause of the newest failure: in the end the frames of the user's code."""
    if not info.exceptions:
        yield f"job {info.job} has not failed so far"
        return
    yield failures(info.exceptions, now_ms)
    latest = info.exceptions[0]
    if latest.traceback:
        yield ""
        yield Text(f"the latest, {latest.kind}", style="bold")
        yield latest.traceback.rstrip()
    failure = info.failure
    if failure is not None and failure.user_traceback and info.is_terminal:
        yield ""
        yield Text("what ended the job, in the code of the pipeline", style="bold")
        yield failure.user_traceback.rstrip()


def failures(roots: tuple[ExceptionInfo, ...], now_ms: int) -> Grid:
    """One line for each failure."""
    grid = Grid(
        PrintedColumn("TIME"),
        PrintedColumn("TASK", fit=Fit.MIDDLE),
        PrintedColumn("WHERE", fit=Fit.MIDDLE, rank=1),
        PrintedColumn("WHAT", fit=Fit.WORDS),
    )
    for root in roots:
        _add(grid, root, "", now_ms)
        for entry in root.concurrent:
            _add(grid, entry, "+ ", now_ms)
    return grid


def _add(grid: Grid, entry: ExceptionInfo, indent: str, now_ms: int) -> None:
    where = " at ".join(text for text in (entry.task_manager, entry.endpoint) if text)
    lines = entry.message.splitlines() or [""]
    at, ago = since(entry.at_ms, now_ms)
    grid.add(
        (f"{indent}{at}", f"{indent}{ago}"),
        entry.task_name or entry.attempt or "the job",
        where,
        f"{entry.kind}: {lines[0]}",
    )
