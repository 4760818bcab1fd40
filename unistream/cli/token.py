"""`unistream token`: who may ask a cluster."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from unistream.base.clock import SystemClock
from unistream.base.config import parse_duration_ms
from unistream.cli.formats import age, duration, moment
from unistream.cli.options import AsJson, Defines, JobManager, configuration
from unistream.cli.output import console, print_json
from unistream.cli.tables import Fit, Grid, PrintedColumn
from unistream.client.job.submission import connect
from unistream.client.remote.tokens import TokensClient
from unistream.model.access import Scope, TokenShown

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Tokens: who may ask a cluster.")


@app.command("create")
def create(  # noqa: PLR0917  # typer passes them by name
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who gets it, or what for; for lists.")],
    scope: Annotated[
        Scope,
        typer.Option(
            "--scope",
            help="read: look. operate: also savepoint, stop, cancel, rescale. submit: also run jobs, with "
            "code of its own. admin: also tokens, and the end of the cluster.",
            case_sensitive=False,
        ),
    ] = Scope.READ,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="DURATION", help="How long it is taken, such as 90 d; else for ever."
        ),
    ] = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Make a token for somebody else or another machine. It is printed once, and kept nowhere."""
    lasts_ms = None if expires is None else parse_duration_ms(expires)
    with connect(configuration(defines, jobmanager=jobmanager)) as cluster:
        made = TokensClient(cluster).create(name, scope, lasts_ms)
    if as_json:
        print_json(msgspec.to_builtins(made))
        return
    console().print(made.token, markup=False, soft_wrap=True)


@app.command("list")
def list_tokens(jobmanager: JobManager = None, defines: Defines = None, as_json: AsJson = False) -> None:
    """List the tokens of a cluster, also those that have ended in the last week."""
    with connect(configuration(defines, jobmanager=jobmanager)) as cluster:
        found = TokensClient(cluster).tokens()
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    console().print(listed(found, SystemClock().wall_ms()))


def listed(tokens: list[TokenShown], now_ms: int) -> Grid:
    """One line for each token."""
    grid = Grid(
        PrintedColumn("ID"),
        PrintedColumn("NAME", fit=Fit.MIDDLE),
        PrintedColumn("SCOPE"),
        PrintedColumn("STATE"),
        PrintedColumn("CREATED", rank=2),
        PrintedColumn("LAST USE", rank=1),
    )
    for one in tokens:
        grid.add(
            one.id,
            one.name,
            one.scope.value,
            _state(one, now_ms),
            (moment(one.created_ms), age(one.created_ms, now_ms)),
            "never" if one.used_ms is None else (moment(one.used_ms), age(one.used_ms, now_ms)),
        )
    return grid


def _state(token: TokenShown, now_ms: int) -> str | tuple[str, str]:
    if token.revoked_ms is not None:
        return "revoked"
    if token.uses_left == 0:
        return "used up"
    if token.expires_ms is None:
        return "for ever"
    if token.expires_ms <= now_ms:
        return "expired"
    return f"until {moment(token.expires_ms)}", f"for {duration(token.expires_ms - now_ms)}"


@app.command("revoke")
def revoke(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="Its name, or the first 4 or more characters of its id.")
    ],
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Take a token from its holder: the cluster answers it no more, from now on."""
    with connect(configuration(defines, jobmanager=jobmanager)) as cluster:
        ended = TokensClient(cluster).revoke(token)
    if as_json:
        print_json(msgspec.to_builtins(ended))
        return
    console().print(f"token {ended.id} ({ended.name}) is revoked", markup=False)
