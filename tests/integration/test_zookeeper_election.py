"""The election on a real ZooKeeper server: leaders that die, sleep, are cut off, and go."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.eventually import WAIT_S, eventually
from tests.integration.zookeeper_leaders import (
    ROOT,
    contending,
    new_cluster,
    plain_client,
    settings_of,
)
from tests.integration.zookeeper_proxy import Mode, ZooKeeperProxy
from unistream.base.clock import SystemClock
from unistream.base.errors import Fenced, OutcomeUnknown, Unreachable
from unistream.base.process_mark import process_name
from unistream.ha.zookeeper import ZooKeeperElection, ZooKeeperRetrieval
from unistream.port.ha import ContenderInfo, LeaderInfo
from unistream.port.storage import Created

REPOSITORY = Path(__file__).resolve().parents[2]
# It looks every 7.5 minutes: longer than a test waits, so what comes, a notification has caused.
PATIENT = {"client_session_timeout": "1 h"}
ASLEEP_MS = 59 * 60_000
WAITING = {"client_connection_timeout": "1 h"}
UNHURRIED = {"client_session_timeout": "5 s"}  # its lease ends 625 ms before: time for a machine that is busy


@pytest.fixture
def cluster() -> str:
    return new_cluster()


class ContendingProcess:
    """The other end of tests/integration/contending_process.py."""

    def __init__(self, address: str, cluster: str) -> None:
        command = [sys.executable, "-m", "tests.integration.contending_process", address, cluster]
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def create(self, name: str, value: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name} {value}\n")
        self.process.stdin.flush()


@contextmanager
def contending_process(address: str, cluster: str) -> Iterator[ContendingProcess]:
    contender = ContendingProcess(address, cluster)
    try:
        yield contender
    finally:
        contender.process.kill()
        contender.process.communicate(timeout=WAIT_S)


def test_a_leader_that_is_killed_is_followed_by_another_one(zookeeper: str, cluster: str) -> None:
    settings = settings_of(zookeeper, cluster)
    with ExitStack() as owned:
        leader = owned.enter_context(contending_process(zookeeper, cluster))
        epoch = leader.next()["epoch"]
        election, other = owned.enter_context(contending(settings))
        retrieval = owned.enter_context(ZooKeeperRetrieval(settings))
        leader.create("jobs/1", "theirs")
        assert leader.next() == {"what": "created", "how": "NEW"}
        eventually(lambda: waiting(zookeeper, cluster) == 2, "both take part")
        assert other.words == []
        theirs, mine = election.contenders() or ()
        assert (theirs.leads, mine.leads, mine.process) == (True, False, process_name())
        assert theirs.process.endswith(f"-{leader.process.pid}")
        leader.process.kill()
        other.expect("granted")
        assert election.contenders() == [ContenderInfo(process=process_name(), leads=True)]
        store = other.granted_store
        assert store.epoch > epoch
        assert store.read("jobs/1") is not None
        assert store.create("jobs/1", b"theirs") is Created.EXISTS
        assert retrieval.leader(WAIT_S) is None, "where a dead leader was is not said"


def test_a_leader_that_slept_writes_nothing_and_is_revoked(zookeeper: str, cluster: str) -> None:
    with ExitStack() as owned:
        leader = owned.enter_context(contending_process(zookeeper, cluster))
        assert leader.next()["what"] == "granted"
        _, other = owned.enter_context(contending(settings_of(zookeeper, cluster)))
        eventually(lambda: waiting(zookeeper, cluster) == 2, "both take part")
        leader.process.send_signal(signal.SIGSTOP)
        leader.create("jobs/1", "late")
        other.expect("granted")
        store = other.granted_store
        store.create("jobs/2", b"new")
        leader.process.send_signal(signal.SIGCONT)
        said = [leader.next() for _ in range(2)]
        while not {"revoked", "refused"} <= {each["what"] for each in said}:
            assert len(said) < 4, said
            said.append(leader.next())
        assert {"what": "refused", "error": "Fenced"} in said
        assert store.children("jobs") == ("2",)
        store.check()
        assert other.words == ["granted"]


@pytest.mark.parametrize("mode", [Mode.CUT, Mode.HELD], ids=lambda mode: mode.value)
def test_a_leader_that_is_cut_off_is_revoked_before_another_one_leads(
    zookeeper: str, cluster: str, mode: Mode
) -> None:
    with (
        ZooKeeperProxy(zookeeper) as proxy,
        contending(settings_of(proxy.address, cluster, **UNHURRIED)) as (election, leader),
        ExitStack() as owned,
    ):
        leader.expect("granted")
        _, other = owned.enter_context(contending(settings_of(zookeeper, cluster)))
        eventually(lambda: waiting(zookeeper, cluster) == 2, "both take part")
        first = leader.granted_store
        first.create("a", b"1")
        proxy.mode = mode
        other.expect("granted")
        leader.expect("granted", "suspended", "revoked")
        [*_, (_, revoked_s)], [(_, granted_s)] = leader.seen, other.seen
        assert revoked_s < granted_s
        with pytest.raises(Fenced, match="no longer the leader"):
            first.create("b", b"1")
        with pytest.raises(Fenced, match="not the leader"):
            election.publish(LeaderInfo(epoch=first.epoch, cluster="old"))
        proxy.mode = Mode.OPEN
        second = other.granted_store
        assert second.epoch > first.epoch
        second.create("b", b"2")
        assert second.children("") == ("a", "b")
        eventually(lambda: waiting(zookeeper, cluster) == 2, "the old leader is in the queue again")
        assert other.words == ["granted"]


def waiting(address: str, cluster: str) -> int:
    with plain_client(address) as client:
        return len(client.get_children(f"{ROOT}/{cluster}/election"))


def test_a_connection_that_comes_back_in_time_costs_nothing(zookeeper: str, cluster: str) -> None:
    settings = settings_of(zookeeper, cluster)
    with (
        ZooKeeperProxy(zookeeper) as proxy,
        contending(settings_of(proxy.address, cluster, client_connection_timeout="1 h")) as (
            election,
            leader,
        ),
    ):
        leader.expect("granted")
        store = leader.granted_store
        election.publish(LeaderInfo(epoch=store.epoch, cluster="a"))
        with contending(settings) as (_, other):
            for n in range(1, 4):
                proxy.mode = Mode.CUT
                leader.expect("granted", *["suspended", "resumed"] * (n - 1), "suspended")
                for use in (store.check, lambda n=n: store.create(f"a/{n}", b"1"), lambda: store.remove("a")):
                    with pytest.raises(Unreachable, match="is not connected; nothing was changed"):
                        use()  # it does not wait for the connection
                proxy.mode = Mode.OPEN
                leader.expect("granted", *["suspended", "resumed"] * n)
                assert store.create(f"a/{n}", b"1") is Created.NEW
            assert other.words == []
            with ZooKeeperRetrieval(settings) as retrieval:
                assert retrieval.leader(WAIT_S) == LeaderInfo(epoch=store.epoch, cluster="a")


@pytest.mark.parametrize("end", ["the session is ended by the server", "its node is removed"])
def test_a_leader_whose_node_is_gone_is_revoked_and_leads_again_with_a_larger_epoch(
    zookeeper: str, cluster: str, end: str
) -> None:
    with contending(settings_of(zookeeper, cluster, **PATIENT)) as (election, leader):
        leader.expect("granted")
        first = leader.granted_store
        first.create("a", b"1")
        with plain_client(zookeeper) as client:
            folder = f"{ROOT}/{cluster}/election"
            [node] = client.get_children(folder)
            if end == "its node is removed":
                client.delete(f"{folder}/{node}")
            else:
                expire(zookeeper, election)
        eventually(lambda: leader.words[-2:] == ["revoked", "granted"], "granted again")
        second = leader.granted_store
        assert second.epoch > first.epoch
        with pytest.raises(Fenced):
            first.create("b", b"1")
        assert second.create("b", b"2") is Created.NEW


class SlippedClock(SystemClock):
    """One that a process finds ahead when it wakes up."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


