"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unistream.client.job_client import JobResult
from unistream.master.job_info import JobInfo, SinkInfo

if TYPE_CHECKING:
    from unistream.client.lookup import Found

WIDTH_OF_FILES: Final = 200  # columns of tables in a file or for another program
WHOLE_ID_COLUMNS: Final = (
    120  # a narrower terminal shows the first ID_CHARS of a job's id, which commands accept
)
ID_CHARS: Final = 8
STATE_STYLES = {
    "RUNNING": "green",
    "FINISHED": "green",
    "FAILED": "red",
    "CANCELED": "yellow",
    "SUSPENDED": "yellow",
}


def console() -> Console:
    """It breaks no line, so that paths can be copied whole; cells of tables are fitted to the width."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)


def print_json(payload: object) -> None:
    """One JSON value on stdout, and nothing else."""
    sys.stdout.write(msgspec.json.encode(payload).decode() + "\n")
    sys.stdout.flush()


def new_table(*headings: str, whole: Container[str] = ()) -> Table:
    """Long cells are folded, except in the columns `whole`."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in whole)
    return table


def print_facts(facts: Iterable[tuple[str, str]], width: int = 13) -> None:
    """A line for each (label, value in Rich's markup)."""
    for label, value in facts:
        console().print(f"[bold]{label:<{width}}[/bold] {value}")


def print_jobs(found: list[Found]) -> None:
    """A table of jobs, newest first."""
    out = console()
    id_chars = None if out.width >= WHOLE_ID_COLUMNS else ID_CHARS
    headings = ("JOB", "NAME", "STATE", "STARTED", "RESTARTS", "TASKS", "CLUSTER")
    table = new_table(*headings, whole={"JOB", "STATE", "STARTED"})
    for item in found:
        job = item.job
        tasks = ", ".join(f"{count} {state.lower()}" for state, count in sorted(job.tasks.items()))
        table.add_row(
            job.job[:id_chars],
            escape(job.name),
            _styled(job.state),
            moment(job.submitted_ms),
            str(job.restarts),
            tasks,
            item.place,
        )
    out.print(table)


def print_info(info: JobInfo) -> None:
    """State, tasks and the last failure of one job."""
    out = console()
    print_facts(_facts(info))
    if info.subtasks:
        out.print(_subtasks(info))
    if info.exceptions and info.state != "FINISHED":
        latest = info.exceptions[0]
        out.print(f"[bold]last failure[/bold]  {moment(latest.at_ms)} {latest.kind}: ", end="")
        out.print(latest.message, markup=False)
        if len(info.exceptions) > 1 or latest.concurrent or latest.traceback:
            out.print(f"[bold]all failures[/bold]  unistream exceptions {info.job[:8]}")


def _facts(info: JobInfo) -> list[tuple[str, str]]:
    facts = [
        ("job", info.job),
        ("name", escape(info.name)),
        ("state", _styled(info.state)),
        ("target", info.target if info.job_type != "BATCH" else f"{info.target}, BATCH by {info.engine}"),
        ("started", moment(info.submitted_ms)),
    ]
    if info.ended_ms is not None:
        facts.append(
            ("ended", f"{moment(info.ended_ms)} after {duration(info.ended_ms - info.submitted_ms)}")
        )
    facts += [
        ("restarts", str(info.restarts)),
        ("checkpoints", f"{info.checkpoints_completed} completed, {info.checkpoints_failed} failed"),
    ]
    if info.latest_checkpoint:
        facts.append(("latest", escape(info.latest_checkpoint)))
    if info.savepoint:
        facts.append(("savepoint", escape(info.savepoint)))
    facts += [
        ("sink", f"{escape(uid)}: {sink.rows:,} rows in {sink.commits} commits{_version(sink)}")
        for uid, sink in info.sinks.items()
    ]
    if info.is_compiling:
        said = "what reads records, once on its machine: `unistream connectors compile` does it beforehand"
        facts.append(("compiling", said))
    if info.records_behind is not None and not info.is_terminal:
        facts.append(("to read", f"{info.records_behind:,} records"))
    facts += [
        ("late rows", f"{escape(operator)}: {_dropped(rows, info.restarts)}")
        for operator, rows in info.late_rows.items()
    ]
    facts += [
        ("out of order", f"{escape(split)}: {_out_of_order(rows, info.restarts)}")
        for split, rows in info.out_of_order_rows.items()
    ]
    facts += [
        ("dead letters", f"{escape(operator)}: {_failed(rows, info.restarts, 'dead letter')}")
        for operator, rows in info.dead_letters.items()
    ]
    facts += [
        ("skipped", f"{escape(operator)}: {_failed(rows, info.restarts, 'row skipped')}")
        for operator, rows in info.skipped_rows.items()
    ]
    facts += [
        ("worker", f"{escape(worker.id)} pid {worker.pid} on {worker.host}") for worker in info.task_managers
    ]
    return facts


