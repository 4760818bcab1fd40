"""`unistream taskmanager`: workers of a standalone cluster, and what workers there are."""

from __future__ import annotations

import re
import socket
import uuid
from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table

from unistream.base.config import JOBMANAGER_PORT, TASK_SLOTS, Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import TaskManagerId
from unistream.cli import memory
from unistream.cli.logs import log_to_stderr
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, print_json
from unistream.client.hosts import STANDALONE_PORT
from unistream.client.lookup import running_clusters
from unistream.core.slot_matching import describe
from unistream.master.job_info import TaskManagerInfo

app = typer.Typer(no_args_is_help=True, help="Workers.")
app.command("memory")(memory.memory)

_ADDRESS: Final = re.compile(r"^(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?$")


@app.callback()
def _group() -> None:
    """Workers: those of a standalone cluster are started by hand."""


@app.command()
def start(
    jobmanager: Annotated[
        str, typer.Option("--jobmanager", metavar="HOST:PORT", help="Where the cluster waits for workers.")
    ],
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Task slots of this worker.")] = None,
    defines: Defines = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens to stderr.")] = False,
) -> None:
    """Be a worker of a standalone cluster until SIGINT, SIGTERM or the cluster's end.

    A worker that loses its master ends its tasks and registers anew. Exit code 1: its master had given it
    up, and somebody else does its work.
    """
    from unistream.port.host import TaskManagerSpec
    from unistream.worker.main import run_standalone

    config = configuration(defines)
    log_to_stderr(verbose)
    spec = TaskManagerSpec(
        id=_new_id(),
        master=location(jobmanager, config),
        slots=config.get(TASK_SLOTS) if slots is None else slots,
        config=config.to_dict(),
        standalone=True,
    )
    raise typer.Exit(run_standalone(spec, _new_id))


@app.command("list")
def list_workers(defines: Defines = None, as_json: AsJson = False) -> None:
    """List the workers of all clusters that run on this machine."""
    config = configuration(defines)
    try:
        clusters = running_clusters(config)
    except Unreachable:
        if config.to_dict():
            raise
        clusters = []  # nothing runs: an empty list, not a failure
    found: list[tuple[str, TaskManagerInfo]] = []
    for cluster in clusters:
        with cluster:
            found += [(cluster.url, worker) for worker in cluster.task_managers()]
    if as_json:
        print_json(
            {"taskmanagers": [{"cluster": url, **msgspec.to_builtins(worker)} for url, worker in found]}
        )
    elif found:
        console().print(_table(found))
    else:
        console().print("no worker runs here")


def location(jobmanager: str, config: Configuration) -> str:
    """``HOST:PORT`` or ``HOST`` -> the Flight location.

    Raises:
        ConfigError: it is not one.
    """
    match = _ADDRESS.match(jobmanager)
    default = config.find(JOBMANAGER_PORT) or STANDALONE_PORT
    port = int(match["port"] or default) if match else 0
    if match is None or not 0 < port < 65_536:
        raise ConfigError(
            f"--jobmanager takes HOST:PORT, such as 127.0.0.1:{STANDALONE_PORT}, not {jobmanager!r}"
        )
    return f"grpc+tcp://{match['host']}:{port}"


def _new_id() -> TaskManagerId:
    """A new one for each registration: one that was given up never comes back."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:24]
    return TaskManagerId(f"tm-{host}-{uuid.uuid4().hex[:12]}")


def _table(found: list[tuple[str, TaskManagerInfo]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("WORKER", "HOST", "PID", "SLOTS", "FREE", "PROFILE OF A SLOT", "STATE", "CLUSTER"):
        table.add_column(heading, overflow="fold")
    for url, worker in found:
        table.add_row(
            worker.id,
            worker.host or "",
            str(worker.pid or ""),
            str(worker.slots),
            str(worker.free_slots),
            describe(worker.profile),
            _state(worker),
            url,
        )
    return table


def _state(worker: TaskManagerInfo) -> str:
    if worker.address is None:
        return "starting"
    return f"blocked for {worker.blocked_ms / 1000:.0f} s" if worker.blocked_ms else "up"
