"""Workers on a Spark cluster of two hosts: spread, sized, lost with their host, kept away from one."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration import tapped_rows
from tests.integration.spark_cluster import SparkCluster
from tests.integration.tapped_rows import SliceSink, Tap, committed
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo, TaskManagerInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = pytest.mark.spark

HOSTS = ("127.0.0.2", "127.0.0.3")
BLOCK_MS = 6_000
CONFIG = {
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "10 s",
    "execution.checkpointing.interval": "300 ms",
    "resourcemanager.taskmanager-timeout": "0 ms",
    "slot.idle.timeout": "0 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "cluster.resource-blocklist.failures": "3",
    "cluster.resource-blocklist.duration": f"{BLOCK_MS} ms",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.locality.wait": "500ms",
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


def submit(
    cluster: EmbeddedCluster,
    out: Path,
    *,
    rows: int | None,
    parallelism: int = 1,
    group: us.SlotSharingGroup | None = None,
    each: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> EmbeddedJobClient:
    """Numbered rows, each subtask's own, from a source through a function to a sink; `rows` None: endless."""
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    source = us.DatagenSource(
        {"id": us.datagen.Sequential()},
        rows=rows,
        bounded=rows is not None,
        rows_per_second=1_000,
        splits=parallelism,
    )
    numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    if group is not None:
        numbers = numbers.slot_sharing_group(group)
    tapped = numbers.map_batches(each or Tap("tap", out / "taps"), returns=source.schema).uid("tap")
    tapped.sink_to(SliceSink(out / "rows")).uid("out")
    graph, code = env.job_graph("numbers")
    artifact = pack(code, by_value=[tapped_rows, sys.modules[__name__]])
    return cluster.submit(SubmitRequest(graph=graph, artifact=artifact, config=CONFIG))


def whole_host(name: str = "whole") -> us.SlotSharingGroup:
    """A slot that takes all cores of an executor."""
    return us.SlotSharingGroup(name, cpu_cores=2.0, task_memory="200 mb")


def is_running(info: JobInfo) -> bool:
    return info.state == "RUNNING" and info.checkpoints_completed > 0


def workers_of(info: JobInfo) -> list[TaskManagerInfo]:
    assert all(worker.pid is not None for worker in info.task_managers)
    return list(info.task_managers)


def host_of(info: JobInfo) -> str:
    (worker,) = workers_of(info)
    assert worker.host is not None
    return worker.host


def test_workers_on_both_hosts_give_every_row_once(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, rows=4_500, parallelism=3)  # two cores each: no host has room for three
    info = job.wait_for(is_running, WAIT_S)
    assert {worker.host for worker in workers_of(info)} == set(HOSTS), "by their executors' hosts"
    assert len(info.task_managers) == 3
    assert job.wait(WAIT_S).state == "FINISHED"
    assert committed(tmp_path / "rows") == list(range(4_500))


class TooMuch:
    """Takes more memory than its slot has, once, when there is a file `now`."""

    def __init__(self, folder: Path) -> None:
        self._tap = Tap("much", folder)
        self._now = str(folder / "now")

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if os.path.exists(self._now) and self._tap._first("much"):
            held = bytearray(900 << 20)
            time.sleep(60)  # it is ended before
            del held
        return self._tap(batch)


def test_a_slot_gets_the_cores_and_the_memory_of_its_group(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = submit(
        cluster, tmp_path, rows=6_000, parallelism=2, group=whole_host(), each=TooMuch(tmp_path / "taps")
    )
    info = job.wait_for(is_running, WAIT_S)
    workers = workers_of(info)
    assert sorted(worker.host or "" for worker in workers) == list(HOSTS), "each takes a host's two cores"
    assert {(w.profile.cpu_cores, w.profile.memory_mb) for w in workers} == {(2.0, 200)}
    limits = {w.memory["process"] >> 20 for w in workers}
    assert len(limits) == 1
    assert 200 < limits.pop() < 900
    for worker in workers:
        log = (cluster.workdir / "logs" / f"taskmanager-{worker.id}.log").read_text()
        assert "threads=2" in log, "what its libraries may use"
    (tmp_path / "taps" / "now").touch()
    assert job.wait(WAIT_S).state == "FINISHED"
    after = job.status()
    assert [entry.kind for entry in after.exceptions] == ["TaskManagerLost"]
    (lost,) = (w for w in workers if w.id == after.exceptions[0].task_manager)
    said = (cluster.workdir / "logs" / f"taskmanager-{lost.id}.log").read_text()
    assert "event=out_of_memory" in said
    assert committed(tmp_path / "rows") == list(range(6_000))


def test_a_host_on_which_no_worker_starts_is_left_alone_for_a_while(
    cluster: EmbeddedCluster, spark: SparkCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="unistream")
    first = submit(cluster, tmp_path / "a", rows=None, group=whole_host())
    good = host_of(first.wait_for(is_running, WAIT_S))
    (bad,) = set(HOSTS) - {good}
    spark.break_python(bad)
    second = submit(cluster, tmp_path / "b", rows=None, group=whole_host())

    def avoided(host: str) -> int:
        return sum("event=worker_wanted" in r.message and f"'{host}'" in r.message for r in caplog.records)

    eventually(lambda: avoided(bad) > 0, "the broken host is blocked")
    assert second.status().state != "RUNNING", "the other host is full"
    first.cancel()
    assert host_of(second.wait_for(is_running, WAIT_S)) == good, "the job goes on where there is room"
    kinds = {failure.kind for failure in second.status().exceptions}
    assert kinds <= {"TaskManagerNotStarted"}, "a worker that never came up was no task's"
    spark.mend_python(bad)
    third = submit(cluster, tmp_path / "c", rows=None, group=whole_host())
    assert host_of(third.wait_for(is_running, WAIT_S)) == bad, "its time is over"
    for job in (second, third):
        job.cancel()
        assert job.wait(WAIT_S).state == "CANCELED"


def test_a_killed_spark_worker_takes_its_task_managers_along_and_the_job_goes_on(
    cluster: EmbeddedCluster, spark: SparkCluster, tmp_path: Path
) -> None:
    job = submit(cluster, tmp_path, rows=8_000, group=whole_host())
    host = host_of(job.wait_for(is_running, WAIT_S))
    spark.kill_worker(host)
    info = job.wait_for(lambda i: i.restarts == 1 and is_running(i), WAIT_S)
    assert host_of(info) in set(HOSTS) - {host}
    assert [entry.kind for entry in info.exceptions] == ["TaskManagerLost"]
    assert job.wait(WAIT_S).state == "FINISHED"
    assert committed(tmp_path / "rows") == list(range(8_000))
    spark.start_worker(host)  # for the tests that follow, in whichever order
    spark.wait_for_workers(len(HOSTS))
