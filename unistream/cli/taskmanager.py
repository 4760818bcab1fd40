"""`unistream taskmanager`: workers of a standalone cluster, and what workers there are."""

from __future__ import annotations

import re
import socket
import time
import uuid
from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table

from unistream.base.config import JOBMANAGER_PORT, REGISTRATION_TIMEOUT, TASK_SLOTS, Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import TaskManagerId
from unistream.cli import memory
from unistream.cli.errors import report
from unistream.cli.logs import log_to_stderr
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, duration, print_json
from unistream.client.asking import ask_all
from unistream.client.hosts import STANDALONE_PORT
from unistream.client.lookup import ALL_WITHIN_S, running_clusters
from unistream.core.resource import describe
from unistream.master.job_info import TaskManagerInfo
from unistream.net.address import TCP_SCHEME

app = typer.Typer(no_args_is_help=True, help="Workers.")
app.command("memory")(memory.memory)

SAY_EVERY_MS: Final = 5_000  # while nobody answers
LOOK_UPS: Final = 3  # of a host's name, while the name server says that it cannot tell now
LOOK_UP_PAUSE_S: Final = 0.5

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
    from unistream.worker.process import run_standalone

    config = configuration(defines)
    log_to_stderr(verbose)
    master = location(jobmanager, config)
    spec = TaskManagerSpec(
        id=_new_id(),
        master=master,
        slots=config.get(TASK_SLOTS) if slots is None else slots,
        config=config.to_dict(),
        standalone=True,
    )
    waiting = Waiting(master.removeprefix(TCP_SCHEME), config.get(REGISTRATION_TIMEOUT))
    raise typer.Exit(run_standalone(spec, _new_id, waiting.on_silence))


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
    try:
        answers, silent = ask_all(
            clusters,
            lambda cluster: cluster.task_managers(timeout_s=ALL_WITHIN_S),
            all_within_s=ALL_WITHIN_S,
            one_within_s=ALL_WITHIN_S,
        )
    finally:
        for cluster in clusters:
            cluster.close()
    if silent and not answers:
        raise silent[0]
    found = [(cluster.url, worker) for cluster, workers in answers for worker in workers]
    for unheard in silent:
        report(f"{unheard}; its workers are not listed")
    if as_json:
        print_json(
            {"taskmanagers": [{"cluster": url, **msgspec.to_builtins(worker)} for url, worker in found]}
        )
    elif found:
        console().print(_table(found))
    else:
        console().print("no worker runs here")


def location(jobmanager: str, config: Configuration) -> str:
    """``HOST:PORT``, or ``HOST`` and `jobmanager.rpc.port` -> the Flight location.

    Raises:
        ConfigError: it is not one, or there is no such host.
    """
    match = _ADDRESS.match(jobmanager)
    port = int((match["port"] if match else None) or config.find(JOBMANAGER_PORT) or 0)
    if match is None or not 0 < port < 65_536:
        raise ConfigError(
            f"--jobmanager takes HOST:PORT, such as 127.0.0.1:{STANDALONE_PORT}, not {jobmanager!r}"
        )
    _look_up(match["host"], port)
    return f"{TCP_SCHEME}{match['host']}:{port}"


def _look_up(host: str, port: int) -> None:
    """Raises ConfigError: the name means no address, so waiting for an answer is in vain."""
    for attempt in range(LOOK_UPS):
        try:
            socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            again = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
            if not again or attempt == LOOK_UPS - 1:
                why = error.strerror if isinstance(error, socket.gaierror) else "not a name"
                raise ConfigError(f"--jobmanager: host {host!r} cannot be found: {why}") from error
            time.sleep(LOOK_UP_PAUSE_S)
        else:
            return


class Waiting:
    """Says on the console that nobody answers: at once, and again every `SAY_EVERY_MS`.

    Args:
        where: ``HOST:PORT``.
        patience_ms: After which the worker gives up.
    """

    def __init__(self, where: str, patience_ms: int) -> None:
        self._where = where
        self._patience_ms = patience_ms
        self._said_ms: int | None = None

    def on_silence(self, silent_ms: int, error: Unreachable) -> None:
        """`unistream.worker.process.reports.OnSilence`."""
        if self._said_ms is not None and self._said_ms <= silent_ms < self._said_ms + SAY_EVERY_MS:
            return  # less: it is another registration, whose silence begins
        self._said_ms = silent_ms
        why = str(error).rpartition(": ")[2]  # gRPC tells the way to it, too
        report(
            f"no cluster answers at {self._where} for {duration(silent_ms)}, trying for "
            f"{duration(self._patience_ms)} ({REGISTRATION_TIMEOUT.key}): {why}"
        )


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
