"""`unistream ui`: a link that lets a browser in."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from unistream.base.config import parse_duration_ms
from unistream.cli.options import AsJson, Defines, JobManager, configuration
from unistream.cli.output import console, print_json
from unistream.client.job.submission import connect
from unistream.client.remote.tokens import TokensClient
from unistream.model.access import CODE_LASTS_MS


def ui(
    opens: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
    lasts: Annotated[
        str | None,
        typer.Option("--lasts", metavar="DURATION", help="How long the link is taken; else 5 minutes."),
    ] = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Print a link to a cluster's web UI that lets one browser in, once."""
    lasts_ms = CODE_LASTS_MS if lasts is None else parse_duration_ms(lasts)
    with connect(configuration(defines, jobmanager=jobmanager)) as cluster:
        link = TokensClient(cluster).login_link(lasts_ms)
    if as_json:
        print_json({"url": link, "lastsMs": lasts_ms})
        return
    console().print(link, markup=False, soft_wrap=True)
    if opens:
        webbrowser.open(link)
