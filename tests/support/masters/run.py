"""One run of several masters: they contend in a simulated ZooKeeper, and the leader has the jobs.

A phase with faults, healing, then a leader is killed once more; what was accepted has to end as requested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

import msgspec

from tests.support.masters.checkers import ContendedWrites, Election
from tests.support.masters.connection import LAYOUT
from tests.support.masters.faults import (
    Chaos,
    MasterFaults,
    draw_master_faults,
    drowsy,
    lasting,
    undisturbed,
)
from tests.support.masters.leader import ContendedMaster
from tests.support.masters.moments import (
    GRANTED,
    LISTS_LATE,
    RECOVERS,
    Moments,
    Strikes,
    draw_strikes,
    drowsy_strikes,
    strikes_after_rescales,
)
from tests.support.masters.outbox import Outbox
from tests.support.masters.place import Place
from tests.support.masters.users import PatientUsers, crossing, rescaled
from tests.support.masters.zookeeper import Ensemble
from unistream.base.ids import JobId, LeaderEpoch, TaskManagerId
from unistream.ha.names import RESERVED
from unistream.ha.zookeeper.store import HEADER
from unistream.model.stored_job import CheckpointPointer, StoredRequest, StoredResult, decode_stored
from unistream.port.ha import LeaderInfo
from unistream.testing.sim.chaos import plan_faults
from unistream.testing.sim.faults import NONE, Faults
from unistream.testing.sim.run import LIVENESS_MS, LOOK_EVERY, QUIET_MS, SeedOutcome, SimRun, outcome_of
from unistream.testing.sim.scenario import Scenario, bundle_of, scenario_of
from unistream.testing.sim.shells import Cluster
from unistream.testing.sim.users import Job
from unistream.testing.sim.world import Violation, World

CLOCKS: Final = 0.1  # how much faster or slower than others the clock of a machine is; the margin is 1/8
TAKEOVER_MS: Final = 2_500.0  # above the session timeout: a tick, an election of ZooKeeper, a look, recovery


def run_seed(seed: int, *, story: bool = False) -> SeedOutcome:
    """Runs one seed to its end, or to the first invariant that does not hold."""
    return outcome_of(ContendedRun(World(seed)), story=story)


class ContendedRun(SimRun):
    """A cluster with several masters, a ZooKeeper, and its users."""

    users: PatientUsers

    def __init__(self, world: World) -> None:
        random = Random(f"masters of {world.seed}")
        self.faults_of_masters: MasterFaults = draw_master_faults(random)
        self.timeout_ms: int = random.choice((1_200, 2_000, 2_000, 4_000))
        self._strikes: Strikes | None = None
        self._kills_again = random.random() < 0.5
        self._kills_at_result = random.random() < 0.4
        super().__init__(world)
        self.is_healed = False
        self.ensemble = Ensemble(world, self._on_commit)
        self.ensemble.slow_ms = self.faults_of_masters.slow_ms
        self.ensemble.read_ms = self.faults_of_masters.read_ms
        self.ensemble.lag_ms = self.faults_of_masters.lag_ms
        self.ensemble.lost = self.faults_of_masters.lost
        self.ensemble.late = self.faults_of_masters.late
        self.judge = Election(world, self.ensemble.tree, LAYOUT.election)
        self.outbox = Outbox(world)
        self.chaos: Chaos = Chaos(self, self.faults_of_masters)
        self._by_epoch: dict[LeaderEpoch, ContendedMaster] = {}
        self._ended_by: dict[JobId, LeaderEpoch] = {}
        self.moments = Moments(world, self._strikes, self.leading, self.timeout_ms)
        rates = [random.choice((1 - CLOCKS, 1.0, 1 + CLOCKS)) for _ in range(random.choice((2, 2, 3)))]
        self.members = [Place(self, number, rate) for number, rate in enumerate(rates)]

    # --- what replaces parts of a run with one master ---------------------------------------------

    def _draw(self) -> Scenario:
        scenario = scenario_of(self.world.random)
        faults = replace(scenario.faults, master_every_ms=0.0)
        random = Random(f"moments of {self.world.seed}")
        self._strikes = draw_strikes(random)
        faults_of_masters = drowsy(self.faults_of_masters, random)
        if faults_of_masters is not None:
            self.faults_of_masters, self.timeout_ms = faults_of_masters, 1_200
            self._strikes = drowsy_strikes(random)
            if self._strikes is LISTS_LATE:
                self.faults_of_masters = undisturbed(self.faults_of_masters)
            scenario, faults = lasting(scenario), Faults(store_slow_ms=random.uniform(200, 1_000))
        scenario = replace(scenario, faults=faults, bundle=bundle_of(self.world.seed))
        random = Random(f"requests of {self.world.seed}")
        scenario = rescaled(crossing(scenario, random), random)
        if scenario.rescales and faults_of_masters is None:
            self._strikes = strikes_after_rescales(random)
        return scenario

    def _invite(self) -> PatientUsers:
        return PatientUsers(self)

    def _create_witness(self) -> ContendedWrites:
        return ContendedWrites(self.store, self.outputs, self._pointed)

    def text(self) -> str:
        return (
            f"{len(self.members)} masters, sessions of {self.timeout_ms} ms "
            f"| {self.scenario.text()} | faults of masters: {self.faults_of_masters.text()}"
            f"{'' if self._strikes is None else f', {self._strikes.text()}'}"
        )

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    # --- phases -----------------------------------------------------------------------------------

    def go(self) -> None:
        """Safety phase, healing, liveness phase, final checks."""
        world, scenario = self.world, self.scenario
        world.log(self.text())
        world.faults = scenario.faults
        for member in self.members:
            world.at(world.between(0, 300), member.boot)
        for number, pipelines in enumerate(scenario.jobs):
            self.users.submit(f"request-{number}", pipelines, None)
        plan_faults(self)
        self.chaos.plan()
        self.users.plan_requests()
        world.at(scenario.faulty_ms, self._heal)
        while not self.is_healed:
            world.step(scenario.faulty_ms)
            self.users.check_answers()
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

    def _heal(self) -> None:
        world = self.world
        world.log("--- healed")
        self.is_healed = True
        self.moments.end()
        world.faults = NONE
        ensemble = self.ensemble
        ensemble.slow_ms = ensemble.read_ms = ensemble.lag_ms = ensemble.lost = ensemble.late = 0.0
        for server in ensemble.servers:
            if not server.is_up:
                ensemble.start(server)
            if server.is_alone:
                ensemble.join(server)
        for worker in list(self.workers.values()):
            worker.resume()
        for member in self.members:
            member.mend()
        then = self._once_more if self._kills_again else lambda: None
        self._expect_leader("healing", then, late_ms=self.timeout_ms)  # of answers that were late already

    def _once_more(self) -> None:
        """The leader is killed, and nothing else is wrong."""

        def kill() -> None:
            leader = self.leading()
            if leader is not None:
                self.world.sometimes("a leader was killed in a healthy cluster")
                leader.kill()
                self._expect_leader("the leader was killed", lambda: None, but=self.found)

        self.world.at(self.world.between(100, 4_000), kill)

    def _expect_leader(
        self, since: str, then: Callable[[], None], but: ContendedMaster | None = None, late_ms: float = 0.0
    ) -> None:
        """I18: another one leads soon, and is found."""
        bound_ms = self.timeout_ms + late_ms + TAKEOVER_MS
        until_ms = self.world.now + bound_ms

        def look() -> None:
            found = self.found
            if found is not None and found is not but and found.leads:
                then()
            elif self.world.now > until_ms:
                raise self.world.violated(f"I18: nobody leads {bound_ms:.0f} ms after {since}")
            else:
                self.world.at(20, look)

        look()

    def _is_over(self) -> bool:
        if self.found is None:
            return False
        for job in list(self.users.jobs):
            result = self.store.results.get(job.id)
            if result is None:
                if self.users.keeps_up(job):
                    self.world.log(f"{job.id} keeps up with its input; it is cancelled")
                    self.users.cancel(job)
                return False
            self._look_how_ended(job)
            if self._restarted(job, result):
                return False
        return True

    def _look_how_ended(self, job: Job) -> None:
        newest = self.store.newest(job.id)
        if newest is not None and newest.manifest.kind.is_synchronous and not job.restarted:
            job.stop = newest.manifest.kind

    def _judge(self) -> None:
        for job in self.users.jobs:
            if job.stop is None:
                self._look_how_ended(job)
            accepted = self.users.cancelled.get(job.id)
            result = self.store.results[job.id]
            if accepted is not None and result != "CANCELED" and self._ended_by[job.id] > accepted:
                raise Violation(
                    f"I3: {job.id} was cancelled under leader {accepted}, and ended as {result} under "
                    f"{self._ended_by[job.id]}"
                )
        self.outbox.check()
        super()._judge()

    # --- leaders ----------------------------------------------------------------------------------

    @property
    def found(self) -> ContendedMaster | None:
        """The leader as ZooKeeper has it published, if its process lives."""
        leader = self.leader
        assert leader is None or isinstance(leader, ContendedMaster)
        return leader if leader is not None and leader.machine.is_alive else None

    @property
    def newest_epoch(self) -> LeaderEpoch:
        return self.judge.newest

    def leading(self) -> Place | None:
        """Where the first of the queue is."""
        process = self.judge.process_of(self.judge.first())
        return next((member for member in self.members if member.machine.name == process), None)

    def granted(self, process: str, epoch: LeaderEpoch) -> None:
        """It is the leader, and begins now."""
        self.judge.granted(process, epoch)
        has_jobs = any(job.id not in self.store.results for job in self.users.jobs if self._is_stored(job.id))
        self.moments.comes(GRANTED)
        if has_jobs:
            self.moments.comes(RECOVERS)

    def busy_ms(self) -> float:
        """How long it takes now until the pool of a master begins with something."""
        mean_ms = 0.0 if self.is_healed else self.faults_of_masters.busy_ms
        return self.world.random.expovariate(1 / mean_ms) if mean_ms else 0.0

    def led_by(self, master: ContendedMaster) -> None:
        """It has begun to lead; nobody finds it yet."""
        self._by_epoch[master.epoch] = master
        self.store.epoch = max(self.store.epoch, master.epoch)
        if any(job.id not in self.store.results for job in self.users.jobs):
            self.world.sometimes("a job was recovered by another leader")

    def kill_workers(self) -> None:
        for worker in list(self.workers.values()):
            worker.die("its machine is restarted")

    def remove_leader(self) -> None:
        """Its node in the election is removed by hand."""
        path = self.judge.first_node()
        if path is not None:
            self.ensemble.remove(path)

    # --- what is durable --------------------------------------------------------------------------

    def _on_commit(self, changed: tuple[str, ...], epoch: LeaderEpoch | None) -> None:
        for path in changed:
            name = path.removeprefix(f"{LAYOUT.folder}/")
            top, _, rest = name.partition("/")
            if top == "leader":
                self._published()
            elif top and top not in RESERVED:  # else of the election, or made by `folder.prepare`
                self.judge.wrote(name, epoch)
                assert epoch is not None, "the judge refuses it"
                self.moments.comes(top if top == "results" else rest.partition("/")[2].partition("/")[0])
                if top == "results":
                    self._has_result(name, epoch)
                elif rest.partition("/")[2].startswith("checkpoints/"):
                    self._points(name, epoch)

    def _published(self) -> None:
        node = self.ensemble.tree.now(LAYOUT.leader)
        before = self.leader
        if node is None:
            self.leader = None
        else:
            info = msgspec.json.decode(node.data, type=LeaderInfo)
            if info.epoch not in self._by_epoch:
                raise self.world.violated(f"I18: leader {info.epoch} is published, and has not begun")
            self.judge.published(info.epoch, node.owner)
            self.leader = self._by_epoch[info.epoch]
        if self.leader is not before and self.leader is not None:
            self.users.leader_changed()

    def _value(self, name: str) -> bytes | None:
        node = self.ensemble.tree.now(f"{LAYOUT.folder}/{name}")
        return None if node is None or not node.data else node.data.removeprefix(HEADER)

    def _has_result(self, name: str, epoch: LeaderEpoch) -> None:
        value = self._value(name)
        if value is None:
            return
        result = decode_stored(value, StoredResult, name)
        if result.job not in self.store.results:
            self._at_result()
        known = self.store.results.setdefault(result.job, result.state)
        self._ended_by.setdefault(result.job, epoch)
        if known != result.state:
            raise self.world.violated(f"I15: {result.job} has ended as {known}, and then as {result.state}")

    def _at_result(self) -> None:
        """In some runs the leader is killed before what its first job has left is removed."""
        leader = self.leading()
        if self._kills_at_result and leader is not None:
            self._kills_at_result = False

            def kill() -> None:
                if leader.is_up:
                    self.world.sometimes("a leader was killed when a job had just ended")
                    leader.kill()

            self.world.at(self.world.between(0, 40), kill)

    def _points(self, name: str, epoch: LeaderEpoch) -> None:
        value = self._value(name)
        if value is not None:
            pointer = decode_stored(value, CheckpointPointer, name)
            self.store.pointers.pointed.add(pointer.directory)
            self._cluster.witness.on_pointer(pointer.directory, epoch)

    def _pointed(self) -> set[str]:
        """Directories that pointers name now."""
        found = set()
        for path in self.ensemble.tree.paths():
            name = path.removeprefix(f"{LAYOUT.folder}/")
            if "/checkpoints/" in name:
                value = self._value(name)
                if value is not None:
                    found.add(decode_stored(value, CheckpointPointer, name).directory)
        return found

    def _is_stored(self, job: JobId) -> bool:
        return self._value(f"jobs/{job}/job") is not None

    def stored_request(self, job: JobId) -> StoredRequest:
        """What was accepted for a job, and is to be done."""
        name = f"jobs/{job}/request"
        value = self._value(name)
        return StoredRequest() if value is None else decode_stored(value, StoredRequest, name)

    def _is_lost(self, task_manager: TaskManagerId) -> bool:
        found = self.found
        return found is None or not found.leads or super()._is_lost(task_manager)
