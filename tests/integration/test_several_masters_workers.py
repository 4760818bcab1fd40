"""Several masters and workers that are not their children: of users, and on a Spark cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.eventually import eventually
from tests.integration.copied_topic import Flow
from tests.integration.several_masters import (
    OF_HA_MATRIX,
    WAIT_S,
    Masters,
    Program,
    Takeover,
    await_job,
    is_running,
    masters_in,
)
from tests.integration.spark_cluster import SparkCluster
from unistream.client.remote.rest_client import RestClient

pytestmark = pytest.mark.kafka

HEARTBEAT = {"heartbeat.timeout": "1 h"}  # which is not waited for
HOSTS = ("127.0.0.2", "127.0.0.3")
ON_SPARK = {
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "10 s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.locality.wait": "500ms",
}


@pytest.fixture
def flow(tmp_path: Path, kafka: str, topic: str) -> Iterator[Flow]:
    with Flow(tmp_path, kafka, topic) as flow:
        yield flow


@pytest.fixture
def data(stack_dir: Path) -> Path:
    """Of ZooKeeper."""
    return stack_dir / "zookeeper"


# --- workers of users ---------------------------------------------------------------------------------


def worker(cluster: Masters, name: str) -> Program:
    """Finds the leader by ZooKeeper."""
    named = {key: cluster.options[key] for key in cluster.options if "root" in key or "cluster-id" in key}
    words = ("taskmanager", "start", "-m", f"zookeeper://{cluster.quorum}", "--slots", "1")
    return cluster.command(name, *words, defines=named)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed", marks=OF_HA_MATRIX),
        pytest.param(signal.SIGSTOP, id="standing still"),
    ],
)
def test_workers_of_users_follow_the_leader(
    tmp_path: Path, zookeeper: str, flow: Flow, data: Path, number: signal.Signals
) -> None:
    options = {**HEARTBEAT, "jobmanager.rpc.port": "0"}
    with (
        masters_in(tmp_path, zookeeper, target="standalone", options=options) as cluster,
        cluster.client() as client,
    ):
        first, second = cluster.pair()
        workers = [worker(cluster, f"worker-{n}") for n in range(2)]
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        takeover = Takeover(cluster, flow, f"workers of users, {number.name}")
        first.send(number)
        cluster.await_leader(second)
        led_s = time.monotonic()
        with RestClient(second.urls[-1]) as at_second:
            eventually(lambda: len(at_second.task_managers()) == 2, "both are there", WAIT_S, 0.05)
        print(f"\nboth workers are at the next leader after {time.monotonic() - led_s:.1f} s")
        takeover.of(second, job)
        if number == signal.SIGSTOP:
            first.send(signal.SIGCONT)
            cluster.await_contenders(2)
            flow.await_commits()
            assert len(client.task_managers()) == 2, "they stay at the one that leads"
        assert all(worker.lives for worker in workers)
        flow.assert_exact()
        client.client(job).cancel()
        await_job(client, job, lambda info: info.is_terminal, "it ends")
        assert second.end() == 0
        if number == signal.SIGSTOP:
            cluster.await_leader(first)
            eventually(lambda: len(client.task_managers()) == 2, "and go back", WAIT_S, 0.1)
    cluster.assert_each_write_was_the_leaders(data, 2 if number == signal.SIGKILL else 3)


# --- workers on a Spark cluster -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark"), HOSTS)
    yield cluster
    cluster.close()


@pytest.mark.spark
@OF_HA_MATRIX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "standing still"])
def test_each_leader_has_a_spark_application_of_its_own(  # noqa: PLR0917  # fixtures
    tmp_path: Path, zookeeper: str, flow: Flow, data: Path, spark: SparkCluster, number: signal.Signals
) -> None:
    options = {**ON_SPARK, "spark.master": spark.master}
    with (
        masters_in(tmp_path, zookeeper, target="spark", options=options) as cluster,
        cluster.client() as client,
    ):
        first, second = cluster.pair()
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        old = processes_of(client.info(job).task_managers)
        takeover = Takeover(cluster, flow, f"on Spark, {number.name}")
        first.send(number)
        takeover.of(second, job)
        if number == signal.SIGSTOP:
            first.send(signal.SIGCONT)
            cluster.await_contenders(2)
        _, alive = psutil.wait_procs(old, timeout=WAIT_S)
        assert not alive, "workers of the former leader end by themselves"
        first.assert_nothing_is_left()
        flow.await_commits()
        await_job(client, job, is_running, "it runs")
        flow.assert_exact()
        client.client(job).cancel()
        await_job(client, job, lambda info: info.is_terminal, "it ends")
    cluster.assert_each_write_was_the_leaders(data, 2)


def processes_of(workers: object) -> list[psutil.Process]:
    """Of workers on this machine."""
    assert isinstance(workers, tuple)
    pids = [worker.pid for worker in workers]
    assert pids
    assert os.getpid() not in pids
    return [psutil.Process(pid) for pid in pids]
