"""Who may use a cluster's folder in ZooKeeper, and what is refused, with one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.eventually import WAIT_S, eventually
from tests.integration.zookeeper_leaders import (
    ROOT,
    Recorder,
    contending,
    new_cluster,
    plain_client,
    settings_of,
)
from tests.integration.zookeeper_proxy import Mode, ZooKeeperProxy
from unistream.base.errors import ConfigError, Unreachable
from unistream.ha.zookeeper import ZooKeeperElection, ZooKeeperRetrieval, ZooKeeperSettings
from unistream.ha.zookeeper.client import ZooKeeperClient
from unistream.ha.zookeeper.folder import prepare
from unistream.port.ha import LeaderInfo

CREDENTIALS = "digest:ann:s3cret"
PRIVATE_ROOT = "/unistream-private"


@pytest.fixture
def cluster() -> str:
    return new_cluster()


def refusal(settings: ZooKeeperSettings) -> str:
    recorder = Recorder()
    with ZooKeeperElection(settings) as election, pytest.raises((ConfigError, Unreachable)) as caught:
        election.start(recorder)
    assert recorder.words == []
    return str(caught.value)


def all_below(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from all_below(client, f"{path}/{name}")


def test_what_a_creator_writes_is_closed_to_others(zookeeper: str, cluster: str) -> None:
    mine = settings_of(
        zookeeper, cluster, path_root=PRIVATE_ROOT, client_acl="creator", client_authorization=CREDENTIALS
    )
    with contending(mine) as (election, leader), ZooKeeperRetrieval(mine) as retrieval:
        leader.expect("granted")
        store = leader.granted_store
        store.create("jobs/1/job", b"1")
        election.publish(LeaderInfo(epoch=store.epoch, cluster="a"))
        with plain_client(zookeeper, auth_data=[("digest", "ann:s3cret")]) as insider:
            paths = list(all_below(insider, f"{PRIVATE_ROOT}/{cluster}"))
            value = insider.get(f"{PRIVATE_ROOT}/{cluster}/jobs/1/job")
        assert len(paths) == 8
        with plain_client(zookeeper) as outsider:
            for path in paths:
                for use in (
                    outsider.get,
                    outsider.get_children,
                    outsider.delete,
                    lambda p: outsider.set(p, b"x"),
                ):
                    with pytest.raises(NoAuthError):
                        use(path)
        assert value[0] == b"unistream 1\n1"
        for credentials in ({}, {"client_authorization": "digest:ann:wrong"}):
            others = settings_of(zookeeper, cluster, path_root=PRIVATE_ROOT, **credentials)
            said = refusal(others)
            assert said.startswith(
                f"ZooKeeper at {zookeeper} denies access to {PRIVATE_ROOT}/{cluster} with "
            )
            assert "correct high-availability.zookeeper.client.authorization" in said
            assert "wrong" not in said, "a secret is not shown"
            with ZooKeeperRetrieval(others) as stranger, pytest.raises(ConfigError, match="denies access"):
                stranger.leader(WAIT_S)
        assert retrieval.leader(WAIT_S) == LeaderInfo(epoch=store.epoch, cluster="a")
        store.replace("jobs/1/job", b"2", value[1].mzxid)
        assert leader.words == ["granted"]


def test_an_open_folder_does_not_become_private(zookeeper: str, cluster: str) -> None:
    with contending(settings_of(zookeeper, cluster)) as (_, leader):
        leader.expect("granted")
    said = refusal(settings_of(zookeeper, cluster, client_acl="creator", client_authorization=CREDENTIALS))
    assert f"lets everyone access {ROOT}/{cluster}" in said


@pytest.mark.parametrize(
    ("name", "data", "then"),
    [
        ("cluster", b'{"product":"unistream","format":2}', "of format 2, which a newer unistream wrote"),
        ("cluster", b'{"product":"other","format":1}', "that unistream did not write"),
        ("cluster", b"", "that unistream did not write"),
        ("jobs", b"1", "that unistream did not write"),
    ],
)
def test_foreign_data_is_refused_and_not_touched(
    zookeeper: str, cluster: str, name: str, data: bytes, then: str
) -> None:
    folder = f"{ROOT}/{cluster}"
    with plain_client(zookeeper) as client:
        client.create(f"{folder}/{name}", data, makepath=True)
        said = refusal(settings_of(zookeeper, cluster))
        assert f"data in {folder}" in said
        assert then in said
        assert "high-availability.cluster-id" in said
        assert [(path, client.get(path)[0]) for path in all_below(client, folder)] == [
            (folder, b""),
            (f"{folder}/{name}", data),
        ]


def test_the_folder_that_counts_as_root_must_exist(zookeeper: str, cluster: str) -> None:
    said = refusal(settings_of(f"{zookeeper}/missing/{cluster}", cluster))
    assert (
        f"has no folder '/missing/{cluster}'; create it, or correct high-availability.zookeeper.quorum"
        in said
    )
    with (
        ZooKeeperRetrieval(settings_of(f"{zookeeper}/missing/{cluster}", cluster)) as retrieval,
        pytest.raises(ConfigError, match="has no folder"),
    ):
        retrieval.leader(WAIT_S)
    with plain_client(zookeeper) as client:
        client.create(f"/present/{cluster}", makepath=True)
        with contending(settings_of(f"{zookeeper}/present/{cluster}", cluster)) as (_, leader):
            leader.expect("granted")
            leader.granted_store.create("a", b"1")
            assert client.exists(f"/present/{cluster}{ROOT}/{cluster}/a")


def test_a_server_of_another_time_is_refused(zookeeper: str, cluster: str) -> None:
    with ZooKeeperProxy(zookeeper) as proxy:
        proxy.version_answer = b"Zookeeper version: 3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf\n"
        said = refusal(settings_of(proxy.address, cluster))
        assert said == f"ZooKeeper at {proxy.address} is of version 3.4; 3.5 is needed"
        proxy.version_answer = b"srvr is not executed because it is not in the whitelist.\n"
        with contending(settings_of(proxy.address, cluster)) as (_, leader):
            leader.expect("granted")


def test_servers_that_do_not_answer(zookeeper: str, cluster: str) -> None:
    with ZooKeeperProxy(zookeeper) as proxy:
        proxy.mode = Mode.HELD
        settings = settings_of(proxy.address, cluster, client_connection_timeout="500 ms")
        assert refusal(settings) == (
            f"ZooKeeper at {proxy.address} does not answer; is high-availability.zookeeper.quorum right, and "
            "does a majority of its servers run?"
        )
        with ZooKeeperRetrieval(settings) as retrieval, pytest.raises(Unreachable, match="does not answer"):
            retrieval.leader(0.3)


def test_the_server_decides_on_the_session_timeout(zookeeper: str, cluster: str) -> None:
    asked = settings_of(zookeeper, cluster, client_session_timeout="2 h")
    with contending(asked) as (election, leader):
        leader.expect("granted")
        assert election._client.timeout_ms == 3_600_000, "the server's maxSessionTimeout"


def test_several_masters_start_together(zookeeper: str, cluster: str) -> None:
    recorders = [Recorder() for _ in range(4)]
    elections = [ZooKeeperElection(settings_of(zookeeper, cluster)) for _ in recorders]
    epochs = []
    try:
        for election, recorder in zip(elections, recorders, strict=True):
            election.start(recorder)
        while elections:
            leading = recorders.index(wait_granted(recorders))
            epochs.append(recorders.pop(leading).granted_store.epoch)
            elections.pop(leading).close()
    finally:
        for election in elections:
            election.close()
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 4


class Overtaken(ZooKeeperClient):
    """A client during whose n-th request another master makes the folder of the cluster."""

    def __init__(self, settings: ZooKeeperSettings, before: int, other: Callable[[], None]) -> None:
        super().__init__(settings)
        self._left = before
        self._other = other

    def once(self, ask: Callable[[KazooClient], Any], deadline_s: float | None = None) -> Any:
        if self._left == 0:
            self._other()
        self._left -= 1
        return super().once(ask, deadline_s)


@pytest.mark.parametrize("before", range(4), ids=lambda n: f"before request {n}")
def test_a_master_is_overtaken_while_it_makes_the_folder(zookeeper: str, cluster: str, before: int) -> None:
    settings = settings_of(zookeeper, cluster)
    made = []
    with ZooKeeperClient(settings) as faster:

        def make() -> None:
            faster.open()
            prepare(faster, settings)
            made.append(faster)

        with Overtaken(settings, before, make) as slower:
            slower.open()
            prepare(slower, settings)
            assert made, "it was overtaken"
            assert sorted(slower.children(settings.layout.folder) or ()) == ["cluster", "election"]


def wait_granted(recorders: list[Recorder]) -> Recorder:
    eventually(lambda: any(recorder.words for recorder in recorders), "one of them is granted")
    [granted] = [recorder for recorder in recorders if recorder.words]
    return granted
