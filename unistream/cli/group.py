"""`unistream group`: what the readers of a commit group see."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from unistream.cli.options import AsJson
from unistream.cli.output import console, moment, new_table, print_facts, print_json

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

    found = read_group(where, name)
    if as_json:
        print_json(found)
        return
    print_facts(
        [
            ("group", escape(found.group)),
            ("checkpoint", f"{found.checkpoint} of job {found.job}"),
            ("visible since", moment(found.committed_ms)),
        ]
    )
    table = new_table("sink", "kind", "version", "table")
    for uid, one in sorted(found.tables.items()):
        version = "as it is" if one.version is None else str(one.version)
        table.add_row(escape(uid), one.kind, version, escape(one.address))
    console().print()
    console().print(table)
