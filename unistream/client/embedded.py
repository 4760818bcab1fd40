"""A cluster inside this process: the master here, TaskManagers where the target says.

It has an entry in `unistream.client.home`, by which `unistream list`, `stop` and so on in another terminal
find it. Its folder holds logs, checkpoints, savepoints and the metadata.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Final

from unistream.base.clock import SystemClock
from unistream.base.closing import Closing
from unistream.base.config import (
    CHECKPOINT_DIR,
    HA_STORAGE_DIR,
    HA_TYPE,
    JOBMANAGER_BIND,
    METADATA_URL,
    REST_ADDRESS,
    REST_PORT,
    SAVEPOINT_DIR,
    TMP_DIRS,
    Configuration,
)
from unistream.base.crash_points import refuse_outside_tests
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.ids import JobId
from unistream.client import home
from unistream.client.background import in_background
from unistream.client.embedded_job import EmbeddedJobClient
from unistream.client.hosts import (
    LOCAL,
    STANDALONE,
    control_port,
    engine_factory,
    host_factory,
    host_traits,
    workers_max,
)
from unistream.client.job_client import identified
from unistream.connector.registry import create_discovery
from unistream.ha.single_node import FolderElection
from unistream.host.echo import Echo, Show
from unistream.master.cluster_services import ClusterServices, master_ports
from unistream.master.dispatcher import Dispatcher
from unistream.master.job_setup import SubmitRequest
from unistream.master.resource_manager import HostFactory
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.net.address import TCP_SCHEME
from unistream.net.client import FlightControlClient
from unistream.net.folder import remove_stale_folders
from unistream.net.server import FlightServer
from unistream.port.ha import HaStore
from unistream.port.retention import Retention
from unistream.port.transport import ControlHandler, Server
from unistream.storage.artifacts import FsArtifactStore
from unistream.storage.fs import FsCheckpointStorage
from unistream.worker.exchange import (
    PLACE_FOLDER_PREFIX,
    SPILL_FOLDER_PREFIX,
    STATE_FOLDER_PREFIX,
    spill_roots,
)

REST_START_TIMEOUT_S: Final = 30.0  # above that of the server itself
LINGER_S: Final = 2.5  # a client that polls for a savepoint does so again within 2 s

logger = logging.getLogger(__name__)


class EmbeddedCluster(Closing):
    """Dispatcher, REST API and workers, from construction until `close`.

    Args:
        target: "local" (child processes) or "spark".
        config: Configuration of the cluster and, unless a job says otherwise, of its jobs.
        workdir: Folder for logs, checkpoints, savepoints, metadata; None: one below
            `$UNISTREAM_HOME/runs`, removed at the end if nothing in it is needed.
        create_host: Runs the workers, on this machine, instead of the target's host.
        max_workers: Limit of workers at the same time; None: what the target can host.
        rest: Serve the REST API and add an entry for other processes; needs the extra "server".
        on_shutdown_request: Called when a client requests the end of the cluster; must return at once.
        wait: False: the REST API starts in the background, so that a job can be submitted meanwhile (its
            libraries take half a second to load); call `ready` then.
        show: Called with the lines that workers of the local target print; None: they are only logged.
        session: It goes on when its job has ended; False: it is for one job.

    Raises:
        ConfigError: the configuration cannot work; nothing is left behind.
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
        on_shutdown_request: Callable[[], None] | None = None,
        wait: bool = True,
        show: Show | None = None,
        session: bool = True,
    ) -> None:
        refuse_outside_tests()
        _check_availability(config)
        if rest:
            require("server", "the REST API of a cluster")
        self.id = uuid.uuid4().hex
        self.target = target
        self._session = session
        self._close_lock = threading.Lock()
        self._cleanups: list[Callable[[], None]] = []
        self._tmp_dirs = config.find(TMP_DIRS)
        self._rest: Future[None] | None = None
        self.shutdown_requested = threading.Event()
        self._on_shutdown_request = on_shutdown_request
        self._owns_workdir = workdir is None
        self.workdir = Path(workdir) if workdir is not None else home.home() / "runs" / self.id
        self.rest_url: str | None = None
        self._max_workers = workers_max(target) if max_workers is None else max_workers
        self._echo = None if show is None else Echo(show)
        factory = create_host or host_factory(target, config, self._echo)
        self._create_engine = engine_factory(target, config) if create_host is None else None
        self._traits = host_traits(target if create_host is None else LOCAL, config)
        try:
            self._prepare_workdir()
            leader = self._lead()
            services = self._services(target, config, factory)
            self.dispatcher = Dispatcher(config, services, master_ports(services, leader))
            self._cleanups.append(self.dispatcher.close)
            self.dispatcher.recover()
            self._rest = in_background(lambda: self._serve(config), "rest-start") if rest else None
            if wait:
                self.ready()
        except BaseException:
            self.close()
            raise
        _open_clusters.add(self)

    @property
    def jobmanager(self) -> str | None:
        """``HOST:PORT`` where workers of a standalone cluster register; None: it is another target."""
        address = self.dispatcher.control_address
        return None if self._traits.active else address.removeprefix(TCP_SCHEME)

    def ready(self) -> None:
        """Returns when the REST API listens.

        Raises:
            ConfigError: its address cannot be used.
        """
        if self._rest is not None:
            self._rest.result(REST_START_TIMEOUT_S)

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
        """Raises NotFound."""
        self.dispatcher.job(job)
        return EmbeddedJobClient(self.dispatcher, job)

    def close(self) -> None:
        """Suspends the jobs, ends all workers and servers, removes the entry; safe to repeat. Checkpoints of
        suspended jobs stay, and a warning says from which one each can resume."""
        with contextlib.suppress(Exception):  # it was raised by `ready`
            self.ready()
        with self._close_lock:
            cleanups, self._cleanups = self._cleanups[::-1], []
            failure: Exception | None = None
            for cleanup in cleanups:
                try:
                    cleanup()
                except Exception as error:
                    logger.exception("event=cluster_cleanup_failed step=%r", cleanup)
                    failure = failure or error
        _open_clusters.discard(self)
        if failure is not None:
            raise failure

    # --- parts ------------------------------------------------------------------------------------

    def _prepare_workdir(self) -> None:
        try:
            for name in ("", "logs", "checkpoints", "savepoints", "artifacts"):
                (self.workdir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot use {self.workdir} as the cluster's folder: {error.strerror}"
            ) from error
        self._cleanups.append(self._remove_leftovers)
        self._election = FolderElection(self.workdir)
        self._cleanups.append(self._election.close)
        self._cleanups.append(self._clean_workdir)

    def _lead(self) -> HaStore:
        """Raises ConfigError: another cluster has the folder, or something else is in it."""
        granted = _Granted()
        self._election.start(granted)
        assert granted.store is not None, "who has the folder leads"
        return granted.store

    def _services(self, target: str, config: Configuration, factory: HostFactory) -> ClusterServices:
        url = config.find(METADATA_URL) or f"sqlite:///{self.workdir / 'metadata.db'}"
        ensure(url)
        artifacts = FsArtifactStore(str(self.workdir / "artifacts"))
        bind_host = config.get(JOBMANAGER_BIND)
        standalone = target == STANDALONE

        def serve(control: ControlHandler) -> Server:
            port = control_port(target, config)
            return FlightServer(bind_host, control=control, partitions=None, port=port, unix=not standalone)

        return ClusterServices(
            target=target,
            clock=SystemClock(),
            create_host=factory,
            create_server=serve,
            connect=FlightControlClient,
            metadata=SqlMetadataStore(url),
            checkpoint_root=config.find(CHECKPOINT_DIR) or str(self.workdir / "checkpoints"),
            savepoint_root=config.find(SAVEPOINT_DIR) or str(self.workdir / "savepoints"),
            create_storage=FsCheckpointStorage,
            artifacts=artifacts,
            discover=create_discovery,
            new_id=_new_id,
            log_dir=str(self.workdir / "logs"),
            goes_on=self._goes_on(target),
            max_workers=self._max_workers,
            traits=self._traits,
            create_engine=self._create_engine,
            retention=Retention.of(config),
        )

    def _goes_on(self, target: str) -> str:
        """A cluster for one job ends with it; what it leaves is for a new one."""
        known = self._session and not self._owns_workdir
        return f"unistream cluster start -t {target} --workdir {self.workdir}" if known else ""

    def _serve(self, config: Configuration) -> None:
        from unistream.rest.app import create_app
        from unistream.rest.server import RestServer
        from unistream.rest.triggers import Triggers

        triggers = Triggers(_new_id)
        app = create_app(
            self.dispatcher,
            clock=SystemClock(),
            version=version("unistream"),
            triggers=triggers,
            on_shutdown=self._request_shutdown,
        )
        server = RestServer(app, host=config.get(REST_ADDRESS), port=config.get(REST_PORT))
        self._cleanups.append(server.close)
        self.rest_url = server.url
        entry = home.register(
            self.id,
            url=server.url,
            target=self.target,
            now_ms=SystemClock().wall_ms(),
            session=self._session,
        )
        self._cleanups.append(lambda: entry.unlink(missing_ok=True))
        self._cleanups.append(lambda: triggers.linger(LINGER_S))

    def _request_shutdown(self) -> None:
        self.shutdown_requested.set()
        if self._on_shutdown_request is not None:
            self._on_shutdown_request()

    def _remove_leftovers(self) -> None:
        """Removes the local files of workers on this machine that were killed."""
        for root in spill_roots(self._tmp_dirs, tempfile.gettempdir()):
            for prefix in (STATE_FOLDER_PREFIX, SPILL_FOLDER_PREFIX, PLACE_FOLDER_PREFIX):
                remove_stale_folders(root, prefix)

    def _clean_workdir(self) -> None:
        """Removes the folder unless it is the user's, or holds a snapshot or the logs of a failed job."""
        if not self._owns_workdir:
            return
        holds_snapshot = next(self.workdir.rglob("_metadata"), None) is not None
        dispatcher: Dispatcher | None = getattr(self, "dispatcher", None)
        if not holds_snapshot and (dispatcher is None or dispatcher.counts["failed"] == 0):
            shutil.rmtree(self.workdir, ignore_errors=True)


