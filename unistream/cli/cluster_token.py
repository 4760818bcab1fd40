"""`unistream cluster token`: what lets workers on other hosts join."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from unistream.base.config import parse_duration_ms
from unistream.cli.options import AsJson, Defines, JobManager, configuration
from unistream.cli.output import console, print_json
from unistream.client.job.submission import connect
from unistream.client.remote.tokens import TokensClient
from unistream.model.access import Scope

JOIN_LASTS: Final = "1 h"


def token(  # noqa: PLR0917  # typer passes them by name
    uses: Annotated[
        int, typer.Option("--uses", min=1, max=1_000_000, help="How many hosts may join with it.")
    ] = 1,
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="How long it is taken.")
    ] = JOIN_LASTS,
    name: Annotated[str, typer.Option("--name", help="What for; for lists.")] = "hosts that join",
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Make a token with which workers on other hosts join. It is printed once, and kept nowhere.

    On each of them: unistream taskmanager start -m HOST:PORT --join TOKEN
    """
    with connect(configuration(defines, jobmanager=jobmanager)) as cluster:
        made = TokensClient(cluster).create(name, Scope.JOIN, parse_duration_ms(expires), uses=uses)
    if as_json:
        print_json(msgspec.to_builtins(made))
        return
    console().print(made.token, markup=False, soft_wrap=True)