def test_a_leader_that_wakes_up_late_asks_its_clock_before_it_writes(zookeeper: str, cluster: str) -> None:
    clock = SlippedClock()
    with contending(settings_of(zookeeper, cluster, **PATIENT), clock) as (election, leader):
        leader.expect("granted")
        store = leader.granted_store
        clock.ahead_ms = ASLEEP_MS
        for use in (
            lambda: store.create("a", b"1"),
            lambda: store.replace("a", b"1", 0),
            lambda: store.remove("a"),
            store.check,
            lambda: election.publish(LeaderInfo(epoch=store.epoch, cluster="a")),
        ):
            with pytest.raises(Fenced, match=r"no longer the leader|not the leader"):
                use()
        eventually(lambda: leader.words[1:] == ["revoked", "granted"], "revoked at once, and granted again")
        assert leader.granted_store.epoch > store.epoch
        assert leader.granted_store.children("") == ()


def expire(address: str, election: ZooKeeperElection) -> None:
    """A second connection with the id of its session, which closes it: as if it had expired."""
    session = election._client._kazoo.client_id
    again = {
        "max_tries": -1,
        "delay": 0.05,
    }  # the first one takes the session back meanwhile, if it is quicker
    twin = KazooClient(address, client_id=session, timeout=5.0, connection_retry=again)
    twin.start(timeout=WAIT_S)
    twin.stop()
    twin.close()


