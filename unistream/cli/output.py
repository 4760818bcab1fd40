"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from unistream.cli.formats import count, duration, several, since
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn
from unistream.client.remote.job_client import JobResult
from unistream.model.job_info import JobSummary, SinkInfo

WIDTH_OF_FILES: Final = 200  # columns of what is not a table in a file or for another program
ID_CHARS: Final = 8  # of a job's id; commands accept it
STATE_STYLES: Final = {
    "RUNNING": "green",
    "FINISHED": "green",
    "FAILED": "red",
    "CANCELED": "yellow",
    "SUSPENDED": "yellow",
}


def console() -> Console:
    """It breaks no line, so that paths can be copied whole; tables are fitted to the width."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)


def print_json(payload: object) -> None:
    """One JSON value on stdout, and nothing else."""
    sys.stdout.write(msgspec.json.encode(payload).decode() + "\n")
    sys.stdout.flush()


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """A line for each (label, value)."""
    console().print(facts_grid(facts))


def facts_grid(facts: Iterable[tuple[str, Cell]]) -> Grid:
    """A table with a line for each (label, value). A value without a label goes on with the one before."""
    grid = Grid(PrintedColumn("label"), PrintedColumn("value", fit=Fit.WORDS), headings=False)
    for label, value in facts:
        grid.add(Text(label, style="bold"), value)
    return grid


def paragraph(text: Cell) -> Grid:
    """Words in lines of the terminal."""
    grid = Grid(PrintedColumn("text", fit=Fit.WORDS), headings=False)
    grid.add(text)
    return grid


def id_forms(job: str) -> tuple[str, str]:
    """A cell with a job's id."""
    return job, job[:ID_CHARS]


def styled(state: str) -> Text:
    """A state with its colour."""
    return Text(state, style=STATE_STYLES.get(state, "cyan"))


def by_state(states: dict[str, int]) -> tuple[str, str]:
    """A cell with subtasks by state.

    >>> by_state({"RUNNING": 3}), by_state({"RUNNING": 1, "FINISHED": 2})
    (('3 running', '3 running'), ('2 finished, 1 running', '1/3 running'))
    """
    each = [f"{number} {state.lower()}" for state, number in sorted(states.items())]
    total = sum(states.values())
    if len(each) < 2:
        return ", ".join(each), ", ".join(each)
    leading = "RUNNING" if "RUNNING" in states else max(states, key=lambda state: states[state])
    return ", ".join(each), f"{states[leading]}/{total} {leading.lower()}"


def jobs_grid(found: Iterable[tuple[str, JobSummary]], now_ms: int) -> Grid:
    """A table of jobs, each with the place of its cluster; newest first."""
    grid = Grid(
        PrintedColumn("JOB"),
        PrintedColumn("NAME", fit=Fit.MIDDLE),
        PrintedColumn("STATE"),
        PrintedColumn("STARTED"),
        PrintedColumn("ENDED", rank=2),
        PrintedColumn("RESTARTS", rank=1, right=True),
        PrintedColumn("TASKS", rank=3),
        PrintedColumn("CLUSTER", rank=4),
    )
    for place, job in found:
        grid.add(
            id_forms(job.job),
            job.name,
            styled(job.state),
            since(job.submitted_ms, now_ms),
            ("", "") if job.ended_ms is None else since(job.ended_ms, now_ms),
            count(job.restarts),
            by_state(job.tasks),
            place,
        )
    return grid


def result_lines(result: JobResult) -> list[Cell]:
    """How a job has ended, and what its sinks have committed."""
    lines: list[Cell] = [
        Text.assemble(
            f"job {result.job} ",
            styled(result.state),
            f" after {duration(result.duration_ms)}, {several(result.checkpoints, 'checkpoint')}, "
            f"{several(result.restarts, 'restart')}",
        )
    ]
    lines += [
        f"{uid}: {several(sink.rows, 'row')} committed{version_of(sink)}"
        for uid, sink in result.sinks.items()
    ]
    restarts = result.restarts
    lines += [f"{operator}: {dropped(rows, restarts)}" for operator, rows in result.late_rows.items()]
    lines += [f"{split}: {out_of_order(rows, restarts)}" for split, rows in result.out_of_order_rows.items()]
    for what, counted in (("dead letter", result.dead_letters), ("row skipped", result.skipped_rows)):
        lines += [f"{operator}: {failed(rows, restarts, what)}" for operator, rows in counted.items()]
    if result.savepoint:
        lines.append(f"savepoint: {result.savepoint}")
    if result.resumable_savepoint != result.savepoint:
        lines.append(f"resume from: {result.resumable_savepoint}")
    return lines


def print_result(result: JobResult) -> None:
    """See `result_lines`."""
    out = console()
    for line in result_lines(result):
        out.print(paragraph(line))


def version_of(sink: SinkInfo) -> str:
    """What is to be said of the table behind a sink that has versions."""
    if sink.table_version is None:
        return ""
    rows = "" if sink.table_rows is None else f" with {several(sink.table_rows, 'row')}"
    return f", table version {sink.table_version}{rows}"


def dropped(rows: int, restarts: int) -> str:
    """How many late rows were dropped, in words. After a restart the number is not exact; see
    `unistream.master.job.row_counts`.

    >>> dropped(1_200, 0), dropped(1, 2)
    ('1,200 late rows dropped', 'about 1 late row dropped')
    """
    return f"{'about ' if restarts else ''}{rows:,} late row{'' if rows == 1 else 's'} dropped"


def out_of_order(rows: int, restarts: int) -> str:
    """How many rows were earlier than their source allows, in words; as exact as `dropped`.

    >>> out_of_order(3, 0)
    '3 rows earlier than in_order=True allows'
    """
    number = f"{'about ' if restarts else ''}{rows:,} row{'' if rows == 1 else 's'}"
    return f"{number} earlier than in_order=True allows"


def failed(rows: int, restarts: int, what: str) -> str:
    """How many rows have failed, in words; as exact as `dropped`.

    >>> failed(1, 0, "dead letter"), failed(1_200, 1, "row skipped")
    ('1 dead letter', 'about 1,200 rows skipped')
    """
    noun, space, participle = what.partition(" ") if what.startswith("row") else (what, "", "")
    return f"{'about ' if restarts else ''}{rows:,} {noun}{'' if rows == 1 else 's'}{space}{participle}"
