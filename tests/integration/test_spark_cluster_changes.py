"""What a Spark cluster does to workers by itself: it decommissions executors, allocates them dynamically,
and its master is restarted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S, eventually
from tests.integration.spark_cluster import SparkCluster, spark_drivers
from tests.integration.tapped_rows import committed
from tests.integration.test_host_spark_cluster import CONFIG, HOSTS, host_of, is_running, submit, whole_host
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

pytestmark = pytest.mark.spark

ROWS = 8_000
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
}


@contextmanager
def on_spark(
    folder: Path, settings: dict[str, str], options: dict[str, str]
) -> Iterator[tuple[SparkCluster, EmbeddedCluster]]:
    """A Spark cluster, and ours in front of it."""
    (folder / "spark").mkdir()
    spark = SparkCluster(folder / "spark", HOSTS, settings)
    try:
        config = Configuration(CONFIG | {"spark.master": spark.master} | options)
        with EmbeddedCluster("spark", config, workdir=folder / "work", rest=False) as cluster:
            yield spark, cluster
    finally:
        spark.close()


def test_tasks_move_from_an_executor_that_is_decommissioned_before_it_goes(tmp_path: Path) -> None:
    on = {"spark.decommission.enabled": "true"}
    with on_spark(tmp_path, on, on) as (spark, cluster):
        job = submit(cluster, tmp_path, rows=ROWS, group=whole_host())
        host = host_of(job.wait_for(is_running, WAIT_S))
        left = spark.executors(host)
        spark.decommission(host)
        info = job.wait_for(lambda i: i.restarts == 1 and is_running(i), WAIT_S)
        assert host_of(info) in set(HOSTS) - {host}
        [failure] = info.exceptions
        assert f"on {host}, and so it is drained" in failure.message
        _, alive = psutil.wait_procs(left, timeout=WAIT_S)
        assert not alive, "it ends by itself, since nothing runs there any more"
        assert job.wait(WAIT_S).state == "FINISHED"
        assert committed(tmp_path / "rows") == list(range(ROWS))


def test_executors_come_when_workers_are_wanted_and_go_when_they_have_ended(tmp_path: Path) -> None:
    with on_spark(tmp_path, {}, DYNAMIC) as (spark, cluster):
        eventually(lambda: not any(map(spark.executors, HOSTS)), "no executor has work", WAIT_S)
        job = submit(cluster, tmp_path, rows=4_000, parallelism=2, group=whole_host())
        info = job.wait_for(is_running, WAIT_S)
        assert {worker.host for worker in info.task_managers} == set(HOSTS)
        assert job.wait(WAIT_S).state == "FINISHED"
        assert committed(tmp_path / "rows") == list(range(4_000))
        eventually(lambda: not any(map(spark.executors, HOSTS)), "they have ended", WAIT_S)


def test_a_master_of_spark_that_was_restarted_and_remembers_is_not_noticed(tmp_path: Path) -> None:
    kept = {"spark.deploy.recoveryMode": "FILESYSTEM", "spark.deploy.recoveryDirectory": str(tmp_path)}
    with on_spark(tmp_path, kept, {}) as (spark, cluster):
        job = submit(cluster, tmp_path, rows=2 * ROWS, group=whole_host())
        job.wait_for(is_running, WAIT_S)
        restart_master(spark)
        assert job.wait(WAIT_S).state == "FINISHED"
        assert job.status().restarts == 0
        again = submit(cluster, tmp_path / "again", rows=100, group=whole_host())
        assert again.wait(WAIT_S).state == "FINISHED"


def test_a_job_goes_on_although_the_master_of_spark_was_restarted_and_remembers_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the executors, which is where the job is lost, and gives no others."""
    caplog.set_level(logging.INFO, logger="unistream")
    with on_spark(tmp_path, {}, {}) as (spark, cluster):
        job = submit(cluster, tmp_path, rows=None, group=whole_host())
        job.wait_for(is_running, WAIT_S)
        left = [process for host in HOSTS for process in spark.executors(host)]
        restart_master(spark)
        _, alive = psutil.wait_procs(left, timeout=WAIT_S)
        assert not alive
        info = job.wait_for(lambda i: i.restarts > 0 and is_running(i), WAIT_S)
        assert info.notes == ()
        job.cancel()
        assert job.wait(WAIT_S).state == "CANCELED"
        found = committed(tmp_path / "rows")
        assert found == list(range(len(found)))
        [said] = [one.message for one in caplog.records if "event=spark_forgotten" in one.message]
        assert "was restarted and does not know it" in said


def restart_master(spark: SparkCluster) -> None:
    spark.kill_master()
    spark.start_master()
    spark.wait_for_workers(len(HOSTS))


def test_a_spark_that_shows_what_it_carries_is_refused_where_that_is_wanted(tmp_path: Path) -> None:
    """And nothing of it is left."""
    config = Configuration(
        {
            "spark.master": "local-cluster[1,1,1024]",
            "jobmanager.bind-host": "0.0.0.0",
            "security.spark.require-authentication": "true",
        }
    )
    with pytest.raises(ConfigError, match=r"turn on spark\.authenticate and spark\.network\.crypto\.enabled"):
        EmbeddedCluster("spark", config, workdir=tmp_path, rest=False)
    assert spark_drivers() == []
