"""Times of elections, with real ZooKeeper servers: see `benchmarks.bounds`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.service import endless
from tests.eventually import eventually
from tests.integration.several_masters import await_job, is_running, masters_in
from tests.integration.test_several_masters_workers import HEARTBEAT, worker
from tests.integration.test_zookeeper_election import (
    ASLEEP_MS,
    PATIENT,
    SlippedClock,
    contending_process,
    expire,
    waiting,
)
from tests.integration.zookeeper_leaders import ROOT, contending, new_cluster, plain_client, settings_of
from tests.support.servers.ensemble import ZooKeeperEnsemble
from unistream.base.errors import Fenced
from unistream.client.remote.rest_client import RestClient
from unistream.ha.zookeeper import ZooKeeperElection
from unistream.testing.devtools.servers import ZOOKEEPER
from unistream.testing.devtools.stack import LocalStack


def election(folder: Path) -> dict[str, float]:
    with LocalStack(folder, (ZOOKEEPER,)) as stack:
        address = stack.address(ZOOKEEPER)
        return {
            "a killed leader is followed": _followed(address, signal.SIGKILL),
            "a leader that stands still is followed": _followed(address, signal.SIGSTOP),
            "a leader that goes is followed": _followed_when_it_goes(address),
            "a leader whose node was removed leads again": _leads_again(address, _remove_node),
            "a leader whose session was ended leads again": _leads_again(
                address, lambda address, _, election: expire(address, election)
            ),
            "a leader that wakes up late leads again": _leads_again_late(address),
        }


def _followed(address: str, number: signal.Signals) -> float:
    """From the signal to the next one that is granted."""
    cluster = new_cluster()
    with contending_process(address, cluster) as leader:
        leader.next()
        with contending(settings_of(address, cluster)) as (_, other):
            eventually(lambda: waiting(address, cluster) == 2, "both take part")
            began_s = time.monotonic()
            leader.process.send_signal(number)
            other.expect("granted")
            return other.seen[0][1] - began_s


def _followed_when_it_goes(address: str) -> float:
    cluster = new_cluster()
    settings = settings_of(address, cluster, **PATIENT)
    with contending(settings) as (election, leader):
        leader.expect("granted")
        with contending(settings) as (_, other):
            eventually(lambda: waiting(address, cluster) == 2, "both take part")
            began_s = time.monotonic()
            election.close()
            other.expect("granted")
            return other.seen[0][1] - began_s


def _leads_again(address: str, end: Callable[[str, str, ZooKeeperElection], None]) -> float:
    cluster = new_cluster()
    with contending(settings_of(address, cluster, **PATIENT)) as (election, leader):
        leader.expect("granted")
        began_s = time.monotonic()
        end(address, cluster, election)
        eventually(lambda: leader.words[-2:] == ["revoked", "granted"], "granted again")
        return leader.seen[-1][1] - began_s


def _remove_node(address: str, cluster: str, _: ZooKeeperElection) -> None:
    with plain_client(address) as client:
        election = f"{ROOT}/{cluster}/election"
        [node] = client.get_children(election)
        client.delete(f"{election}/{node}")


def _leads_again_late(address: str) -> float:
    clock = SlippedClock()
    with contending(settings_of(address, new_cluster(), **PATIENT), clock) as (_, leader):
        leader.expect("granted")
        began_s = time.monotonic()
        clock.ahead_ms = ASLEEP_MS
        with suppress(Fenced):
            leader.granted_store.check()
            raise SystemExit("its lease was over")
        eventually(lambda: leader.words[1:] == ["revoked", "granted"], "granted again")
        return leader.seen[-1][1] - began_s


def frozen(folder: Path) -> dict[str, float]:
    cluster = new_cluster()
    with ZooKeeperEnsemble(folder) as ensemble:
        one = next(n for n in ensemble.everybody if n != ensemble.leading())
        alive = ",".join(f"127.0.0.1:{port}" for n, port in enumerate(ensemble.ports) if n != one)
        through_it = f"127.0.0.1:{ensemble.ports[one]}"
        with contending(settings_of(through_it, cluster, client_session_timeout="5 s")) as (_, leader):
            leader.expect("granted")
            with contending(settings_of(alive, cluster)) as (_, other):
                eventually(lambda: waiting(alive, cluster) == 2, "both take part")
                began_s = time.monotonic()
                ensemble.freeze(one)
                other.expect("granted")
                ensemble.thaw(one)
                return {
                    "a leader at a server that stands still is followed": other.seen[0][1] - began_s,
                }


def takeover(folder: Path) -> dict[str, float]:
    options = {**HEARTBEAT, "jobmanager.rpc.port": "0"}
    (folder / "masters").mkdir()
    with (
        LocalStack(folder / "stack", (ZOOKEEPER,)) as stack,
        masters_in(
            folder / "masters", stack.address(ZOOKEEPER), target="standalone", options=options
        ) as cluster,
        cluster.client() as client,
    ):
        first, second = cluster.pair()
        worker(cluster, "worker")
        job = client.submit(endless("numbers")).job_id
        await_job(client, job, lambda info: info.checkpoints_completed > 0, "it has a checkpoint")
        began_s = time.monotonic()
        first.send(signal.SIGKILL)
        cluster.await_leader(second)
        times = {"the next master leads": time.monotonic() - began_s}
        with RestClient(second.urls[-1]) as at_second:
            eventually(lambda: len(at_second.task_managers()) == 1, "the worker is there")
            times["the worker is at the next master"] = time.monotonic() - began_s
            await_job(at_second, job, is_running, "it runs")
        return {**times, "the job runs at the next master": time.monotonic() - began_s}
