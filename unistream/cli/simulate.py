"""`unistream simulate`: finds rows that a pipeline loses or duplicates when its cluster fails."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from msgspec import json

from unistream.base.errors import ConfigError
from unistream.cli.errors import JOB_FAILED
from unistream.cli.load import load_function
from unistream.cli.options import Defines, Parallelism, Pipeline, configuration


def simulate(  # noqa: PLR0917  # typer passes them by name
    function: Pipeline,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="A:B", help="One run for each seed from A to B - 1.")
    ] = "0:100",
    seed: Annotated[int | None, typer.Option("--seed", help="One run only.")] = None,
    story: Annotated[bool, typer.Option("--story", help="With --seed: print all events in order.")] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="UID=FILE", help="Rows of a source, as JSON lines; may be repeated."),
    ] = None,
    parallelism: Parallelism = None,
    rescale: Annotated[
        bool, typer.Option("--rescale", help="Change the parallelism during the run.")
    ] = False,
    defines: Defines = None,
) -> None:
    """Run a pipeline in a simulated cluster with faults; every seed must produce the same rows."""
    from unistream import testing

    report = testing.simulate(
        load_function(function),
        _seeds(seeds) if seed is None else [seed],
        configuration(defines, parallelism),
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
        raise ConfigError(f"--seeds takes A:B with A < B, not {text!r}")
    return range(int(first), int(last))


def _rows(text: str) -> tuple[str, list[dict[str, object]]]:
    uid, equals, path = text.partition("=")
    if not (uid and equals and path):
        raise ConfigError(f"--input takes UID=FILE, not {text!r}")
    try:
        with open(path, "rb") as file:
            return uid, [json.decode(line, type=dict[str, object]) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"--input: {path} cannot be read as JSON lines: {error}") from error
