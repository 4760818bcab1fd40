"""`unistream.finalize_savepoint`: checks the jobs that run here, then commits the savepoint."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unistream.base.config import REST_PORT, Configuration
from unistream.base.errors import ConfigError, NotFound, UnistreamError, Unreachable
from unistream.client.job.lookup import ONE_WITHIN_S, JobInCluster, ask_each, running_clusters
from unistream.client.machine.home import clusters as clusters_here
from unistream.client.machine.surroundings import layered
from unistream.client.remote.rest_client import RestClient
from unistream.model.job_info import TERMINAL_STATES
from unistream.savepoint.finalize import Finalized, finalize
from unistream.savepoint.reading import Savepoint, read_savepoint

if TYPE_CHECKING:
    from unistream.api.environment import Environment

SILENT_MAX_S: Final = 10.0
POLL_S: Final = 0.1


def finalize_savepoint(
    path: str | os.PathLike[str],
    pipeline: Callable[[Environment], object] | None = None,
    *,
    config: Configuration | None = None,
    dry_run: bool = False,
) -> Finalized:
    """Commits what a savepoint (or checkpoint) lists as pending, without starting its job.

    Safe to repeat. A job that later starts from the savepoint finds it committed.

    Args:
        path: See `read_savepoint`.
        pipeline: The function that builds the job; needed for a user's own sinks, and those whose credentials
            are in the pipeline.
        config: `rest.port` (where to look for a running job; unset: all clusters of this machine) and
            `sink.committer.retries`.
        dry_run: Only report what is pending.

    Raises:
        ConfigError: there is no savepoint, its job runs here or may run here, or a committer is not known.
            Nothing was committed.
        CorruptSnapshot: the savepoint is damaged.

    >>> import tempfile, unistream as us
    >>> folder = us.SavepointWriter().with_list("rows", "splits", []).write(tempfile.mkdtemp() + "/empty")
    >>> us.finalize_savepoint(folder).commits
    ()
    """
    from unistream.api.environment import Environment

    options = layered(config)
    settings = options.as_client()
    savepoint = read_savepoint(path)
    code = None
    if pipeline is not None:
        environment = Environment(options, target="remote")
        pipeline(environment)
        _, code = environment.job_graph()
        settings = environment.config
    if not dry_run:
        refuse_if_running(savepoint, settings)
    return finalize(savepoint, settings, code, dry_run=dry_run)


def refuse_if_running(
    savepoint: Savepoint, config: Configuration, *, patience_s: float = SILENT_MAX_S
) -> None:
    """Raises ConfigError if the job of `savepoint`, or one of the same lineage, runs in a cluster of this
    machine, because it commits by itself; also if a running cluster does not answer. A cluster that is
    shutting down is waited for up to `patience_s`."""
    try:
        clusters = running_clusters(config)
    except Unreachable:
        if config.get(REST_PORT):
            raise
        return
    try:
        for listed in _jobs(clusters, patience_s):
            if listed.job.state not in TERMINAL_STATES and _continues(listed, savepoint):
                raise ConfigError(
                    f"job {listed.job.job} ({listed.job.name}) is {listed.job.state} here and commits what "
                    f"{savepoint.path} lists by itself: wait, or cancel the job first"
                )
    finally:
        for cluster in clusters:
            cluster.close()


def _jobs(clusters: list[RestClient], patience_s: float) -> list[JobInCluster]:
    answers, silent = ask_each(
        clusters, lambda cluster, limit_s: cluster.jobs(timeout_s=limit_s), patience_s=ONE_WITHIN_S
    )
    for silence in silent:
        _await_end(silence.url, silence.error, patience_s)
    return [JobInCluster(cluster, job) for cluster, jobs in answers for job in jobs]


def _await_end(url: str, silence: UnistreamError, patience_s: float) -> None:
    """Raises ConfigError if the cluster keeps running."""
    deadline_s = time.monotonic() + patience_s
    while entry := next((one for one in clusters_here() if one.url == url), None):
        if time.monotonic() >= deadline_s:
            raise ConfigError(
                f"the cluster at {url} (process {entry.pid}) runs and does not answer, so its jobs may be "
                f"committing the same: stop it, or repeat this when it answers ({silence})"
            )
        time.sleep(POLL_S)


def _continues(found: JobInCluster, savepoint: Savepoint) -> bool:
    """It commits under the same identities."""
    if found.job.job == savepoint.job:
        return True
    assert found.cluster is not None, "a cluster has listed it"
    try:
        return found.cluster.info(found.job.job).lineage == savepoint.manifest.lineage
    except (NotFound, Unreachable):  # it has ended meanwhile
        return False
