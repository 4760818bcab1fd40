"""`unistream certs`: the authority whose certificates the servers of a cluster show."""

from __future__ import annotations

import typer

from unistream.base.errors import NotFound
from unistream.cli.options import AsJson, Defines, JobManager, configuration
from unistream.cli.output import console, print_json
from unistream.client.job.submission import connect
from unistream.client.remote.certificates import authorities
from unistream.trust.authority import fingerprint_of
from unistream.trust.pinning import split

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Certificates of a cluster's servers.")


@app.callback()
def _group() -> None:
    """Certificates: a cluster that listens for other hosts has an authority of its own."""


@app.command()
def show(jobmanager: JobManager = None, defines: Defines = None, as_json: AsJson = False) -> None:
    """Print the authorities of a cluster, PEM: for UNISTREAM_CA_FILE, a browser, a proxy or Flink's tools.

    They are no secret, but who takes them has to get them from somebody who is let in.
    """
    with connect(configuration(defines, jobmanager=jobmanager)) as cluster:
        try:
            roots = authorities(cluster)
        except NotFound:
            roots = ""
    if as_json:
        print_json([{"fingerprint": fingerprint_of(one), "certificate": one} for one in split(roots)])
    elif roots:
        console().print(roots, markup=False, soft_wrap=True, end="")
    else:
        console().print("it has none: all its servers listen on loopback addresses")
