"""`unistream cluster start`: a session cluster in the foreground."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Annotated

import typer

from unistream.cli.errors import log_to_stderr
from unistream.cli.options import AsJson, Defines, Verbose, configuration
from unistream.cli.output import console, print_json
from unistream.client.hosts import chosen_target

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Session clusters.")


@app.callback()
def _group() -> None:
    """Session clusters: one master that accepts jobs until it is shut down."""


@app.command()
def start(
    target: Annotated[
        str | None,
        typer.Option("-t", "--target", help="spark (the default if installed), local or standalone."),
    ] = None,
    workdir: Annotated[
        str | None, typer.Option(help="Folder for logs, checkpoints, savepoints and metadata.")
    ] = None,
    defines: Defines = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Start a cluster, print its REST address, run until SIGINT, SIGTERM or DELETE /cluster.

    Jobs that run then are suspended: their checkpoints stay, and stderr says from which one each can resume.
    """
    from unistream.client.embedded import EmbeddedCluster

    config = configuration(defines)
    log_to_stderr(verbose)
    target = chosen_target(target)
    ending = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ending.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with EmbeddedCluster(target, config, workdir=workdir, on_shutdown_request=ending.set) as cluster:
            if as_json:
                facts = {"cluster": cluster.id, "url": cluster.rest_url, "workdir": str(cluster.workdir)}
                print_json({**facts, "jobmanager": cluster.jobmanager})
            else:
                out = console()
                out.print(f"cluster {cluster.id} ({target}) listens on {cluster.rest_url}")
                if cluster.jobmanager is not None:
                    command = f"unistream taskmanager start --jobmanager {cluster.jobmanager}"
                    out.print(f"it has no workers yet; start each with: {command}")
                out.print(f"its folder is {cluster.workdir}; stop it with Ctrl-C")
            ending.wait()
            if not as_json:
                console().print("shutting down: running jobs are suspended and keep their checkpoints")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
