"""`unistream rescale`: another parallelism for a job that runs."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated

import typer

from unistream.base.errors import ConfigError
from unistream.cli.options import AsJson, Defines, Job, configuration
from unistream.cli.output import console, print_json
from unistream.client.lookup import Found, find_job
from unistream.master.job_info import JobInfo

Widths = Annotated[
    list[str],
    typer.Argument(
        metavar="VERTEX=N...", help="A vertex id, a vertex name or the uid of an operator, and a parallelism."
    ),
]


def rescale(job: Job, widths: Widths, defines: Defines = None, as_json: AsJson = False) -> None:
    """Give vertices of a running job another parallelism; it goes on from a checkpoint."""
    parallelism = parse_widths(widths)
    found = find_job(configuration(defines), job)
    with found.cluster:
        before = parallelism_of(found.cluster.info(found.job.job))
        _wait(found, parallelism, shows=sys.stdout.isatty() and not as_json)
        info = found.cluster.info(found.job.job)
    after = parallelism_of(info)
    if as_json:
        print_json({"job": info.job, "parallelism": {vertex: n for (vertex, _), n in after.items()}})
        return
    console().print(f"job {info.job} was rescaled")
    for (vertex, name), width in after.items():
        was = before.get((vertex, name), width)
        console().print(f"  {name}: {width}" if was == width else f"  {name}: {was} -> {width}", markup=False)


def _wait(found: Found, parallelism: dict[str, int], *, shows: bool) -> None:
    if not shows:
        found.cluster.rescale(found.job.job, parallelism)
        return
    from unistream.cli.progress import Progress

    with Progress(found.cluster.info(found.job.job)) as progress:
        found.cluster.rescale(found.job.job, parallelism, progress.update)


def parse_widths(words: list[str]) -> dict[str, int]:
    """``VERTEX=N`` words; a name may hold ``=`` itself.

    Raises:
        ConfigError: one of them is something else, or a vertex is named twice.
    """
    widths: dict[str, int] = {}
    for word in words:
        vertex, _, number = word.rpartition("=")
        if not vertex or not number.isascii() or not number.isdecimal() or len(number) > 9:
            raise ConfigError(f"{word!r} is not VERTEX=N, such as window=4")
        if vertex in widths:
            raise ConfigError(f"vertex {vertex!r} is given twice")
        widths[vertex] = int(number)
    return widths


def parallelism_of(info: JobInfo) -> Counter[tuple[str, str]]:
    """Subtasks of each (vertex id, vertex name), in the order of the graph."""
    return Counter((subtask.vertex, subtask.vertex_name) for subtask in info.subtasks)
