"""`unistream info`: one job, running or ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.text import Text

from unistream.base.clock import SystemClock
from unistream.cli.formats import (
    UNKNOWN,
    age,
    compact,
    count,
    duration,
    moment,
    percent,
    rate,
    several,
    size,
)
from unistream.cli.options import AsJson, Defines, Job, JobManager, configuration
from unistream.cli.output import (
    ID_CHARS,
    by_state,
    console,
    dropped,
    facts_grid,
    failed,
    out_of_order,
    print_json,
    styled,
    version_of,
)
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn
from unistream.client.job.lookup import find_shown_job
from unistream.model.job_figures import (
    bytes_left,
    read_per_s,
    rows_left,
    rows_read,
    rows_written,
    vertex_figures,
)
from unistream.model.job_info import CheckpointInfo, JobInfo, SubtaskInfo

Subtasks = Annotated[bool, typer.Option("--subtasks", help="A line for each subtask, not for each vertex.")]

HELD_BACK_FROM: Final = 0.10  # Flink's "low"; below, a vertex is not held back


def info(
    job: Job,
    subtasks: Subtasks = False,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show one job, also one that has ended: rows, watermark, checkpoints, vertices, tables, failures."""
    with find_shown_job(configuration(defines, jobmanager=jobmanager), job) as client:
        details = client.status()
    if as_json:
        print_json(details)
        return
    out = console()
    for part in shown(details, SystemClock().wall_ms(), subtasks=subtasks):
        out.print(part, markup=False)


def shown(info: JobInfo, now_ms: int, *, subtasks: bool = False) -> Iterator[Grid | Cell]:
    """The parts of the page, one below the other."""
    yield facts_grid(facts(info, now_ms))
    if info.subtasks:
        yield ""
        yield subtask_grid(info) if subtasks else vertex_grid(info, now_ms)
    if info.exceptions and info.state != "FINISHED":
        latest = info.exceptions[0]
        yield ""
        last = Text(f"{age(latest.at_ms, now_ms)}, {latest.kind}: {latest.message}")
        more: list[tuple[str, Cell]] = [("last failure", last)]
        if len(info.exceptions) > 1 or latest.concurrent or latest.traceback:
            more.append(("all failures", f"unistream exceptions {info.job[:ID_CHARS]}"))
        yield facts_grid(more)


def facts(info: JobInfo, now_ms: int) -> list[tuple[str, Cell]]:
    """What is known of the job as a whole."""
    return [
        ("job", info.job),
        ("name", info.name),
        ("state", _state(info, now_ms)),
        *_times(info),
        *_rows(info),
        *_watermark(info, now_ms),
        *_snapshots(info, now_ms),
        *_tables(info),
        *_refused(info),
        *(("worker", f"{worker.id} pid {worker.pid} on {worker.host}") for worker in info.task_managers),
        *([("not known", info.incomplete)] if info.incomplete else []),
        *(("note", note) for note in info.notes),
    ]


def _state(info: JobInfo, now_ms: int) -> Text:
    engine = "" if info.job_type != "BATCH" else f", BATCH by {info.engine}"
    restarts = "" if not info.restarts else f", {several(info.restarts, 'restart')}"
    ran_ms = (info.ended_ms or now_ms) - info.submitted_ms
    how_long = f" {'after' if info.is_terminal else 'for'} {duration(max(0, ran_ms))}"
    if info.restarts_at_ms is not None:
        restarts += f", the next in {duration(max(0, info.restarts_at_ms - now_ms))}"
    return Text.assemble(styled(info.state), f"{how_long}, target {info.target}{engine}{restarts}")


def _times(info: JobInfo) -> Iterator[tuple[str, Cell]]:
    yield "started", moment(info.submitted_ms)
    if info.ended_ms is not None:
        yield "ended", moment(info.ended_ms)


def _rows(info: JobInfo) -> Iterator[tuple[str, Cell]]:
    """Counters begin again with each attempt of a task; what was committed does not."""
    again = " since the last restart" if info.restarts else ""
    read, per_s, behind = rows_read(info), read_per_s(info), info.records_behind
    if read is not None:
        left = rows_left(info)
        parts = [f"{several(read, 'row')}{again}"]
        parts += [rate(per_s)] if per_s is not None else []
        if behind is not None and not info.is_terminal:
            parts.append(f"{count(behind)} {'left' if left is not None else 'behind'}")
        elif (left_bytes := bytes_left(info)) is not None:
            parts.append(f"{size(left_bytes)} left")
        yield "read", ", ".join(parts)
    if info.is_compiling:
        said = "what reads records, once on its machine: `unistream connectors compile` does it beforehand"
        yield "compiling", said
    written, committed = rows_written(info), info.metrics.get("rows_committed")
    parts = [f"{several(committed, 'row')} committed"] if committed is not None else []
    if written is not None and info.restarts:
        parts.append(f"{count(written)} written{again}")
    elif written is not None and committed is None:
        parts.append(f"{several(written, 'row')} given to sinks")  # of which some commit nothing, ever
    elif written is not None and committed is not None and not info.is_terminal and written > committed:
        parts.append(f"{count(written - committed)} rows not committed yet")
    if parts:
        yield "written", ", ".join(parts)


