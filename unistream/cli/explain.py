"""`unistream explain`: what a pipeline becomes, without running it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from unistream.base.config import PARALLELISM
from unistream.cli.load import build, load_function
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import print_json


def explain(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that takes an Environment.")
    ],
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", help="Of operators that set none.")
    ] = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pipeline becomes: operators, tasks, subtasks and regions. Nothing is started."""
    from unistream.api.environment import Environment

    config = configuration(defines)
    if parallelism is not None:
        config = config.merged({PARALLELISM.key: str(parallelism)})
    environment = Environment(config)
    build(load_function(function), environment)
    if as_json:
        print_json(environment.explain_json())
    else:
        sys.stdout.write(environment.explain() + "\n")
