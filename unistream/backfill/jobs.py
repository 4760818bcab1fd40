"""The job whose results are replaced: found, stopped with a savepoint, resumed from it.

A session cluster goes on without the job and gets it back. A cluster that was started for the job ends with
it, so the job gets a new one, in the background. Every step may be repeated after a kill:

    stop     the job runs: stop it. It has ended: with a savepoint in our folder, or for another reason
    resume   by one request id, whose job a session cluster starts once; elsewhere it is looked for first
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import structs

from unistream.backfill.journal import BackfillOrder
from unistream.base.config import REST_PORT, Configuration
from unistream.base.config_file import is_of_one_cluster
from unistream.base.errors import AlreadyEnded, ConfigError, NotFound, NothingListens, Unreachable
from unistream.base.ids import NO_CLUSTER, ClusterId, JobId, job_of_request
from unistream.base.object_stores import file_system
from unistream.client.job.lookup import all_jobs, find_job, running_clusters
from unistream.client.job.submission import connect
from unistream.client.machine import home
from unistream.client.machine.home import ClusterEntry
from unistream.client.remote.address import MachineAddress, is_elected
from unistream.client.remote.rest_client import Poll, RestClient
from unistream.client.remote.versions import check_version
from unistream.model.job_info import JobInfo
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.submission import SubmitRequest
from unistream.savepoint import read_savepoint

SAVEPOINTS: Final = "savepoint"
ENDING_S: Final = 30.0
STARTING: Final = frozenset({"RECONCILING", "INITIALIZING", "CREATED", "RESTARTING"})
"""States in which a job cannot be stopped yet."""

StartInBackground = Callable[[SubmitRequest, str, Configuration], str]
"""(job, target, configuration) -> its id, on a cluster of its own that outlives this process."""


Reach = Callable[[BackfillOrder], RestClient]
"""The cluster of the order's job; see `reached`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """`cluster`: the id that its cluster keeps, if that is one of this machine; `session`: it goes on without
    the job."""

    info: JobInfo
    url: str
    cluster: ClusterId
    session: bool


def running_job(config: Configuration, text: str) -> RunningJob:
    """The job of that name or id. Raises NotFound, ConfigError or Unreachable."""
    with find_job(config, text) as client:
        info = client.status()
        url = client.rest_url or ""
    entry = next((one for one in home.clusters() if one.url == url), None)
    if info.is_terminal:
        raise NotFound(f"job {info.name!r} ({info.job}) does not run: it is {info.state}")
    if info.job_type == "BATCH":
        raise ConfigError(f"job {info.name!r} ({info.job}) is a BATCH job; run it again instead")
    return RunningJob(
        info=info,
        url=url,
        cluster=NO_CLUSTER if entry is None else entry.cluster,
        session=is_elected(config) or entry is None or entry.session,
    )


def reached(order: BackfillOrder) -> RestClient:
    """The cluster of the order's job, which the caller closes: of several masters the one that leads, and one
    of this machine wherever it listens now."""
    config = Configuration(order.config)
    if is_elected(config):
        return connect(config)
    entry = _entry(order)
    if entry is not None:
        return RestClient(MachineAddress(entry))
    assert order.url is not None
    return RestClient(order.url)


def _entry(order: BackfillOrder) -> ClusterEntry | None:
    """None: it does not run on this machine."""
    by_url = (one for one in home.clusters() if not order.cluster and one.url == order.url)
    return home.entry_of(order.cluster) or next(by_url, None)


def stopped_savepoint(order: BackfillOrder, reach: Reach = reached) -> str:
    """Stops the job of the order; the directory of its savepoint.

    Raises:
        ConfigError: it cannot be stopped now, and runs on; or it has ended otherwise.
        Unreachable: its cluster does not answer.
    """
    assert order.job is not None
    info = _status(order, reach)
    if info is not None and not info.is_terminal:
        try:
            return _stopped(order, reach)
        except (AlreadyEnded, Unreachable):  # its cluster ends with it, perhaps before it has answered
            info = _status(order, reach)
            if info is not None and not info.is_terminal:
                raise
    if info is not None and info.state != "FINISHED":
        raise ConfigError(
            f"job {order.job_name!r} ({order.job}) ended as {info.state} before it was stopped with a "
            "savepoint; start it again from its newest checkpoint, and give this backfill up (--abort)"
        )
    savepoint = _newest_savepoint(order)
    if savepoint is None:
        raise ConfigError(
            f"job {order.job_name!r} ({order.job}) has ended, and not with a savepoint in "
            f"{order.savepoint_root}; start it again, and give this backfill up (--abort)"
        )
    return savepoint


def _stopped(order: BackfillOrder, reach: Reach) -> str:
    """A master that has taken the job over starts it first, and refuses to stop it until it runs."""
    assert order.job is not None
    with reach(order) as cluster:
        check_version(cluster)  # it could not be started again there
        job, poll = cluster.client(JobId(order.job)), Poll(cluster.timeout_s)
        poll.next()
        while True:
            try:
                return job.stop(target=order.savepoint_root)
            except ConfigError:
                starts = cluster.is_elected and job.status().state in STARTING
                if not (starts and poll.next()):
                    raise


def still_runs(order: BackfillOrder, reach: Reach = reached) -> bool:
    """Raises Unreachable: its cluster does not answer; NothingListens: a session cluster that is down."""
    if order.job is None:
        return False
    info = _status(order, reach)
    return info is not None and not info.is_terminal


def _status(order: BackfillOrder, reach: Reach) -> JobInfo | None:
    """None: its cluster does not know it, or was its own and has ended. Raises Unreachable: the cluster does
    not answer, or is a session cluster that is down: started again, that goes on with the job."""
    assert order.job is not None
    if not order.session and _entry(order) is None:
        return None
    with reach(order) as cluster:
        try:
            return cluster.info(JobId(order.job))
        except NotFound:
            return None
        except NothingListens as error:
            if not order.session:
                return None
            raise NothingListens(
                f"the session cluster of job {order.job_name!r} ({order.job}) does not run ({error}); start "
                "it again, which goes on with the job, or give this backfill up (--abort)"
            ) from error


def _newest_savepoint(order: BackfillOrder) -> str | None:
    """The newest complete savepoint with which this job was stopped; None: there is none."""
    system, inner = file_system(order.savepoint_root)
    if not system.exists(inner):
        return None
    system.invalidate_cache()
    found = []
    for path in system.ls(inner, detail=False):
        if system.exists(f"{path}/_metadata"):
            savepoint = read_savepoint(system.unstrip_protocol(path))
            if savepoint.kind is SnapshotKind.SUSPEND and savepoint.job == order.job:
                found.append((savepoint.checkpoint_id, savepoint.path))
    return max(found)[1] if found else None


def request_id(order: BackfillOrder) -> str:
    return f"backfill-{order.id}"


def resumed_job(
    order: BackfillOrder,
    request: SubmitRequest,
    config: Configuration,
    own: Configuration,
    start_in_background: StartInBackground,
) -> str:
    """Starts the job, unless it was started before; its id. `config`: to find its session cluster; `own`: of
    the cluster that is started for it, if there is none.

    Raises:
        ConfigError: it cannot start as it is.
        Unreachable: its cluster does not answer.
    """
    request = structs.replace(request, request_id=request_id(order))
    if order.session:
        with _session(order, config) as cluster:
            return cluster.submit(request).job_id
    job = job_of_request(request_id(order))
    _await_end(order)
    return job if _runs_here(job) else start_in_background(request, order.cluster_target, own)


def _await_end(order: BackfillOrder) -> None:
    """Waits for the end of the former cluster, whose addresses the new one may have; not for ever."""
    poll = Poll(ENDING_S)
    while order.url in {entry.url for entry in home.clusters()} and poll.next():
        continue


def _session(order: BackfillOrder, config: Configuration) -> RestClient:
    """Where the job ran, or the session cluster that is there now."""
    cluster = reached(order)
    try:
        cluster.jobs()
    except Unreachable:
        cluster.close()
        if is_elected(config) or config.get(REST_PORT) or home.clusters():
            return connect(config)
        raise
    return cluster


def _runs_here(job: JobId) -> bool:
    try:
        clusters = running_clusters(Configuration())
    except Unreachable:
        return False
    try:
        listed = all_jobs(clusters, lambda _: None)
        return any(found.is_own and found.job.job == job for found in listed)
    except Unreachable:
        return False
    finally:
        for cluster in clusters:
            cluster.close()


def own_cluster(config: Configuration) -> Configuration:
    """Options for a cluster of our own: not those by which that of the job is found, and not its port."""
    values = config.to_dict().items()
    return Configuration({key: value for key, value in values if not is_of_one_cluster(key)})


def savepoint_folder(folder: Path) -> str:
    return str(folder / SAVEPOINTS)
