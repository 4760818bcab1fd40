"""`unistream group`: what the readers of a commit group see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from unistream.cli.formats import moment
from unistream.cli.options import AsJson
from unistream.cli.output import console, facts_grid, print_json
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn

if TYPE_CHECKING:
    from unistream.connector.group.logs import GroupCommit

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Sinks whose commits become visible together."
)


@app.callback()
def _group() -> None:
    """Without it, typer would take the only command as the whole app."""


@app.command("show")
def show(
    where: Annotated[
        str, typer.Argument(metavar="WHERE", help="Folder or URL of the records, or URL of the database.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the group.")],
    as_json: AsJson = False,
) -> None:
    """Show up to which checkpoint all tables are complete, and at which version of each to read it."""
    from unistream.connector.group import read_group

    group_log = read_group(where, name)
    if as_json:
        print_json(group_log)
        return
    out = console()
    for part in shown(group_log):
        out.print(part, markup=False)


def shown(found: GroupCommit) -> Iterator[Grid | Cell]:
    """The parts of the page, one below the other."""
    yield facts_grid(
        [
            ("group", found.group),
            ("checkpoint", f"{found.checkpoint} of job {found.job}"),
            ("visible since", moment(found.committed_ms)),
        ]
    )
    yield ""
    yield tables(found)


def tables(found: GroupCommit) -> Grid:
    """One line for each sink, with the version that its readers read."""
    grid = Grid(
        PrintedColumn("SINK"),
        PrintedColumn("KIND"),
        PrintedColumn("VERSION"),
        PrintedColumn("TABLE", fit=Fit.WORDS),
    )
    for uid, one in sorted(found.tables.items()):
        grid.add(uid, one.kind, "as it is" if one.version is None else str(one.version), one.address)
    return grid
