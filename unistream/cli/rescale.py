"""`unistream rescale`: another parallelism for a running job."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated

import typer

from unistream.base.errors import ConfigError
from unistream.cli.options import AsJson, Defines, Job, JobManager, configuration
from unistream.cli.output import console, print_json
from unistream.cli.progress import ProgressLine
from unistream.client.job.lookup import find_job
from unistream.model.job_info import JobInfo

Widths = Annotated[
    list[str],
    typer.Argument(
        metavar="VERTEX=N...", help="A vertex id, a vertex name or the uid of an operator, and a parallelism."
    ),
]


def rescale(
    job: Job, widths: Widths, jobmanager: JobManager = None, defines: Defines = None, as_json: AsJson = False
) -> None:
    """Change the parallelism of vertices of a running job; it resumes from a checkpoint."""
    parallelism = parse_widths(widths)
    with find_job(configuration(defines, jobmanager=jobmanager), job) as client:
        info = client.status()
        before = parallelism_of(info)
        if sys.stdout.isatty() and not as_json:
            with ProgressLine(info) as progress:
                client.rescale(parallelism, progress.update)
        else:
            client.rescale(parallelism)
        info = client.status()
    after = parallelism_of(info)
    if as_json:
        print_json({"job": info.job, "parallelism": {vertex: n for (vertex, _), n in after.items()}})
        return
    console().print(f"job {info.job} was rescaled")
    for (vertex, name), width in after.items():
        was = before.get((vertex, name), width)
        console().print(f"  {name}: {width}" if was == width else f"  {name}: {was} -> {width}", markup=False)


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
