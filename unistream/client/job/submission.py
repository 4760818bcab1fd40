"""Submits a job: one call from a job graph to a running job."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unistream.base.config import REST_ADDRESS, REST_PORT, REST_TLS, Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.extras import is_installed
from unistream.base.ids import JobId
from unistream.client.embedded import at_exit
from unistream.client.machine import home
from unistream.client.remote.address import (
    FixedAddress,
    LeaderAddress,
    MachineAddress,
    elected_address,
    is_elected,
    url_at,
)
from unistream.client.remote.job_client import JobClient, identified
from unistream.client.remote.rest_client import RestClient, RestJobClient, timeout_s
from unistream.client.remote.versions import check_version

if TYPE_CHECKING:
    from unistream.model.submission import SubmitRequest


NO_SERVER: Final = (
    "jobs started with this installation have no REST API, by which other commands find them: "
    'pip install "unistream[server]"'
)

logger = logging.getLogger(__name__)


class NothingRuns(Unreachable):
    """No cluster runs on this machine for this user."""


def to_stdout(lines: str) -> None:
    """Prints the output of workers."""
    sys.stdout.write(lines)
    sys.stdout.flush()


def to_stderr(lines: str) -> None:
    """Prints the output of workers where stdout is for the result."""
    sys.stderr.write(lines)
    sys.stderr.flush()


def submit(
    request: SubmitRequest,
    *,
    target: str | None,
    config: Configuration,
    show: Callable[[str], None] = to_stdout,
) -> JobClient:
    """Starts a job and returns at once.

    Args:
        request: The job; with the same request id it is started once, as long as the cluster's metadata has
            the id (also on clusters that share `metadata.url`).
        target: "local" or "spark": a cluster of its own in this process, which ends when the client is
            closed; the end of a script waits for the job (`client.embedded.at_exit`). "remote": the cluster
            that `high-availability.*` or `rest.*` names, or the one that runs on this machine. None: spark,
            or local where Spark is not installed.
        config: Options of the job's own cluster, or where to find the remote one.
        show: Called with the lines that workers of the local target print.

    Raises:
        ConfigError: the job cannot start as it is, or the remote cluster is of another version; nothing was
            started.
        Unreachable: there is no remote cluster.
    """
    request = identified(request)
    if target == "remote":
        remote = connect_to_submit(config)
        try:
            job = remote.submit(request).job_id
            return RestJobClient(remote, job, owns_connection=True, accepted=True)
        except BaseException:
            remote.close()
            raise
    from unistream.client.embedded.hosts import chosen_target, warm_up

    target = chosen_target(target)
    warm_up(target, config)
    from unistream.client.embedded.embedded_cluster import ClusterListener, EmbeddedCluster, EmbeddedJobClient

    serves = is_installed("server")
    if not serves:
        logger.info("event=rest_not_served: %s", NO_SERVER)
    listener = ClusterListener(show=show)
    cluster = EmbeddedCluster(target, config, rest=serves, wait=False, session=False, listener=listener)
    try:
        job = cluster.dispatcher.submit(request)
        cluster.ready()
    except BaseException:
        cluster.close()
        raise
    client = EmbeddedJobClient(cluster.dispatcher, job, owned=cluster)
    at_exit.keep(client)
    return client


def attach(job: JobId, config: Configuration) -> JobClient:
    """A job that a remote cluster has. Raises as `connect`."""
    return RestJobClient(connect(config), job, owns_connection=True, accepted=True)


def connect_to_submit(config: Configuration) -> RestClient:
    """Connects as `connect`, to a cluster on which jobs of this client run. Raises ConfigError also if they
    do not: it is of another version (`client.remote.versions`), or was started for one job, with which it
    ends."""
    cluster = connect(config)
    try:
        check_goes_on(cluster.url)
        check_version(cluster)
    except BaseException:
        cluster.close()
        raise
    return cluster


def check_goes_on(url: str | None) -> None:
    """Raises ConfigError: the cluster was started for one job, with which it ends."""
    if any(entry.url == url and not entry.session for entry in home.clusters()):
        raise ConfigError(
            f"the cluster at {url} was started for one job, and ends with it: no other job can run "
            "there. Start a session cluster, 'unistream cluster start'; to change that one job, stop it, and "
            "run the new version with -s latest"
        )


def connect(config: Configuration) -> RestClient:
    """The cluster that `address_of` finds. Raises as that."""
    return RestClient(address_of(config), timeout_s=timeout_s(config))


def address_of(config: Configuration) -> LeaderAddress:
    """Where the cluster is that `high-availability.*` or `rest.port` names, or the one that runs on this
    machine: the session cluster, if there is one.

    Raises:
        Unreachable: there is none.
        ConfigError: there are several.
    """
    if is_elected(config):
        return elected_address(config)
    port = config.get(REST_PORT)
    if port:
        return FixedAddress(url_at(config.get(REST_ADDRESS), port, config.find(REST_TLS)))
    every = home.clusters()
    found = [entry for entry in every if entry.session] or every
    if not found:
        advice = "" if is_installed("server") else f"; {NO_SERVER}"
        raise NothingRuns(
            "no cluster runs here; start one with 'unistream cluster start', or name one with "
            f"-m HOST:PORT{advice}"
        )
    if len(found) > 1:
        urls = ", ".join(f"{entry.url} ({entry.target})" for entry in found)
        raise ConfigError(f"several clusters run here: {urls}; choose one with -m HOST:PORT")
    return MachineAddress(found[0])
