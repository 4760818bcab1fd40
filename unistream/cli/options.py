"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from unistream.base.config import PARALLELISM, Configuration, is_secret, parse_assignments
from unistream.base.config_file import LayeredConfig, PlaceKind
from unistream.base.object_stores import use_store
from unistream.base.references import replaced
from unistream.base.secrets import redacted
from unistream.cli.errors import report
from unistream.client.machine.surroundings import given_config, surrounding_config
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
    """The options of a command that talks to a cluster, with config.yaml and the variables of the
    environment. Raises ConfigError for an unknown key or a value that does not fit."""
    config = layered_options(defines, parallelism, jobmanager).as_client()
    use_store(config)
    return config


def layered_options(
    defines: list[str] | None, parallelism: int | None = None, jobmanager: str | None = None
) -> LayeredConfig:
    """The same, for an `Environment` or a cluster: what the command line says, and what surrounds it."""
    assigned = parse_assignments(defines or ())
    warn_of_secrets(assigned)
    where = {} if jobmanager is None else options_of(jobmanager)
    values = {**where, **given_config(assigned, PlaceKind.COMMAND_LINE).to_dict()}
    if parallelism is not None:
        values[PARALLELISM.key] = str(parallelism)
    return LayeredConfig(Configuration(values), surrounding_config())


def warn_of_secrets(assigned: Mapping[str, str]) -> None:
    """Reports secrets of a command line: every user of a machine can list those of its processes."""
    for key, value in assigned.items():
        plain = replaced(value, lambda _kind, _where: "")
        if plain and redacted(plain, key if is_secret(key) else "") != plain:
            report(
                f"warning: -D {key} shows a secret to all who can list the processes of this machine: write "
                f"it into config.yaml, or name where it is: -D '{key}=${{file:/run/secrets/…}}'"
            )
