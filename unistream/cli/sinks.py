"""`unistream sinks`: folders that sinks write to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, id_forms, print_json
from unistream.cli.tables import Fit, Grid, PrintedColumn

if TYPE_CHECKING:
    from unistream.client.job.staged_files import StagedByJob

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Folders that sinks write to: remove what nobody will commit.",
)


@app.callback()
def _group() -> None:
    """Without it, typer would take the only command as the whole app."""


@app.command("clean")
def clean(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Path or URL of the folder of a FileSink.")],
    forgotten: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="Also the files of this ended job, of which no snapshot is kept; may be repeated.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Remove the staged files of jobs that have failed or were cancelled without a snapshot."""
    from unistream.client.job.staged_files import clean_folder

    files = clean_folder(configuration(defines), folder, forgotten=forgotten or (), dry_run=dry_run)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in files])
        return
    if not files:
        console().print("there are no staged files")
        return
    console().print(staged(files, dry_run=dry_run))


def staged(found: Sequence[StagedByJob], *, dry_run: bool) -> Grid:
    """One line for each job, with what happens to its files."""
    grid = Grid(
        PrintedColumn("JOB"), PrintedColumn("FILES", right=True), PrintedColumn("OUTCOME", fit=Fit.WORDS)
    )
    for one in found:
        done = "would be removed" if dry_run else "removed"
        grid.add(id_forms(one.job), f"{one.files:,}", f"kept: {one.kept}" if one.kept else done)
    return grid
