"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from unistream.base.config import Configuration, parse_assignments
from unistream.model.elements import SavepointFormat

Job = Annotated[
    str, typer.Argument(metavar="JOB", help="Beginning of a job's id (4 characters), or its name.")
]
Defines = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="KEY=VALUE", help="Sets one configuration option; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value, for programs.")]
Directory = Annotated[
    str | None,
    typer.Option("-p", "--savepoint-path", metavar="DIR", help="Where the savepoint's directory is made."),
]
Format = Annotated[
    SavepointFormat,
    typer.Option(
        "--type",
        "-type",
        help="canonical: open tables. native: the files of the state backend, quicker and for it alone.",
        case_sensitive=False,
    ),
]


def configuration(defines: list[str] | None) -> Configuration:
    """Raises ConfigError for an unknown key or a value that does not fit."""
    return Configuration(parse_assignments(defines or ()))
