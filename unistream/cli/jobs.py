"""Commands about jobs that run: list, info, savepoint, stop, cancel."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from unistream.base.errors import Unreachable
from unistream.cli.errors import report
from unistream.cli.options import AsJson, Defines, Directory, Format, Job, configuration
from unistream.cli.output import console, is_over, print_info, print_jobs, print_json
from unistream.client.lookup import all_jobs, find_job, running_clusters
from unistream.model.elements import SavepointFormat


def list_jobs(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that have ended.")] = False,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs of all clusters that run on this machine."""
    config = configuration(defines)
    try:
        clusters = running_clusters(config)
    except Unreachable:
        if config.to_dict():
            raise
        clusters = []  # nothing runs: an empty list, not a failure
    try:
        found = [item for item in all_jobs(clusters, _tell) if all_ or not is_over(item.job.state)]
    finally:
        for cluster in clusters:
            cluster.close()
    if as_json:
        print_json({"jobs": [{"cluster": f.cluster.url, "job": f.job} for f in found]})
    elif found:
        print_jobs(found)
    else:
        console().print("no job runs here" if not all_ else "there are no jobs here")


def info(job: Job, defines: Defines = None, as_json: AsJson = False) -> None:
    """Show one job: state, tasks, checkpoints, workers, late rows, failures."""
    found = find_job(configuration(defines), job)
    with found.cluster:
        details = found.cluster.info(found.job.job)
    if as_json:
        print_json(details)
    else:
        print_info(details)


def savepoint(
    job: Job,
    directory: Directory = None,
    defines: Defines = None,
    as_json: AsJson = False,
    form: Format = SavepointFormat.CANONICAL,
) -> None:
    """Take a savepoint; the job goes on."""
    found = find_job(configuration(defines), job)
    with found.cluster:
        path = found.cluster.savepoint(found.job.job, absolute(directory), form)
    _print_savepoint(found.job.job, path, as_json, "savepoint complete")


def stop(  # noqa: PLR0917  # typer passes them by name
    job: Job,
    drain: Annotated[
        bool, typer.Option("--drain", help="As if all input had ended: windows fire before the savepoint.")
    ] = False,
    directory: Directory = None,
    defines: Defines = None,
    as_json: AsJson = False,
    form: Format = SavepointFormat.CANONICAL,
) -> None:
    """End a job with a savepoint that another one can start from.

    With --drain there are two: the one behind the end of data, and the one to go on from. Both are of --type.
    """
    found = find_job(configuration(defines), job)
    with found.cluster:
        path = found.cluster.stop(found.job.job, drain=drain, target=absolute(directory), form=form)
        resumable = found.cluster.info(found.job.job).resumable_savepoint if drain else path
    text = "job drained" if drain else "job stopped"
    _print_savepoint(found.job.job, path, as_json, text, resumable=resumable)


def cancel(job: Job, defines: Defines = None, as_json: AsJson = False) -> None:
    """End a job without a savepoint."""
    found = find_job(configuration(defines), job)
    with found.cluster:
        found.cluster.cancel(found.job.job)
    if as_json:
        print_json({"job": found.job.job})
    else:
        console().print(f"job {found.job.job} is being cancelled")


def _tell(silence: Unreachable) -> None:
    report(f"{silence}; its jobs are not listed")


def absolute(directory: str | None) -> str | None:
    """A local path as seen from here; a URL as it is."""
    if directory is None or "://" in directory or directory.startswith("file:"):
        return directory
    return os.path.abspath(directory)


def _print_savepoint(job: str, path: str, as_json: bool, text: str, *, resumable: str | None = None) -> None:
    if as_json:
        print_json({"job": job, "savepoint": path, "resumable": resumable or path})
        return
    console().print(f"{text}: {path}", markup=False)
    if resumable not in (None, path):
        console().print(f"to go on from: {resumable}", markup=False)