def _version(sink: SinkInfo) -> str:
    if sink.table_version is None:
        return ""
    rows = "" if sink.table_rows is None else f" with {sink.table_rows:,} rows"
    return f", table version {sink.table_version}{rows}"


def _subtasks(info: JobInfo) -> Table:
    table = new_table("TASK", "ATTEMPT", "STATE", "IN", "OUT", "WORKER")
    for subtask in info.subtasks:
        table.add_row(
            escape(f"{subtask.vertex_name} ({subtask.index + 1})"),
            str(subtask.attempt),
            _styled(subtask.state),
            f"{subtask.metrics.records_in:,}",
            f"{subtask.metrics.records_out:,}",
            subtask.task_manager or "",
        )
    return table


def print_result(result: JobResult) -> None:
    """How a job has ended, and what its sinks have committed."""
    out = console()
    took = duration(result.duration_ms)
    out.print(f"job {result.job} {_styled(result.state)} after {took}", end="")
    out.print(f", {result.checkpoints} checkpoints, {result.restarts} restarts")
    for uid, sink in result.sinks.items():
        out.print(f"{uid}: {sink.rows:,} rows committed{_version(sink)}", markup=False)
    for operator, rows in result.late_rows.items():
        out.print(f"{operator}: {_dropped(rows, result.restarts)}", markup=False)
    for split, rows in result.out_of_order_rows.items():
        out.print(f"{split}: {_out_of_order(rows, result.restarts)}", markup=False)
    for operator, rows in result.dead_letters.items():
        out.print(f"{operator}: {_failed(rows, result.restarts, 'dead letter')}", markup=False)
    for operator, rows in result.skipped_rows.items():
        out.print(f"{operator}: {_failed(rows, result.restarts, 'row skipped')}", markup=False)
    if result.savepoint:
        out.print(f"savepoint: {result.savepoint}", markup=False)
    if result.resumable_savepoint != result.savepoint:
        out.print(f"resume from: {result.resumable_savepoint}", markup=False)


def _dropped(rows: int, restarts: int) -> str:
    """After a restart the number is not exact; see `unistream.master.row_counts`.

    >>> _dropped(1_200, 0), _dropped(1, 2)
    ('1,200 late rows dropped', 'about 1 late row dropped')
    """
    return f"{'about ' if restarts else ''}{rows:,} late row{'' if rows == 1 else 's'} dropped"


def _out_of_order(rows: int, restarts: int) -> str:
    """As exact as `_dropped`.

    >>> _out_of_order(3, 0)
    '3 rows earlier than in_order=True allows'
    """
    number = f"{'about ' if restarts else ''}{rows:,} row{'' if rows == 1 else 's'}"
    return f"{number} earlier than in_order=True allows"


def _failed(rows: int, restarts: int, what: str) -> str:
    """As exact as `_dropped`.

    >>> _failed(1, 0, "dead letter"), _failed(1_200, 1, "row skipped")
    ('1 dead letter', 'about 1,200 rows skipped')
    """
    noun, space, participle = what.partition(" ") if what.startswith("row") else (what, "", "")
    return f"{'about ' if restarts else ''}{rows:,} {noun}{'' if rows == 1 else 's'}{space}{participle}"


def moment(at_ms: int) -> str:
    """Local time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(ms: int) -> str:
    """Two units at most.

    >>> duration(500), duration(65_000), duration(7_260_000)
    ('0.5 s', '1 min 5 s', '2 h 1 min')
    """
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _styled(state: str) -> str:
    style = STATE_STYLES.get(state, "cyan")
    return f"[{style}]{state}[/{style}]"
