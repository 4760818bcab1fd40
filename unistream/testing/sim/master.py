"""The master of a simulation: the real Dispatcher, JobMasters and ResourceManager, without their threads.

Events of the world fill their loops and take from them, one message each. What waits is a port (`shells`,
`network`). A defect that the product would log and survive, or fail the job for, ends the run.
"""

from __future__ import annotations

from typing import cast

from unistream.base.ids import JobId, LeaderEpoch
from unistream.core.contract import JobSettings, RestorePoint
from unistream.core.job import JobMachine
from unistream.master.cluster import Dispatcher
from unistream.master.job import JobMaster
from unistream.master.service import ClusterServices, MasterPorts, create_resource_machine
from unistream.master.store import JobStore, Leadership
from unistream.model.graph import JobGraph
from unistream.port.metadata import MetadataStore
from unistream.port.transport import ControlClient, ControlHandler
from unistream.testing.sim.checkers import Lives
from unistream.testing.sim.ha import SimArtifacts, SimHaStore
from unistream.testing.sim.network import SimSenders, SimServer
from unistream.testing.sim.results import Barriers, BlockingResults, RestoredWidths, SharedNames
from unistream.testing.sim.shells import (
    Cluster,
    LoggedResources,
    SimCatalogue,
    SimLoop,
    SimPool,
    WatchedMachine,
)
from unistream.testing.sim.store import MasterStorage
from unistream.testing.sim.world import Process, VirtualClock


class SimMaster:
    """One leader, on the durable state of the run."""

    def __init__(self, cluster: Cluster, epoch: LeaderEpoch, process: Process) -> None:
        self._cluster = cluster
        self._storage = self._create_storage(epoch)
        self._artifacts = SimArtifacts(cluster.store.pointers)
        self.epoch = epoch
        self.process = process
        self.dispatcher = Dispatcher(cluster.config, self._services(), self._ports())

    def masters(self) -> dict[JobId, JobMaster]:
        return self.dispatcher.masters()

    def _create_machine(
        self, graph: JobGraph, settings: JobSettings, restore: RestorePoint | None
    ) -> WatchedMachine:
        cluster, job = self._cluster, settings.job
        judges = (
            self._create_lives(job),
            BlockingResults(cluster.store, job, graph),
            Barriers(cluster.store, job),
            RestoredWidths(cluster.store, job, cluster.requested),
            *((SharedNames(cluster.store, job),) if cluster.store.removal_ms else ()),
        )
        return WatchedMachine(JobMachine(graph, settings, restore), cluster, judges, job)

    # --- replaced by masters that contend ---------------------------------------------------------

    def _create_storage(self, epoch: LeaderEpoch) -> MasterStorage:
        return MasterStorage(self._cluster.store, epoch, self._cluster.witness)

    def _create_server(self, control: ControlHandler) -> SimServer:
        return SimServer(self._cluster.network, self.process, control)

    def _create_lives(self, job: JobId) -> Lives:
        return Lives(self._cluster.store, job, self.epoch)

    # --- services of the dispatcher -----------------------------------------------------------------

    def _services(self) -> ClusterServices:
        cluster = self._cluster
        return ClusterServices(
            target="sim",
            clock=VirtualClock(cluster.world),
            create_host=cluster.create_host,
            create_server=self._create_server,
            connect=_nobody,
            metadata=cast(MetadataStore, _Metadata()),
            checkpoint_root="sim://",
            savepoint_root="sim://savepoints",
            create_storage=lambda _root: self._storage,
            artifacts=self._artifacts,
            discover=cluster.discover,
            new_id=lambda: f"{cluster.store.new_name():06d}",
            draw=cluster.world.random.random,
            create_machine=self._create_machine,
            create_resource_machine=lambda *how: LoggedResources(
                create_resource_machine(*how), cluster.world
            ),
        )

    def _ha(self) -> SimHaStore:
        store, witness = self._cluster.store, self._cluster.witness

        def ended(job: JobId, state: str) -> None:
            store.results[job] = state

        return SimHaStore(
            store.pointers,
            self.epoch,
            newest=lambda: store.epoch,
            on_pointer=lambda directory: witness.on_pointer(directory, self.epoch),
            on_result=ended,
            unsure=store.unsure,
        )

    def _ports(self) -> MasterPorts:
        world, store, ha = self._cluster.world, self._cluster.store, self._ha()
        return MasterPorts(
            leadership=Leadership(ha),
            jobs=JobStore(ha, self._artifacts),
            catalogue=SimCatalogue(store, self.epoch),
            senders=SimSenders(self._cluster.network, self.process),
            io=SimPool(store, self.process, self._storage),
            stopping=SimPool(store, self.process),
            create_loop=lambda _name: SimLoop(world, self.process),
            on_defect=raised,
        )


class _Metadata:
    """The part of a metadata store that a dispatcher reads: it has no record of any job."""

    def job(self, job: JobId) -> None:
        return None


def _nobody(address: str) -> ControlClient:
    raise AssertionError(f"no task waits inside a call to {address} in a simulation")


def raised(defect: Exception) -> None:
    """A defect ends the run."""
    raise defect
