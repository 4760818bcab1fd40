"""One run: a world, a cluster, its jobs; a phase with faults, then healing, then all jobs must finish."""

from __future__ import annotations

import logging
import shutil
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from unistream.base.config import Configuration
from unistream.base.ids import JobId, OperatorUid, TaskManagerId
from unistream.model.graph import SourceInfo
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.host import LostListener
from unistream.port.source import SplitDiscovery
from unistream.testing.sim.chaos import plan_faults
from unistream.testing.sim.checkers import Leases, Places, VisibleOutputs, Writes
from unistream.testing.sim.faults import NONE
from unistream.testing.sim.host import SimHost
from unistream.testing.sim.master import SimMaster
from unistream.testing.sim.network import Network
from unistream.testing.sim.pipeline import SimDiscovery
from unistream.testing.sim.results import RequestedWidths
from unistream.testing.sim.scenario import Scenario, SimPipeline, scenario_of
from unistream.testing.sim.shared_files import ROOT, parent_of
from unistream.testing.sim.shells import Cluster
from unistream.testing.sim.store import SimStore
from unistream.testing.sim.streams import Streams
from unistream.testing.sim.table import Table
from unistream.testing.sim.users import Chains, Job, Users
from unistream.testing.sim.variants import varied
from unistream.testing.sim.worker import SimWorker, Surroundings
from unistream.testing.sim.world import Process, Violation, World

LIVENESS_MS: Final = 150_000  # after healing: leases, timeouts and pauses of starts, one after the other
QUIET_MS: Final = 3_000  # after the end nothing may come back
LOOK_EVERY: Final = 16  # events


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOutcome:
    """Result of a seed. `violation` None: all invariants held."""

    seed: int
    violation: str | None
    trace_hash: str
    marks: frozenset[str]
    events: int
    virtual_ms: float
    scenario: str
    story: list[str] = field(default_factory=list)


def run_seed(seed: int, *, story: bool = False) -> SeedOutcome:
    """Runs one seed to its end, or to the first invariant that does not hold."""
    return outcome_of(SimRun(World(seed)), story=story)


def outcome_of(run: SimRun, *, story: bool) -> SeedOutcome:
    """Plays a run, and says how it went."""
    world = run.world
    error, trace = played(run)
    violation = None
    if error is not None:
        violation = f"{type(error).__name__}: {error}"
        world.log(f"VIOLATION {violation}")
    return SeedOutcome(
        seed=world.seed,
        violation=violation,
        trace_hash=world.trace_hash(),
        marks=frozenset(world.marks),
        events=world.events,
        virtual_ms=world.now,
        scenario=run.text(),
        story=[*world.story(), *trace] if story else [],
    )


def played(run: SimRun) -> tuple[Exception | None, list[str]]:
    """What `run` raises, which is its result, and where if it is no violation. Logs nothing."""
    logging.disable(logging.CRITICAL)
    try:
        run.go()
    except Exception as error:
        return error, [] if isinstance(error, Violation) else traceback.format_exc().splitlines()
    finally:
        logging.disable(logging.NOTSET)
        run.close()
    return None, []


