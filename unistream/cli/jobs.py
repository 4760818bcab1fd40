"""Commands about running jobs: list, savepoint, stop, cancel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from unistream.base.clock import SystemClock
from unistream.base.config import CLIENT_TIMEOUT, METADATA_URL, REST_PORT, Configuration
from unistream.base.errors import UnistreamError, Unreachable
from unistream.base.extras import is_installed
from unistream.cli.errors import report
from unistream.cli.options import AsJson, Defines, Directory, Format, Job, JobManager, configuration
from unistream.cli.output import console, jobs_grid, print_json
from unistream.client.job.lookup import (
    JobInCluster,
    MetadataNote,
    Silent,
    all_jobs,
    each_once,
    find_job,
    running_clusters,
)
from unistream.client.job.submission import NO_SERVER
from unistream.client.machine.job_history import ended_jobs
from unistream.client.remote.address import is_elected
from unistream.client.remote.rest_client import RestClient
from unistream.model.job_info import TERMINAL_STATES
from unistream.model.snapshot_kind import SavepointFormat


def list_jobs(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that have ended.")] = False,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs of all clusters that run on this machine.

    With --all also jobs that have ended, of clusters that have ended, too: the database has them, also while
    no cluster answers.
    """
    silent: list[Silent] = []
    notes: list[MetadataNote] = []
    config = configuration(defines, jobmanager=jobmanager)
    has_history = all_ and not config.get(REST_PORT) and not is_elected(config)
    with clusters_here(config) as clusters:
        listed = all_jobs(clusters, silent.append, on_note=notes.append, is_needed=not has_history)
    if has_history:
        listed = with_history(listed, config, notes)
    listed = [item for item in listed if all_ or item.job.state not in TERMINAL_STATES]
    if as_json:
        jobs = [{"cluster": f.url, "job": f.job} for f in listed]
        answer: dict[str, object] = {"jobs": jobs, "unanswered": unanswered(silent)}
        if notes:
            answer["notes"] = [{"cluster": note.url, "note": note.text} for note in notes]
        print_json(answer)
        return
    for cluster in silent:
        report(f"{cluster}; its jobs are not listed")
    for note in notes:
        report(f"{note.url}: {note.text}" if note.url else note.text)
    if listed:
        console().print(jobs_grid(((one.place, one.job) for one in listed), SystemClock().wall_ms()))
    else:
        console().print("there are no jobs here" if all_ else "no job runs here")


def with_history(
    found: list[JobInCluster], config: Configuration, notes: list[MetadataNote]
) -> list[JobInCluster]:
    """The jobs that clusters list, and those that only the database of this user has."""
    try:
        ended = ended_jobs(config)
    except UnistreamError as error:
        notes.append(MetadataNote("", f"jobs of clusters that have ended are not listed: {error}"))
        return found
    return each_once([*found, *(JobInCluster(None, job, is_own=False) for job in ended)])


def unanswered(silent: Iterable[Silent]) -> list[dict[str, str]]:
    """Clusters that do not answer, for programs."""
    return [{"cluster": cluster.url, "error": str(cluster)} for cluster in silent]


@contextmanager
def clusters_here(config: Configuration) -> Iterator[list[RestClient]]:
    """All clusters of this machine, or the one that `config` names; a list of none is not an error.

    Raises:
        Unreachable: the one that is named is not there.
    """
    try:
        clusters = running_clusters(config)
    except Unreachable:
        if not config.to_dict().keys() <= {CLIENT_TIMEOUT.key, METADATA_URL.key}:
            raise
        if not is_installed("server"):
            report(NO_SERVER)
        clusters = []
    try:
        yield clusters
    finally:
        for cluster in clusters:
            cluster.close()


def savepoint(  # noqa: PLR0917  # typer passes them by name
    job: Job,
    directory: Directory = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
    form: Format = SavepointFormat.CANONICAL,
) -> None:
    """Take a savepoint; the job keeps running. `savepoint JOB` is short for it."""
    with find_job(configuration(defines, jobmanager=jobmanager), job) as client:
        path = client.savepoint(absolute(directory), format=form.value)
    _print_savepoint(client.job_id, path, as_json, "savepoint complete")


def stop(  # noqa: PLR0917  # typer passes them by name
    job: Job,
    drain: Annotated[
        bool, typer.Option("--drain", help="Treat all input as ended: windows fire before the savepoint.")
    ] = False,
    directory: Directory = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
    form: Format = SavepointFormat.CANONICAL,
) -> None:
    """Stop a job with a savepoint that another one can start from.

    With --drain there are two, both of --type: one after the end of data, and the one to resume from.
    """
    with find_job(configuration(defines, jobmanager=jobmanager), job) as client:
        path, resumable = client.stopped(drain=drain, target=absolute(directory), format=form.value)
    text = "job drained" if drain else "job stopped"
    _print_savepoint(client.job_id, path, as_json, text, resumable=resumable)


def cancel(job: Job, jobmanager: JobManager = None, defines: Defines = None, as_json: AsJson = False) -> None:
    """Cancel a job, without a savepoint.

    Its checkpoints are deleted, unless
    execution.checkpointing.externalized-checkpoint-retention says otherwise.
    """
    with find_job(configuration(defines, jobmanager=jobmanager), job) as client:
        client.cancel()
    if as_json:
        print_json({"job": client.job_id})
    else:
        console().print(f"job {client.job_id} is being cancelled")


def absolute(directory: str | None) -> str | None:
    """A local path as seen from the current folder; a URL as it is."""
    if directory is None or "://" in directory or directory.startswith("file:"):
        return directory
    return os.path.abspath(directory)


def _print_savepoint(job: str, path: str, as_json: bool, text: str, *, resumable: str | None = None) -> None:
    if as_json:
        print_json({"job": job, "savepoint": path, "resumable": resumable or path})
        return
    console().print(f"{text}: {path}", markup=False)
    if resumable not in (None, path):
        console().print(f"resume from: {resumable}", markup=False)
