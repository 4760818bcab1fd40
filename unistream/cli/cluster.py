"""`unistream cluster start`: a session cluster in the foreground."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Annotated

import typer

from unistream.cli.logs import log_to_stderr
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, print_json
from unistream.client.hosts import chosen_target

app = typer.Typer(no_args_is_help=True, help="Session clusters.")


@app.callback()
def _group() -> None:
    """Session clusters: one master that takes jobs until it is ended."""


@app.command()
def start(
    target: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--target",
            help="spark, local or standalone; by default spark, or local where Spark is not installed.",
        ),
    ] = None,
    workdir: Annotated[
        str | None, typer.Option(help="Folder for logs, checkpoints, savepoints and metadata.")
    ] = None,
    defines: Defines = None,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens to stderr.")] = False,
) -> None:
    """Start a cluster, print its REST address, run until SIGINT, SIGTERM or DELETE /cluster.

    Jobs that run then are suspended: their checkpoints stay, and stderr says from which one each goes on.
    """
    from unistream.client.embedded import EmbeddedCluster

    config = configuration(defines)
    log_to_stderr(verbose)
    target = chosen_target(target)
    over = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        over.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with EmbeddedCluster(target, config, workdir=workdir, on_shutdown_request=over.set) as cluster:
            if as_json:
                facts = {"cluster": cluster.id, "url": cluster.rest_url, "workdir": str(cluster.workdir)}
                print_json({**facts, "jobmanager": cluster.jobmanager})
            else:
                out = console()
                out.print(f"cluster {cluster.id} ({target}) listens on {cluster.rest_url}")
                if cluster.jobmanager is not None:
                    command = f"unistream taskmanager start --jobmanager {cluster.jobmanager}"
                    out.print(f"it has no workers yet; each is started with: {command}")
                out.print(f"its folder is {cluster.workdir}; end it with Ctrl-C")
            over.wait()
            if not as_json:
                console().print("ending: jobs that still run are suspended, and keep their checkpoints")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
