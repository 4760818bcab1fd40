"""A cluster inside this process: the master here, TaskManagers where the target says.

It has an entry in `unistream.client.machine.home`, by which `unistream list`, `stop` and so on in another
terminal find it. Its folder holds logs, checkpoints and savepoints; the metadata are shared by all clusters
of a user.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from unistream.base import durable_files
from unistream.base.closing import Cleanups, Closing
from unistream.base.config import (
    HA_CLUSTER_ID,
    HA_STORAGE_DIR,
    HA_TYPE,
    REST_AUTHENTICATION,
    TMP_DIRS,
    ZOOKEEPER_CONNECTION_TIMEOUT,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
    Configuration,
)
from unistream.base.crash_points import refuse_outside_tests
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.base.extras import require
from unistream.base.ids import JobId
from unistream.base.object_stores import use_store
from unistream.client.embedded.cluster_trust import ClusterTrust
from unistream.client.embedded.contending import Contending, Term
from unistream.client.embedded.embedded_job import EmbeddedJobClient
from unistream.client.embedded.ha_type import check_several, check_single, join_several, leave_several
from unistream.client.embedded.hosts import (
    LOCAL,
    STANDALONE,
    engine_factory,
    host_factory,
    host_traits,
    settled,
    workers_max,
)
from unistream.client.embedded.job_folder import check_leader, job_folder
from unistream.client.embedded.leader_process import LeaderPlan, LeaderProcess
from unistream.client.machine import home
from unistream.client.remote.address import is_elected, retrieval
from unistream.client.remote.job_client import identified
from unistream.ha.single_node import FolderElection, FolderLock
from unistream.host.echo import Echo, Show
from unistream.master.cluster import Dispatcher
from unistream.master.service import HostFactory
from unistream.master.store import JobStore
from unistream.model.credentials import PeerAddress
from unistream.model.submission import SubmitRequest
from unistream.net.folder import remove_stale_folders
from unistream.port.ha import LeaderElection
from unistream.worker.exchange import (
    PLACE_FOLDER_PREFIX,
    SPILL_FOLDER_PREFIX,
    STATE_FOLDER_PREFIX,
    spill_roots,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterListener:
    """What the program that runs a cluster wants to be called for. None: not for that.

    Attributes:
        on_shutdown_request: A client requests the end of the cluster; must return at once.
        on_leading: Of several masters: called with the cluster each time that it has begun to lead, on a
            thread of its own; must not wait for the cluster.
        show: Called with the lines that workers of the local target print; None: they are only logged.
    """

    on_shutdown_request: Callable[[], None] | None = None
    on_leading: Callable[[EmbeddedCluster], None] | None = None
    show: Show | None = None


NOBODY: Final = ClusterListener()


class EmbeddedCluster(Closing):
    """Dispatcher, REST API and workers, from construction until `close`.

    Args:
        target: "local" (child processes) or "spark".
        config: Configuration of the cluster and, unless a job says otherwise, of its jobs.
        workdir: Folder for logs, checkpoints, savepoints; None: one below
            `$UNISTREAM_HOME/runs`, removed at the end if nothing in it is needed.
        create_host: Runs the workers, on this machine, instead of the target's host.
        max_workers: Limit of workers at the same time; None: what the target can host.
        rest: Serve the REST API and add an entry for other processes; needs the extra "server".
        wait: False: the REST API starts in the background, so that a job can be submitted meanwhile (its
            libraries take half a second to load); call `ready` then.
        session: It goes on when its job has ended; False: it is for one job.

    Attributes:
        is_elected: There may be several masters, of which one leads.
        failure: Why this master can never lead, of several; its end was requested.

    Raises:
        ConfigError: the configuration cannot work; nothing is left behind.
        Unreachable: ZooKeeper does not answer.
    """

    def __init__(
        self,
        target: str,
        config: Configuration,
        *,
        workdir: str | Path | None = None,
        create_host: HostFactory | None = None,
        max_workers: int | None = None,
        rest: bool = True,
        wait: bool = True,
        session: bool = True,
        listener: ClusterListener = NOBODY,
    ) -> None:
        refuse_outside_tests()
        use_store(config)
        config = settled(target, config) if create_host is None else config
        if rest:
            require("server", "the REST API of a cluster")
        elif target == STANDALONE and config.find(REST_AUTHENTICATION) == "token":
            raise ConfigError(
                "a standalone cluster serves the REST API: workers find what they present next to its address"
            )
        self.id = uuid.uuid4().hex
        self.target = target
        self.shutdown_requested = threading.Event()
        self.failure: UnistreamError | None = None
        self._listener = listener
        self._cleanups = Cleanups()
        self._tmp_dirs = config.find(TMP_DIRS)
        self._leader: LeaderProcess | None = None
        self._close_lock = threading.Lock()
        self.is_elected = is_elected(config)
        self._owns_workdir = workdir is None
        self.workdir = Path(workdir) if workdir is not None else home.home() / "runs" / self.id
        self._echo = None if listener.show is None else Echo(listener.show)
        self._election = self._create_election(config, session=session)
        self._plan = self._create_plan(config, session=session, rest=rest, create_host=create_host)
        if max_workers is not None:
            self._plan = replace(self._plan, max_workers=max_workers)
        try:
            self._prepare_workdir()
            self._listen(config)
            self._contending = Contending(self._election, self._begin, self._end_with)
            self._cleanups.add(self._contending.close)
            self._prepare_to_stand_by(config)
            self._contend()
            if wait:
                self.ready()
        except BaseException:
            self.close()
            raise
        _open_clusters.add(self)

    @property
    def dispatcher(self) -> Dispatcher:
        """Raises Unreachable: this process does not lead."""
        if self._leader is None or not self.leads:
            raise Unreachable("this master is a standby; ask the leader")
        return self._leader.dispatcher

    @property
    def rest_url(self) -> str | None:
        """None: it has no REST API, or this process does not lead."""
        return self._leader.rest_url if self._leader is not None and self.leads else None

    @property
    def serves_at(self) -> str | None:
        """Where this process answers, also as one of several masters that stands by: for the leader then.
        None: it has no REST API."""
        server = self._plan.server
        return self.rest_url if server is None else server.url

    @property
    def leads(self) -> bool:
        """This process has the jobs; False: it is a standby."""
        return self._leader is not None and not self._leader.has_stepped_down

    @property
    def jobmanager(self) -> str | None:
        """``HOST:PORT`` where workers of a standalone cluster register; None: it is another target."""
        address = PeerAddress.parse(self.dispatcher.control_address).location
        return None if self._plan.traits.active else address.partition("://")[2]

    @property
    def is_encrypted(self) -> bool:
        """Its JobManager and workers speak TLS: workers join with a token."""
        return self._plan.trust.encrypts_workers

    def ready(self) -> None:
        """Returns when the REST API listens; at once for a standby.

        Raises:
            ConfigError: its address cannot be used.
        """
        leader = self._leader
        if leader is not None:
            leader.ready()

    def settle(self) -> None:
        """Returns when all output of workers has been passed to `show`."""
        if self._echo is not None:
            self._echo.settle()

    def submit(self, request: SubmitRequest) -> EmbeddedJobClient:
        """Starts a job on this cluster; its client does not own the cluster.

        Raises:
            ConfigError: see `Dispatcher.submit`.
        """
        return EmbeddedJobClient(self.dispatcher, self.dispatcher.submit(identified(request)))

    def client(self, job: JobId) -> EmbeddedJobClient:
        """A client of one job of this cluster. Raises NotFound."""
        self.dispatcher.job(job)
        return EmbeddedJobClient(self.dispatcher, job)

    def abandon(self, timeout_s: float) -> None:
        """Makes `close` not wait for tasks any more, which may have begun; see `Dispatcher.abandon`."""
        leader = self._leader
        if leader is not None:
            leader.dispatcher.abandon(timeout_s)

    def close(self) -> None:
        """Suspends the jobs, ends all workers and servers, removes the entry; safe to repeat. Checkpoints of
        suspended jobs stay, and a warning says from which one each can resume. All of it is done although
        something fails; raises the last failure."""
        try:
            with self._close_lock:
                self._cleanups.close()
        finally:
            _open_clusters.discard(self)

    # --- parts ------------------------------------------------------------------------------------

    def _prepare_workdir(self) -> None:
        try:
            for name in ("", "logs", "checkpoints", "savepoints", "artifacts"):
                durable_files.make_folders(self.workdir / name)
        except OSError as error:
            raise ConfigError(
                f"cannot use {self.workdir} as the cluster's folder: {error.strerror}"
            ) from error
        self._cleanups.add(self._remove_leftovers)
        if self.is_elected:  # several masters on one machine have a folder each
            self._cleanups.add(FolderLock(self.workdir).close)
            check_several(self.workdir, self.target)
        self._cleanups.add(self._clean_workdir)

    def _create_election(self, config: Configuration, *, session: bool) -> LeaderElection:
        """Raises ConfigError: its options contradict each other."""
        if not self.is_elected:
            return FolderElection(self.workdir)
        if not session:
            raise ConfigError(
                f"{HA_TYPE.key}: zookeeper is for clusters that outlive their jobs: start masters with "
                "'unistream cluster start' and submit to them (-t remote), or remove the option"
            )
        if config.find(HA_STORAGE_DIR) is None:
            raise ConfigError(
                f"{HA_TYPE.key}: zookeeper needs {HA_STORAGE_DIR.key}, the URL of a folder that all masters "
                "of the cluster reach"
            )
        from unistream.ha.zookeeper import ZooKeeperElection, zookeeper_settings

        return ZooKeeperElection(zookeeper_settings(config), rest_url=lambda: self.serves_at)

    def _listen(self, config: Configuration) -> None:
        """One of several masters, before it takes part in the election, which says where each is reached.
        Raises ConfigError: its address cannot be used."""
        if not (self.is_elected and self._plan.rest):
            return
        from unistream.client.embedded.master_server import MasterServer

        server = MasterServer(config, self._plan.trust)
        self._cleanups.add(server.close)
        self._plan = replace(self._plan, server=server)

    def _prepare_to_stand_by(self, config: Configuration) -> None:
        """Raises ConfigError: it could not take over from the master that leads now; Unreachable: as the
        election."""
        if not self.is_elected:
            return
        with contextlib.closing(retrieval(config)) as leaders:
            leader = leaders.leader(config.get(ZOOKEEPER_CONNECTION_TIMEOUT) / 1000)
        check_leader(leader, self._plan.jobs)

    def _contend(self) -> None:
        self._contending.start()
        if self.is_elected:  # also a standby: the leader may have jobs from now on
            join_several(self.workdir, self._plan.goes_on)

    def _create_plan(
        self, config: Configuration, *, session: bool, rest: bool, create_host: HostFactory | None
    ) -> LeaderPlan:
        """Raises ConfigError: there is no such target, or it cannot be used."""
        target, jobs = self.target, job_folder(config)
        return LeaderPlan(
            id=self.id,
            target=target,
            config=config,
            workdir=self.workdir,
            jobs=jobs,
            goes_on=self._goes_on(config, session=session),
            session=session,
            rest=rest,
            trust=ClusterTrust(config, jobs or str(self.workdir)),
            server=None,
            create_host=create_host or host_factory(target, config, self._echo),
            create_engine=engine_factory(target) if create_host is None else None,
            traits=host_traits(target if create_host is None else LOCAL, config),
            max_workers=workers_max(target),
            on_shutdown_request=self._request_shutdown,
            on_end=self._leader_ended,
        )

    def _goes_on(self, config: Configuration, *, session: bool) -> str:
        """The command that starts a master which has the jobs; "": they end with this cluster."""
        command = f"unistream cluster start -t {self.target}"
        if self.is_elected:  # of other options, and credentials, the user knows
            values = config.to_dict()
            named = (HA_TYPE, HA_CLUSTER_ID, HA_STORAGE_DIR, ZOOKEEPER_QUORUM, ZOOKEEPER_ROOT)
            options = (f" -D {o.key}={values[o.key]}" for o in named if o.key in values)
            return command + "".join(options)
        return f"{command} --workdir {self.workdir}" if session and not self._owns_workdir else ""

    def _begin(self, term: Term) -> LeaderProcess:
        if self.is_elected:
            join_several(self.workdir, self._plan.goes_on)
        else:
            check_single(self.workdir)
        leader = LeaderProcess(self._plan, term, self._election)
        self._leader = leader
        if self.is_elected:
            try:
                leader.ready()
            except BaseException:
                self._leader = None
                leader.close()
                raise
            logger.info("event=leads epoch=%s url=%s", term.store.epoch, leader.rest_url)
            if self._listener.on_leading is not None:
                self._listener.on_leading(self)
        return leader

    def _end_with(self, failure: UnistreamError) -> None:
        """This master can never lead: its process ends."""
        self.failure = failure
        self._request_shutdown()

    def _leader_ended(self, jobs: JobStore) -> None:
        if self.is_elected:
            leave_several(self.workdir, jobs)

    def _request_shutdown(self) -> None:
        self.shutdown_requested.set()
        if self._listener.on_shutdown_request is not None:
            self._listener.on_shutdown_request()

    def _remove_leftovers(self) -> None:
        """Removes the local files of workers on this machine that were killed."""
        for root in spill_roots(self._tmp_dirs, tempfile.gettempdir()):
            for prefix in (STATE_FOLDER_PREFIX, SPILL_FOLDER_PREFIX, PLACE_FOLDER_PREFIX):
                remove_stale_folders(root, prefix)

    def _clean_workdir(self) -> None:
        """Removes the folder unless it is the user's, or holds a snapshot or the logs of a failed job."""
        if not self._owns_workdir:
            return
        leader = self._leader
        if not holds_snapshot(self.workdir) and (leader is None or leader.dispatcher.counts["failed"] == 0):
            shutil.rmtree(self.workdir, ignore_errors=True)


def holds_snapshot(folder: Path) -> bool:
    """True also where it cannot be looked at: what may be a snapshot is not removed. A folder that is gone
    meanwhile holds none."""
    unseen: list[OSError] = []
    found = any("_metadata" in files for _, _, files in os.walk(folder, onerror=unseen.append))
    return found or any(not isinstance(error, FileNotFoundError) for error in unseen)


_open_clusters: weakref.WeakSet[EmbeddedCluster] = weakref.WeakSet()


@atexit.register
def _close_open_clusters() -> None:
    """A cluster that was not closed must not leave processes behind."""
    for cluster in list(_open_clusters):
        logger.warning("event=cluster_closed_at_exit cluster=%s", cluster.id)
        cluster.close()
