"""One process's part in the election of a leader: the shell around `core.leadership`.

Two threads: one takes events, asks the machine what follows, and calls the contender; the other one asks
ZooKeeper, which may take long. So a suspension reaches the contender also while a request is under way.

    kazoo ── state, watches ──► events ──► decides ── granted, suspended, … ──► contender
                                  ▲           │ JoinElection, CheckNode, LeaveElection
                                  └── looks ◄─┘

Threads, clock and client are its `ElectionPorts`: a simulation runs this same shell with its own.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

import msgspec
from kazoo.client import TransactionRequest
from kazoo.protocol.states import ZnodeStat

from unistream.base.clock import BootClock, Clock
from unistream.base.closing import Closing
from unistream.base.errors import Fenced, OutcomeUnknown, UnistreamError
from unistream.base.ids import LeaderEpoch
from unistream.base.process_mark import process_name
from unistream.core import leadership as lead
from unistream.ha.event_thread import EventThread
from unistream.ha.zookeeper.client import KAZOO_ERRORS, ZooKeeperClient
from unistream.ha.zookeeper.fence import Fence, UnconfirmedWrite
from unistream.ha.zookeeper.folder import prepare
from unistream.ha.zookeeper.ports import ElectionPorts
from unistream.ha.zookeeper.queue import ElectionQueue, contender_of, said_of
from unistream.ha.zookeeper.settings import ZooKeeperSettings
from unistream.ha.zookeeper.store import ZooKeeperStore
from unistream.port.event_loop import Cancel
from unistream.port.ha import Contender, ContenderInfo, LeaderInfo

_log = logging.getLogger(__name__)

_Order = lead.JoinElection | lead.CheckNode | lead.LeaveElection


def election_ports(settings: ZooKeeperSettings, clock: Clock | None = None) -> ElectionPorts:
    """The ports of a process. `clock`: None: one that counts the sleep of this machine, too, as the service
    does."""
    clock = clock or BootClock()
    return ElectionPorts(
        clock=clock,
        create_client=lambda on_link: ZooKeeperClient(settings, on_link),
        create_loop=lambda name: EventThread(name, clock),
        contender=uuid.uuid4().hex,
    )


class ZooKeeperElection(Closing):
    """Implements `port.ha.LeaderElection`.

    Args:
        settings: Of the cluster.
        ports: None: those of a process.
        rest_url: Where this process answers people and programs, asked for when it takes part.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        ports: ElectionPorts | None = None,
        rest_url: Callable[[], str | None] = lambda: None,
    ) -> None:
        ports = ports or election_ports(settings)
        self._settings = settings
        self._layout = settings.layout
        self._clock = ports.clock
        self._client = ports.create_client(self._connection_changed)
        self._decides = ports.create_loop("election-decide")
        self._looks = ports.create_loop("election-look")
        self._queue = ElectionQueue(
            self._client,
            self._layout,
            ports.contender,
            self._queue_changed,
            lambda: said_of(process_name(), rest_url()),
        )
        self._machine = lead.LeadershipMachine()
        self._deciding = threading.Lock()  # an event and its effect on the lease are seen together
        self._timers: dict[lead.LeadershipTimer, Cancel] = {}
        self._changes = 0
        self._nodes: dict[LeaderEpoch, str] = {}  # epoch -> node, of what was seen first in the queue
        self._fence: Fence | None = None
        self._contender: Contender | None = None
        self._is_closed = False

    def start(self, contender: Contender) -> None:
        assert self._contender is None, "an election is started once"
        self._contender = contender
        try:
            self._client.open()
            prepare(self._client, self._settings)
        except BaseException:
            self._client.close()
            raise
        self._revive_later()
        self._decides.start()
        self._looks.start()

    def publish(self, info: LeaderInfo) -> None:
        fence = self._fence
        if fence is None or fence.epoch != info.epoch:
            raise Fenced(f"this process is not the leader of epoch {info.epoch}; nothing was published")
        fence.repeat(lambda: self._publish(fence, msgspec.json.encode(info)))

    def contenders(self) -> Sequence[ContenderInfo] | None:
        if not self._client.connected:
            return None
        try:
            said = self._queue.contenders()
        except (*KAZOO_ERRORS, UnistreamError) as error:
            _log.warning("event=contenders_not_read cluster=%s reason=%r", self._layout.folder, str(error))
            return None
        return [contender_of(one, leads=place == 0) for place, one in enumerate(said)]

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._post(lead.Closed())
        for loop in (self._decides, self._looks):
            loop.join(2 * self._settings.request_s)
        self._client.close()

    # --- events -----------------------------------------------------------------------------------

    def _post(self, event: lead.Event) -> None:
        self._decides.call_soon(lambda: self._decide(event))

    def _connection_changed(self, link: lead.ConnectionState) -> None:
        self._changes += 1  # only on the client's one thread
        self._post(
            lead.ConnectionChanged(
                number=self._changes,
                link=link,
                session=self._client.session,
                timeout_ms=self._client.timeout_ms,
            )
        )

    def _queue_changed(self) -> None:
        self._post(lead.QueueChanged())

    def _lease_is_over(self) -> bool:
        """Whether the lease is over. Asked before each write: a process that slept does not rely on its
        threads to run in time."""
        with self._deciding:
            now_ms, ends_ms = self._clock.monotonic_ms(), self._machine.lease_ends_ms
        if ends_ms is None or now_ms < ends_ms:
            return ends_ms is None
        self._post(lead.LeadershipTimerFired(lead.LeadershipTimer.LEASE))
        return True

    def _may_decide(self) -> bool:
        """Whether this process may decide now, without waiting for the thread that decides to be awake."""
        with self._deciding:
            ends_ms = self._machine.lease_ends_ms
            leads = self._machine.standing is lead.Standing.LEADING
            return leads and ends_ms is not None and self._clock.monotonic_ms() < ends_ms

    # --- the thread that decides ------------------------------------------------------------------

    def _decide(self, event: lead.Event) -> None:
        with self._deciding:
            commands = self._machine.handle(event, self._clock.monotonic_ms())
        for command in commands:
            self._perform(command)
        if isinstance(event, lead.Closed):
            self._decides.stop()
            self._looks.stop()

    def _perform(self, command: lead.Command) -> None:
        match command:
            case lead.JoinElection() | lead.CheckNode() | lead.LeaveElection():
                self._looks.call_soon(partial(self._obey, command))
            case lead.SetLeadershipTimer(timer, at_ms):
                self._cancel(timer)
                self._timers[timer] = self._decides.call_at(at_ms, partial(self._fire, timer))
            case lead.CancelLeadershipTimer(timer):
                self._cancel(timer)
            case lead.GrantLeadership(epoch):
                self._grant(epoch)
            case lead.Suspend():
                self._notify("suspended", lambda contender: contender.suspended())
            case lead.Resume():
                self._notify("resumed", lambda contender: contender.resumed())
            case lead.RevokeLeadership(reason):
                self._revoke(reason)
            case _:
                assert_never(command)

    def _fire(self, timer: lead.LeadershipTimer) -> None:
        del self._timers[timer]
        self._decide(lead.LeadershipTimerFired(timer))

    def _cancel(self, timer: lead.LeadershipTimer) -> None:
        cancel = self._timers.pop(timer, None)
        if cancel is not None:
            cancel()

    def _grant(self, epoch: LeaderEpoch) -> None:
        fence = Fence(
            self._client,
            self._nodes[epoch],
            epoch,
            request_s=self._settings.request_s,
            lease_is_over=self._lease_is_over,
            may_decide=self._may_decide,
        )
        self._nodes.clear()
        self._fence = fence
        self._notify("granted", lambda contender: contender.granted(ZooKeeperStore(fence, self._layout)))

    def _revoke(self, reason: str) -> None:
        assert self._fence is not None, "it was granted"
        self._fence.revoke(reason)
        self._fence = None
        self._notify("revoked", lambda contender: contender.revoked(reason))

    def _notify(self, what: str, call: Callable[[Contender], None]) -> None:
        """An error of a contender ends neither the election nor what it was notified of."""
        assert self._contender is not None, "it was started"
        _log.info("event=leadership_%s cluster=%s", what, self._layout.folder)
        try:
            call(self._contender)
        except Exception:
            _log.exception("event=contender_failed at=%s cluster=%s", what, self._layout.folder)

    # --- the thread that asks ZooKeeper -----------------------------------------------------------

    def _obey(self, order: _Order) -> None:
        match order:
            case lead.JoinElection(look):
                self._report(self._queue.join(look))
            case lead.CheckNode(look):
                self._report(self._queue.check(look))
            case lead.LeaveElection():
                self._leave()
            case _:
                assert_never(order)

    def _report(self, seen: lead.Event) -> None:
        if isinstance(seen, lead.NodeFirst) and self._queue.node is not None:
            self._nodes[seen.epoch] = self._queue.node  # before the event, so that the grant finds it
        self._post(seen)

    def _leave(self) -> None:
        if not self._client.connected:
            return  # the nodes go with the session, or with the next join
        try:
            self._queue.leave()
        except (*KAZOO_ERRORS, UnistreamError) as error:
            _log.info("event=election_left_later cluster=%s error=%r", self._layout.folder, error)

    def _revive_later(self) -> None:
        at_ms = self._clock.monotonic_ms() + int(self._settings.retry_wait_s * 1000)
        self._looks.call_at(at_ms, self._revive)

    def _revive(self) -> None:
        self._revive_later()
        if self._client.is_dead and not self._is_closed:
            _log.warning("event=zookeeper_client_restarted cluster=%s", self._layout.folder)
            self._client.revive()

    # --- where the leader is ----------------------------------------------------------------------

    def _publish(self, fence: Fence, data: bytes) -> None:
        """The node goes with the session of the leader, and so with its node in the election."""
        path = self._layout.leader
        [stat] = self._client.stats([path])

        def build(transaction: TransactionRequest) -> None:
            if stat is not None and self._is_own(stat):
                transaction.set_data(path, data, stat.version)
                return
            if stat is not None:
                transaction.delete(path, stat.version)
            transaction.create(path, data, ephemeral=True)

        def read_back(found: UnconfirmedWrite) -> None:
            if not found.leads or found.value is None or found.value[0] != data:
                raise OutcomeUnknown(f"{self._client} did not confirm where the leader is; publish it again")

        fence.commit(path, build, lambda _: None, read_back)

    def _is_own(self, stat: ZnodeStat) -> bool:
        """Whether a node goes with the present session; one of a former session goes before."""
        return bool(stat.ephemeralOwner == self._client.session)