def _watermark(info: JobInfo, now_ms: int) -> Iterator[tuple[str, Cell]]:
    watermark = info.metrics.get("watermark")
    if watermark is not None and not info.is_terminal:
        yield "watermark", f"{moment(watermark)}, {duration(max(0, now_ms - watermark))} behind the clock"


def _snapshots(info: JobInfo, now_ms: int) -> Iterator[tuple[str, Cell]]:
    if info.job_type == "BATCH":  # it takes none
        return
    counts = f"{info.checkpoints_completed} completed, {info.checkpoints_failed} failed"
    last = next((one for one in info.checkpoints if one.state == "completed"), None)
    yield "checkpoints", counts + ("" if last is None else f"; {_last(last, now_ms)}")
    if info.latest_checkpoint:
        yield "", info.latest_checkpoint
    if info.savepoint and info.savepoint != info.latest_checkpoint:
        yield "savepoint", info.savepoint


def _last(one: CheckpointInfo, now_ms: int) -> str:
    return (
        f"the last {age(one.triggered_ms, now_ms)} took {duration(one.duration_ms)}, {size(one.state_bytes)}"
    )


def _tables(info: JobInfo) -> Iterator[tuple[str, Cell]]:
    """Each sink that commits or says where it writes, and what it writes to."""
    for uid in dict.fromkeys((*info.sinks, *info.writes)):
        sink = info.sinks.get(uid)
        if sink is not None:
            said = f"{several(sink.rows, 'row')} in {several(sink.commits, 'commit')}{version_of(sink)}"
        elif uid in info.plain_sinks:
            said = "takes rows as they come, at least once, and commits nothing"
        else:
            said = UNKNOWN if info.incomplete else "no commits so far"
        yield "sink", f"{uid}: {said}"
        for uri in info.writes.get(uid, ()):  # type: ignore[call-overload]
            yield "", uri


def _refused(info: JobInfo) -> Iterator[tuple[str, Cell]]:
    for label, counted, text in (
        ("late rows", info.late_rows, dropped),
        ("out of order", info.out_of_order_rows, out_of_order),
    ):
        for operator, rows in counted.items():
            yield label, f"{operator}: {text(rows, info.restarts)}"
    for label, counted, what in (
        ("dead letters", info.dead_letters, "dead letter"),
        ("skipped", info.skipped_rows, "row skipped"),
    ):
        for operator, rows in counted.items():
            yield label, f"{operator}: {failed(rows, info.restarts, what)}"


# --- tables ---------------------------------------------------------------------------------------


def vertex_grid(info: JobInfo, now_ms: int) -> Grid:
    """One line for each vertex, over its subtasks."""
    grid = Grid(
        PrintedColumn("VERTEX", fit=Fit.MIDDLE),
        PrintedColumn("TASKS"),
        PrintedColumn("ROWS IN", right=True),
        PrintedColumn("ROWS OUT", right=True, rank=1),
        PrintedColumn("RATE", right=True),
        PrintedColumn("BUSY", right=True),
        PrintedColumn("HELD BACK", right=True, rank=2),
        PrintedColumn("LAG", right=True, rank=3),
    )
    for vertex in vertex_figures(info):
        is_held = vertex.held_back is not None and vertex.held_back > HELD_BACK_FROM
        lag = None if vertex.watermark_ms is None else max(0, now_ms - vertex.watermark_ms)
        grid.add(
            vertex.name,
            by_state(vertex.states),
            (count(vertex.rows_in), compact(vertex.rows_in)),
            (count(vertex.rows_out), compact(vertex.rows_out)),
            (
                rate(vertex.in_per_s),
                f"{compact(vertex.in_per_s)}/s" if vertex.in_per_s is not None else UNKNOWN,
            ),
            percent(vertex.busy),
            Text(percent(vertex.held_back), style="yellow" if is_held else ""),
            duration(lag),
        )
    return grid


def subtask_grid(info: JobInfo) -> Grid:
    """One line for each subtask."""
    grid = Grid(
        PrintedColumn("SUBTASK", fit=Fit.MIDDLE),
        PrintedColumn("ATTEMPT", right=True, rank=1),
        PrintedColumn("STATE"),
        PrintedColumn("IN", right=True),
        PrintedColumn("OUT", right=True),
        PrintedColumn("BUSY", right=True, rank=2),
        PrintedColumn("WORKER", fit=Fit.MIDDLE, rank=3),
    )
    for subtask in info.subtasks:
        grid.add(*_subtask(subtask, counts=not info.incomplete))
    return grid


def _subtask(subtask: SubtaskInfo, *, counts: bool) -> tuple[Cell, ...]:
    metrics = subtask.metrics
    busy = metrics.busy_per_s / 1_000 if subtask.state == "RUNNING" else None
    return (
        f"{subtask.vertex_name} ({subtask.index + 1})",
        str(subtask.attempt),
        styled(subtask.state),
        count(metrics.records_in if counts else None),
        count(metrics.records_out if counts else None),
        percent(busy),
        subtask.task_manager or "",
    )
