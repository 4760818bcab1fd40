"""An ensemble of three servers that loses members, its quorum, and its tongue."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.eventually import eventually
from tests.integration.zookeeper_leaders import contending, new_cluster, settings_of
from tests.support.servers.ensemble import ZooKeeperEnsemble
from unistream.base.errors import Fenced, OutcomeUnknown, Unreachable
from unistream.port.storage import Created

WITHOUT_QUORUM_S = 10.0


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as running:
        yield running


def test_a_leader_outlives_the_loss_of_a_member_and_of_the_quorum(ensemble: ZooKeeperEnsemble) -> None:
    settings = settings_of(ensemble.address, new_cluster(), client_session_timeout="24 s")
    with contending(settings) as (_, leader):
        leader.expect("granted")
        store = leader.granted_store
        with contending(settings) as (_, other):
            killed = ensemble.leading()
            ensemble.kill(killed)
            eventually(lambda: wrote(lambda: store.create("a", b"1")), "it writes with two members")
            ensemble.start(killed)

            lost = ensemble.lose_quorum()
            lost_s = time.monotonic()
            eventually(lambda: leader.words[-1] == "suspended", "it is suspended")
            with pytest.raises((Unreachable, OutcomeUnknown)):
                store.create("b", b"2")
            time.sleep(max(0.0, lost_s + WITHOUT_QUORUM_S - time.monotonic()))
            ensemble.start(*lost)
            eventually(lambda: leader.words[-1] == "resumed", "it is resumed")
            assert set(leader.words[1:]) == {"suspended", "resumed"}
            assert leader.granted_store is store
            assert store.create("c", b"3") is Created.NEW
            assert other.words == []


def wrote(write: object) -> bool:
    """Whether it did; a leader that has just lost a server repeats what is not certain."""
    assert callable(write)
    try:
        return isinstance(write(), Created)
    except (Unreachable, OutcomeUnknown):
        return False


def test_a_leader_whose_server_is_frozen_is_revoked_before_another_one_leads(
    ensemble: ZooKeeperEnsemble,
) -> None:
    cluster = new_cluster()
    frozen = next(n for n in ensemble.everybody if n != ensemble.leading())
    alive = ",".join(f"127.0.0.1:{port}" for n, port in enumerate(ensemble.ports) if n != frozen)
    through_it = settings_of(f"127.0.0.1:{ensemble.ports[frozen]}", cluster, client_session_timeout="5 s")
    with contending(through_it) as (_, leader):
        leader.expect("granted")
        first = leader.granted_store
        first.create("a", b"1")
        with contending(settings_of(alive, cluster)) as (_, other):
            ensemble.freeze(frozen)
            other.expect("granted")
            ensemble.thaw(frozen)
            assert [what for what in leader.words if what != "suspended"] == ["granted", "revoked"]
            (_, revoked_s), (_, granted_s) = leader.seen[-1], other.seen[0]
            assert revoked_s < granted_s
            second = other.granted_store
            assert second.epoch > first.epoch
            second.create("b", b"2")
            with pytest.raises(Fenced):
                first.create("c", b"3")
            assert second.children("") == ("a", "b")
