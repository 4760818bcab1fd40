"""One call from a job graph to a running job."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from unistream.base.config import REST_ADDRESS, REST_PORT, Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.extras import is_installed
from unistream.client import at_exit, home
from unistream.client.job_client import JobClient
from unistream.client.request_ids import identified
from unistream.client.rest_client import RestClient, RestJobClient

if TYPE_CHECKING:
    from unistream.master.job_setup import SubmitRequest
    from unistream.model.graph import JobGraph


UNSEEN: Final = 'a job is found by other processes only with the REST API: pip install "unistream[server]"'

logger = logging.getLogger(__name__)


def to_stdout(lines: str) -> None:
    """Shows what workers print."""
    sys.stdout.write(lines)
    sys.stdout.flush()


def to_stderr(lines: str) -> None:
    """The same where stdout is for the result."""
    sys.stderr.write(lines)
    sys.stderr.flush()


def execute(
    graph: JobGraph,
    artifact: bytes,
    *,
    target: str | None = None,
    config: Configuration | Mapping[str, str],
    savepoint: str | None = None,
    allow_non_restored: bool = False,
    name: str | None = None,
    request_id: str | None = None,
    workdir: str | Path | None = None,
) -> JobClient:
    """Starts a job and returns at once.

    Args:
        graph: What to run, as data.
        artifact: Its code, packed.
        target: "local" or "spark": a cluster of its own in this process, which ends when the client is
            closed; the end of a script waits for the job (`unistream.client.at_exit`). "remote": the cluster
            at `rest.address`:`rest.port`, or the one that runs on this machine. None: spark, or local where
            Spark is not installed.
        config: Options of the job (and of its own cluster).
        savepoint: Directory to restore from.
        allow_non_restored: State whose operator is gone is dropped instead of refused.
        name: Of the job, instead of the graph's.
        workdir: Folder of the job's own cluster; None: one below `$UNISTREAM_HOME`.
        request_id: The same id submits the same job once, for as long as the cluster's metadata have it (also
            to clusters that share `metadata.url`); None: a new one, for this call.

    Raises:
        ConfigError: something in it cannot work; nothing was started.
        Unreachable: there is no remote cluster.
    """
    from unistream.core.graph import uid_advice
    from unistream.master.job_setup import SubmitRequest

    advice = uid_advice(graph)
    if advice is not None:
        logger.warning("event=operators_without_uid job=%r: %s", graph.name, advice)
    configuration = config if isinstance(config, Configuration) else Configuration(config)
    request = SubmitRequest(
        graph=graph if name is None else structs.replace(graph, name=name),
        artifact=artifact,
        config=configuration.to_dict(),
        savepoint=savepoint,
        request_id=request_id,
        allow_non_restored=allow_non_restored,
    )
    return submit(request, target=target, config=configuration, workdir=workdir)


def submit(
    request: SubmitRequest,
    *,
    target: str | None,
    config: Configuration,
    workdir: str | Path | None = None,
    show: Callable[[str], None] = to_stdout,
) -> JobClient:
    """As `execute`, for a request that was put together before. Raises as it does.

    `show`: called with the lines that workers of the local target print.
    """
    request = identified(request)
    if target == "remote":
        return _submit_remote(request, config)
    from unistream.client.embedded import EmbeddedCluster, EmbeddedJobClient
    from unistream.client.hosts import chosen_target

    serves = is_installed("server")
    if not serves:
        logger.info("event=rest_not_served: %s", UNSEEN)
    cluster = EmbeddedCluster(
        chosen_target(target), config, workdir=workdir, rest=serves, wait=False, show=show
    )
    try:
        job = cluster.dispatcher.submit(request)
        cluster.ready()
    except BaseException:
        cluster.close()
        raise
    client = EmbeddedJobClient(cluster.dispatcher, job, owned=cluster)
    at_exit.keep(client)
    return client


def connect(config: Configuration) -> RestClient:
    """The cluster that `rest.port` names, or the one that runs on this machine.

    Raises:
        Unreachable: there is none.
        ConfigError: there are several.
    """
    port = config.get(REST_PORT)
    if port:
        host = config.get(REST_ADDRESS)
        return RestClient(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    found = home.clusters()
    if not found:
        unseen = "" if is_installed("server") else f"; {UNSEEN}"
        raise Unreachable(
            "no cluster runs here; start one with 'unistream cluster start', or name one with "
            f"-D rest.port=PORT{unseen}"
        )
    if len(found) > 1:
        urls = ", ".join(f"{entry.url} ({entry.target})" for entry in found)
        raise ConfigError(f"several clusters run here: {urls}; choose one with -D rest.port=PORT")
    return RestClient(found[0].url)


def _submit_remote(request: SubmitRequest, config: Configuration) -> JobClient:
    cluster = connect(config)
    try:
        job = cluster.submit(request).job_id
    except BaseException:
        cluster.close()
        raise
    return RestJobClient(cluster, job, owns_connection=True)
