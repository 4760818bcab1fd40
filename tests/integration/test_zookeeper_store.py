"""The pointers on a real ZooKeeper server: the contract of every store, and what is ZooKeeper's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract.test_contract_ha_store import HaStoreContract, Leaders, entry
from tests.integration.zookeeper_leaders import ROOT, ZooKeeperLeaders, new_cluster, plain_client, settings_of
from unistream.base.errors import ConfigError, CorruptSnapshot


@pytest.fixture
def cluster() -> str:
    return new_cluster()


@pytest.fixture
def leaders(zookeeper: str, cluster: str) -> Iterator[Leaders]:
    patient = {"client_session_timeout": "30 s", "client_connection_timeout": "60 s"}  # no session ends here
    with ExitStack() as owned:
        yield ZooKeeperLeaders(settings_of(zookeeper, cluster, **patient), owned)


class TestZooKeeperStore(HaStoreContract):
    """With an ephemeral node as the leader, and transactions that check it."""


@pytest.mark.parametrize(
    ("data", "who"), [(b"unistream 2\nx", "a newer version of unistream"), (b"{}", "another program")]
)
def test_what_others_wrote_is_neither_read_nor_overwritten(
    zookeeper: str, cluster: str, leaders: Leaders, data: bytes, who: str
) -> None:
    store = leaders.new()
    store.create("a", b"1")
    path = f"{ROOT}/{cluster}/a"
    with plain_client(zookeeper) as client:
        client.set(path, data)
        for use in (
            store.read,
            lambda name: store.create(name, b"2"),
            lambda name: store.replace(name, b"2", 0),
        ):
            with pytest.raises(CorruptSnapshot, match=f"{path} was written by {who}"):
                use("a")
        assert client.get(path)[0] == data


def test_all_is_below_the_folder_of_the_cluster(zookeeper: str, cluster: str, leaders: Leaders) -> None:
    leaders.new().create("jobs/1/job", b"1")
    with plain_client(zookeeper) as client:
        assert sorted(client.get_children(f"{ROOT}/{cluster}")) == ["cluster", "election", "jobs"]
        assert client.get(f"{ROOT}/{cluster}/cluster")[0] == b'{"product":"unistream","format":1}'
        assert client.get(f"{ROOT}/{cluster}/jobs/1/job")[0] == b"unistream 1\n1"


def test_clusters_do_not_see_each_other(zookeeper: str, cluster: str, leaders: Leaders) -> None:
    store = leaders.new()
    store.create("a", b"1")
    with ExitStack() as owned:
        other = ZooKeeperLeaders(settings_of(zookeeper, f"{cluster}-2"), owned).new()
        assert other.read("a") is None
        other.create("a", b"2")
    store.check()
    assert entry(store, "a").value == b"1"


@pytest.mark.parametrize("name", ["cluster", "leader", "election/1"])
def test_what_the_election_keeps_is_refused(leaders: Leaders, name: str) -> None:
    store = leaders.new()
    with pytest.raises(ConfigError, match="is kept for the election"):
        store.create(name, b"1")
    with pytest.raises(ConfigError, match="is kept for the election"):
        store.remove(name)
