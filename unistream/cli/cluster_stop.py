"""`unistream cluster stop`: ends a session cluster, as it is or when its jobs have ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unistream.base.config import parse_duration_ms
from unistream.base.errors import ConfigError, Unreachable
from unistream.cli.errors import INTERRUPTED, JOB_FAILED, complain
from unistream.cli.jobs import absolute
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, print_json
from unistream.client.job.cluster_stop import ClusterStop, EndedJob, Manner, OnJob, StoppedCluster
from unistream.client.job.sessions import find_cluster
from unistream.client.machine import home

NOT_THERE: Final = "no session cluster runs here"

Cluster = Annotated[
    str | None,
    typer.Argument(
        metavar="CLUSTER", help="Its name, the first 4 or more of its id, or its address; none: the only one."
    ),
]
Address = Annotated[
    str | None, typer.Option("-m", "--jobmanager", metavar="URL", help="The same, as its address.")
]
Target = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--target",
        "--savepoint-path",
        metavar="DIR",
        help="Where to create the savepoints' directories.",
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="Longest wait for the jobs to end.")
]


def stop(  # noqa: PLR0917  # typer passes them by name
    cluster: Cluster = None,
    address: Address = None,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Stop each job with a savepoint first.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="With --savepoint: as if all input had ended; windows fire.")
    ] = False,
    directory: Target = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel all jobs first.")] = False,
    timeout: Timeout = "10 min",
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """End a session cluster. Its jobs are suspended: the next cluster on its folder goes on with them.

    With --savepoint or --cancel the jobs end first, and new ones are refused meanwhile. If one of them
    cannot, the cluster is not ended (exit code 1). The same command again goes on where it was cut off.
    """
    manner = _manner(savepoint=savepoint, drain=drain, cancel=cancel, directory=directory)
    if cluster is not None and address is not None:
        raise ConfigError("give CLUSTER or -m, not both")
    config = configuration(defines)
    timeout_s = parse_duration_ms(timeout) / 1_000
    found = find_cluster(config, cluster or address)
    if found is None:
        _report_absence(cluster, as_json=as_json)
        return
    connection, entry = found
    with connection, _progress(manner, shows=sys.stdout.isatty() and not as_json) as on_job:
        stopping = ClusterStop(
            connection,
            manner,
            target=absolute(directory),
            timeout_s=timeout_s,
            is_gone=None if entry is None else lambda: not home.is_running(entry),
            on_job=_silent if as_json else on_job,
        )
        outcome = _run(stopping)
    _print(outcome, as_json=as_json)
    if not outcome.ended:
        raise typer.Exit(JOB_FAILED)


def _run(stopping: ClusterStop) -> StoppedCluster:
    try:
        return stopping.run()
    except TimeoutError as error:
        raise Unreachable(str(error)) from error
    except KeyboardInterrupt:
        complain("interrupted: what was begun goes on, and the same command again waits for it")
        raise typer.Exit(INTERRUPTED) from None


def _manner(*, savepoint: bool, drain: bool, cancel: bool, directory: str | None) -> Manner:
    if cancel and (savepoint or drain):
        raise ConfigError("--cancel and --savepoint: choose one of them")
    if (drain or directory is not None) and not savepoint:
        raise ConfigError(f"{'--drain' if drain else '--target'} is for --savepoint: give that, too")
    if cancel:
        return Manner.CANCEL
    if not savepoint:
        return Manner.SUSPEND
    return Manner.DRAIN if drain else Manner.SAVEPOINT


def _report_absence(cluster: str | None, *, as_json: bool) -> None:
    """Nothing is to be done: that is what was wanted."""
    if as_json:
        print_json(StoppedCluster(url="", ended=True))
    else:
        console().print(
            NOT_THERE if cluster is None else f"the cluster {cluster!r} does not run", markup=False
        )


def _silent(_job: EndedJob, _left: int) -> None:
    """Says nothing of an ended job: programs get all of it at the end."""


@contextmanager
def _progress(manner: Manner, *, shows: bool) -> Iterator[OnJob]:
    """Prints a line for each job; with `shows` below them a bar."""
    if not shows or manner is Manner.SUSPEND:
        yield partial(_print_job, None)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(),
        transient=True,
    ) as bar:
        task = bar.add_task("cancelling jobs" if manner is Manner.CANCEL else "stopping jobs", total=None)

        def on_job(job: EndedJob, left: int) -> None:
            _print_job(bar, job, left)
            done = bar.tasks[0].completed + 1
            bar.update(task, completed=done, total=done + left)

        yield on_job


def _print_job(bar: Progress | None, job: EndedJob, _left: int) -> None:
    out = console() if bar is None else bar.console
    title = f"job {escape(job.name)} ({job.job})"
    if job.error is not None:
        out.print(f"{title} was not stopped: {escape(job.error)}")
    elif job.savepoint is None:
        out.print(f"{title} is {job.state}")
    else:
        out.print(f"{title} was stopped: {escape(job.savepoint)}")
        if job.resumable not in (None, job.savepoint):
            out.print(f"  resume it from: {escape(job.resumable or '')}")


def _print(outcome: StoppedCluster, *, as_json: bool) -> None:
    if as_json:
        print_json(outcome)
        return
    for job in outcome.before:
        _print_job(None, job, 0)
    if outcome.ended:
        console().print(f"the cluster at {outcome.url} has ended", markup=False)
        return
    names = ", ".join(f"{job.name!r} ({job.job[:8]})" for job in outcome.failed)
    complain(
        f"the cluster at {outcome.url} was not ended, and accepts jobs again: {names} could not be stopped; "
        "the same command again goes on with what is left"
    )
