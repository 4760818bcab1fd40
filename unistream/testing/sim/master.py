"""The master of a simulation: the real Dispatcher, JobMasters and ResourceManager, without their threads.

Their mailboxes are filled by events of the world and emptied by others, one message each. What is replaced is
what waits (`shells`). A defect that the product would log and survive, or end the job for, ends the run here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

from unistream.base.config import CLAIM_MODE
from unistream.base.ids import JobId, LeaderEpoch, LineageId, TaskManagerId
from unistream.core import contract
from unistream.core.contract import JobView, RestorePoint
from unistream.core.job import JobMachine, job_settings
from unistream.core.resource import ResourceCommand, ResourceEvent, Tick, heartbeat_terms
from unistream.master.catalogue import Catalogue
from unistream.master.cluster_services import ClusterServices
from unistream.master.dispatcher import Dispatcher
from unistream.master.job_master import JobIdentity, JobMaster, JobServices
from unistream.master.job_setup import JobSetup, SubmitRequest, create_resource_machine
from unistream.master.journal import Journal
from unistream.master.resource_manager import TICK_MS, ResourceManager, WorkerSettings
from unistream.master.senders import Senders
from unistream.master.worker_gateway import WorkerGateway
from unistream.port.host import HostTraits
from unistream.testing.sim.checkers import Lives
from unistream.testing.sim.network import Endpoint, SimSenders
from unistream.testing.sim.results import Barriers, Results, Widths
from unistream.testing.sim.shared_files import SharedNames
from unistream.testing.sim.shells import (
    Cluster,
    SimCatalogue,
    SimPool,
    SimQueue,
    WatchedMachine,
    WatchedResources,
)
from unistream.testing.sim.store import MasterStorage, Store
from unistream.testing.sim.world import Process, VirtualClock


class SimJobMaster(JobMaster):
    """One job under one leader."""

    def __init__(self, cluster: Cluster, process: Process, setup: JobSetup, **parts: Any) -> None:
        self._cluster = cluster
        self._process = process
        judges = parts.pop("judges")
        self._pool = parts["services"].io
        super().__init__(
            machine=WatchedMachine(setup.machine, cluster, judges, setup.job),
            **parts,
        )
        self._mailbox = SimQueue(cluster.world, process, self._one)

    def start(self) -> None:
        self._cluster.world.at(0.1, self._begin, self._process)

    def post(self, event: contract.Event) -> None:
        """The storage's answers take their time, too."""
        slow_ms = self._cluster.world.faults.store_slow_ms
        if slow_ms and isinstance(event, contract.ManifestDurable | contract.ManifestFailed):
            delay_ms = self._cluster.world.random.expovariate(1 / slow_ms)
            self._cluster.world.at(delay_ms, lambda: super(SimJobMaster, self).post(event), self._process)
        else:
            super().post(event)

    def _begin(self) -> None:
        self._conclude_if_ended(self._feed([contract.Started()]))

    def _one(self) -> None:
        if self._end is None:
            self._conclude_if_ended(self._step())

    def _conclude_if_ended(self, final: Sequence[contract.Command]) -> None:
        if self._end is not None:
            self._conclude(final)

    def _conclude(self, final: Sequence[contract.Command]) -> None:
        """It waits for what is removed."""
        removal_ms, self._cluster.store.removal_ms = self._cluster.store.removal_ms, 0.0
        self._pool.remove_now()
        super()._conclude(final)
        self._cluster.store.removal_ms = removal_ms

    def picture(self) -> JobView:
        """As the machine is now."""
        return self._machine.view()

    @property
    def result(self) -> str | None:
        """State in which it has ended."""
        return None if self._end is None else self._end.state


class SimResourceManager(ResourceManager):
    """Workers and slots under one leader."""

    def __init__(self, cluster: Cluster, process: Process, **parts: Any) -> None:
        self._cluster = cluster
        self._process = process
        self._watched = WatchedResources(parts.pop("machine"))
        super().__init__(machine=self._watched, **parts)
        self._stopping.close(1.0)
        self._stopping = SimPool(cluster.world, cluster.store, process)
        self._mailbox = SimQueue(cluster.world, process, self._one)

    def start(self) -> None:
        self._feed(Tick(self._clock.monotonic_ms()))
        self._tick_later()

    def _tick_later(self) -> None:
        self._cluster.world.at(TICK_MS, self._tick, self._process)

    def _tick(self) -> None:
        self._feed(Tick(self._clock.monotonic_ms()))
        self._tick_later()

    def _one(self) -> None:
        event, timer = self._mailbox.take(0)
        if timer is not None:
            self._stop_process(timer.task_manager)  # type: ignore[union-attr]  # the tick has its own clock
        elif event is not None:
            self._feed(cast(ResourceEvent, event))

    def _feed(self, event: ResourceEvent) -> None:
        """As the product's, but a defect is not survived."""
        self._defect: Exception | None = None
        super()._feed(event)
        defect = self._defect or self._watched.defect
        if defect is not None:
            raise defect

    def _perform(self, command: ResourceCommand) -> None:
        self._cluster.world.tell(f"resources: {type(command).__name__}")
        try:
            super()._perform(command)
        except Exception as error:
            self._defect = error
            raise

    def lost(self, task_manager: TaskManagerId, reason: str) -> None:
        """From the host."""
        self._on_lost(task_manager, reason)


