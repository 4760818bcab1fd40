"""All kinds of state in jobs that run: workers die, parallelism and backend change, results stay exact.

`stateful_rows` has the pipeline. One job is followed through its lives:

    2 subtasks ── SIGKILL ── stop ──► 4 subtasks ── SIGKILL ── stop ──► 1 subtask, the other backend
                                                                        ── checkpoint ── SIGKILL ── to the end
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.stateful_rows import (
    COLUMNS,
    ROWS,
    RULE_COLUMNS,
    RULES,
    Totals,
    Truth,
    artifact_of,
    assert_exact,
    pipeline,
    truth_of,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack
from unistream.worker.exchange import STATE_FOLDER_PREFIX
from unistream.worker.task.operator_context import RESTORED_BYTES

SLOW = 400  # rows/s: two minutes to the end, which no life but the last comes to
FASTER = 4_000
FAST = 40_000
OTHER = {"hashmap": "rocksdb", "rocksdb": "hashmap"}
CONFIG = {
    "execution.checkpointing.interval": "250 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "execution.checkpointing.incremental": "true",
}


def submit(
    cluster: EmbeddedCluster,
    lake: Path,
    backend: str,
    *,
    parallelism: int,
    rate: float,
    savepoint: str | None = None,
) -> EmbeddedJobClient:
    graph, artifact = artifact_of(pipeline(lake, parallelism=parallelism, rate=rate))
    config = {**CONFIG, "state.backend.type": backend}
    return cluster.submit(SubmitRequest(graph=graph, artifact=artifact, config=config, savepoint=savepoint))


def finish(job: EmbeddedJobClient) -> None:
    result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure


def kill_one(job: EmbeddedJobClient, recovered: int = 2) -> None:
    """SIGKILL to a worker once two checkpoints are there; returns when there are `recovered` others."""
    info = job.wait_for(lambda i: _at_work(i, restarts=0, checkpoints=2), WAIT_S)
    pid = info.task_managers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    info = job.wait_for(lambda i: i.restarts > 0, WAIT_S)
    done = info.checkpoints_completed
    if recovered:
        job.wait_for(lambda i: _at_work(i, restarts=1, checkpoints=done + recovered), WAIT_S)


def _at_work(info: JobInfo, *, restarts: int, checkpoints: int) -> bool:
    there = info.restarts >= restarts and info.checkpoints_completed >= checkpoints
    return info.state == "RUNNING" and there and info.metrics.get("rows_committed", 0) > 0


def local_state(cluster: EmbeddedCluster) -> set[str]:
    """Folders in which workers keep state on the disk."""
    return {path.name for path in (cluster.workdir / "tmp").glob(f"{STATE_FOLDER_PREFIX}*")}


def stop(job: EmbeddedJobClient, folder: Path) -> str:
    savepoint = job.stop(target=str(folder / "savepoints"))
    finish(job)
    return savepoint


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    work = tmp_path_factory.mktemp("cluster")
    (work / "tmp").mkdir()
    config = Configuration({"heartbeat.interval": "200 ms", "io.tmp.dirs": str(work / "tmp")})
    with EmbeddedCluster("local", config, workdir=work, rest=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def truth(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    lake = tmp_path_factory.mktemp("truth")
    env = us.Environment({**STREAMING, "parallelism.default": "1"})
    for name, columns, rows, seed in (("rows", COLUMNS, ROWS, 7), ("rules", RULE_COLUMNS, RULES, 5)):
        source = us.DatagenSource(columns, rows=rows, seed=seed)
        stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), name).uid(name)
        stream.sink_to(us.DeltaSink(str(lake / name))).uid(f"{name}-table")
    graph, code = env.job_graph("truth")
    finish(cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})))
    return truth_of(*(DeltaTable(str(lake / name)).to_pyarrow_table() for name in ("rows", "rules")))


@dataclass(frozen=True)
class Stopped:
    """What the first life of a job left. `restore`: puts its tables back as it left them."""

    lake: Path
    savepoint: str

    def restore(self) -> Path:
        shutil.rmtree(self.lake)
        shutil.copytree(self.lake.with_name("copy"), self.lake)
        return self.lake


@pytest.fixture(scope="module")
def stopped(
    cluster: EmbeddedCluster, truth: Truth, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Stopped]:
    """By backend, made once: 2 subtasks, one worker died, stopped with a savepoint."""

    @cache
    def stopped(backend: str) -> Stopped:
        folder = tmp_path_factory.mktemp(f"stopped-{backend}")
        job = submit(cluster, folder / "lake", backend, parallelism=2, rate=SLOW)
        kill_one(job)
        savepoint = stop(job, folder)
        shutil.copytree(folder / "lake", folder / "copy")
        return Stopped(folder / "lake", savepoint)

    return stopped


@pytest.mark.parametrize("backend", OTHER)
def test_all_state_survives_deaths_other_widths_and_another_backend(
    cluster: EmbeddedCluster, truth: Truth, stopped: Callable[[str], Stopped], backend: str, tmp_path: Path
) -> None:
    first = stopped(backend)
    lake = first.restore()
    wide = submit(cluster, lake, backend, parallelism=4, rate=SLOW, savepoint=first.savepoint)
    before = local_state(cluster)
    kill_one(wide)
    if backend == "rocksdb":
        workers = {subtask.task_manager for subtask in wide.status().subtasks}
        assert before - local_state(cluster), "what the dead worker left is removed"
        assert len(local_state(cluster)) == len(workers)
        shared = cluster.workdir / "checkpoints" / wide.job_id / "shared"
        assert next(shared.glob("chk-*"), None) is not None, "checkpoints share files of the database"
    second = stop(wide, tmp_path)
    held = DeltaTable(str(lake / "held")).to_pyarrow_table()["what"].to_pylist()
    assert 0 < held.count("id") < ROWS, "it was in the middle"
    narrow = submit(cluster, lake, OTHER[backend], parallelism=1, rate=FASTER, savepoint=second)
    kill_one(narrow, recovered=0)
    finish(narrow)
    restored = assert_exact(lake, truth, subtasks=1)
    assert restored >= 5, "two savepoints and a checkpoint after each death"


def test_each_subtask_reads_its_share_of_the_state_and_little_else(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    keys = 50_000
    first = cluster.submit(counted_keys(keys, parallelism=1))
    first.wait_for(lambda i: i.metrics.get("records_in", 0) >= 16 * keys, WAIT_S)  # of both vertices
    savepoint = stop(first, tmp_path)
    assert us.read_savepoint(savepoint).table("totals", "total").num_rows > 0.99 * keys
    size = sum(path.stat().st_size for path in Path(savepoint.removeprefix("file://")).rglob("*.arrow*"))
    second = cluster.submit(counted_keys(keys, parallelism=2, savepoint=savepoint))
    try:
        info = second.wait_for(lambda i: len(restored_bytes(i)) == 2, WAIT_S)
    finally:
        second.cancel()
    read = restored_bytes(info)
    assert max(read) <= 1.1 * size / 2
    assert sum(read) == pytest.approx(size, rel=0.1)


def restored_bytes(info: JobInfo) -> list[int]:
    """By subtask that had something to read."""
    found = (subtask.metrics.user.get(RESTORED_BYTES, 0) for subtask in info.subtasks)
    return [number for number in found if number]


def counted_keys(keys: int, *, parallelism: int, savepoint: str | None = None) -> SubmitRequest:
    """An endless job that sums by key."""
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    columns = {"key": us.datagen.RandomInt(0, keys), "value": us.datagen.RandomInt(0, 9)}
    source = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=4 * keys, splits=2)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    returns = {"key": pa.int64(), "added": pa.int64(), "total": pa.int64()}
    totals = rows.key_by("key").process_batch(Totals(), returns=returns).uid("totals")
    totals.filter(us.col("total") < 0).print()
    graph, artifact = artifact_of(env)
    return SubmitRequest(graph=graph, artifact=artifact, config=CONFIG, savepoint=savepoint)


@pytest.mark.spark
def test_state_that_was_stored_on_local_workers_is_restored_in_spark(
    truth: Truth, stopped: Callable[[str], Stopped], tmp_path: Path
) -> None:
    first = stopped("hashmap")
    lake = first.restore()
    with EmbeddedCluster("spark", Configuration(), workdir=tmp_path / "work", rest=False) as spark:
        finish(submit(spark, lake, "rocksdb", parallelism=3, rate=FAST, savepoint=first.savepoint))
    assert assert_exact(lake, truth, subtasks=3) >= 2
