"""`unistream taskmanager`: start a worker of a standalone cluster, list workers, show a worker's memory."""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from unistream.base.clock import SystemClock
from unistream.base.config import (
    JOBMANAGER_PORT,
    REGISTRATION_TIMEOUT,
    STANDALONE_PORT,
    TASK_SLOTS,
    WORKER_BIND,
    WORKER_HOST,
    WORKER_PORTS,
    Configuration,
)
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.hosts import is_loopback
from unistream.base.ids import TaskManagerId
from unistream.base.servers import ZOOKEEPER_SCHEME
from unistream.cli.errors import log_to_stderr, report
from unistream.cli.formats import duration, several
from unistream.cli.jobs import clusters_here, unanswered
from unistream.cli.options import AsJson, Defines, JobManager, Verbose, configuration, layered_options
from unistream.cli.output import console, print_json
from unistream.cli.tables import Fit, Grid, PrintedColumn
from unistream.cli.worker_drain import drain
from unistream.client.job.lookup import Silent, ask_all
from unistream.client.machine.tokens import worker_secret_for
from unistream.client.remote.address import (
    FixedAddress,
    LeaderAddress,
    elected_address,
    elected_name,
    is_elected,
    retrieval,
    url_of,
)
from unistream.client.remote.rest_client import timeout_s
from unistream.core.memory import MemoryPlan, describe_bytes, memory_plan
from unistream.core.resource import describe
from unistream.model.credentials import PeerAddress, shown_address
from unistream.model.job_info import TaskManagerInfo
from unistream.net.address import TCP_SCHEME

if TYPE_CHECKING:
    from unistream.client.remote.joining import Membership
    from unistream.port.host import TaskManagerSpec

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Workers.")

Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Task slots of this worker.")]

Join = Annotated[
    str | None,
    typer.Option(
        "--join",
        metavar="TOKEN",
        help="Join a cluster on other hosts, with a token of 'unistream cluster token'; @PATH: the first "
        "line of a file. Needed once for each host and user.",
    ),
]

SAY_EVERY_MS: Final = 5_000  # while the cluster does not answer
LOOK_UPS: Final = 3  # of a host's name, while the name server reports a temporary failure
LOOK_UP_PAUSE_S: Final = 0.5

_ADDRESS: Final = re.compile(r"^(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?$")


@app.callback()
def _group() -> None:
    """Workers: those of a standalone cluster are started by the user."""


