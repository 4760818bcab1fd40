"""The master of a simulation: the real Dispatcher, JobMasters and ResourceManager, without their threads.

Events of the world fill their loops and take from them, one message each. What waits is a port (`shells`,
`network`). A defect that the product would log and survive, or fail the job for, ends the run.
"""

from __future__ import annotations

from typing import Any, cast

from unistream.base.config import CLAIM_MODE
from unistream.base.ids import JobId, LeaderEpoch, LineageId
from unistream.core.contract import JobSettings, RestorePoint
from unistream.core.job import JobMachine, job_settings
from unistream.master.cluster_services import ClusterServices, create_resource_machine
from unistream.master.dispatcher import Dispatcher
from unistream.master.job_master import JobMaster
from unistream.master.job_setup import JobSetup, SubmitRequest
from unistream.master.ports import MasterPorts
from unistream.model.graph import JobGraph, JobType
from unistream.port.metadata import MetadataStore
from unistream.port.transport import ControlClient
from unistream.testing.sim.checkers import Lives
from unistream.testing.sim.network import SimSenders, SimServer
from unistream.testing.sim.results import Barriers, Results, SharedNames, Widths
from unistream.testing.sim.shells import (
    Cluster,
    LoggedResources,
    SimCatalogue,
    SimLoop,
    SimPool,
    WatchedMachine,
)
from unistream.testing.sim.store import MasterStorage, Store
from unistream.testing.sim.world import Process, VirtualClock


class SimMaster:
    """One leader, on the durable state of the run."""

    def __init__(self, cluster: Cluster, epoch: LeaderEpoch, number: int) -> None:
        self._cluster = cluster
        self._storage = MasterStorage(cluster.store, epoch, cluster.witness)
        self.epoch = epoch
        self.process = Process(f"master-{number}")
        self.dispatcher = Dispatcher(cluster.config, self._services(), self._ports())

    def masters(self) -> dict[JobId, JobMaster]:
        return self.dispatcher.masters()

    def recover(self, request: SubmitRequest, job: JobId, lineage: LineageId) -> None:
        """Recovers a job of an earlier leader from its newest durable checkpoint."""
        store = self._cluster.store
        newest = store.newest(job)
        config = self._cluster.config.merged(request.graph.config).merged(request.config)
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
            epoch=self.epoch,
            artifact="",
            checkpoint_root="sim://",
            draw=lambda: 0.5,
            batch=request.graph.job_type is JobType.BATCH,
            first_checkpoint_id=first_id(store, job),
        )
        setup = JobSetup(
            job=job,
            lineage=lineage,
            restored=restore.manifest.restores_as if restore is not None and newest is None else None,
            graph=request.graph,
            machine=self._create_machine(request.graph, settings, restore),
            storage=self._storage,
            savepoint_dir="sim://savepoints",
            artifact="",
        )
        self.dispatcher.start(setup)

    def _create_machine(
        self, graph: JobGraph, settings: JobSettings, restore: RestorePoint | None
    ) -> WatchedMachine:
        cluster, job = self._cluster, settings.job
        judges = (
            Lives(cluster.store, job, self.epoch),
            Results(cluster.store, job, graph),
            Barriers(cluster.store, job),
            Widths(cluster.store, job, cluster.requested),
            *((SharedNames(cluster.store, job),) if cluster.store.removal_ms else ()),
        )
        return WatchedMachine(JobMachine(graph, settings, restore), cluster, judges, job)

    # --- services of the dispatcher -----------------------------------------------------------------

    def _services(self) -> ClusterServices:
        cluster = self._cluster
        return ClusterServices(
            target="sim",
            clock=VirtualClock(cluster.world),
            create_host=cluster.create_host,
            create_server=lambda control: SimServer(cluster.network, self.process, control),
            connect=_nobody,
            metadata=cast(MetadataStore, _Metadata(cluster.store)),
            checkpoint_root="sim://",
            savepoint_root="sim://savepoints",
            create_storage=lambda _root: self._storage,
            put_artifact=lambda _content: "",
            get_artifact=lambda _sha256: b"",
            discover=cluster.discover,
            new_id=lambda: f"{cluster.store.new_name():06d}",
            draw=cluster.world.random.random,
            create_machine=self._create_machine,
            create_resource_machine=lambda *how: LoggedResources(
                create_resource_machine(*how), cluster.world
            ),
        )

    def _ports(self) -> MasterPorts:
        world, store = self._cluster.world, self._cluster.store
        return MasterPorts(
            epoch=self.epoch,
            catalogue=SimCatalogue(store, self.epoch),
            senders=SimSenders(self._cluster.network, self.process),
            io=SimPool(store, self.process, self._storage),
            stopping=SimPool(store, self.process),
            create_loop=lambda _name: SimLoop(world, self.process),
            on_defect=_raised,
        )


def first_id(store: Store, job: JobId) -> Any:
    """The id after the highest one of an earlier leader."""
    return store.highest.get(job, 0) + 1


class _Metadata:
    """The part of a metadata store that a dispatcher reads: results of jobs under any leader."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def job(self, job: JobId) -> str | None:
        return self._store.results.get(job)


def _nobody(address: str) -> ControlClient:
    raise AssertionError(f"no task waits inside a call to {address} in a simulation")


def _raised(defect: Exception) -> None:
    raise defect
