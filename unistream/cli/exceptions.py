"""`unistream exceptions`: why a job failed, and what failed along with it."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from unistream.cli.options import AsJson, Defines, Job, configuration
from unistream.cli.output import console, moment, print_json
from unistream.client.job_client import JobInfo
from unistream.client.lookup import find_job
from unistream.master.job_info import ExceptionInfo


def exceptions(job: Job, defines: Defines = None, as_json: AsJson = False) -> None:
    """Show the failures of one job, newest first; those that came along with one are indented below it."""
    found = find_job(configuration(defines), job)
    with found.cluster:
        details = found.cluster.info(found.job.job)
    if as_json:
        print_json({"job": details.job, "exceptions": details.exceptions})
    else:
        print_exceptions(details)


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
    table = Table(box=None, pad_edge=False)
    for heading in ("TIME", "TASK", "WHERE", "WHAT"):
        table.add_column(heading, overflow="fold")
    for root in roots:
        _add(table, root, "")
        for entry in root.concurrent:
            _add(table, entry, "  + ")
    return table


def _add(table: Table, entry: ExceptionInfo, indent: str) -> None:
    where = " at ".join(text for text in (entry.task_manager, entry.endpoint) if text)
    lines = entry.message.splitlines() or [""]
    labels = "".join(f" [{key}={value}]" for key, value in sorted(entry.labels.items()))
    table.add_row(
        f"{indent}{moment(entry.at_ms)}",
        escape(entry.task_name or entry.attempt or "the job"),
        escape(where),
        escape(f"{entry.kind}: {lines[0]}{labels}"),
    )
