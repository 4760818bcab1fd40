"""`unistream checkpoint` takes one now; `unistream checkpoints` shows statistics of a job's snapshots."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from unistream.base.errors import NotFound
from unistream.base.ids import CheckpointId
from unistream.cli.options import AsJson, Defines, Job, JobManager, configuration
from unistream.cli.output import console, duration, moment, new_table, print_facts, print_json
from unistream.client.lookup import find_job
from unistream.core.memory import describe_bytes
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
    with find_job(configuration(defines, jobmanager=jobmanager), job) as client:
        info = client.checkpoints()
    if checkpoint is not None:
        figures = info.find(CheckpointId(checkpoint))
        if figures is None:
            ids = ", ".join(str(known.checkpoint_id) for known in info.latest) or "none"
            raise NotFound(f"checkpoint {checkpoint} is not (or no longer) known; known are: {ids}")
        if as_json:
            print_json({"job": client.job_id, "checkpoint": figures})
        else:
            print_checkpoint(figures)
    elif as_json:
        print_json({"job": client.job_id, "checkpoints": info})
    else:
        print_checkpoints(info)


def print_checkpoints(info: CheckpointsInfo) -> None:
    """Counts, the newest ones, spreads, the last failure and the last restart."""
    out = console()
    counts = f"{info.completed} completed, {info.failed} failed, {info.in_progress} in progress"
    out.print(f"{counts}, {info.restored} times restored from one")
    if info.latest:
        out.print(newest(info.latest))
    if info.summary:
        out.print()
        out.print(spreads(info.summary))
    failed, restored = info.latest_failed, info.latest_restored
    if failed is not None:
        out.print(f"\n[bold]last failure[/bold]  {failed.checkpoint_id}: {escape(failed.reason or '')}")
    if restored is not None:
        out.print(
            f"\n[bold]last restart[/bold]  {moment(restored.restored_ms)} from {_KINDS[restored.kind]} "
            f"{restored.checkpoint_id}: {escape(restored.path)}"
        )


def newest(known: tuple[CheckpointFigures, ...]) -> Table:
    """One line for each, as they come."""
    table = new_table(
        "ID", "KIND", "STATE", "STARTED", "DURATION", "STATE SIZE", "NEW", "IN FLIGHT", "ALIGNMENT"
    )
    for figures in known:
        sizes = (figures.state_bytes, figures.new_bytes, figures.persisted_bytes)
        table.add_row(
            str(figures.checkpoint_id),
            _kind(figures),
            _state(figures),
            moment(figures.timestamp_ms),
            took(figures.duration_ms),
            *(describe_bytes(size) for size in sizes),
            took(figures.alignment_ms),
        )
    return table


def _kind(figures: CheckpointFigures) -> str:
    is_native = figures.kind.is_savepoint and figures.format is SavepointFormat.NATIVE
    return f"native {_KINDS[figures.kind]}" if is_native else _KINDS[figures.kind]


def spreads(summary: dict[str, Spread]) -> Table:
    """One line for each figure, over completed snapshots."""
    table = new_table("", "MIN", "AVERAGE", "P50", "P90", "P95", "P99", "P99.9", "MAX")
    for name, heading in _SPREADS.items():
        spread = summary.get(name)
        if spread is None:
            continue
        show = took if name.endswith("_ms") else describe_bytes
        quantiles = (spread.p50, spread.p90, spread.p95, spread.p99, spread.p999)
        values = (spread.min, spread.average, *quantiles, spread.max)
        table.add_row(heading, *(show(round(value)) for value in values))
    return table


def print_checkpoint(figures: CheckpointFigures) -> None:
    """Its figures and its tasks."""
    print_facts(_facts(figures), 11)
    if figures.vertices:
        console().print(tasks(figures.vertices))


def _facts(figures: CheckpointFigures) -> list[tuple[str, str]]:
    facts = [
        ("id", str(figures.checkpoint_id)),
        ("kind", _kind(figures)),
        ("state", _state(figures)),
        ("started", f"{moment(figures.timestamp_ms)}, took {took(figures.duration_ms)}"),
        ("tasks", f"{len(figures.subtasks)} of {figures.expected} have acknowledged"),
        ("size", f"{describe_bytes(figures.state_bytes)}, {describe_bytes(figures.new_bytes)} of it new"),
    ]
    if figures.path is not None:
        discarded = " (discarded)" if figures.discarded else ""
        facts.append(("directory", f"{escape(figures.path)}{discarded}"))
    if figures.reason is not None:
        facts.append(("why", escape(figures.reason)))
    return facts


def tasks(vertices: tuple[VertexFigures, ...]) -> Table:
    """One line for each subtask; those that have not acknowledged are empty."""
    table = new_table(
        *("TASK", "ACKNOWLEDGED", "DELAY", "ALIGNMENT", "SYNC", "ASYNC"),
        *("STATE SIZE", "NEW", "WHILE ALIGNING", "IN FLIGHT"),
    )
    for vertex in vertices:
        rows = [(subtask.index, _cells(subtask)) for subtask in vertex.subtasks]
        rows += [(index, ["no"]) for index in vertex.missing]
        for index, cells in sorted(rows):
            table.add_row(escape(f"{vertex.name} #{index}"), *cells)
    return table


def _cells(subtask: SubtaskFigures) -> list[str]:
    times = (subtask.start_delay_ms, subtask.alignment_ms, subtask.sync_ms, subtask.async_ms)
    sizes = (subtask.state_bytes, subtask.new_bytes, subtask.processed_bytes, subtask.persisted_bytes)
    unaligned = ", unaligned" if subtask.unaligned else ""
    return [
        f"after {took(subtask.acked_after_ms)}{unaligned}",
        *(took(time) for time in times),
        *(describe_bytes(size) for size in sizes),
    ]


def took(ms: int) -> str:
    """Milliseconds below a second.

    >>> took(26), took(1_500), took(65_000)
    ('26 ms', '1.5 s', '1 min 5 s')
    """
    return f"{ms} ms" if ms < 1_000 else duration(ms)


def _state(figures: CheckpointFigures) -> str:
    style = _STYLES.get(figures.status, "cyan")
    return f"[{style}]{figures.status.value}[/{style}]"
