"""`unistream sinks`: folders that sinks write to."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, new_table, print_json

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
    from unistream.client.staged_files import clean_folder

    found = clean_folder(configuration(defines), folder, forgotten=forgotten or (), dry_run=dry_run)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    if not found:
        console().print("there are no staged files")
        return
    table = new_table("job", "files", "")
    for one in found:
        done = "would be removed" if dry_run else "removed"
        table.add_row(escape(one.job), f"{one.files:,}", f"kept: {one.kept}" if one.kept else done)
    console().print(table)
