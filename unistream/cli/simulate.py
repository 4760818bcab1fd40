"""`unistream simulate`: looks for rows that a pipeline loses or doubles when its cluster fails."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from msgspec import json

from unistream.base.config import PARALLELISM
from unistream.base.errors import ConfigError
from unistream.cli.errors import JOB_FAILED
from unistream.cli.load import load_function
from unistream.cli.options import Defines, configuration


def simulate(  # noqa: PLR0917  # typer passes them by name
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that takes an Environment.")
    ],
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="A:B", help="From A up to but without B.")
    ] = "0:100",
    seed: Annotated[int | None, typer.Option("--seed", help="One run only.")] = None,
    story: Annotated[bool, typer.Option("--story", help="What happened, in order; with --seed.")] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="UID=FILE", help="Rows of a source: JSON lines. Can be repeated."),
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", help="Of operators that set none.")
    ] = None,
    rescale: Annotated[bool, typer.Option("--rescale", help="Change the parallelism on the way.")] = False,
    defines: Defines = None,
) -> None:
    """Run a pipeline in a simulated cluster, under faults; every seed must show the same rows."""
    from unistream import testing

    config = configuration(defines)
    if parallelism is not None:
        config = config.merged({PARALLELISM.key: str(parallelism)})
    report = testing.simulate(
        load_function(function),
        _seeds(seeds) if seed is None else [seed],
        config,
        inputs=dict(_rows(text) for text in inputs or ()),
        rescale=rescale,
        story=story and seed is not None,
    )
    if report.story:
        sys.stdout.write("\n".join(report.story) + "\n")
    sys.stdout.write(f"{report}\n")
    if not report.ok:
        raise typer.Exit(JOB_FAILED)


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise ConfigError(f"--seeds: A:B with A < B, not {text!r}")
    return range(int(first), int(last))


def _rows(text: str) -> tuple[str, list[dict[str, object]]]:
    uid, equals, path = text.partition("=")
    if not (uid and equals and path):
        raise ConfigError(f"--input: UID=FILE, not {text!r}")
    try:
        with open(path, "rb") as file:
            return uid, [json.decode(line, type=dict[str, object]) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"--input: {path} cannot be read as JSON lines: {error}") from error
