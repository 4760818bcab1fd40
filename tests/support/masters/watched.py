"""What the judge sees of an election: who is granted which epoch, and for whom is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.support.masters.leader import Site
from tests.support.masters.machine import Machine
from unistream.base.ids import LeaderEpoch
from unistream.port.ha import Contender, ContenderInfo, HaStore, LeaderElection, LeaderInfo
from unistream.port.storage import Created

T = TypeVar("T")


class WatchedElection:
    """A `LeaderElection` and its `Contender`, each seen by the other one.

    Attributes:
        is_suspended: It leads, and has lost contact.
    """

    def __init__(self, run: Site, machine: Machine, election: LeaderElection) -> None:
        self._run = run
        self._world = run.world
        self._machine = machine
        self._election = election
        self._contender: Contender | None = None
        self.is_suspended = False

    # --- LeaderElection ---------------------------------------------------------------------------

    def start(self, contender: Contender) -> None:
        self._contender = contender
        self._election.start(self)

    def publish(self, info: LeaderInfo) -> None:
        with self._machine.current.writing_for(info.epoch):
            self._election.publish(info)
        self._world.log(f"{self._machine.name} is published as the leader {info.epoch}")

    def contenders(self) -> Sequence[ContenderInfo] | None:
        return self._election.contenders()

    def close(self) -> None:
        self._election.close()

    # --- Contender --------------------------------------------------------------------------------

    def granted(self, store: HaStore) -> None:
        self._run.granted(self._machine.name, store.epoch)
        self._of_contender.granted(WatchedStore(store, self._machine))

    def suspended(self) -> None:
        self.is_suspended = True
        self._note("suspended")
        self._of_contender.suspended()

    def resumed(self) -> None:
        self.is_suspended = False
        self._note("resumed")
        self._of_contender.resumed()

    def revoked(self, reason: str) -> None:
        self.is_suspended = False
        self._note("revoked", f": {reason}")
        self._of_contender.revoked(reason)

    @property
    def _of_contender(self) -> Contender:
        assert self._contender is not None, "it was started"
        return self._contender

    def _note(self, what: str, why: str = "") -> None:
        self._world.sometimes(f"a leader was {what}")
        self._world.log(f"{self._machine.name} is {what}{why}")


class WatchedStore:
    """A `HaStore` whose writes say for which epoch they are; the judge does not believe the fence."""

    def __init__(self, store: HaStore, machine: Machine) -> None:
        self._store = store
        self._machine = machine
        self.leads = store.leads
        self.read = store.read
        self.children = store.children
        self.check = store.check

    @property
    def epoch(self) -> LeaderEpoch:
        return self._store.epoch

    def create(self, name: str, value: bytes) -> Created:
        return self._as_leader(lambda: self._store.create(name, value))

    def replace(self, name: str, value: bytes, version: int) -> int:
        return self._as_leader(lambda: self._store.replace(name, value, version))

    def remove(self, name: str) -> None:
        self._as_leader(lambda: self._store.remove(name))

    def _as_leader(self, write: Callable[[], T]) -> T:
        with self._machine.current.writing_for(self.epoch):
            return write()