@app.command()
def start(  # noqa: PLR0917  # typer passes them by name
    jobmanager: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--jobmanager",
            metavar="HOST:PORT",
            help="Where workers register; zookeeper://HOST:PORT,HOST:PORT/CHROOT: at the leader. On another "
            "host: HOST:PORT of the cluster's REST API.",
        ),
    ] = None,
    slots: Slots = None,
    join: Join = None,
    defines: Defines = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run a worker of a standalone cluster until SIGINT, SIGTERM or the cluster's end.

    A worker that loses its master cancels its tasks and registers again, at the leader if there are several.
    Each registration is a line; with --json it is one value. Exit code 1: its master has replaced it.
    """
    from unistream.port.host import TaskManagerSpec
    from unistream.worker.process import run_standalone

    config = _checked(defines, jobmanager)
    log_to_stderr(verbose)
    elected = is_elected(config) and (jobmanager is None or ZOOKEEPER_SCHEME in jobmanager.lower())
    member = membership(config, jobmanager, join, elected=elected)
    master = member.control if member else "" if elected else location(jobmanager or "", config)
    new_id = functools.partial(_new_id, None if member is None else member.credentials.name)
    spec = TaskManagerSpec(
        id=new_id(),
        master=master,
        slots=config.get(TASK_SLOTS) if slots is None else slots,
        config=config.to_dict(),
        standalone=True,
        credentials=None if member is None else member.credentials,
    )
    with contextlib.ExitStack() as closing:
        leaders = closing.enter_context(contextlib.closing(retrieval(config))) if elected else None
        where = elected_name(config) if elected else _shown(master)
        waiting = NoClusterReporter(where, config.get(REGISTRATION_TIMEOUT))
        tell = functools.partial(print_registered, as_json=as_json)
        raise typer.Exit(
            run_standalone(
                spec,
                new_id,
                waiting.on_silence,
                leaders,
                tell,
                on_broken=report_broken,
                secret_for=worker_secret_for,
            )
        )


def _checked(defines: list[str] | None, jobmanager: str | None) -> Configuration:
    """Raises ConfigError: nothing says where the cluster is."""
    by_election = jobmanager is not None and jobmanager.lower().startswith(ZOOKEEPER_SCHEME)
    config = layered_options(defines, jobmanager=jobmanager if by_election else None).whole()
    if jobmanager is None and not is_elected(config):
        raise ConfigError(
            "--jobmanager is missing: HOST:PORT where workers register at the cluster, as 'unistream cluster "
            f"start -t standalone' prints it, or {ZOOKEEPER_SCHEME}HOST:PORT,HOST:PORT"
        )
    return config


def print_registered(spec: TaskManagerSpec, *, as_json: bool) -> None:
    """A worker is there, for the first time or again."""
    if as_json:
        print_json({"taskmanager": spec.id, "jobmanager": shown_address(spec.master), "slots": spec.slots})
        return
    where = _shown(spec.master)
    console().print(f"worker {spec.id} is registered at {where} with {several(spec.slots, 'slot')}")


def report_broken(spec: TaskManagerSpec, why: str) -> None:
    """A worker ends, and its user has to know why."""
    keys = f"{WORKER_HOST.key}, {WORKER_BIND.key} and {WORKER_PORTS.key}"
    where = f"; {keys} say where other hosts reach it" if spec.credentials else ""
    report(f"worker {spec.id} ends: {why}{where}")


@app.command("list")
def list_workers(jobmanager: JobManager = None, defines: Defines = None, as_json: AsJson = False) -> None:
    """List the workers of all clusters that run on this machine."""
    silent: list[Silent] = []
    with clusters_here(configuration(defines, jobmanager=jobmanager)) as clusters:
        answers = ask_all(
            clusters, lambda cluster, limit_s: cluster.task_managers(timeout_s=limit_s), silent.append
        )
    listed = [(cluster.url, worker) for cluster, workers in answers for worker in workers]
    if as_json:
        workers = [{"cluster": url, **msgspec.to_builtins(worker)} for url, worker in listed]
        print_json({"taskmanagers": workers, "unanswered": unanswered(silent)})
        return
    for cluster in silent:
        report(f"{cluster}; its workers are not listed")
    if listed:
        console().print(worker_grid(listed))
    else:
        console().print("no worker runs here")


app.command()(drain)


@app.command()
def memory(slots: Slots = None, defines: Defines = None, as_json: AsJson = False) -> None:
    """Show how the memory of a worker is divided, as configured."""
    config = configuration(defines)
    plan = memory_plan(config, config.get(TASK_SLOTS) if slots is None else slots)
    if as_json:
        print_json({part: {"bytes": size, "bytes_per_slot": share} for part, size, share in plan.rows()})
        return
    console().print(parts(plan))


def parts(plan: MemoryPlan) -> Grid:
    """One line for each part; sizes as in a configuration."""
    grid = Grid(
        PrintedColumn("PART"),
        PrintedColumn("WORKER", right=True),
        PrintedColumn(f"SLOT (OF {plan.slots})", right=True),
    )
    for part, size, share in plan.rows():
        grid.add(part, describe_bytes(size), describe_bytes(share) if share else "")
    return grid


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
    if not is_loopback(match["host"]):
        raise _not_joined(jobmanager)
    return f"{TCP_SCHEME}{match['host']}:{port}"


def _look_up(host: str, port: int) -> None:
    """Raises ConfigError: the name has no address, so the cluster cannot answer."""
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


class NoClusterReporter:
    """Reports on stderr that no cluster answers: at once, and again every `SAY_EVERY_MS`.

    Args:
        where: ``HOST:PORT``.
        patience_ms: Time after which the worker gives up.
    """

    def __init__(self, where: str, patience_ms: int) -> None:
        self._where = where
        self._patience_ms = patience_ms
        self._said_ms: int | None = None

    def on_silence(self, silent_ms: int, error: Unreachable) -> None:
        """Reports the silence; a `unistream.worker.process.reports.OnSilence`."""
        if self._said_ms is not None and self._said_ms <= silent_ms < self._said_ms + SAY_EVERY_MS:
            return  # less: another registration has begun
        self._said_ms = silent_ms
        why = str(error).rpartition(": ")[2]  # the rest is how gRPC got there
        if "certificate" in why:
            why += (
                "; another cluster is there than the one that this host has joined: give a token of it with "
                "--join, which 'unistream cluster token' prints there"
            )
        report(
            f"no cluster has answered at {self._where} for {duration(silent_ms)}, trying for "
            f"{duration(self._patience_ms)} ({REGISTRATION_TIMEOUT.key}): {why}"
        )


def _shown(master: str) -> str:
    return PeerAddress.parse(master).location.partition("://")[2] or master


def membership(
    config: Configuration, jobmanager: str | None, join: str | None, *, elected: bool
) -> Membership | None:
    """What this host has of a cluster on other hosts, or gets of it now; None: nothing.

    Raises:
        ConfigError: it cannot join, or has to.
        Unreachable: the cluster does not answer.
    """
    from unistream.client.remote.joining import is_of, joined, kept

    clock = SystemClock()
    name = elected_name(config) if elected else _url(jobmanager or "")
    found = None if name is None else kept(name, clock.wall_ms())
    if join is None:
        if found is None and (jobmanager or "").startswith("https://"):
            raise _not_joined(jobmanager or "")
        return found
    token = _token(join)
    if found is not None and is_of(found, token):
        return found
    address: LeaderAddress = elected_address(config) if elected else FixedAddress(url_of(jobmanager or ""))
    return joined(address, token, clock=clock, timeout_s=timeout_s(config))


def _url(jobmanager: str) -> str | None:
    """The REST API at that address; None: it is none."""
    try:
        return url_of(jobmanager)
    except ConfigError:
        return None


def _not_joined(jobmanager: str) -> ConfigError:
    return ConfigError(
        f"--jobmanager {jobmanager}: this host has not joined that cluster, or its certificate has ended: "
        "give a token with --join, which 'unistream cluster token' prints there"
    )


def _token(text: str) -> str:
    """The token, or the first line of the file that ``@PATH`` names."""
    if not text.startswith("@"):
        return text.strip()
    try:
        return Path(text[1:]).read_text("utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--join {text}: it cannot be read: {error}") from error


def _new_id(process: str | None) -> TaskManagerId:
    """A new one for each registration: a worker that was considered lost never returns. `process`: the name
    in its certificate."""
    if process is not None:
        return TaskManagerId(f"{process}-{uuid.uuid4().hex[:12]}")
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:24]
    return TaskManagerId(f"tm-{host}-{uuid.uuid4().hex[:12]}")


def worker_grid(found: list[tuple[str, TaskManagerInfo]]) -> Grid:
    """One line for each worker."""
    grid = Grid(
        PrintedColumn("WORKER", fit=Fit.MIDDLE),
        PrintedColumn("HOST", fit=Fit.MIDDLE),
        PrintedColumn("PID", right=True),
        PrintedColumn("SLOTS", right=True),
        PrintedColumn("FREE", right=True),
        PrintedColumn("PROFILE OF A SLOT", rank=2),
        PrintedColumn("STATE"),
        PrintedColumn("CLUSTER", rank=1),
    )
    for url, worker in found:
        grid.add(
            worker.id,
            worker.host or "",
            str(worker.pid or ""),
            str(worker.slots),
            str(worker.free_slots),
            describe(worker.profile),
            _state(worker),
            url,
        )
    return grid


def _state(worker: TaskManagerInfo) -> str:
    if worker.address is None:
        return "starting"
    if worker.draining:
        return "draining"
    return f"blocked for {duration(worker.blocked_ms)}" if worker.blocked_ms else "up"
