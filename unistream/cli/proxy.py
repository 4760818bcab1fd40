"""`unistream proxy`: a cluster with tokens and TLS for programs that know neither."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.cli.ending import StopSignals
from unistream.cli.errors import log_to_stderr
from unistream.cli.options import AsJson, Defines, JobManager, Verbose, configuration
from unistream.cli.output import console, print_json
from unistream.client.job.submission import address_of, connect
from unistream.client.remote.tokens import TokensClient


def proxy(  # noqa: PLR0917  # typer passes them by name
    port: Annotated[
        int,
        typer.Option("--port", help="Where it listens on 127.0.0.1; 0: any free port.", min=0, max=65_535),
    ] = 0,
    pages: Annotated[
        str | None,
        typer.Option(
            "--pages",
            metavar="DIR",
            help="Also serve the files of a folder, with its index.html at /: Flink's dashboard, say.",
        ),
    ] = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Let Flink's tools and others without a token ask a cluster, by an address of this machine.

    Every request gets the token that commands of this user present, and goes on over TLS as theirs do. Other
    users of the machine, and pages of other sites, are refused. It runs until SIGINT or SIGTERM.
    """
    require("server", "unistream proxy")
    from unistream.client.remote.proxy import ClusterProxy
    from unistream.rest.listener import Listener
    from unistream.rest.server import RestServer

    log_to_stderr(verbose)
    folder = None if pages is None else _folder(pages)
    config = configuration(defines, jobmanager=jobmanager)
    with connect(config) as cluster:
        identity = TokensClient(cluster).identity()
        reached = cluster.url
    address = address_of(config)
    try:
        listener = Listener("127.0.0.1", port, named="--port")
        server = RestServer(ClusterProxy(address, os.getuid(), folder), listener)
        try:
            with StopSignals() as ending:
                if as_json:
                    facts = {"url": server.url, "cluster": reached}
                    print_json({**facts, "name": identity.name, "scope": identity.scope.value})
                else:
                    console().print(
                        f"{server.url} passes on to {reached} as {identity.name!r} (scope "
                        f"{identity.scope.value}), for programs of this user; stop it with Ctrl-C",
                        markup=False,
                        soft_wrap=True,
                    )
                ending.requested.wait()
        finally:
            server.close()
    finally:
        address.close()


def _folder(text: str) -> Path:
    folder = Path(text)
    if not (folder / "index.html").is_file():
        raise ConfigError(f"--pages {text}: there is no index.html; name the folder that has the pages")
    return folder
