"""What a process has only while it leads: in place of `client.embedded.leader_process`, which listens.

When it begins and ends `client.embedded.contending` says, as for users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from tests.support.masters.checkers import ContendedLives, Decisions, Election
from tests.support.masters.machine import Machine
from tests.support.masters.outbox import Outbox, OutboxRecords
from tests.support.masters.ports import DeferredPool, GatedLoop, JudgedSenders, UnfencedStorage
from unistream.base.errors import UnistreamError, Unreachable
from unistream.base.ids import JobId, LeaderEpoch
from unistream.client.embedded.contending import OnEnd, Term
from unistream.core.contract import SuspendRequested
from unistream.master.job.job_master import JobMaster
from unistream.master.service.ports import MasterPorts
from unistream.master.store.job_store import JobStore
from unistream.port.ha import LeaderElection, LeaderInfo
from unistream.port.transport import ControlHandler
from unistream.testing.sim.checkers import Lives
from unistream.testing.sim.master import SimMaster, raised
from unistream.testing.sim.network import SimSenders, SimServer
from unistream.testing.sim.shells import Cluster, SimLoop, SimPool
from unistream.testing.sim.store import MasterStorage
from unistream.testing.sim.world import World

POLL_MS: Final = 20.0
END_MS: Final = 20_000.0  # above what a leader needs to end its jobs


class Site(Protocol):
    """The run."""

    world: World
    judge: Election
    outbox: Outbox

    @property
    def cluster(self) -> Cluster: ...

    def led_by(self, master: ContendedMaster) -> None:
        """It has begun to lead; nobody finds it yet."""

    def granted(self, process: str, epoch: LeaderEpoch) -> None:
        """It is the leader, and begins now."""

    def busy_ms(self) -> float:
        """How long it takes now until the pool of a master begins with something."""


class ContendedMaster(SimMaster):
    """One attempt of a machine to lead. Implements `client.embedded.contending.Leader`.

    Attributes:
        is_closing: Its users do not reach it any more.
        is_over: Nothing is left of it.
    """

    def __init__(self, site: Site, machine: Machine, term: Term, before_storage: Callable[[], None]) -> None:
        self._site = site
        self.machine = machine
        self._before_storage = before_storage
        self.is_closing = False
        self.is_over = False
        self._store = term.store
        self.leadership = term.leadership
        self._decisions = Decisions(site.judge, term.store, term.leadership, machine.name)
        super().__init__(site.cluster, term.store.epoch, machine.threads["serve"])

    @property
    def leads(self) -> bool:
        return self.leadership.over is None and self._store.leads()

    def end(self, reason: str | None, on_end: OnEnd) -> None:
        """Ends it once its jobs have ended, for which no loop of Python may wait."""
        self.is_closing = True
        why = reason or "it was asked to end"
        if reason is None:
            self.leadership.end_unless_leading(why)
        for master in self._open():
            master.suspend(SuspendRequested(reason=why))
        world, jobs = self._site.world, self.machine.threads["jobs"]
        until_ms = world.now + END_MS

        def look() -> None:
            if self._open():
                if world.now > until_ms:
                    raise world.violated(f"I18: {self.machine.name} steps down, and its jobs do not end")
                world.at(POLL_MS, look, jobs)
                return
            if reason is None:
                self.dispatcher.close()
            else:
                self.dispatcher.step_down(reason)
            self.is_over = True
            on_end(None)

        look()

    def _open(self) -> list[JobMaster]:
        return [master for master in self.masters().values() if not master.wait(0)]

    # --- ports ------------------------------------------------------------------------------------

    def _create_storage(self, epoch: LeaderEpoch) -> MasterStorage:
        return UnfencedStorage(self._cluster.store, epoch, self._cluster.witness, self._before_storage)

    def _create_server(self, control: ControlHandler) -> SimServer:
        return SimServer(
            self._cluster.network, self.process, control, name=f"{self.machine.name}-{self._store.epoch}"
        )

    def _create_lives(self, job: JobId) -> Lives:
        return ContendedLives(self._cluster.store, job, self.epoch, lambda: self.leads)

    def _ports(self) -> MasterPorts:
        world, store = self._cluster.world, self._cluster.store
        jobs, serve = self.machine.threads["jobs"], self.machine.threads["serve"]

        def create_loop(name: str) -> SimLoop[object, object]:
            if name == "resource-manager":
                return SimLoop(world, serve)
            return GatedLoop(world, jobs, self._decisions)

        return MasterPorts(
            leadership=self.leadership,
            jobs=JobStore(self._store, self._artifacts),
            catalogue=OutboxRecords(store, self.epoch, self._site.outbox, serve),
            senders=JudgedSenders(SimSenders(self._cluster.network, serve), self._decisions),
            io=DeferredPool(store, jobs, self._storage, self._site.busy_ms),
            stopping=SimPool(store, serve),
            create_loop=create_loop,
            on_defect=raised,
        )


class Leaders:
    """The leaders of one process, which follow each other: `begin` and `on_failure` of `Contending`."""

    def __init__(
        self, site: Site, machine: Machine, election: LeaderElection, before_storage: Callable[[], None]
    ) -> None:
        self._site = site
        self._world = site.world
        self._machine = machine
        self._election = election
        self._before_storage = before_storage
        self._last: ContendedMaster | None = None

    def begin(self, term: Term) -> ContendedMaster:
        """A master that recovers all jobs, and that others find."""
        self._check_last(term)
        master = self._last = ContendedMaster(self._site, self._machine, term, self._before_storage)
        try:
            master.dispatcher.recover()
            self._site.led_by(master)
            self._election.publish(LeaderInfo(epoch=master.epoch, cluster=self._machine.name))
        except UnistreamError as error:
            self._world.sometimes("a leader could not begin, and tried again")
            self._world.log(f"{self._machine.name} does not lead yet: {error}")
            master.end(None, lambda _: None)
            raise
        return master

    def fail(self, error: UnistreamError) -> None:
        """No repetition mends it: a defect, or what the judge has found."""
        if self._world.broken is not None:
            raise self._world.broken
        raise self._world.violated(f"I18: {self._machine.name} can never lead: {error}") from error

    def _check_last(self, term: Term) -> None:
        """Both would have the same servers, and workers of the former one would have two masters."""
        last = self._last
        if last is None or last.is_over:
            return
        if not last.is_closing:
            raise self._world.violated(
                f"I14: {self._machine.name} begins epoch {term.store.epoch}, and has not ended {last.epoch}"
            )
        raise Unreachable("the last attempt still ends")
