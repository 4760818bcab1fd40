"""Every command of `unistream`, and the groups of them."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from unistream.cli import checkpoints, cluster, exceptions, explain, jobs, plan, rescale, run, simulate

SUB_APPS: Final = ("stack", "db", "savepoint", "taskmanager")
"""Groups of commands with a module of their own, loaded if they are installed."""

app = typer.Typer(
    name="unistream",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One Python pipeline, run as a batch job or as a stream, with one result.",
)
app.command("run")(run.run)
app.command("explain")(explain.explain)
app.command("plan")(plan.plan)
app.command("list")(jobs.list_jobs)
app.command("info")(jobs.info)
app.command("exceptions")(exceptions.exceptions)
app.command("checkpoint")(checkpoints.checkpoint)
app.command("checkpoints")(checkpoints.checkpoints)
app.command("rescale")(rescale.rescale)
app.command("simulate")(simulate.simulate)
app.command("stop")(jobs.stop)
app.command("cancel")(jobs.cancel)
app.add_typer(cluster.app, name="cluster")


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """One Python pipeline, run as a batch job or as a stream, with one result."""
    if show_version:
        typer.echo(f"unistream {version('unistream')}")
        raise typer.Exit


def _add_sub_apps() -> None:
    for name in SUB_APPS:
        if find_spec(f"unistream.cli.{name}") is not None:
            app.add_typer(importlib.import_module(f"unistream.cli.{name}").app, name=name)


_add_sub_apps()
