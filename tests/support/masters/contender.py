"""A master that contends: it stands by, leads when that is granted, and steps down when it is revoked.

What `client.contending` and `client.leader_process` do on a thread of their own happens here in events of the
machine's thread "jobs", since no loop of Python may wait for another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tests.support.masters.checkers import ContendedLives, Decisions, Election
from tests.support.masters.election import SimElection
from tests.support.masters.machine import Machine
from tests.support.masters.outbox import Outbox, OutboxRecords
from tests.support.masters.ports import DeferredPool, GatedLoop, JudgedSenders, UnfencedStorage
from unistream.base.errors import Fenced, OutcomeUnknown, Transient, UnistreamError
from unistream.base.ids import JobId, LeaderEpoch
from unistream.core.contract import SuspendRequested
from unistream.master.job.job_master import JobMaster
from unistream.master.service.ports import MasterPorts
from unistream.master.store.job_store import JobStore
from unistream.master.store.leadership import Leadership
from unistream.port.ha import HaStore, LeaderInfo
from unistream.port.transport import ControlHandler
from unistream.testing.sim.checkers import Lives
from unistream.testing.sim.master import SimMaster, raised
from unistream.testing.sim.network import SimSenders, SimServer
from unistream.testing.sim.shells import Cluster, SimLoop, SimPool
from unistream.testing.sim.store import MasterStorage
from unistream.testing.sim.world import World

RETRY_MS: Final = 1_000.0
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
    """One leadership of a machine, from its beginning."""

    def __init__(self, site: Site, machine: Machine, store: HaStore, leadership: Leadership) -> None:
        self._site = site
        self.machine = machine
        self.is_closing = False
        self._store = store
        self.leadership = leadership
        self._decisions = Decisions(site.judge, store, leadership, machine.name)
        super().__init__(site.cluster, store.epoch, machine.threads["serve"])

    @property
    def leads(self) -> bool:
        return self.leadership.over is None and self._store.leads()

    def suspend_jobs(self, reason: str) -> None:
        """As `Dispatcher.close` begins. Its users do not reach it any more."""
        self.is_closing = True
        for master in self._open():
            master.suspend(SuspendRequested(reason=reason))

    def has_ended(self) -> bool:
        """No job of it runs."""
        return not self._open()

    def _open(self) -> list[JobMaster]:
        return [master for master in self.masters().values() if not master.wait(0)]

    # --- ports ------------------------------------------------------------------------------------

    def _create_storage(self, epoch: LeaderEpoch) -> MasterStorage:
        return UnfencedStorage(self._cluster.store, epoch, self._cluster.witness)

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


@dataclass(slots=True)
class Term:
    """One leadership. `master`: once it has begun."""

    store: HaStore
    leadership: Leadership
    master: ContendedMaster | None = None


class SimContender:
    """Implements `port.ha.Contender`."""

    def __init__(self, site: Site, machine: Machine, election: SimElection) -> None:
        self._site = site
        self._world = site.world
        self._machine = machine
        self._jobs = machine.threads["jobs"]
        self._election = election
        self._current: Term | None = None
        self._leaves = False

    # --- the election's thread --------------------------------------------------------------------

    def granted(self, store: HaStore) -> None:
        self._site.granted(self._machine.name, store.epoch)
        term = Term(store, Leadership(store))
        self._current = term
        self._soon(lambda: self._begin(term))

    def suspended(self) -> None:
        self._world.sometimes("a leader was suspended")
        self._world.log(f"{self._machine.name} is suspended")

    def resumed(self) -> None:
        self._world.sometimes("a leader was resumed")
        self._world.log(f"{self._machine.name} is resumed")
        if self._current is not None:
            self._current.leadership.resumed()

    def revoked(self, reason: str) -> None:
        self._world.sometimes("a leader was revoked")
        self._world.log(f"{self._machine.name} is revoked: {reason}")
        current, self._current = self._current, None
        if current is not None:
            current.leadership.end(reason)
            self._soon(lambda: self._step_down(current, reason))

    # --- the thread of a leader -------------------------------------------------------------------

    def _soon(self, action: Callable[[], None]) -> None:
        self._world.at(self._world.between(0.05, 3), action, self._jobs)

    def _begin(self, term: Term) -> None:
        if term.leadership.over is not None or self._leaves:
            return
        attempt = term.leadership.attempt()
        master = ContendedMaster(self._site, self._machine, term.store, attempt)
        try:
            master.dispatcher.recover()
            self._site.led_by(master)
            term.master = master
            self._publish(term)
        except (Transient, OutcomeUnknown, Fenced) as error:
            self._world.sometimes("a leader could not begin, and tried again")
            self._world.log(f"{self._machine.name} does not lead yet: {error}")
            self._close(term, master, "it could not begin", lambda: self._later(term))
        except UnistreamError as error:
            raise self._world.violated(f"I18: {self._machine.name} can never lead: {error}") from error

    def _later(self, term: Term) -> None:
        self._world.at(RETRY_MS, lambda: self._begin(term), self._jobs)

    def _publish(self, term: Term) -> None:
        epoch = term.store.epoch
        self._election.publish(LeaderInfo(epoch=epoch, cluster=self._machine.name))
        self._world.log(f"{self._machine.name} is published as the leader {epoch}")

    def _step_down(self, term: Term, reason: str) -> None:
        master, term.master = term.master, None
        if master is not None:
            self._ends(master, reason, lambda: master.dispatcher.step_down(reason))

    def leave(self, on_left: Callable[[], None]) -> None:
        """The process is asked to end: its jobs are suspended, then it leaves the election."""

        def left() -> None:
            self._election.close()
            self._world.at(50, on_left)

        def begin() -> None:
            self._leaves = True
            term = self._current
            if term is None or term.master is None:
                left()
                return
            self._close(term, term.master, "it was asked to end", left)

        self._soon(begin)

    def _close(self, term: Term, master: ContendedMaster, reason: str, then: Callable[[], None]) -> None:
        term.master = None
        master.leadership.end_unless_leading(reason)

        def close() -> None:
            master.dispatcher.close()
            then()

        self._ends(master, reason, close)

    def _ends(self, master: ContendedMaster, reason: str, close: Callable[[], None]) -> None:
        """Closes it once its jobs have ended."""
        master.suspend_jobs(reason)
        until_ms = self._world.now + END_MS

        def look() -> None:
            if master.has_ended():
                close()
            elif self._world.now > until_ms:
                raise self._world.violated(f"I18: {self._machine.name} steps down, and its jobs do not end")
            else:
                self._world.at(POLL_MS, look, self._jobs)

        look()