class SimRun:
    """A cluster and its users."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scenario = self._draw()
        sharing = self.scenario.sharing
        if sharing is not None or any(p.blocking for job in self.scenario.jobs for p in job):
            world.scratch = tempfile.mkdtemp(prefix="unistream-sim-")
        pipelines = {OperatorUid(p.name): p for job in self.scenario.jobs for p in job}
        self._inputs = {p.contents.first: p.contents for p in pipelines.values()}
        self.store = SimStore(world)
        self.store.removal_ms = 0.0 if sharing is None else sharing.removal_ms
        self.outputs = self._watch(pipelines)
        self.table = Table(world, self.outputs)
        self.network = Network(world, self.scenario.bundle)
        self.requested = RequestedWidths()
        self.workers: dict[TaskManagerId, SimWorker] = {}
        self._hosts: list[SimHost] = []
        self.network.releases.is_settled = lambda tm, job: job in self.store.results or self._is_lost(tm)
        self.places = Places(world, self.scenario.slots, self._is_lost)
        self.streams = Streams(world, self._at_address)
        self.chains: dict[JobId, Chains] = {}
        self._cluster = Cluster(
            world=world,
            network=self.network,
            store=self.store,
            witness=self._create_witness(),
            leases=Leases(world),
            requested=self.requested,
            discover=self._discover,
            create_host=self._create_host,
            config=Configuration(
                {**self.scenario.config, "taskmanager.numberOfTaskSlots": str(self.scenario.slots)}
            ),
        )
        self.around = Surroundings(
            world=world,
            network=self.network,
            streams=self.streams,
            store=self.store,
            chains=self.chains,
            on_task=self.places.on_task,
            on_exit=self._worker_ended,
        )
        self._masters = 0
        self.leader: SimMaster | None = None
        self.users = self._invite()

    # --- replaced by runs of other jobs -----------------------------------------------------------

    def _draw(self) -> Scenario:
        return varied(scenario_of(self.world.random), self.world.seed)

    def _watch(self, pipelines: Mapping[OperatorUid, SimPipeline]) -> VisibleOutputs:
        return VisibleOutputs(self.world, pipelines)

    def _invite(self) -> Users:
        return Users(self)

    def _create_witness(self) -> Writes:
        return Writes(self.store, self.outputs)

    def text(self) -> str:
        """What the seed stands for."""
        return self.scenario.text()

    # --- phases -----------------------------------------------------------------------------------

    def go(self) -> None:
        """Safety phase, healing, liveness phase, final checks."""
        world, scenario = self.world, self.scenario
        world.log(scenario.text())
        world.faults = scenario.faults
        self.elect()
        for number, pipelines in enumerate(scenario.jobs):
            self.users.submit(f"request-{number}", pipelines, None)
        plan_faults(self)
        self.users.plan_requests()
        while world.step(scenario.faulty_ms):
            self.users.check_answers()
        self._heal()
        bound_ms = world.now + LIVENESS_MS
        while world.events % LOOK_EVERY or not self._is_over():
            if not world.step(bound_ms):
                raise Violation(
                    f"I3: not finished {LIVENESS_MS / 1000:.0f} s after healing: {self.users.text()}"
                )
            self.users.check_answers()
        until_ms = world.now + QUIET_MS
        while world.step(until_ms):
            pass
        self._judge()

    def close(self) -> None:
        """Removes the files of the run."""
        if self.world.scratch:
            shutil.rmtree(self.world.scratch, ignore_errors=True)

    def _heal(self) -> None:
        world = self.world
        world.log("--- healed")
        world.faults = NONE
        for worker in list(self.workers.values()):
            worker.resume()
        if self.leader is None:
            return
        if self.leader.process.is_paused:
            world.resume(self.leader.process)

    def _is_over(self) -> bool:
        if self.leader is None:
            return False
        for job in list(self.users.jobs):
            result = self.store.results.get(job.id)
            if result is None:
                if not self.users.keeps_up(job):
                    return False
                self.world.log(f"{job.id} keeps up with its input; it is cancelled")
                job.cancelled = True
                self.leader.dispatcher.cancel(job.id)
                return False
            if self._restarted(job, result):
                return False
        return True

    def _restarted(self, job: Job, result: str) -> bool:
        """Starts a stopped job again from its savepoint, once, and a canceled one from its newest checkpoint
        if checkpoints are kept. True: it has just been started."""
        if result == "CANCELED":
            sharing, kind = self.scenario.sharing, SnapshotKind.CHECKPOINT
            wanted = sharing is not None and sharing.restarts and not job.restarted
        else:
            kind = SnapshotKind.SUSPEND
            wanted = job.stop is kind and result == "FINISHED" and self.scenario.restarts
        newest = self.store.newest(job.id) if wanted else None
        if newest is None or newest.manifest.kind is not kind:
            return False
        self.users.restart(job, newest.directory)
        return True

    # --- leaders ----------------------------------------------------------------------------------

    def elect(self) -> None:
        """A new leader recovers all jobs without a result."""
        self._masters += 1
        epoch = self.store.claim()
        self.table.claim(epoch)
        process = Process(f"master-{self._masters}")
        self.world.log(f"leader {epoch} is elected", process.name)
        self.users.leader_changed()
        self.leader = SimMaster(self._cluster, epoch, process)
        self.leader.dispatcher.recover()
        if any(job.id not in self.store.results for job in self.users.jobs):
            self.world.sometimes("a job was recovered by another leader")

    # --- workers ----------------------------------------------------------------------------------

    def _create_host(self, on_lost: LostListener) -> SimHost:
        host = SimHost(self.around, self.workers, on_lost)
        self._hosts.append(host)
        return host

    def _worker_ended(self, task_manager: TaskManagerId, reason: str) -> None:
        self.world.log(f"{task_manager} is lost: {reason}", task_manager)
        worker = self.workers.pop(task_manager)
        self.places.removed(task_manager)
        for host in self._hosts:
            if task_manager in host.started:
                host.ended(task_manager, reason, noticed=not worker.is_registered)

    def _is_lost(self, task_manager: TaskManagerId) -> bool:
        """Its master considers it lost, or there is another master: it is a zombie."""
        if self.leader is None:
            return True
        return all(worker.id != task_manager for worker in self.leader.dispatcher.task_managers())

    def draining(self) -> list[TaskManagerId]:
        """Workers that are to end when their tasks have moved."""
        leader = self.leader
        return [] if leader is None else [w.id for w in leader.dispatcher.task_managers() if w.draining]

    def _at_address(self, address: str) -> SimWorker | None:
        return self.workers.get(TaskManagerId(address.removeprefix("sim://")))

    def _discover(self, info: SourceInfo) -> SplitDiscovery:
        first = info.options["first"]
        assert isinstance(first, int), "graph_of gives a number"
        return SimDiscovery(self._inputs[first], self.world)

    # --- the end ----------------------------------------------------------------------------------

    def _judge(self) -> None:
        self.world.sometimes("a run was completed")
        for job in self.users.jobs:
            result = self.store.results[job.id]
            self.world.log(f"{job.id} ended as {result}")
            if result == "FAILED":
                raise Violation(f"I3: {job.id} failed: {self._reason(job.id)}")
            if result == "CANCELED" and not job.cancelled:
                raise Violation(f"I12: {job.id} was canceled without a request")
            if not job.cancelled and job.stop is None:
                for pipeline in job.pipelines:
                    self.outputs.check_complete(OperatorUid(pipeline.name))
        self.users.check_answered()
        self._check_shared()
        for drained in self.draining():
            raise Violation(f"I22: {drained} is drained, nothing runs, and it has not ended")
        for worker, attempt in self.places.left_over(self.store.results):
            raise Violation(f"I14: {attempt} still runs on {worker}, {QUIET_MS} ms after the end of its job")
        for id_, living in self.workers.items():
            if living.stored and not self._is_lost(id_):
                attempt = living.stored[0][0]
                raise Violation(f"I20: {attempt} has ended, and its result is still stored on {id_}")

    def _check_shared(self) -> None:
        """I8, the other way round: files that no checkpoint refers to are removed. Orphans are not swept by a
        job with a checkpoint of unknown outcome, nor by a leader without shared files of its own."""
        shared, unsure = self.store.shared, {parent_of(directory) for directory in self.store.unsure}
        for parent in shared.parents:
            leaders = self.store.leaders[JobId(parent.removeprefix(ROOT))]
            swept = parent not in unsure and shared.is_known(parent, leaders)
            left = shared.left_over(parent, swept=swept)
            if left:
                raise Violation(
                    f"I8: no checkpoint refers to {left[:5]} in {parent}/shared, and they still exist"
                )

    def _reason(self, job: JobId) -> str:
        master = self.leader.masters().get(job) if self.leader is not None else None
        return "unknown" if master is None else str(master.journal.exceptions[:1])
