"""`unistream checkpoint` takes one now; `unistream checkpoints` shows statistics of a job's snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.text import Text

from unistream.base.clock import SystemClock
from unistream.base.errors import NotFound
from unistream.base.ids import CheckpointId
from unistream.cli.formats import age, duration, moment, since, size
from unistream.cli.options import AsJson, Defines, Job, JobManager, configuration
from unistream.cli.output import console, facts_grid, print_json
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn
from unistream.client.job.lookup import find_job, find_shown_job
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    SnapshotStatus,
    Spread,
    SubtaskFigures,
    VertexFigures,
)
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind

Checkpoint = Annotated[
    int | None,
    typer.Argument(metavar="CHECKPOINT", min=1, help="Id of a checkpoint or savepoint: show its tasks."),
]

_KINDS: Final = {
    SnapshotKind.CHECKPOINT: "checkpoint",
    SnapshotKind.SAVEPOINT: "savepoint",
    SnapshotKind.SUSPEND: "savepoint of a stop",
    SnapshotKind.TERMINATE: "savepoint of a drain",
}
_STYLES: Final = {SnapshotStatus.COMPLETED: "green", SnapshotStatus.FAILED: "red"}
_SPREADS: Final = {
    "duration_ms": "duration",
    "state_bytes": "state",
    "new_bytes": "new",
    "processed_bytes": "while aligning",
    "persisted_bytes": "in flight",
}
_FIGURES_OF_TASKS: Final = (
    *(("DELAY", 4), ("ALIGNMENT", 1), ("SYNC", 5), ("ASYNC", 2)),
    *(("STATE SIZE", 0), ("NEW", 3), ("WHILE ALIGNING", 7), ("IN FLIGHT", 6)),
)  # with the rank of the column


def checkpoint(
    job: Job,
    full: Annotated[bool, typer.Option("--full", help="Refer to no file of an older checkpoint.")] = False,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Take a checkpoint now, whatever the interval is; the job keeps running."""
    with find_job(configuration(defines, jobmanager=jobmanager), job) as client:
        path = client.checkpoint(type="full" if full else "configured")
    if as_json:
        print_json({"job": client.job_id, "checkpoint": path})
    else:
        console().print(f"checkpoint complete: {path}", markup=False)


