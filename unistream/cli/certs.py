"""`unistream certs`: the authority whose certificates the servers of a cluster show."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from unistream.base.config import parse_duration_ms
from unistream.base.errors import NotFound
from unistream.cli.options import AsJson, Defines, JobManager, configuration
from unistream.cli.output import console, print_json
from unistream.client.job.submission import connect
from unistream.client.remote.certificates import authorities, rotate
from unistream.trust.authority import fingerprint_of
from unistream.trust.pinning import split

KEEP: Final = "30 d"

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Certificates of a cluster that listens for other hosts."
)


@app.callback()
def _group() -> None:
    """Certificates of a cluster that listens for other hosts, which has an authority of its own."""


@app.command("rotate")
def rotate_authority(
    keep: Annotated[
        str,
        typer.Option(
            "--keep",
            metavar="DURATION",
            help="How long what the former one has issued is believed by new processes.",
        ),
    ] = KEEP,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Give a cluster another authority. Jobs go on, and processes that run believe both.

    What starts later believes the former one for --keep: until then start masters again, then workers.
    """
    with connect(configuration(defines, jobmanager=jobmanager)) as cluster:
        fingerprint = rotate(cluster, parse_duration_ms(keep))
    if as_json:
        print_json({"fingerprint": fingerprint, "keep": keep})
        return
    console().print(
        f"the cluster has a new authority ({fingerprint[:16]}…); within {keep} start its masters again, then "
        "its workers, and give people new tokens and UNISTREAM_CA_FILE",
        markup=False,
    )


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