class _Granted:
    """`port.ha.Contender` that leads until its process ends."""

    store: HaStore | None = None

    def granted(self, store: HaStore) -> None:
        self.store = store

    def suspended(self) -> None:
        raise AssertionError("nobody takes the lock of a folder away")

    def resumed(self) -> None:
        raise AssertionError("nobody takes the lock of a folder away")

    def revoked(self, reason: str) -> None:
        raise AssertionError(f"nobody takes the lock of a folder away: {reason}")


def _check_availability(config: Configuration) -> None:
    """Raises ConfigError for what no cluster does yet: to ignore it would be worse than to refuse it."""
    for option in (HA_TYPE, HA_STORAGE_DIR):
        value = config.find(option)
        if value not in (None, HA_TYPE.default):
            raise ConfigError(
                f"{option.key}: {value} is not possible yet: a cluster has one master, which finds its jobs "
                "in the cluster's folder when it is started again; remove the option"
            )


def _new_id() -> str:
    return uuid.uuid4().hex


_open_clusters: weakref.WeakSet[EmbeddedCluster] = weakref.WeakSet()


@atexit.register
def _close_open_clusters() -> None:
    """A cluster that was not closed must not leave processes behind."""
    for cluster in list(_open_clusters):
        logger.warning("event=cluster_closed_at_exit cluster=%s", cluster.id)
        cluster.close()
