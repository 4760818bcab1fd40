"""BATCH jobs on Spark clusters: executors are lost, slow tasks run twice, and every row is seen once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import unistream as us
from tests import bounded_pipeline
from tests.bounded_pipeline import ROWS, TIMES, Numbers, check_results, pipeline, write_rows
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import in_the_gate
from tests.integration.spark_cluster import SparkCluster
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = [pytest.mark.spark]

HOSTS = ("127.0.0.2", "127.0.0.3")
CONFIG = {
    "parallelism.default": "3",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "2s",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark"), HOSTS)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def cluster(spark: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = Configuration(CONFIG | {"spark.master": spark.master})
    with EmbeddedCluster("spark", config, workdir=tmp_path_factory.mktemp("cluster"), rest=False) as cluster:
        yield cluster


def submit(cluster: EmbeddedCluster, env: us.Environment) -> EmbeddedJobClient:
    graph, code = env.job_graph("bounded")
    artifact = pack(code, by_value=[bounded_pipeline, sys.modules[__name__]])
    return cluster.submit(SubmitRequest(graph=graph, artifact=artifact, config=env.config.to_dict()))


def finished(job: EmbeddedJobClient) -> JobInfo:
    result, info = job.wait(WAIT_S), job.status()
    assert (result.state, info.engine, result.restarts) == ("FINISHED", "spark", 0), result.failure
    return info


class Slowly(Numbers):
    """Takes some seconds in all, and says when it has begun."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        self._mark.touch()
        time.sleep(0.002)
        super().process_element(row, context, out)


def test_a_lost_executor_costs_and_doubles_no_row(
    spark: SparkCluster, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """What the stage before has stored there is made again, and tasks that have read the rest of it go on."""
    write_rows(tmp_path)
    env = us.Environment({"parallelism.default": "3"})
    pipeline(env, tmp_path, Slowly(tmp_path / "began"))
    job = submit(cluster, env)
    eventually((tmp_path / "began").exists, "the second stage runs", WAIT_S)
    spark.kill_worker(HOSTS[0])
    try:
        info = finished(job)
        check_results(tmp_path)
        assert sum(stage.failed for stage in info.stages) > 0
    finally:
        spark.start_worker(HOSTS[0])
        spark.wait_for_workers(len(HOSTS))


class Stuck(us.ProcessFunction):
    """The first process that gets rows does nothing for a while; its copy elsewhere does."""

    def __init__(self, token: Path, seconds: float) -> None:
        self._token = token
        self._seconds = seconds

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit(row)
        if row["n"] % 500 == 0:
            try:
                os.close(os.open(self._token, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            time.sleep(self._seconds)


@pytest.mark.parametrize("sleep_s", in_the_gate([8.0, 3_600.0], 0))
def test_of_a_slow_task_and_its_copy_the_rows_of_one_are_seen(
    sleep_s: float, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """Both end at about the same time, or the copy wins: nobody waits for an hour."""
    write_rows(tmp_path)
    env = us.Environment({"parallelism.default": "4"})
    rows = env.from_source(us.FileSource(str(tmp_path / "in")), TIMES, "rows").uid("rows")
    rows.rebalance().process(Stuck(tmp_path / "token", sleep_s)).uid("stuck").sink_to(
        us.FileSink(str(tmp_path / "out"), target_file_bytes=4_096)
    ).uid("out")
    info = finished(submit(cluster, env))
    assert sorted(pq.read_table(tmp_path / "out").column("n").to_pylist()) == list(range(ROWS))
    assert info.sinks["out"].rows == ROWS
    assert max(subtask.attempt for subtask in info.subtasks) >= (1 if sleep_s > 10 else 0)


def test_executors_of_a_local_cluster(tmp_path: Path) -> None:
    write_rows(tmp_path)
    env = us.Environment({"parallelism.default": "3"})
    pipeline(env, tmp_path)
    config = Configuration(
        CONFIG | {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    )
    with EmbeddedCluster("spark", config, workdir=tmp_path / "work", rest=False) as cluster:
        finished(submit(cluster, env))
    check_results(tmp_path)
