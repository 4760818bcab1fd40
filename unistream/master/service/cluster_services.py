"""The adapters of a cluster's master, chosen by the program that starts it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from unistream.base import config as options
from unistream.base import process_mark
from unistream.base.clock import Clock
from unistream.base.config import Configuration
from unistream.base.ids import JobId, TaskManagerId
from unistream.core.contract import JobSettings, RestorePoint
from unistream.core.job import JobMachine
from unistream.core.memory import memory_plan, slot_profile
from unistream.core.resource import BlockRules, ResourceMachine, ResourceRules, heartbeat_terms
from unistream.master.loop import Pool, ThreadLoop
from unistream.master.service import ports
from unistream.master.service.catalogue import Catalogue
from unistream.master.service.ports import MasterPorts
from unistream.master.service.resource_manager import HostFactory, SlotDecisions
from unistream.master.service.senders import Connect, Senders
from unistream.master.shown import ClusterPlaces
from unistream.master.store import JobStore, Leadership
from unistream.model.credentials import Credentials
from unistream.model.graph import JobGraph, SourceInfo
from unistream.port.engine import BatchEngine
from unistream.port.ha import HaStore
from unistream.port.host import HostTraits, WorkerHost
from unistream.port.metadata import ClusterRecord, MetadataStore
from unistream.port.retention import MetadataRetention
from unistream.port.source import SplitDiscovery
from unistream.port.storage import ArtifactStore, CheckpointStorage
from unistream.port.transport import ControlHandler, Server

IO_THREADS: Final = 4  # storage and discovery; none of it is on a loop's thread
STOP_THREADS: Final = 2


CreateMachine = Callable[[JobGraph, JobSettings, RestorePoint | None], ports.JobDecisions]
"""(graph, settings, where it starts from) -> what decides for a job. Raises ConfigError: it cannot run."""


class CreateResourceMachine(Protocol):
    """`create_resource_machine`, or one around it."""

    def __call__(
        self,
        config: Configuration,
        new_id: Callable[[], str],
        max_workers: int | None,
        traits: HostTraits | None = None,
    ) -> SlotDecisions: ...


def create_resource_machine(
    config: Configuration,
    new_id: Callable[[], str],
    max_workers: int | None,
    traits: HostTraits | None = None,
) -> ResourceMachine:
    """The machine of the cluster's slots, by its configuration and what its host can do.

    Raises:
        ConfigError: options of the workers' memory, or of heartbeats, contradict each other.
    """
    traits = traits or HostTraits()
    slots, heartbeat = config.get(options.TASK_SLOTS), heartbeat_terms(config)
    if traits.active:
        memory_plan(config, slots)  # else every worker would fail with this error in its log
    startup_ms = config.find(options.STANDALONE_STARTUP)
    return ResourceMachine(
        slots_per_worker=slots,
        heartbeat_timeout_ms=heartbeat.timeout_ms,
        idle_timeout_ms=config.get(options.WORKER_IDLE_TIMEOUT),
        start_timeout_ms=config.get(options.WORKER_START_TIMEOUT),
        max_workers=max_workers,
        new_id=lambda prefix: f"{prefix}-{new_id()[:12]}",
        rules=ResourceRules(
            active=traits.active,
            slot=slot_profile(config, slots),
            largest=traits.largest,
            startup_ms=config.get(options.SLOT_REQUEST_TIMEOUT) if startup_ms is None else startup_ms,
            probe_interval_ms=heartbeat.interval_ms,
            unreachable_after=max(0, config.get(options.HEARTBEAT_FAILURES)),
            block=BlockRules(
                failures=config.get(options.BLOCK_FAILURES),
                window_ms=config.get(options.BLOCK_WINDOW),
                block_ms=config.get(options.BLOCK_TIME),
                event_ms=heartbeat.timeout_ms,  # the last of its workers is noticed by then
                elsewhere=traits.many_machines,
            ),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterServices:
    """The adapters of one cluster. The dispatcher owns and closes all that they make.

    Attributes:
        target: "spark", "local" or "mini"; shown to people.
        checkpoint_root: fsspec URL for jobs whose configuration names none.
        savepoint_root: The same for savepoints.
        create_storage: Root URL -> storage.
        artifacts: Code of jobs, and what the next leader needs to know of them.
        log_dir: Local folder for workers' logs ("" = stderr).
        max_workers: Limit of workers at the same time; None: as many as the jobs need.
        traits: What the host can do.
        draw: Random numbers in [0, 1), which spread restarts in time.
        create_machine, create_resource_machine: Make the machines of a job and of the cluster's slots.
        goes_on: The command that starts the cluster again, with the jobs that it had; "": there is none.
        create_engine: Makes the engine of BATCH jobs, which runs where the host's workers do; None: there is
            none.
        retention: How much of the history of jobs is kept.
        places: Where it keeps what, for people.
        credentials: Makes what a worker shows that the host starts; None: all are on this host.
        exchange_token: With which tasks of a job read each other's rows.
        secret: Of the cluster: seals what it accepts.
        metadata_away: Why the database could not be asked when the master started; None: it answered.
    """

    target: str
    clock: Clock
    create_host: HostFactory
    create_server: Callable[[ControlHandler], Server]
    connect: Connect
    metadata: MetadataStore
    checkpoint_root: str
    savepoint_root: str
    create_storage: Callable[[str], CheckpointStorage]
    artifacts: ArtifactStore
    discover: Callable[[SourceInfo], SplitDiscovery]
    new_id: Callable[[], str]
    log_dir: str = ""
    goes_on: str = ""
    max_workers: int | None = None
    traits: HostTraits = field(default_factory=HostTraits)
    draw: Callable[[], float] = random.random
    create_machine: CreateMachine = JobMachine
    create_resource_machine: CreateResourceMachine = create_resource_machine
    create_engine: Callable[[WorkerHost], BatchEngine] | None = None
    retention: MetadataRetention = field(default_factory=MetadataRetention)
    places: ClusterPlaces = field(default_factory=ClusterPlaces)
    credentials: Callable[[TaskManagerId], Credentials | None] = lambda _worker: None
    exchange_token: Callable[[JobId], str] = lambda _job: ""
    secret: bytes = field(default=b"", repr=False)
    metadata_away: str | None = None


def master_ports(services: ClusterServices, ha: HaStore, leadership: Leadership | None = None) -> MasterPorts:
    """Threads, and connections to workers. `ha`: of this leader; `leadership`: None: one that lasts.

    Raises:
        Fenced, Unreachable, OutcomeUnknown: the id of the cluster cannot be read, or written for the first
            time.
    """
    jobs, clock = JobStore(ha, services.artifacts, services.secret), services.clock
    cluster = ClusterRecord(
        cluster=jobs.cluster(services.new_id),
        target=services.target,
        goes_on=services.goes_on,
        process=process_mark.process_name(),
        mark=process_mark.own(),
        started_ms=clock.wall_ms(),
        heartbeat_ms=clock.wall_ms(),
    )
    return MasterPorts(
        leadership=leadership or Leadership(ha),
        jobs=jobs,
        catalogue=Catalogue(
            services.metadata,
            ha.epoch,
            services.retention,
            clock,
            cluster=cluster,
            away=services.metadata_away,
        ),
        senders=Senders(services.connect),
        io=Pool("master-io", IO_THREADS),
        stopping=Pool("stop-worker", STOP_THREADS),
        create_loop=lambda name: ThreadLoop(name, services.clock),
    )
