"""Every command of `unistream`, and the groups of them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Final

import typer

from unistream.cli.lazy import Lazy, lazy_group

COMMANDS: Final = {
    "run": Lazy("unistream.cli.run:run", "Run a pipeline."),
    "explain": Lazy(
        "unistream.cli.explain:explain",
        "Show what a pipeline becomes: operators, tasks, subtasks and regions. Nothing is started.",
    ),
    "plan": Lazy(
        "unistream.cli.plan:plan",
        "Show what becomes of each state of a savepoint if the pipeline starts from it. Nothing is started.",
    ),
    "list": Lazy("unistream.cli.jobs:list_jobs", "List the jobs of all clusters that run on this machine."),
    "info": Lazy(
        "unistream.cli.jobs:info", "Show one job: state, tasks, checkpoints, workers, late rows, failures."
    ),
    "exceptions": Lazy(
        "unistream.cli.exceptions:exceptions",
        "Show the failures of one job, newest first; those that came along with one are indented below it.",
    ),
    "checkpoint": Lazy(
        "unistream.cli.checkpoints:checkpoint",
        "Take a checkpoint now, whatever the schedule says; the job goes on.",
    ),
    "checkpoints": Lazy(
        "unistream.cli.checkpoints:checkpoints",
        "Show the newest checkpoints and savepoints of one job, or the tasks of one of them.",
    ),
    "rescale": Lazy(
        "unistream.cli.rescale:rescale",
        "Give vertices of a running job another parallelism; it goes on from a checkpoint.",
    ),
    "simulate": Lazy(
        "unistream.cli.simulate:simulate",
        "Run a pipeline in a simulated cluster, under faults; every seed must show the same rows.",
    ),
    "stop": Lazy("unistream.cli.jobs:stop", "End a job with a savepoint that another one can start from."),
    "cancel": Lazy("unistream.cli.jobs:cancel", "End a job without a savepoint."),
    "cluster": Lazy("unistream.cli.cluster:app", "Session clusters."),
    "stack": Lazy(
        "unistream.cli.stack:app",
        "Start and stop a real Kafka broker and a real ZooKeeper server on this machine.",
    ),
    "db": Lazy("unistream.cli.db:app", "Make or check the schema of the metadata database."),
    "savepoint": Lazy(
        "unistream.cli.savepoint:app",
        "Take a savepoint of a job (`savepoint JOB`), look into one, query it, or make one.",
    ),
    "taskmanager": Lazy("unistream.cli.taskmanager:app", "Workers."),
}

app = typer.Typer(
    name="unistream",
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One Python pipeline, run as a batch job or as a stream, with one result.",
)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """One Python pipeline, run as a batch job or as a stream, with one result."""
    if show_version:
        typer.echo(f"unistream {version('unistream')}")
        raise typer.Exit
