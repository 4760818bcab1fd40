"""``unistream stack``: Kafka, ZooKeeper and an S3 server on this machine, for development and demos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from unistream.base.extras import require
from unistream.cli.output import console, print_json
from unistream.cli.stack_buckets import app as buckets
from unistream.cli.stack_topics import app as topics
from unistream.cli.stack_topics import stack_folder
from unistream.cli.tables import Fit, Grid, PrintedColumn
from unistream.testing import devtools
from unistream.testing.devtools import ServerStatus

app = typer.Typer(
    help="Start and stop a real Kafka broker, ZooKeeper server and S3 server on this machine.",
    add_completion=False,
    no_args_is_help=True,
)
app.add_typer(topics, name="topics")
app.add_typer(buckets, name="buckets")

Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Folder for data, logs and stack.json. Default: $UNISTREAM_STACK_DIR or the cache."
    ),
]
Servers = Annotated[
    list[str] | None,
    typer.Argument(help="kafka, zookeeper, s3; the first two when none is named.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("up")
def up(servers: Servers = None, folder: Folder = None, as_json: AsJson = False) -> None:
    """Start the servers that do not run, on their usual ports if they can, and wait until they answer."""
    if devtools.KAFKA in _servers(servers):
        require("kafka", "the local Kafka")
    target = _folder(folder)
    doing = f"starting {', '.join(_servers(servers))} in {target}"
    with nullcontext() if as_json else Console(stderr=True).status(doing):
        found = devtools.up(target, _servers(servers), as_usual=True)
    _show(target, as_json)
    for line in unusual(found, devtools.port_is_free):
        typer.echo(line, err=True)


@app.command("down")
def down(servers: Servers = None, folder: Folder = None, as_json: AsJson = False) -> None:
    """Stop the servers; their data is kept."""
    stopped = devtools.down(_folder(folder), servers or [*_servers(None), devtools.S3])
    if as_json:
        print_json({"stopped": list(stopped)})
        return
    typer.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


@app.command("status")
def status(folder: Folder = None, as_json: AsJson = False) -> None:
    """Show the servers, their state and addresses."""
    _show(_folder(folder), as_json)


@app.command("logs")
def logs(
    server: Annotated[str, typer.Argument(help="kafka, zookeeper or s3")],
    folder: Folder = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many of the last lines.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the end of a server's log."""
    tail = devtools.log_tail(_folder(folder), server, lines)
    if as_json:
        print_json({"server": server, "lines": tail.splitlines()})
    else:
        typer.echo(tail)


def unusual(servers: Sequence[devtools.ServerStatus], is_free: Callable[[int], bool]) -> list[str]:
    """A line for each server that is not where everybody looks for it: why, and what to do."""
    lines = []
    for server in servers:
        usual = devtools.SERVERS[server.name].usual
        if server.address is None or server.address.endswith(f":{usual}"):
            continue
        why = (
            f"free now: 'unistream stack down {server.name}' and 'unistream stack up {server.name}' take it"
            if is_free(usual)
            else "taken by another program"
        )
        lines.append(f"{server.name} is on {server.address}, not on its usual port {usual}, which is {why}")
    return lines


def _folder(given: Path | None) -> Path:
    return given or stack_folder()


def _servers(given: list[str] | None) -> list[str]:
    return given or [devtools.KAFKA, devtools.ZOOKEEPER]


def _show(folder: Path, as_json: bool) -> None:
    servers = devtools.status(folder)
    if as_json:
        typer.echo(msgspec.json.encode(servers).decode())
        return
    console().print(server_grid(servers))


def server_grid(servers: Sequence[ServerStatus]) -> Grid:
    """One line for each server."""
    grid = Grid(
        PrintedColumn("SERVER"),
        PrintedColumn("STATE"),
        PrintedColumn("ADDRESS"),
        PrintedColumn("PID", right=True, rank=1),
        PrintedColumn("LOG", fit=Fit.WORDS),
    )
    for server in servers:
        grid.add(server.name, server.state, server.address or "", str(server.pid or ""), server.log)
    return grid