class SimDispatcher(Dispatcher):
    """The job registry of one leader, over what is durable."""

    def __init__(self, cluster: Cluster, epoch: LeaderEpoch, number: int) -> None:
        world = cluster.world
        self._cluster = cluster
        self.process = Process(f"master-{number}")
        self.location = f"sim://master-{number}"
        self._epoch = epoch
        self._config = cluster.config
        self._clock = VirtualClock(world)
        self._storage = MasterStorage(cluster.store, epoch, cluster.witness)
        self._services = cast(ClusterServices, _Services(cluster, self._storage))
        self._catalogue = cast(Catalogue, SimCatalogue(cluster.store, epoch))
        self._senders = cast(Senders, SimSenders(world, cluster.network, self.process))
        self._io = SimPool(world, cluster.store, self.process, self._storage)
        self._jobs: dict[JobId, JobMaster] = {}
        self._artifacts = {}
        self._jobs_lock = threading.Lock()
        self._submit_lock = threading.Lock()
        self._closed = False
        self.resources = SimResourceManager(
            cluster,
            self.process,
            machine=create_resource_machine(self._config, self._services.new_id, None),
            create_host=cluster.create_host,
            senders=self._senders,
            jobs=self,
            settings=WorkerSettings(
                master=self.location,
                heartbeat=heartbeat_terms(self._config),
                config=self._config.to_dict(),
            ),
            clock=self._clock,
        )
        self._resources = self.resources
        self._gateway = WorkerGateway(
            resources=self._resources,
            find_job=self._jobs.get,
            artifact_of=self._artifacts.get,
            get_artifact=lambda _sha256: b"",
        )
        cluster.network.endpoints[self.location] = Endpoint(self.process, self.handle)
        self._resources.start()

    @property
    def epoch(self) -> LeaderEpoch:
        return self._epoch

    def masters(self) -> dict[JobId, SimJobMaster]:
        return cast(dict[JobId, SimJobMaster], self._jobs)

    def recover(self, request: SubmitRequest, job: JobId, lineage: LineageId) -> None:
        """Goes on with a job of an earlier leader, from its newest durable checkpoint."""
        store = self._cluster.store
        newest = store.newest(job)
        config = self._config.merged(request.graph.config).merged(request.config)
        restore = None
        if newest is not None:
            restore = RestorePoint(directory=newest.directory, manifest=newest.manifest, owned=True)
        elif request.savepoint is not None:
            manifest = self._storage.read_manifest(request.savepoint)
            claimed = config.get(CLAIM_MODE) == "CLAIM"
            restore = RestorePoint(directory=request.savepoint, manifest=manifest, owned=claimed)
        settings = job_settings(
            config,
            job=job,
            lineage=lineage,
            epoch=self._epoch,
            artifact="",
            checkpoint_root="sim://",
            draw=lambda: 0.5,
            first_checkpoint_id=first_id(store, job),
        )
        setup = JobSetup(
            job=job,
            lineage=lineage,
            restored=restore.manifest.restores_as if restore is not None and newest is None else None,
            graph=request.graph,
            machine=JobMachine(request.graph, settings, restore),
            storage=self._storage,
            savepoint_dir="sim://savepoints",
            artifact="",
        )
        self._start(setup)

    def _start(self, setup: JobSetup) -> None:
        cluster = self._cluster
        master = SimJobMaster(
            cluster,
            self.process,
            setup,
            judges=(
                Lives(cluster.world, cluster.store, setup.job, self._epoch),
                Results(cluster.world, cluster.store, setup.job, setup.graph),
                Barriers(cluster.world),
                Widths(cluster.world, cluster.store, setup.job, cluster.asked),
                *((SharedNames(cluster.world),) if cluster.store.removal_ms else ()),
            ),
            identity=JobIdentity(job=setup.job, lineage=setup.lineage, target="sim", graph=setup.graph),
            services=JobServices(
                clock=self._clock,
                io=self._io,
                senders=self._senders,
                storage=self._storage,
                savepoint_dir=setup.savepoint_dir,
                discover=cluster.discover,
                resources=self._resources.post,
                on_ended=self._on_ended,
            ),
            journal=Journal(setup.job, setup.graph, self._catalogue, self._clock, restored=setup.restored),
        )
        self._jobs[setup.job] = master
        self._artifacts[setup.job] = setup.artifact
        cluster.store.leaders.setdefault(setup.job, []).append(self._epoch)
        cluster.world.tell(f"{setup.job} starts under leader {self._epoch}")
        master.start()


def first_id(store: Store, job: JobId) -> Any:
    """One past the highest directory of an earlier leader."""
    return store.highest.get(job, 0) + 1


class _Services:
    """What of `ClusterServices` a dispatcher uses to check and start a job."""

    def __init__(self, cluster: Cluster, storage: MasterStorage) -> None:
        self._cluster = cluster
        self._storage = storage
        self.metadata = self
        self.checkpoint_root = "sim://"
        self.savepoint_root = "sim://savepoints"
        self.traits = HostTraits()
        self.draw = cluster.world.random.random

    def create_storage(self, _root: str) -> MasterStorage:
        return self._storage

    def new_id(self) -> str:
        return f"{self._cluster.store.new_name():06d}"

    def put_artifact(self, _content: bytes) -> str:
        return ""

    def job(self, job: JobId) -> str | None:
        """Of the metadata store: a job that has ended under any leader."""
        return self._cluster.store.results.get(job)
