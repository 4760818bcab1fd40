"""One master's part in the election: `ha.zookeeper.election.ZooKeeperElection` without its threads.

The machine that decides, the queue of contenders, the fence and the store are the product's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, assert_never, cast

import msgspec

from tests.support.masters.connection import REQUEST_MS, Caller, Connection, Transaction
from tests.support.masters.machine import Machine, Thread
from tests.support.masters.zookeeper import Ensemble
from unistream.base.errors import Fenced, OutcomeUnknown, UnistreamError
from unistream.base.ids import LeaderEpoch
from unistream.core.leadership import (
    CancelLeadershipTimer,
    CheckNode,
    Closed,
    Command,
    ConnectionChanged,
    ConnectionState,
    Event,
    GrantLeadership,
    JoinElection,
    LeadershipMachine,
    LeadershipTimer,
    LeadershipTimerFired,
    LeaveElection,
    NodeFirst,
    QueueChanged,
    Resume,
    RevokeLeadership,
    SetLeadershipTimer,
    Standing,
    Suspend,
)
from unistream.ha.zookeeper.client import KAZOO_ERRORS, ZooKeeperClient
from unistream.ha.zookeeper.fence import Fence, UnconfirmedWrite
from unistream.ha.zookeeper.queue import ElectionQueue
from unistream.ha.zookeeper.settings import ZnodePaths
from unistream.ha.zookeeper.store import ZooKeeperStore
from unistream.port.ha import HaStore, LeaderInfo
from unistream.port.storage import Created
from unistream.testing.sim.world import World

LAYOUT: Final = ZnodePaths("/unistream/cluster")
T = TypeVar("T")
_Order = JoinElection | CheckNode | LeaveElection


class Contender(Protocol):
    """As `port.ha.Contender`, with the election that grants."""

    def granted(self, store: HaStore) -> None: ...

    def suspended(self) -> None: ...

    def resumed(self) -> None: ...

    def revoked(self, reason: str) -> None: ...


class SimElection:
    """Implements `port.ha.LeaderElection` on a `Machine`.

    Args:
        stall: See `Caller`.

    Attributes:
        connection: To ZooKeeper.
    """

    def __init__(
        self, ensemble: Ensemble, machine: Machine, timeout_ms: int, stall: Callable[[Thread], None]
    ) -> None:
        self._world: World = ensemble.world
        self._machine = machine
        self._decides = machine.threads["decide"]
        self._looks = machine.threads["look"]
        self.connection = Connection(ensemble, machine, timeout_ms, self._link_changed)
        self._client = Caller(self.connection, machine.threads["jobs"], stall)
        looker = Caller(self.connection, self._looks, stall)
        self._queue = ElectionQueue(
            cast(ZooKeeperClient, looker), LAYOUT, machine.name.replace("-", "."), self._queue_changed
        )
        self._leadership = LeadershipMachine()
        self._events: deque[Event] = deque()
        self._orders: deque[_Order] = deque()
        self._timers: dict[LeadershipTimer, int] = {}
        self._changes = 0
        self._nodes: dict[LeaderEpoch, str] = {}
        self._fence: Fence | None = None
        self._contender: Contender | None = None

    def start(self, contender: Contender) -> None:
        self._contender = contender
        self.connection.start()

    def publish(self, info: LeaderInfo) -> None:
        fence = self._fence
        if fence is None or fence.epoch != info.epoch:
            raise Fenced(f"this process is not the leader of epoch {info.epoch}; nothing was published")
        self._client.epoch = info.epoch
        try:
            fence.repeat(lambda: self._publish(fence, msgspec.json.encode(info)))
        finally:
            self._client.epoch = None

    def contenders(self) -> tuple[()]:
        """Nobody looks at them here."""
        return ()

    def close(self) -> None:
        self._post(Closed())
        self._world.at(self._world.between(5, 20), self.connection.close, self._decides)

    @property
    def is_suspended(self) -> bool:
        return self._leadership.standing is Standing.SUSPENDED

    # --- events -----------------------------------------------------------------------------------

    def _link_changed(self, link: ConnectionState) -> None:
        self._changes += 1
        self._post(
            ConnectionChanged(
                number=self._changes,
                link=link,
                session=self.connection.session,
                timeout_ms=self.connection.timeout_ms,
            )
        )

    def _queue_changed(self) -> None:
        self._post(QueueChanged())

    def _post(self, event: Event) -> None:
        self._events.append(event)
        self._world.at(self._world.between(0.02, 0.5), self._turn, self._decides)

    def _lease_is_over(self) -> bool:
        now_ms, ends_ms = self._machine.monotonic_ms(), self._leadership.lease_ends_ms
        if ends_ms is None or now_ms < ends_ms:
            return ends_ms is None
        self._world.sometimes("a write found that its lease was over")
        self._post(LeadershipTimerFired(LeadershipTimer.LEASE))
        return True

    def _may_decide(self) -> bool:
        ends_ms = self._leadership.lease_ends_ms
        leads = self._leadership.standing is Standing.LEADING
        return leads and ends_ms is not None and self._machine.monotonic_ms() < ends_ms

    # --- the thread that decides ------------------------------------------------------------------

    def _turn(self) -> None:
        self._decide(self._events.popleft())

    def _decide(self, event: Event) -> None:
        for command in self._leadership.handle(event, self._machine.monotonic_ms()):
            self._perform(command)

    def _fire(self, timer: LeadershipTimer, at_ms: int) -> None:
        if self._timers.get(timer) == at_ms:
            del self._timers[timer]
            self._decide(LeadershipTimerFired(timer))

    def _perform(self, command: Command) -> None:
        match command:
            case JoinElection() | CheckNode() | LeaveElection():
                self._orders.append(command)
                self._world.at(self._world.between(0.02, 0.5), self._obey, self._looks)
            case SetLeadershipTimer(timer, at_ms):
                self._timers[timer] = at_ms
                delay_ms = self._machine.real_ms(at_ms) - self._world.now
                self._world.at(max(0.0, delay_ms) + 0.1, lambda: self._fire(timer, at_ms), self._decides)
            case CancelLeadershipTimer(timer):
                self._timers.pop(timer, None)
            case GrantLeadership(epoch):
                self._grant(epoch)
            case Suspend():
                self._of_contender.suspended()
            case Resume():
                self._of_contender.resumed()
            case RevokeLeadership(reason):
                self._revoke(reason)
            case _:
                assert_never(command)

    @property
    def _of_contender(self) -> Contender:
        assert self._contender is not None, "it was started"
        return self._contender

    def _grant(self, epoch: LeaderEpoch) -> None:
        fence = Fence(
            cast(ZooKeeperClient, self._client),
            self._nodes[epoch],
            epoch,
            request_s=REQUEST_MS / 1000,
            lease_is_over=self._lease_is_over,
            may_decide=self._may_decide,
        )
        self._nodes.clear()
        self._fence = fence
        self._of_contender.granted(WatchedStore(ZooKeeperStore(fence, LAYOUT), self._client))

    def _revoke(self, reason: str) -> None:
        assert self._fence is not None, "it was granted"
        self._fence.revoke(reason)
        self._fence = None
        self._of_contender.revoked(reason)

    # --- the thread that asks ZooKeeper -----------------------------------------------------------

    def _obey(self) -> None:
        order = self._orders.popleft()
        match order:
            case JoinElection(look):
                self._report(self._queue.join(look))
            case CheckNode(look):
                self._report(self._queue.check(look))
            case LeaveElection():
                self._leave()
            case _:
                assert_never(order)

    def _report(self, seen: Event) -> None:
        if isinstance(seen, NodeFirst) and self._queue.node is not None:
            self._nodes[seen.epoch] = self._queue.node
        self._post(seen)

    def _leave(self) -> None:
        if self.connection.connected:
            try:
                self._queue.leave()
            except (*KAZOO_ERRORS, UnistreamError) as error:
                self._world.log(f"{self._machine.name} leaves the queue later: {error!r}")

    # --- where the leader is ----------------------------------------------------------------------

    def _publish(self, fence: Fence, data: bytes) -> None:
        [stat] = self._client.stats([LAYOUT.leader])

        def build(transaction: Transaction) -> None:
            if stat is not None:
                transaction.delete(LAYOUT.leader, stat.version)
            transaction.create(LAYOUT.leader, data, ephemeral=True)

        def read_back(found: UnconfirmedWrite) -> None:
            if not found.leads or found.value is None or found.value[0] != data:
                raise OutcomeUnknown("ZooKeeper did not confirm where the leader is")

        fence.commit(LAYOUT.leader, build, lambda _: None, read_back)


class WatchedStore:
    """A `HaStore` whose writes say for which epoch they are; the judge does not believe the fence."""

    def __init__(self, store: HaStore, client: Caller) -> None:
        self._store = store
        self._client = client
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
        self._client.epoch = self.epoch
        try:
            return write()
        finally:
            self._client.epoch = None
