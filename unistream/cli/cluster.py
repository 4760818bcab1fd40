"""`unistream cluster start`: a session cluster in the foreground."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from unistream.cli.errors import log_to_stderr
from unistream.cli.options import AsJson, Defines, Verbose, configuration
from unistream.cli.output import console, print_json
from unistream.client.address import elected_name
from unistream.client.hosts import chosen_target

if TYPE_CHECKING:
    from unistream.client.embedded import EmbeddedCluster

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
        with EmbeddedCluster(
            target,
            config,
            workdir=workdir,
            on_shutdown_request=ending.set,
            on_leading=lambda cluster: _print_leader(cluster, as_json=as_json),
        ) as cluster:
            if cluster.is_elected:
                _print_contender(cluster, elected_name(config), as_json=as_json)
            else:
                _print_leader(cluster, as_json=as_json)
            ending.wait()
            if cluster.failure is not None:
                raise cluster.failure
            if not as_json:
                console().print("shutting down: running jobs are suspended and keep their checkpoints")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_leader(cluster: EmbeddedCluster, *, as_json: bool) -> None:
    """With several masters: each time that this one begins to lead."""
    if as_json:
        facts = {"cluster": cluster.id, "url": cluster.rest_url, "workdir": str(cluster.workdir)}
        print_json({**facts, "jobmanager": cluster.jobmanager})
        return
    out = console()
    out.print(f"cluster {cluster.id} ({cluster.target}) listens on {cluster.rest_url}")
    if cluster.jobmanager is not None:
        where = cluster.jobmanager
        out.print(f"start each of its workers with: unistream taskmanager start --jobmanager {where}")
    if not cluster.is_elected:
        out.print(f"its folder is {cluster.workdir}; stop it with Ctrl-C")


def _print_contender(cluster: EmbeddedCluster, where: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"cluster": cluster.id, "contends": where, "workdir": str(cluster.workdir)})
        return
    out = console()
    out.print(f"master {cluster.id} ({cluster.target}) is a standby until it is elected at {where}")
    out.print(f"its folder is {cluster.workdir}; stop it with Ctrl-C")
