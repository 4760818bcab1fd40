"""Every command of `unistream`. Its module is loaded when it is called; lists are printed without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command is.

    Attributes:
        place: ``module:name`` in `unistream.cli`, of a function or of a `typer.Typer`: a group of commands.
        help: As the command itself says; a test compares the two.
    """

    place: str
    help: str

    def load(self, name: str) -> Any:
        """The command itself."""
        module, _, attribute = self.place.partition(":")
        found: typer.Typer | Callable[..., None] = getattr(
            import_module(f"unistream.cli.{module}"), attribute
        )
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name)(found)
            found = app
        command = get_command(found)
        command.name = name
        return command


COMMANDS: Final = {
    "init": Lazy(
        "init:init", "Write a project to begin with: a pipeline, its test, Dagster definitions and CI."
    ),
    "run": Lazy("run:run", "Run a pipeline."),
    "bootstrap": Lazy(
        "bootstrap:bootstrap",
        "Read the history of a pipeline as a BATCH job, and write a savepoint to go on from.",
    ),
    "explain": Lazy(
        "plan:explain",
        "Show what a pipeline becomes: operators, tasks, subtasks and regions. Nothing is started.",
    ),
    "plan": Lazy(
        "plan:plan",
        "Show what happens to each state of a savepoint if a pipeline starts from it. Nothing is started.",
    ),
    "list": Lazy("jobs:list_jobs", "List the jobs of all clusters that run on this machine."),
    "info": Lazy(
        "info:info",
        "Show one job, also one that has ended: rows, watermark, checkpoints, vertices, tables, failures.",
    ),
    "logs": Lazy(
        "logs:logs",
        "Show what the functions of one job have logged, oldest first; with --json one line is one value.",
    ),
    "exceptions": Lazy(
        "exceptions:exceptions",
        "Show the failures of one job, newest first; concurrent failures are indented below the first.",
    ),
    "checkpoint": Lazy(
        "checkpoints:checkpoint", "Take a checkpoint now, whatever the interval is; the job keeps running."
    ),
    "checkpoints": Lazy(
        "checkpoints:checkpoints",
        "Show the newest checkpoints and savepoints of one job, or the tasks of one of them.",
    ),
    "upgrade": Lazy(
        "upgrade:upgrade",
        "Replace a running job by another version of its pipeline, or go back to the old one.",
    ),
    "rescale": Lazy(
        "rescale:rescale",
        "Change the parallelism of vertices of a running job; it resumes from a checkpoint.",
    ),
    "simulate": Lazy(
        "simulate:simulate",
        "Run a pipeline in a simulated cluster with faults; every seed must produce the same rows.",
    ),
    "stop": Lazy("jobs:stop", "Stop a job with a savepoint that another one can start from."),
    "backfill": Lazy(
        "backfill:backfill",
        "Compute results of a range of time again from the history, and replace them in the table.",
    ),
    "cancel": Lazy("jobs:cancel", "Cancel a job, without a savepoint."),
    "cluster": Lazy("cluster:app", "Session clusters."),
    "config": Lazy(
        "config:app", "The configuration: what counts, where it is from, and what is wrong in it."
    ),
    "stack": Lazy(
        "stack:app", "Start and stop a real Kafka broker, ZooKeeper server and S3 server on this machine."
    ),
    "db": Lazy("db:app", "Create, check, change and clean up the metadata database."),
    "savepoint": Lazy(
        "savepoint:app", "Take a savepoint of a job (`savepoint JOB`); inspect, query, write or finalize one."
    ),
    "connectors": Lazy("connectors:app", "What can be read and written: sources and sinks."),
    "group": Lazy("group:app", "Sinks whose commits become visible together."),
    "sinks": Lazy("sinks:app", "Folders that sinks write to: remove what nobody will commit."),
    "dead-letters": Lazy("dead_letters:app", "Rows that failed: list and show them, and process them again."),
    "token": Lazy("token:app", "Tokens: who may ask a cluster."),
    "certs": Lazy("certs:app", "Certificates of a cluster that listens for other hosts."),
    "ui": Lazy("ui:ui", "Print a link to a cluster's web UI that lets one browser in, once."),
    "proxy": Lazy(
        "proxy:proxy",
        "Let Flink's tools and others without a token ask a cluster, by an address of this machine.",
    ),
    "taskmanager": Lazy("taskmanager:app", "Workers."),
}


class _LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command that has a name and a help only, for lists and suggestions."""
        known = COMMANDS.get(cmd_name)
        return None if known is None else TyperCommand(cmd_name, help=known.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else COMMANDS[name].load(name), rest


app = typer.Typer(
    name="unistream",
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="PATH",
            help="The configuration file; else $UNISTREAM_CONF_DIR/config.yaml or "
            "$UNISTREAM_HOME/config.yaml.",
        ),
    ] = None,
) -> None:
    """One Python pipeline, run as a batch job or as a stream, with one result."""
    if config is not None:
        from unistream.client.machine.surroundings import choose_file

        choose_file(config)
    if show_version:
        typer.echo(f"unistream {version('unistream')}")
        raise typer.Exit
