"""`unistream exceptions`: why a job failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from unistream.cli.options import AsJson, Defines, Job, JobManager, configuration
from unistream.cli.output import console, moment, new_table, print_json
from unistream.client.lookup import find_job
from unistream.master.job_info import ExceptionInfo, JobInfo, SubtaskInfo

Attempts = Annotated[bool, typer.Option("--attempts", help="Show former attempts of every subtask instead.")]


def exceptions(
    job: Job,
    attempts: Attempts = False,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show the failures of one job, newest first; concurrent failures are indented below the first."""
    with find_job(configuration(defines, jobmanager=jobmanager), job) as client:
        details = client.status()
    if as_json:
        print_json({"job": details.job, "exceptions": details.exceptions, "subtasks": details.subtasks})
    elif attempts:
        console().print(past_attempts(details.subtasks))
    else:
        print_exceptions(details)


def past_attempts(subtasks: Iterable[SubtaskInfo]) -> Table:
    """One line for each attempt that has ended and was followed by another one."""
    table = new_table("TASK", "ATTEMPT", "ENDED", "STATE", "WHERE", "WHY")
    for subtask in subtasks:
        for past in subtask.past:
            why = (past.failure or "").splitlines() or [""]
            table.add_row(
                escape(f"{subtask.vertex_name} #{subtask.index}"),
                str(past.attempt),
                moment(past.ended_ms),
                past.state,
                escape(past.task_manager or ""),
                escape(why[0]),
            )
    return table


def print_exceptions(info: JobInfo) -> None:
    """A table, and the traceback of the newest failure."""
    out = console()
    if not info.exceptions:
        out.print(f"job {info.job} has not failed so far")
        return
    out.print(failures(info.exceptions))
    latest = info.exceptions[0]
    if latest.traceback:
        out.print(f"\n[bold]the latest, {escape(latest.kind)}[/bold]")
        out.print(latest.traceback.rstrip(), markup=False)


def failures(roots: tuple[ExceptionInfo, ...]) -> Table:
    """One line for each failure."""
    table = new_table("TIME", "TASK", "WHERE", "WHAT")
    for root in roots:
        _add(table, root, "")
        for entry in root.concurrent:
            _add(table, entry, "  + ")
    return table


def _add(table: Table, entry: ExceptionInfo, indent: str) -> None:
    where = " at ".join(text for text in (entry.task_manager, entry.endpoint) if text)
    lines = entry.message.splitlines() or [""]
    table.add_row(
        f"{indent}{moment(entry.at_ms)}",
        escape(entry.task_name or entry.attempt or "the job"),
        escape(where),
        escape(f"{entry.kind}: {lines[0]}"),
    )
