"""Several masters of one cluster: the leader dies, stands still, or cannot reach ZooKeeper."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.asking import as_owner
from tests.eventually import eventually
from tests.integration.copied_topic import Flow, is_quiet
from tests.integration.several_masters import (
    OF_HA_MATRIX,
    WAIT_S,
    Masters,
    Takeover,
    await_job,
    files_in,
    is_running,
    masters_in,
)
from tests.integration.zookeeper_proxy import Mode, ZooKeeperProxy
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient

pytestmark = pytest.mark.kafka

QUIET_S = 5.0  # after a leader of before has woken up
LONG_SESSION_S = 10.0  # what is shown within it needs a few seconds


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: str) -> Iterator[Masters]:
    with masters_in(tmp_path, zookeeper) as cluster:
        yield cluster


@pytest.fixture
def flow(tmp_path: Path, kafka: str, topic: str) -> Iterator[Flow]:
    with Flow(tmp_path, kafka, topic) as flow:
        yield flow


@pytest.fixture
def data(stack_dir: Path) -> Path:
    """Of ZooKeeper."""
    return stack_dir / "zookeeper"


@OF_HA_MATRIX
def test_a_leader_that_stood_still_is_a_standby_when_it_goes_on_and_can_lead_again(
    cluster: Masters, flow: Flow, data: Path
) -> None:
    first, second = cluster.pair()
    with cluster.client() as client:
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        takeover = Takeover(cluster, flow, "standing still")
        first.send(signal.SIGSTOP)
        takeover.of(second, job)
        flow.assert_exact()
        client.client(job).cancel()
        await_job(client, job, lambda info: info.state == "CANCELED", "it ends")
        eventually(lambda: f"/jobs/{job}" not in cluster.stored(), "it is cleaned up", WAIT_S, 0.2)
        eventually(lambda: b'"cleaned":true' in cluster.stored()[f"/results/{job}"][0], "all of it", WAIT_S)
        before = cluster.stored(), flow.log(), files_in(cluster.folder / "ha")
        first.send(signal.SIGCONT)
        cluster.await_contenders(2)
        first.assert_nothing_is_left()
        time.sleep(QUIET_S)  # for what must not happen there is nothing to wait for
        assert (cluster.stored(), flow.log(), files_in(cluster.folder / "ha")) == before
        assert "event=leader_steps_down" in first.err
        assert second.end(signal.SIGKILL) == -signal.SIGKILL
        cluster.await_leader(first)
        assert client.info(job).state == "CANCELED"
    cluster.assert_each_write_was_the_leaders(data, 3)


@OF_HA_MATRIX
def test_a_leader_that_goes_on_while_the_other_one_works_disturbs_nothing(
    cluster: Masters, flow: Flow, data: Path
) -> None:
    first, second = cluster.pair()
    with cluster.client() as client:
        job = client.submit(flow.request()).job_id
        for leader, standby in ((first, second), (second, first)):
            flow.await_commits()
            takeover = Takeover(cluster, flow, "standing still")
            leader.send(signal.SIGSTOP)
            takeover.of(standby, job)
            leader.send(signal.SIGCONT)
            cluster.await_contenders(2)
            flow.await_commits()
        assert client.info(job).restarts == 2, "one for each takeover"
        flow.assert_exact()
    cluster.assert_each_write_was_the_leaders(data, 3)


@pytest.mark.parametrize(
    "mode", [Mode.CUT, pytest.param(Mode.HELD, marks=OF_HA_MATRIX)], ids=lambda m: m.value
)
def test_a_leader_that_alone_is_cut_off_decides_nothing(
    tmp_path: Path, zookeeper: str, flow: Flow, data: Path, mode: Mode
) -> None:
    tolerant = {"execution_checkpointing_tolerable-failed-checkpoints": "100"}
    with (
        masters_in(tmp_path, zookeeper, session_s=LONG_SESSION_S) as cluster,
        ZooKeeperProxy(zookeeper) as proxy,
        cluster.client() as client,
    ):
        first, second = cluster.pair(**{"high-availability_zookeeper_quorum": proxy.address})
        job = client.submit(flow.request(**tolerant)).job_id
        flow.await_commits()
        epochs, url = set(flow.epochs()), first.urls[-1]
        proxy.mode = mode
        if mode is Mode.CUT:
            eventually(lambda: "leadership_suspended" in first.err, "it is suspended", WAIT_S)
            assert_decides_nothing(url, job, flow)
        else:
            eventually(lambda: is_quiet(flow), "nothing is committed", WAIT_S)
        proxy.mode = Mode.OPEN
        back = Takeover(cluster, flow, "the link is back in time")
        back.of(first, job)
        assert set(flow.epochs()) == epochs
        assert client.info(job).restarts == 0
        proxy.mode = mode
        takeover = Takeover(cluster, flow, "cut off")
        takeover.of(second, job)
        assert "event=leader_steps_down" in first.err
        first.assert_nothing_is_left()
        proxy.mode = Mode.OPEN
        cluster.await_contenders(2)
        flow.assert_exact()
    cluster.assert_each_write_was_the_leaders(data, 2)


def assert_decides_nothing(url: str, job: JobId, flow: Flow) -> None:
    """It answers what is asked, refuses what is to be decided, and rows are processed."""
    eventually(lambda: is_quiet(flow, 0.5), "what was decided before is done", WAIT_S)
    version, passed = flow.version, flow.passed
    assert status_of(f"{url}/v1/unistream/jobs/{job}")[0] == 200
    body = msgspec.msgpack.encode(flow.request("another"))
    for path, content, kind in (
        ("unistream/jobs", body, "application/msgpack"),
        (f"jobs/{job}/savepoints", b'{"cancel-job": false}', "application/json"),
        (f"jobs/{job}/stop", b"{}", "application/json"),
    ):
        status, text = status_of(f"{url}/v1/{path}", content, kind)
        assert status == 503, (path, status, text)
        (sentence,) = json.loads(text)["errors"]
        assert sentence.startswith("this master decides nothing now: it has no contact to ZooKeeper"), (
            sentence
        )
    eventually(lambda: flow.passed > passed + 200, "rows are processed", WAIT_S)
    assert flow.version == version


def status_of(url: str, content: bytes | None = None, kind: str = "application/json") -> tuple[int, str]:
    """Of the answer, with its text."""
    request = urllib.request.Request(url, data=content, headers={"content-type": kind, **as_owner(url)})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_cluster_that_is_killed_with_all_its_workers_goes_on_with_its_job(
    cluster: Masters, flow: Flow, data: Path
) -> None:
    first, second = cluster.pair()
    with cluster.client() as client:
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        everybody = [*first.family(), *second.family()]
        assert len(everybody) >= 2, "workers"
        for master in (first, second):
            master.process.kill()
        for process in everybody:
            process.kill()
        takeover = Takeover(cluster, flow, "all of it started again")
        again = [cluster.start(name) for name in ("first-again", "second-again")]
        eventually(lambda: any(map(cluster.leads, again)), "one of them leads", WAIT_S, 0.1)
        takeover.of(next(master for master in again if cluster.leads(master)), job)
        await_job(client, job, is_running, "it runs")
        flow.assert_exact()
    cluster.assert_each_write_was_the_leaders(data, 2)


def test_a_command_that_waits_for_a_job_follows_it_to_the_next_leader(cluster: Masters, flow: Flow) -> None:
    first, second = cluster.pair()
    with cluster.client() as client:
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        named = {key: cluster.options[key] for key in cluster.options if "root" in key or "cluster-id" in key}
        where = f"zookeeper://{cluster.quorum}"
        with RestClient(second.serves_at) as at_standby:
            assert at_standby.info(job).job == job
            shown = json.loads(status_of(f"{second.serves_at}/unistream/cluster")[1])
            assert [one["rest_url"] for one in shown["contenders"]] == [first.urls[-1], second.serves_at]
        first.end(signal.SIGKILL)  # what follows meets no leader at first
        listed = cluster.command("list", "list", "-m", where, "--json", defines=named)
        assert listed.wait() == 0, listed.err
        [found] = listed.lines[0]["jobs"]
        assert found["job"]["job"] == job
        assert cluster.leads(second)
        assert second.urls == [second.serves_at], "it leads where it stood by"
        await_job(client, job, is_running, "it runs")
        saved = cluster.command("savepoint", "savepoint", job, "-m", where, "--json", defines=named)
        assert saved.wait() == 0, saved.err
        assert saved.lines[0]["job"] == job
        ended = cluster.command("stop", "stop", job, "-m", where, "--json", defines=named)
        assert ended.wait() == 0, ended.err
        with RestClient(second.urls[-1]) as direct:
            assert direct.info(job).state == "FINISHED"
    assert len(flow.numbers()) == len(set(flow.numbers()))