def checkpoints(
    job: Job,
    checkpoint: Checkpoint = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest checkpoints and savepoints of one job, or the tasks of one of them."""
    out, now_ms = console(), SystemClock().wall_ms()
    with find_shown_job(configuration(defines, jobmanager=jobmanager), job) as client:
        info = client.checkpoints()
    if checkpoint is not None:
        figures = info.find(CheckpointId(checkpoint))
        if figures is None:
            ids = ", ".join(str(known.checkpoint_id) for known in info.latest) or "none"
            raise NotFound(f"checkpoint {checkpoint} is not (or no longer) known; known are: {ids}")
        if as_json:
            print_json({"job": client.job_id, "checkpoint": figures})
        else:
            for part in shown_checkpoint(figures, now_ms):
                out.print(part, markup=False)
    elif as_json:
        print_json({"job": client.job_id, "checkpoints": info})
    else:
        for part in shown(info, now_ms):
            out.print(part, markup=False)


def shown(info: CheckpointsInfo, now_ms: int) -> Iterator[Grid | Cell]:
    """Counts, the newest ones, spreads, the last failure and the last restart."""
    counts = f"{info.completed} completed, {info.failed} failed, {info.in_progress} in progress"
    yield f"{counts}, {info.restored} times restored from one"
    if info.latest:
        yield newest(info.latest, now_ms)
    if info.summary:
        yield ""
        yield spreads(info.summary)
    failed, restored = info.latest_failed, info.latest_restored
    last: list[tuple[str, Cell]] = []
    if failed is not None:
        last.append(("last failure", f"{failed.checkpoint_id}: {failed.reason or ''}"))
    if restored is not None:
        at = f"{age(restored.restored_ms, now_ms)} from {_KINDS[restored.kind]} {restored.checkpoint_id}"
        last += [("last restart", at), ("", restored.path)]
    if last:
        yield ""
        yield facts_grid(last)


def newest(known: tuple[CheckpointFigures, ...], now_ms: int) -> Grid:
    """One line for each, as they come."""
    grid = Grid(
        PrintedColumn("ID", right=True),
        PrintedColumn("KIND"),
        PrintedColumn("STATE"),
        PrintedColumn("STARTED"),
        PrintedColumn("DURATION", right=True),
        PrintedColumn("STATE SIZE", right=True),
        PrintedColumn("NEW", right=True, rank=1),
        PrintedColumn("IN FLIGHT", right=True, rank=2),
        PrintedColumn("ALIGNMENT", right=True, rank=3),
    )
    for figures in known:
        of_tasks = bool(figures.vertices)  # the database has those of the whole alone
        grid.add(
            str(figures.checkpoint_id),
            _kind(figures),
            _state(figures),
            since(figures.timestamp_ms, now_ms),
            duration(figures.duration_ms),
            size(figures.state_bytes if of_tasks or figures.recorded_bytes else None),
            size(figures.new_bytes if of_tasks else None),
            size(figures.persisted_bytes if of_tasks else None),
            duration(figures.alignment_ms if of_tasks else None),
        )
    return grid


def _kind(figures: CheckpointFigures) -> str:
    is_native = figures.kind.is_savepoint and figures.format is SavepointFormat.NATIVE
    return f"native {_KINDS[figures.kind]}" if is_native else _KINDS[figures.kind]


def spreads(summary: dict[str, Spread]) -> Grid:
    """One line for each figure, over completed snapshots."""
    headings = (
        ("MIN", 0),
        ("AVERAGE", 0),
        ("P50", 1),
        ("P90", 3),
        ("P95", 4),
        ("P99", 2),
        ("P99.9", 5),
        ("MAX", 0),
    )
    grid = Grid(
        PrintedColumn("OF ALL"),
        *(PrintedColumn(heading, right=True, rank=rank) for heading, rank in headings),
    )
    for name, heading in _SPREADS.items():
        spread = summary.get(name)
        if spread is None:
            continue
        show = duration if name.endswith("_ms") else size
        quantiles = (spread.p50, spread.p90, spread.p95, spread.p99, spread.p999)
        grid.add(
            heading, *(show(round(value)) for value in (spread.min, spread.average, *quantiles, spread.max))
        )
    return grid


def shown_checkpoint(figures: CheckpointFigures, now_ms: int) -> Iterator[Grid | Cell]:
    """The figures of a checkpoint and its tasks."""
    yield facts_grid(_facts(figures, now_ms))
    if figures.vertices:
        yield ""
        yield tasks(figures.vertices)


def _facts(figures: CheckpointFigures, now_ms: int) -> list[tuple[str, Cell]]:
    started = f"{moment(figures.timestamp_ms)}, {age(figures.timestamp_ms, now_ms)}"
    facts: list[tuple[str, Cell]] = [
        ("id", str(figures.checkpoint_id)),
        ("kind", _kind(figures)),
        ("state", _state(figures)),
        ("started", f"{started}, took {duration(figures.duration_ms)}"),
    ]
    if figures.vertices:
        facts += [
            ("tasks", f"{len(figures.subtasks)} of {figures.expected} have acknowledged"),
            ("size", f"{size(figures.state_bytes)}, {size(figures.new_bytes)} of it new"),
        ]
    elif figures.recorded_bytes:
        facts.append(("size", size(figures.recorded_bytes)))
    if figures.path is not None:
        facts.append(("directory", f"{figures.path}{' (discarded)' if figures.discarded else ''}"))
    if figures.reason is not None:
        facts.append(("why", figures.reason))
    return facts


def tasks(vertices: tuple[VertexFigures, ...]) -> Grid:
    """One line for each subtask; those that have not acknowledged are empty."""
    grid = Grid(
        PrintedColumn("TASK", fit=Fit.MIDDLE),
        PrintedColumn("ACKNOWLEDGED"),
        *(PrintedColumn(heading, right=True, rank=rank) for heading, rank in _FIGURES_OF_TASKS),
    )
    for vertex in vertices:
        rows = [(subtask.index, _cells(subtask)) for subtask in vertex.subtasks]
        rows += [(index, ["no", *[""] * len(_FIGURES_OF_TASKS)]) for index in vertex.missing]
        for index, cells in sorted(rows, key=lambda row: row[0]):
            grid.add(f"{vertex.name} ({index + 1})", *cells)
    return grid


def _cells(subtask: SubtaskFigures) -> list[str]:
    times = (subtask.start_delay_ms, subtask.alignment_ms, subtask.sync_ms, subtask.async_ms)
    sizes = (subtask.state_bytes, subtask.new_bytes, subtask.processed_bytes, subtask.persisted_bytes)
    unaligned = ", unaligned" if subtask.unaligned else ""
    return [
        f"after {duration(subtask.acked_after_ms)}{unaligned}",
        *(duration(time) for time in times),
        *(size(one) for one in sizes),
    ]


def _state(figures: CheckpointFigures) -> Text:
    return Text(figures.status.value, style=_STYLES.get(figures.status, "cyan"))
