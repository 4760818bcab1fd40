"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from unistream.base.config import PARALLELISM, Configuration, parse_assignments
from unistream.base.object_stores import use_store
from unistream.client.remote.address import options_of
from unistream.model.snapshot_kind import SavepointFormat

Pipeline = Annotated[
    str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that takes an Environment.")
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, or the first 4 or more of its id.")]
Parallelism = Annotated[
    int | None, typer.Option("-p", "--parallelism", help="For operators that set none themselves.")
]
AllowNonRestored = Annotated[
    bool,
    typer.Option("--allow-non-restored-state", help="Drop state whose operator no longer exists."),
]
Defines = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="KEY=VALUE", help="Set one configuration option; may be repeated."),
]
JobManager = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--jobmanager",
        metavar="ADDRESS",
        help="The cluster: HOST:PORT of its REST API, or zookeeper://HOST:PORT,HOST:PORT/CHROOT.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value, for programs.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log events to stderr.")]
Directory = Annotated[
    str | None,
    typer.Option("-p", "--savepoint-path", metavar="DIR", help="Where to create the savepoint's directory."),
]
Format = Annotated[
    SavepointFormat,
    typer.Option(
        "--type",
        "-type",
        help="canonical: open tables. native: files of the state backend, quicker, only for that backend.",
        case_sensitive=False,
    ),
]


def configuration(
    defines: list[str] | None, parallelism: int | None = None, jobmanager: str | None = None
) -> Configuration:
    """Raises ConfigError for an unknown key or a value that does not fit."""
    where = {} if jobmanager is None else options_of(jobmanager)
    values = {**where, **parse_assignments(defines or ())}
    if parallelism is not None:
        values[PARALLELISM.key] = str(parallelism)
    config = Configuration(values)
    use_store(config)
    return config
