"""The model of ZooKeeper does what the election relies on, and the queue of contenders on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.support.masters.connection import LAYOUT, Connection, SimZooKeeper
from tests.support.masters.machine import Machine, Thread
from tests.support.masters.tree import Check, Create, Delete, Operation, SetData, Tree
from tests.support.masters.zookeeper import Ensemble
from unistream.core.leadership import NodeBehind, NodeFirst, NodeGone
from unistream.ha.zookeeper.client import NoNodeError, RolledBackError, RuntimeInconsistency
from unistream.ha.zookeeper.fence import BadVersionError, NodeExistsError, NotEmptyError
from unistream.ha.zookeeper.queue import ElectionQueue
from unistream.testing.sim.world import World

TIMEOUT_MS = 2_000


class Clients:
    """An ensemble, and clients of it."""

    def __init__(self) -> None:
        self.world = World(1)
        self.ensemble = Ensemble(self.world, lambda _changed, _epoch: None)
        self.ensemble.make(("/unistream", LAYOUT.folder, LAYOUT.election))
        self.stalls: list[Callable[[], None]] = []

    def connect(self, name: str) -> tuple[Connection, SimZooKeeper]:
        machine = Machine(name, self.world, 1.0)
        connection = Connection(self.ensemble, machine, TIMEOUT_MS)
        client = SimZooKeeper(connection, machine, self._stall)
        client.open()
        return connection, client

    def queue(self, name: str) -> tuple[Connection, ElectionQueue]:
        connection, client = self.connect(name)
        return connection, ElectionQueue(client, LAYOUT, name, lambda: None)

    def run(self, for_ms: float) -> None:
        until_ms = self.world.now + for_ms
        while self.world.step(until_ms):
            pass

    def _stall(self, _thread: Thread) -> None:
        if self.stalls:
            self.stalls.pop(0)()


@pytest.fixture
def clients() -> Clients:
    return Clients()


@pytest.mark.parametrize(
    ("operations", "errors"),
    [
        pytest.param([Check("/a", 0), SetData("/a", b"2", 0)], [], id="a transaction is done"),
        pytest.param(
            [Check("/a", 1), Create("/c", b"")], [BadVersionError, RuntimeInconsistency], id="check"
        ),
        pytest.param([Create("/c", b""), Check("/x", 0)], [RolledBackError, NoNodeError], id="missing"),
        pytest.param([Create("/c", b""), Create("/c", b"")], [RolledBackError, NodeExistsError], id="exists"),
        pytest.param([Delete("/a")], [NotEmptyError], id="a node that holds others"),
        pytest.param([Delete("/a/b"), Delete("/a")], [], id="all of it"),
        pytest.param([Create("/x/y", b"")], [NoNodeError], id="nothing holds it"),
    ],
)
def test_a_transaction_is_done_as_a_whole_or_not_at_all(
    operations: list[Operation], errors: list[type[Exception]]
) -> None:
    tree = Tree()
    tree.commit([Create("/a", b"1"), Create("/a/b", b"")], session=0)
    before = tree.zxid
    results = tree.commit(operations, session=0)
    found = [type(result) for result in results if isinstance(result, Exception)]
    assert found == errors
    assert tree.zxid == before + (not errors)
    assert tree.now("/c") is None


def test_each_point_of_the_history_can_be_read() -> None:
    tree = Tree()
    tree.commit([Create("/a", b"1")], session=0)
    tree.commit([SetData("/a", b"2")], session=0)
    tree.commit([Delete("/a")], session=0)
    found = [tree.at("/a", zxid) for zxid in range(4)]
    assert [node and (node.data, node.czxid, node.mzxid, node.version) for node in found] == [
        None,
        (b"1", 1, 1, 0),
        (b"2", 1, 2, 1),
        None,
    ]


def test_the_next_contender_is_first_when_the_session_of_the_first_is_over(clients: Clients) -> None:
    first, one = clients.queue("one")
    _, two = clients.queue("two")
    seen = one.join(1)
    assert isinstance(seen, NodeFirst)
    assert two.join(1) == NodeBehind(1)
    first.is_cut = True
    clients.run(TIMEOUT_MS * 0.9)
    assert two.check(2) == NodeBehind(2)
    clients.run(TIMEOUT_MS * 0.2)
    after = two.check(3)
    assert isinstance(after, NodeFirst)
    assert after.epoch > seen.epoch
    first.is_cut = False
    clients.run(500)
    assert one.check(2) == NodeGone(2)


def test_without_a_quorum_no_session_ends(clients: Clients) -> None:
    connection, one = clients.queue("one")
    seen = one.join(1)
    for server in clients.ensemble.servers[:2]:
        clients.ensemble.crash(server)
    clients.run(5 * TIMEOUT_MS)
    assert not connection.connected
    for server in clients.ensemble.servers[:2]:
        clients.ensemble.start(server)
    clients.run(TIMEOUT_MS)
    assert one.check(2) == NodeFirst(2, cast(Any, seen).epoch)


def test_who_leads_no_more_does_not_remove_where_the_next_leader_is(clients: Clients) -> None:
    """Its own node was removed by hand, and the next leader is published while it leaves."""
    _, one = clients.queue("one")
    _, two = clients.queue("two")
    _, publisher = clients.connect("publisher")
    assert isinstance(one.join(1), NodeFirst)
    two.join(1)
    own = one.node
    transaction = publisher.transaction()
    transaction.create(LAYOUT.leader, b"one", ephemeral=True)
    one_client = cast(SimZooKeeper, one._client)
    assert one_client.once(lambda _: transaction.commit_async()) == [LAYOUT.leader]

    def another_leads() -> None:
        assert own is not None
        clients.ensemble.remove(own)
        next_leader = publisher.transaction()
        next_leader.delete(LAYOUT.leader)
        next_leader.create(LAYOUT.leader, b"two", ephemeral=True)
        publisher.once(lambda _: next_leader.commit_async())

    clients.stalls = [lambda: None, lambda: None, another_leads]  # between its looks and its removal
    one.leave()
    assert clients.stalls == []
    found = publisher.value(LAYOUT.leader)
    assert found is not None
    assert found[0] == b"two"
