"""What a cluster's process has only while it leads: the dispatcher with its control server and workers, the
REST API, and the entry by which other processes of this machine find it."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unistream.base.awake_clock import AwakeClock
from unistream.base.clock import Clock, SystemClock
from unistream.base.closing import Cleanups, Closing
from unistream.base.config import (
    ALLOWED_PATHS,
    CHECKPOINT_DIR,
    JOBMANAGER_BIND,
    JOBMANAGER_PORT,
    REST_RATE,
    SAVEPOINT_DIR,
    Configuration,
)
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.releases import own_release
from unistream.client.embedded.cluster_trust import ClusterTrust
from unistream.client.embedded.contending import OnEnd, Term
from unistream.client.embedded.hosts import STANDALONE, control_port
from unistream.client.embedded.job_folder import claim
from unistream.client.machine import home
from unistream.client.machine.background import awaited, in_background
from unistream.connector.catalogue import create_discovery
from unistream.core.access import exchange_token, worker_secret
from unistream.master.cluster import Dispatcher
from unistream.master.service import ClusterServices, HostFactory, master_ports
from unistream.master.shown import ClusterPlaces
from unistream.master.store import JobStore, TokenStore
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.credentials import Credentials
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer
from unistream.port.engine import BatchEngine
from unistream.port.ha import LeaderElection, LeaderInfo
from unistream.port.host import HostTraits, WorkerHost
from unistream.port.retention import MetadataRetention
from unistream.port.transport import ControlHandler, Server
from unistream.rest.listener import Listener, ServedOnDemand
from unistream.storage.artifacts import FsArtifactStore
from unistream.storage.cluster_secret import begin_sealing, cluster_secret
from unistream.storage.fs import FsCheckpointStorage

if TYPE_CHECKING:
    from unistream.client.embedded.master_server import MasterServer
    from unistream.rest.access import AccessControl
    from unistream.rest.server import RestServer
    from unistream.rest.standby import RestApp
    from unistream.rest.triggers import Triggers

REST_START_TIMEOUT_S: Final = 90.0  # above that of the server itself
LINGER_S: Final = 2.5  # a client that polls for a savepoint does so again within 2 s

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPlan:
    """How a process leads; the same each time that it does.

    Attributes:
        id: Of the process.
        workdir: On this machine: logs, and what is not stored elsewhere.
        jobs: URL of the folder of submitted jobs; None: in `workdir`.
        goes_on: The command that starts the cluster again; "": there is none.
        session: It goes on when its job has ended.
        rest: Serve the REST API, and add an entry for other processes.
        trust: What its servers and workers show.
        server: That of one of several masters, which listens before and after, too; None: it has its own.
        on_shutdown_request: Called when a client requests the end of the cluster; returns at once.
        on_end: Called with the jobs when this has ended and still leads.
    """

    id: str
    target: str
    config: Configuration
    workdir: Path
    jobs: str | None
    goes_on: str
    session: bool
    rest: bool
    trust: ClusterTrust
    server: MasterServer | None
    create_host: HostFactory
    create_engine: Callable[[WorkerHost], BatchEngine] | None
    traits: HostTraits
    max_workers: int | None
    on_shutdown_request: Callable[[], None]
    on_end: Callable[[JobStore], None]

    @property
    def root(self) -> str:
        """The root of artifacts, checkpoints and savepoints."""
        return self.jobs or str(self.workdir)

    @property
    def artifacts(self) -> str:
        """The folder of submitted jobs and their code."""
        return f"{self.root}/artifacts"


class LeaderProcess(Closing):
    """See the module. From construction, with its jobs in recovery, until `close` or `step_down`.

    Attributes:
        rest_url: Of its REST API, once that listens.

    Raises:
        ConfigError: it can never lead with this configuration.
        Unreachable, Transient, OutcomeUnknown, Fenced: not now.
    """

    def __init__(self, plan: LeaderPlan, term: Term, election: LeaderElection) -> None:
        self._plan = plan
        self._election = election
        self._epoch = term.store.epoch
        self._cleanups = Cleanups()
        self._close_lock = threading.Lock()
        self._rest: Future[None] | None = None
        clock = AwakeClock()
        self._cleanups.add(clock.close)
        self.rest_url: str | None = None
        self._stepped_down_for: str | None = None
        try:
            jobs = JobStore(term.store, FsArtifactStore(plan.artifacts))
            self._cleanups.add(lambda: plan.on_end(jobs) if term.store.leads() else None)
            claim(term.store, jobs, plan.jobs)
            trust = plan.trust
            trust.look_again()
            secret = cluster_secret(plan.root, key=trust.seal_key)
            self._tokens = TokenStore(term.store, SystemClock(), secret)
            asks = trust.asks_for_tokens and not trust.encrypts_workers
            self._workers = worker_secret(secret) if asks and plan.target == STANDALONE else ""
            services = _services(plan, clock, election, self._workers, secret)
            ports = master_ports(services, term.store, term.leadership)
            begin_sealing(plan.root, ports.jobs.seal_all, key=trust.seal_key)
            self.dispatcher = Dispatcher(plan.config, services, ports)
            self._cleanups.add(self._end_dispatcher)
            self.dispatcher.recover()
            self._rest = in_background(self._serve, "rest-start")
        except BaseException:
            self.close()
            raise

    def ready(self) -> None:
        """Returns when it is reached by clients and workers.

        Raises:
            ConfigError: its address cannot be used.
            Unreachable: it does not listen in time.
        """
        if self._rest is not None:
            try:
                awaited(self._rest, REST_START_TIMEOUT_S, "the REST API of this cluster to listen")
            except TimeoutError as error:
                raise Unreachable(f"{error}: is this machine overloaded? Nothing was started") from error

    def end(self, reason: str | None, on_end: OnEnd) -> None:
        """Steps down for a `reason`, else closes; returns at the end. See `contending.Leader`."""
        failure: Exception | None = None
        try:
            if reason is None:
                self.close()
            else:
                self.step_down(reason)
        except Exception as error:
            failure = error
        on_end(failure)

    def step_down(self, reason: str) -> None:
        """Leaves all jobs to the next leader, whom clients look for at once; its workers and servers end."""
        logger.warning("event=leader_steps_down epoch=%s reason=%r", self._epoch, reason)
        self._stepped_down_for = reason
        self.close()

    @property
    def has_stepped_down(self) -> bool:
        """Its jobs are the next leader's. (After `close` they can still be looked at here.)"""
        return self._stepped_down_for is not None

    def _end_dispatcher(self) -> None:
        if self._stepped_down_for is None:
            self.dispatcher.close()
        else:
            self.dispatcher.step_down(self._stepped_down_for)

    def close(self) -> None:
        """Suspends the jobs, ends all workers and servers, removes the entry; safe to repeat. All of it is
        done although something fails; raises the last failure."""
        with contextlib.suppress(Exception):  # it was raised by `ready`
            self.ready()
        with self._close_lock:
            self._cleanups.close()

    def _serve(self) -> None:
        """Makes the leader known; with REST, once that listens."""
        if self._plan.rest:
            self._serve_rest()
        standalone = self._plan.target == STANDALONE
        control = self.dispatcher.control_address if standalone else None
        self._election.publish(
            LeaderInfo(
                epoch=self._epoch,
                cluster=self._plan.id,
                rest_url=self.rest_url,
                control=control,
                jobs=self._plan.jobs or "",
                version=own_release().version,
            )
        )

    def _serve_rest(self) -> None:
        from unistream.rest.access import AccessControl
        from unistream.rest.allowed_paths import AllowedPaths
        from unistream.rest.audit import AuditLog
        from unistream.rest.triggers import Triggers

        plan, config = self._plan, self._plan.config
        own = [str(plan.workdir), plan.root, *filter(None, map(config.find, (CHECKPOINT_DIR, SAVEPOINT_DIR)))]
        paths = AllowedPaths(own, config.find(ALLOWED_PATHS))
        audit = AuditLog(plan.workdir / "audit")
        rate, required = config.get(REST_RATE), plan.trust.asks_for_tokens
        access = AccessControl(self._tokens, SystemClock(), paths, audit, rate=rate, required=required)
        triggers = Triggers(_new_id)
        create_app = partial(self._create_app, triggers, access)
        if plan.server is not None:
            self._enter(plan.server.url, access.owner_token)
            plan.server.lead(create_app())
            self._cleanups.add(plan.server.stand_by)
        else:
            listener = plan.trust.listener()
            self._cleanups.add(listener.close)
            self._enter(listener.url, access.owner_token)
            self._cleanups.add(_served(listener, create_app, on_demand=not plan.session).close)
        self._cleanups.add(lambda: None if self.has_stepped_down else triggers.linger(LINGER_S))

    def _enter(self, url: str, token: str) -> None:
        """Lets clients of this machine find it: before it answers, since they present the token."""
        plan = self._plan
        self.rest_url = url
        entry = home.register(
            plan.id,
            url=url,
            target=plan.target,
            now_ms=SystemClock().wall_ms(),
            session=plan.session,
            cluster=self.dispatcher.cluster,
            token=token,
            control=self.dispatcher.control_address if self._workers else "",
            workers=self._workers,
            roots=plan.trust.roots,
        )
        self._cleanups.add(lambda: entry.unlink(missing_ok=True))

    def _create_app(self, triggers: Triggers, access: AccessControl) -> RestApp:
        from unistream.rest.app import create_app

        return create_app(
            self.dispatcher,
            clock=SystemClock(),
            version=own_release().version,
            triggers=triggers,
            on_shutdown=self._plan.on_shutdown_request,
            access=access,
            issuer=self._plan.trust,
        )


