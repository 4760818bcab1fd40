"""A real Spark standalone cluster on two hosts, with the JobManager on a third: an executor and a host are
lost, and what workers are given is seen by nobody else. Long, so for the night."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import unistream as us
from tests import bounded_pipeline
from tests.bounded_pipeline import Numbers, check_results, pipeline, write_rows
from tests.eventually import WAIT_S, eventually
from tests.integration.broker_on_host import broker_on
from tests.integration.keyed_topic import KeyedFlow
from tests.integration.on_hosts import NEEDS_HOSTS
from tests.integration.several_masters import Master, await_job, is_running
from tests.integration.spark_on_hosts import ClusterOnSpark, SparkOnHosts, executors, pages, secured
from tests.support.servers.hosts import Host, Hosts
from tests.support.servers.wiretap import Wiretap
from tests.walked import walked
from unistream.client.remote.address import FixedAddress
from unistream.client.remote.rest_client import RestClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.worker.code import pack

pytestmark = [NEEDS_HOSTS, pytest.mark.spark, pytest.mark.kafka]

RATE: Final = 100.0
CANARY: Final = "canary-of-a-store"
UI_PAGES: Final = ("/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/api/v1/applications")
OPTIONS: Final = {
    "heartbeat.timeout": "15 s",
    "s3.access-key": "of-a-store",
    "s3.secret-key": CANARY,
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "2s",
    "spark.ui.enabled": "true",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


@dataclass
class Scene:
    """Where it happens."""

    folder: Path
    hosts: Hosts
    spark: SparkOnHosts
    cluster: ClusterOnSpark
    master: Master
    token: str

    @contextmanager
    def client(self) -> Iterator[RestClient]:
        """From the switch."""
        url = FixedAddress(self.master.urls[-1])
        with self.hosts.inside(), RestClient(url, timeout_s=WAIT_S, token=self.token) as client:
            yield client

    def lose(self, host: Host) -> None:
        """It is gone with all that it ran, and nobody says so."""
        host.cut()
        host.kill()

    def mend(self, at: str) -> None:
        """The host is back, with a Spark worker."""
        self.hosts[at].heal()
        self.spark.start_worker(at)
        self.spark.await_workers(2)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    (folder / "events").mkdir()
    theirs, ours = secured(folder)
    with ExitStack() as closing:
        hosts = closing.enter_context(Hosts(folder / "hosts", "a", "b", "c", "k"))
        spark = SparkOnHosts(folder / "spark", hosts, "a", theirs)
        for name in "bc":
            spark.start_worker(name)
        spark.await_workers(2)
        events = {"spark.eventLog.dir": (folder / "events").as_uri()}
        cluster = ClusterOnSpark(folder, hosts, spark, {**OPTIONS, **ours, **events})
        closing.callback(cluster.clear)
        master = cluster.master("a")
        token = cluster.says("a", "token", "create", "client", "--scope", "submit")
        yield Scene(folder, hosts, spark, cluster, master, token)


def test_each_row_is_counted_once_when_an_executor_and_a_host_are_lost(scene: Scene, tmp_path: Path) -> None:
    """And nobody sees what workers are given: not on the wire, in logs, in Spark's UI."""
    hosts = scene.hosts
    with ExitStack() as closing:
        address = closing.enter_context(broker_on(hosts["k"], tmp_path / "kafka"))
        tap = closing.enter_context(Wiretap(hosts))
        with hosts.inside():
            create_topic(address, "rows", partitions=2)
            flow = closing.enter_context(KeyedFlow(tmp_path, address, "rows", RATE))
        with scene.client() as client:
            job = client.submit(flow.request()).job_id
            info = await_job(client, job, is_running, "it runs")
        flow.await_commits()

        def goes_on(what: str, restarts: int) -> JobInfo:
            with scene.client() as client:
                found = await_job(client, job, lambda i: i.restarts > restarts and is_running(i), what)
            flow.await_commits(3)
            return found

        for process in executors(_of(hosts, info)):
            process.kill()
        info = goes_on("an executor is lost", info.restarts)
        lost = _of(hosts, info)
        scene.lose(lost)
        info = goes_on("a host is lost", info.restarts)
        assert lost.name not in {worker.host for worker in info.task_managers}
        said = pages(hosts["a"], 4040, UI_PAGES)
        flow.assert_exact()
        assert len(set(flow.epochs())) == 1
        with scene.client() as client:
            client.client(job).cancel()
        scene.mend(lost.name.removeprefix("host-"))
        assert "TaskManager tm-" in said, "its jobs are shown"
        _assert_nothing_is_told(scene, said, tap)


def _of(hosts: Hosts, info: JobInfo) -> Host:
    """One that has a worker of the job."""
    name = info.task_managers[0].host
    return next(host for host in hosts if host.name == name)


def _assert_nothing_is_told(scene: Scene, said: str, tap: Wiretap) -> None:
    """Of keys and secrets in what Spark writes and shows, and what goes over the wire."""
    written = {
        str(path): path.read_bytes()
        for folder in (scene.folder / "events", scene.folder / "spark")
        for path in walked(folder)
        if path.is_file() and path.name != "spark.conf"
    }
    written |= {"UI": said.encode(), "JobManager": scene.master.err.encode()}
    assert any("SparkListenerTaskEnd" in content.decode(errors="replace") for content in written.values())
    for word in (CANARY, "PRIVATE KEY", "canary-of-the-secret"):
        assert [name for name, content in written.items() if word.encode() in content] == []
        assert tap.seen(word) == []


def test_executors_that_do_not_reach_the_job_manager_are_named(scene: Scene, tmp_path: Path) -> None:
    """One that listens for its own host alone, which is the default."""
    here = "127.0.0.1"
    closed = {"jobmanager_bind-host": here, "rest_bind-address": here, "rest_address": here}
    master = scene.cluster.master("a", "closed", **closed)
    run = ("run", "keyed_files:some", "-t", "remote", "-m", master.urls[-1].removeprefix("http://"), "--json")
    said = scene.cluster.says("a", *run, "-D", "execution.runtime-mode=STREAMING", code=1)
    assert "no worker of this cluster can run on host-" in said
    assert "start the cluster with jobmanager.bind-host (0.0.0.0) and jobmanager.rpc.address" in said


class Slowly(Numbers):
    """Takes some seconds in all, and says when it has begun."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        self._mark.touch()
        time.sleep(0.002)
        super().process_element(row, context, out)


def test_a_bounded_job_has_each_row_once_when_a_host_is_lost(scene: Scene, tmp_path: Path) -> None:
    write_rows(tmp_path)
    env = us.Environment({"parallelism.default": "3"})
    pipeline(env, tmp_path, Slowly(tmp_path / "began"))
    graph, code = env.job_graph("bounded")
    artifact = pack(code, by_value=[bounded_pipeline, sys.modules[__name__]])
    with scene.client() as client:
        job = client.submit(SubmitRequest(graph=graph, artifact=artifact, config=env.config.to_dict())).job_id
        eventually((tmp_path / "began").exists, "the second stage runs", WAIT_S)
        scene.lose(scene.hosts["c"])
        info = await_job(client, job, lambda i: i.is_terminal, "it has ended")
    scene.mend("c")
    assert (info.state, info.engine, info.restarts) == ("FINISHED", "spark", 0), info.exceptions
    check_results(tmp_path)
