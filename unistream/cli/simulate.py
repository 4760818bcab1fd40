"""`unistream simulate`: finds rows that a pipeline loses or duplicates when its cluster fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import json

from unistream.base.errors import ConfigError
from unistream.cli.errors import JOB_FAILED, complain
from unistream.cli.load import load_function
from unistream.cli.options import AsJson, Defines, Parallelism, Pipeline, configuration
from unistream.cli.output import print_json

if TYPE_CHECKING:
    from unistream.testing.sim.story import StoryFile


def simulate(  # noqa: PLR0917  # typer passes them by name
    function: Pipeline,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="A:B", help="One run for each seed from A to B - 1.")
    ] = "0:100",
    seed: Annotated[int | None, typer.Option("--seed", help="One run only.")] = None,
    story: Annotated[bool, typer.Option("--story", help="With --seed: print all events in order.")] = False,
    story_file: Annotated[
        Path | None,
        typer.Option(
            "--story-file",
            metavar="FILE",
            help="Write the events of the first failure (with --seed, of its run) for the page Simulation of "
            "the web UI.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="UID=FILE", help="Rows of a source, as JSON lines; may be repeated."),
    ] = None,
    parallelism: Parallelism = None,
    rescale: Annotated[
        bool, typer.Option("--rescale", help="Change the parallelism during the run.")
    ] = False,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline in a simulated cluster with faults; every seed must produce the same rows."""
    from unistream import testing

    report = testing.simulate(
        load_function(function),
        _seeds(seeds) if seed is None else [seed],
        configuration(defines, parallelism),
        inputs=dict(_rows(text) for text in inputs or ()),
        rescale=rescale,
        story=(story or story_file is not None) and seed is not None,
    )
    if story_file is not None:
        _write(report.story_file(function), story_file)
    if as_json:
        print_json(report.for_programs())
    else:
        if story and report.story:
            sys.stdout.write("\n".join(report.story) + "\n")
        sys.stdout.write(f"{report}\n")
    if not report.ok:
        raise typer.Exit(JOB_FAILED)


def _write(found: StoryFile | None, path: Path) -> None:
    if found is None:
        complain("no seed failed, so no story was written: name a run by --seed")
        return
    try:
        found.write(path)
    except OSError as error:
        raise ConfigError(f"--story-file: {path} cannot be written: {error}") from error


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
