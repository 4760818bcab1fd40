"""`unistream taskmanager drain`: a worker ends when its tasks have moved to others."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from unistream.base.errors import NotFound
from unistream.base.ids import TaskManagerId
from unistream.cli.errors import JOB_FAILED, complain, report
from unistream.cli.formats import several
from unistream.cli.jobs import clusters_here
from unistream.cli.options import AsJson, Defines, JobManager, configuration
from unistream.cli.output import console, print_json
from unistream.client.job.lookup import Silent, ask_all
from unistream.client.remote.drains import DrainClient
from unistream.client.remote.rest_client import RestClient
from unistream.model.job_info import DrainPhase, DrainStatus

Worker = Annotated[
    str,
    typer.Argument(metavar="WORKER", help="Its id, or the beginning of it: see 'taskmanager list'."),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="If other workers have too few slots, its tasks wait where they are."),
]
Detached = Annotated[bool, typer.Option("--detached", help="Do not wait until it has ended.")]


def drain(  # noqa: PLR0917  # typer passes them by name
    worker: Worker,
    wait: Wait = False,
    detached: Detached = False,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Move the tasks of a worker to others, then end it; a job goes on from a checkpoint taken for that.

    Without enough slots on other workers nothing is done (exit code 2), unless --wait. Exit code 1: it was
    lost before its tasks had moved; its jobs restart.
    """
    with clusters_here(configuration(defines, jobmanager=jobmanager)) as clusters:
        cluster, id_ = _found(clusters, worker)
        client = DrainClient(cluster, id_)
        status = client.begin(wait=wait)
        if not detached and status.phase is DrainPhase.DRAINING:
            status = client.finished(_Progress(id_, shows=not as_json).show)
    if as_json:
        print_json({"taskmanager": id_, **msgspec.to_builtins(status)})
    _end(id_, status, as_json=as_json)


def _end(worker: TaskManagerId, status: DrainStatus, *, as_json: bool) -> None:
    if status.phase is DrainPhase.LOST:
        if not as_json:
            complain(f"worker {worker} was lost before its tasks had moved: {status.reason}")
        raise typer.Exit(JOB_FAILED)
    if not as_json:
        what = "is being drained" if status.phase is DrainPhase.DRAINING else "is drained and has ended"
        console().print(f"worker {worker} {what}", markup=False)


def _found(clusters: list[RestClient], text: str) -> tuple[RestClient, TaskManagerId]:
    """The worker, and its cluster.

    Raises:
        NotFound: no cluster that answers has it, or several workers begin so.
    """
    silent: list[Silent] = []
    answers = ask_all(
        clusters, lambda cluster, limit_s: cluster.task_managers(timeout_s=limit_s), silent.append
    )
    found = [(cluster, one.id) for cluster, workers in answers for one in workers if one.id.startswith(text)]
    exact = [pair for pair in found if pair[1] == text]
    for cluster in silent:
        report(f"{cluster}; its workers are not known")
    if not text:
        found = []
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        raise NotFound(f"{several(len(found), 'worker')} begin with {text!r}: give more of the id")
    raise NotFound(f"there is no worker {text!r}: 'unistream taskmanager list' has those that there are")


class _Progress:
    """A line whenever other jobs have something on the worker."""

    def __init__(self, worker: TaskManagerId, *, shows: bool) -> None:
        self._worker = worker
        self._shows = shows
        self._said: DrainStatus | None = None

    def show(self, status: DrainStatus) -> None:
        if not self._shows or status == self._said or not status.jobs:
            return
        self._said = status
        jobs = ", ".join(status.jobs)
        report(f"worker {self._worker}: {several(len(status.jobs), 'job')} still there ({jobs})")
