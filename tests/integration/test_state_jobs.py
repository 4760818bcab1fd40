"""All kinds of state in jobs that run: workers die, parallelism and backend change, results stay exact.

`stateful_rows` has the pipeline. One job is followed through its lives:

    2 subtasks ── SIGKILL ── stop ──► 4 subtasks ── SIGKILL ── stop ──► 1 subtask, the other backend
                                                                        ── checkpoint ── SIGKILL ── to the end
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from stateful_rows import (
    COLUMNS,
    ROWS,
    RULE_COLUMNS,
    RULES,
    Truth,
    artifact_of,
    assert_exact,
    pipeline,
    truth_of,
)

import unistream as us
from unistream.base.config import Configuration
from unistream.client.embedded import EmbeddedCluster, EmbeddedJobClient
from unistream.master.job_info import JobInfo
from unistream.master.job_setup import SubmitRequest
from unistream.worker.artifact import pack

WAIT_S = 60.0
SLOW = 3_000  # rows/s: 10 s to the end, which no life but the last comes to
FAST = 40_000
OTHER = {"hashmap": "rocksdb", "rocksdb": "hashmap"}
CONFIG = {
    "execution.checkpointing.interval": "250 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
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


def kill_one(job: EmbeddedJobClient) -> None:
    """SIGKILL to a worker once two checkpoints are there; returns when the job has taken another two."""
    info = job.wait_for(lambda i: _at_work(i, restarts=0, checkpoints=2), WAIT_S)
    pid = info.task_managers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    info = job.wait_for(lambda i: i.restarts > 0, WAIT_S)
    done = info.checkpoints_completed
    job.wait_for(lambda i: _at_work(i, restarts=1, checkpoints=done + 2), WAIT_S)


def _at_work(info: JobInfo, *, restarts: int, checkpoints: int) -> bool:
    there = info.restarts >= restarts and info.checkpoints_completed >= checkpoints
    return info.state == "RUNNING" and there and info.metrics.get("rows_committed", 0) > 0


def stop(job: EmbeddedJobClient, folder: Path) -> str:
    savepoint = job.stop(target=str(folder / "savepoints"))
    finish(job)
    return savepoint


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = Configuration({"heartbeat.interval": "200 ms"})
    work = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster("local", config, workdir=work, rest=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def truth(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    lake = tmp_path_factory.mktemp("truth")
    env = us.Environment({"parallelism.default": "1"})
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


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stopped(
    cluster: EmbeddedCluster, truth: Truth, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Stopped:
    """2 subtasks, one worker died, stopped with a savepoint."""
    folder = tmp_path_factory.mktemp(f"stopped-{backend}")
    job = submit(cluster, folder / "lake", backend, parallelism=2, rate=SLOW)
    kill_one(job)
    savepoint = stop(job, folder)
    shutil.copytree(folder / "lake", folder / "copy")
    return Stopped(folder / "lake", savepoint)


def test_all_state_survives_deaths_other_widths_and_another_backend(
    cluster: EmbeddedCluster, truth: Truth, stopped: Stopped, backend: str, tmp_path: Path
) -> None:
    lake = stopped.restore()
    wide = submit(cluster, lake, backend, parallelism=4, rate=SLOW, savepoint=stopped.savepoint)
    kill_one(wide)
    second = stop(wide, tmp_path)
    assert 0 < DeltaTable(str(lake / "held")).to_pyarrow_table().num_rows < ROWS, "it was in the middle"
    narrow = submit(cluster, lake, OTHER[backend], parallelism=1, rate=SLOW, savepoint=second)
    kill_one(narrow)
    finish(narrow)
    restored = assert_exact(lake, truth, subtasks=1)
    assert restored >= 5, "two savepoints and a checkpoint after each death"
