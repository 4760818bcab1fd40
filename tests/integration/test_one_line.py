"""Jobs on one table at the same time: from one savepoint, without any, and one that was taken for dead."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.counted_rows import assert_exact, counted, start
from tests.integration.crash_runs import submit
from tests.modes import STREAMING
from tests.support.servers.kafka_tools import open_transactions, read_committed
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.remote.job_client import JobResult

ROWS = 6_000
SLOW, FAST = 60.0, 3_000.0  # rows/s: no first run comes to the end, on a busy machine either
CONFIG = {"execution.checkpointing.interval": "300 ms"}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EmbeddedCluster]]:
    """Two that know nothing of each other."""
    works = [tmp_path_factory.mktemp("cluster") for _ in range(2)]
    config = Configuration({"taskmanager.numberOfTaskSlots": "4"})
    with (
        EmbeddedCluster("local", config, workdir=works[0], rest=False) as first,
        EmbeddedCluster("local", config, workdir=works[1], rest=False) as second,
    ):
        yield [first, second]


def committed(lake: Path) -> int:
    return int(DeltaTable(str(lake)).to_pyarrow_table().num_rows) if lake.exists() else 0


def stopped(cluster: EmbeddedCluster, lake: Path) -> str:
    """A job has written a part of the rows; the savepoint with which it was stopped."""
    job = start(cluster, counted(lake, rows=ROWS, keys=40, rate=SLOW), CONFIG)
    job.wait_for(lambda info: info.metrics.get("rows_committed", 0) > 200, WAIT_S)
    savepoint = job.stop()
    assert job.wait(WAIT_S).state == "FINISHED"
    assert 200 < committed(lake) < ROWS
    return savepoint


def one_of(jobs: list[EmbeddedJobClient]) -> JobResult:
    """The one that has finished; the other was refused, with the reason."""
    ended = [job.wait(WAIT_S) for job in jobs]
    assert sorted(one.state for one in ended) == ["FAILED", "FINISHED"], ended
    winner, loser = sorted(ended, key=lambda one: one.state, reverse=True)
    failure = loser.failure
    assert failure is not None
    assert failure.kind in {"ConfigError", "Fenced"}
    assert f"job {winner.job}" in failure.message or "restored from checkpoint" in failure.message
    return winner


@pytest.mark.parametrize("apart", [False, True], ids=["in one cluster", "in two clusters"])
def test_of_two_jobs_from_one_savepoint_one_commits(
    clusters: list[EmbeddedCluster], tmp_path: Path, apart: bool
) -> None:
    lake = tmp_path / "lake"
    savepoint = stopped(clusters[0], lake)
    both = [
        start(cluster, counted(lake, rows=ROWS, keys=40, rate=FAST), CONFIG, savepoint)
        for cluster in (clusters[0], clusters[int(apart)])
    ]
    one_of(both)
    assert_exact(lake, ROWS)


@pytest.mark.kafka
@pytest.mark.parametrize("apart", [False, True], ids=["in one cluster", "in two clusters"])
def test_of_two_jobs_that_write_a_topic_one_commits(
    clusters: list[EmbeddedCluster], kafka: str, topic: str, apart: bool
) -> None:
    job = to_topic(clusters[0], kafka, topic, SLOW)
    eventually(lambda: len(numbers(kafka, topic)) > 200, "rows come", WAIT_S, 0.3)
    savepoint = job.stop()
    assert job.wait(WAIT_S).state == "FINISHED"
    both = [
        to_topic(cluster, kafka, topic, FAST, savepoint) for cluster in (clusters[0], clusters[int(apart)])
    ]
    one_of(both)
    assert numbers(kafka, topic) == list(range(ROWS))
    assert open_transactions(kafka, topic) == [], "what the other one has written holds back no reader"


def to_topic(
    cluster: EmbeddedCluster, servers: str, topic: str, rate: float, savepoint: str | None = None
) -> EmbeddedJobClient:
    env = us.Environment({**STREAMING, "parallelism.default": "2"})
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=ROWS, rows_per_second=rate)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    sink = us.KafkaSink(bootstrap_servers=servers, topic=topic, transactional_id_prefix=topic)
    rows.rebalance().sink_to(sink).uid("topic")
    return submit(cluster, env, CONFIG, savepoint)


def numbers(servers: str, topic: str) -> list[int]:
    """What readers of committed rows see."""
    return sorted(json.loads(value or b"")["id"] for value in read_committed(servers, topic, topic))


def test_a_job_that_starts_without_a_snapshot_is_refused_before_its_first_row(
    clusters: list[EmbeddedCluster], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    savepoint = stopped(clusters[0], lake)
    before = committed(lake)
    again = start(clusters[1], counted(lake, rows=ROWS, keys=40, rate=FAST), CONFIG).wait(WAIT_S)
    assert again.state == "FAILED"
    assert again.failure is not None
    assert f"Start from that line's last snapshot ({savepoint})" in again.failure.message
    assert (committed(lake), again.metrics.get("rows_committed", 0), again.restarts) == (before, 0, 0)
    with pytest.raises(us.ConfigError, match="on_foreign='append'"):
        counted(lake, rows=ROWS, keys=40, rate=FAST).execute("again")
    follower = start(clusters[1], counted(lake, rows=ROWS, keys=40, rate=FAST), CONFIG, savepoint)
    assert follower.wait(WAIT_S).state == "FINISHED"
    assert_exact(lake, ROWS)


def test_a_job_that_was_taken_for_dead_commits_nothing_when_it_wakes_up(
    clusters: list[EmbeddedCluster], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    old = start(clusters[0], counted(lake, rows=ROWS, keys=40, rate=SLOW), CONFIG)
    info = old.wait_for(lambda info: info.metrics.get("rows_committed", 0) > 200, WAIT_S)
    workers = [worker.pid for worker in info.task_managers if worker.pid is not None]
    savepoint = old.savepoint()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        successor = start(clusters[1], counted(lake, rows=ROWS, keys=40, rate=FAST), CONFIG, savepoint)
        successor.wait_for(lambda info: info.metrics.get("rows_committed", 0) > 0, WAIT_S)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
    winner = one_of([old, successor])
    assert winner.job in {old.job_id, successor.job_id}
    assert_exact(lake, ROWS)