def _served(
    listener: Listener, create_app: Callable[[], RestApp], *, on_demand: bool
) -> RestServer | ServedOnDemand:
    """What answers there. `on_demand`: once the first client comes."""

    def serve(listener: Listener) -> RestServer:
        from unistream.rest.server import RestServer

        return RestServer(create_app(), listener)

    return ServedOnDemand(listener, serve) if on_demand else serve(listener)


def _services(
    plan: LeaderPlan,
    clock: Clock,
    election: LeaderElection,
    workers: str,
    secret: bytes,
) -> ClusterServices:
    """`clock`: of the master's timeouts; `workers`: what standalone workers present; `secret`: of the
    cluster."""
    config = plan.config
    url = home.metadata_url(config)
    away = _prepare_metadata(url)
    credentials = plan.trust.master()
    return ClusterServices(
        target=plan.target,
        clock=clock,
        create_host=plan.create_host,
        create_server=partial(_serve_workers, plan, workers, credentials),
        connect=partial(FlightControlClient, credentials=credentials),
        credentials=plan.trust.worker,
        exchange_token=partial(exchange_token, secret),
        secret=secret,
        metadata=SqlMetadataStore(url, is_ensured=away is None),
        metadata_away=away,
        checkpoint_root=config.find(CHECKPOINT_DIR) or f"{plan.root}/checkpoints",
        savepoint_root=config.find(SAVEPOINT_DIR) or f"{plan.root}/savepoints",
        create_storage=FsCheckpointStorage,
        artifacts=FsArtifactStore(plan.artifacts),
        discover=create_discovery,
        new_id=_new_id,
        log_dir=str(plan.workdir / "logs"),
        goes_on=plan.goes_on,
        max_workers=plan.max_workers,
        traits=plan.traits,
        create_engine=plan.create_engine,
        retention=MetadataRetention.of(config),
        places=ClusterPlaces(
            folder=str(plan.workdir),
            jobs=plan.root,
            metadata=url,
            from_environment=home.is_named(),
            contenders=election.contenders,
        ),
    )


def _prepare_metadata(url: str) -> str | None:
    """None: the schema is current. A text: why the database cannot be asked now; a master starts all the
    same, since its jobs need none of it, and writes their history once it answers. Raises ConfigError as
    `ensure`."""
    try:
        ensure(url)
    except Unreachable as error:
        logger.warning("event=metadata_away reason=%r", str(error))
        return str(error)
    return None


def _new_id() -> str:
    return uuid.uuid4().hex


def _serve_workers(
    plan: LeaderPlan, secret: str, credentials: Credentials | None, control: ControlHandler
) -> Server:
    """The server that workers call. Raises ConfigError: it cannot listen."""
    port = control_port(plan.target, plan.config)
    try:
        return FlightServer(
            plan.config.get(JOBMANAGER_BIND),
            control=control,
            partitions=None,
            ports=(port,) if port else (),
            unix=plan.target != STANDALONE or credentials is not None,
            secret=secret,
            credentials=credentials,
            host=plan.trust.master_host,
        )
    except ConfigError as error:
        keys = f"{JOBMANAGER_BIND.key} and {JOBMANAGER_PORT.key}"
        raise ConfigError(f"the JobManager {error}: {keys} say where") from error