def test_a_leader_that_goes_is_followed_at_once_and_found(zookeeper: str, cluster: str) -> None:
    settings = settings_of(zookeeper, cluster, **PATIENT)
    with ZooKeeperRetrieval(settings) as retrieval, contending(settings) as (second_election, second):
        assert retrieval.leader(WAIT_S) is None
        second.expect("granted")
        with contending(settings) as (_, third):
            epoch = second.granted_store.epoch
            for info in (
                LeaderInfo(epoch=epoch, cluster="second", rest_url="http://h:1", control="h:2"),
                LeaderInfo(epoch=epoch, cluster="moved"),
            ):
                second_election.publish(info)
                assert retrieval.leader(WAIT_S) == info
            second_election.close()
            third.expect("granted")
            second.expect("granted", "revoked")
            assert retrieval.leader(WAIT_S) is None
            with pytest.raises(Fenced, match="not the leader of epoch"):
                second_election.publish(LeaderInfo(epoch=epoch, cluster="late"))
        third.expect("granted", "revoked")


def test_writes_whose_answer_is_lost(zookeeper: str, cluster: str) -> None:
    """They are carried out; what is known of it depends on whether the connection comes back."""
    with ZooKeeperProxy(zookeeper) as proxy:
        settings = settings_of(proxy.address, cluster, client_connection_timeout="1500 ms")
        with contending(settings) as (_, leader):
            leader.expect("granted")
            store = leader.granted_store
            store.create("counter", b"1")
            found = store.read("counter")
            assert found is not None

            proxy.after_transaction = Mode.OPEN
            assert store.create("a/b", b"1") is Created.NEW
            proxy.after_transaction = Mode.OPEN
            after = store.replace("counter", b"2", found.version)
            assert store.read("counter") == (b"2", after)
            proxy.after_transaction = Mode.OPEN
            store.remove("a")
            assert store.children("") == ("counter",)
            assert set(leader.words[1:]) == {"suspended", "resumed"}

            proxy.after_transaction = Mode.CUT
            with pytest.raises(OutcomeUnknown, match="may or may not have been done"):
                store.create("b", b"1")
            with plain_client(zookeeper) as client:
                assert client.exists(f"{ROOT}/{cluster}/b")
