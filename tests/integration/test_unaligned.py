"""Unaligned checkpoints in real processes: a slow sink behind full queues, deaths, another parallelism."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration import slow_batches
from tests.integration.crash_runs import in_flight_bytes, snapshots_in, submit
from tests.integration.slow_batches import Slow
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.job_info import JobInfo

ROWS = 60_000
RATE = 4_000  # rows/s: small batches, but more of them than the slow tasks can take
BATCH_S = 0.12  # of the slow operator; what may wait before it takes seconds
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
IN_TIME = UNALIGNED | {"execution.checkpointing.aligned-checkpoint-timeout": "300 ms"}
CONFIG = {
    "execution.checkpointing.interval": "500 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def _submit(
    cluster: EmbeddedCluster,
    lake: Path,
    config: dict[str, str],
    *,
    parallelism: int = 2,
    rate: int | None = RATE,
    batch_s: float = BATCH_S,
    savepoint: str | None = None,
) -> EmbeddedJobClient:
    """Small batches of a fast source, dealt out to slow tasks, into a table."""
    env = us.Environment(
        {**STREAMING, "parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"}
    )
    columns = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, 40)}
    source = us.DatagenSource(columns, rows=ROWS, rows_per_second=rate, splits=4)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    slow = rows.rebalance().map_batches(Slow(batch_s)).uid("slow")
    slow.sink_to(us.DeltaSink(str(lake / "rows"))).uid("out")
    return submit(cluster, env, CONFIG | config, savepoint, by_value=[slow_batches])


def _cluster(folder: Path) -> EmbeddedCluster:
    values = Configuration({"heartbeat.interval": "200 ms"})
    return EmbeddedCluster("local", values, workdir=folder, rest=False)


def _completed(info: JobInfo, least: int = 1) -> bool:
    assert info.state in ("CREATED", "INITIALIZING", "RUNNING", "RESTARTING"), info.exceptions
    return info.checkpoints_completed >= least


def _assert_exact(lake: Path) -> None:
    ids = DeltaTable(str(lake / "rows")).to_pyarrow_table().column("id").to_pylist()
    assert len(ids) == ROWS
    assert set(ids) == set(range(ROWS))


@pytest.mark.parametrize("config", [UNALIGNED, IN_TIME], ids=["at once", "after a timeout"])
def test_rows_are_exact_after_a_death_under_full_backpressure(tmp_path: Path, config: dict[str, str]) -> None:
    with _cluster(tmp_path / "work") as cluster:
        job = _submit(cluster, tmp_path, config)
        info = job.wait_for(lambda i: _completed(i, 3), WAIT_S)
        assert info.latest_checkpoint is not None
        assert in_flight_bytes(info.latest_checkpoint) > 0
        pid = info.task_managers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        job.wait_for(lambda i: i.restarts >= 1 and i.state == "RUNNING", WAIT_S)
        assert job.wait(WAIT_S).state == "FINISHED"
    _assert_exact(tmp_path)


def test_a_job_that_has_failed_goes_on_from_its_unaligned_checkpoint_with_twice_as_many_tasks(
    tmp_path: Path,
) -> None:
    """Its checkpoint is retained, and given to another job by hand."""
    kept = {
        **UNALIGNED,
        "restart-strategy.type": "none",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    with _cluster(tmp_path / "work") as cluster:
        job = _submit(cluster, tmp_path, kept)
        info = job.wait_for(lambda i: _completed(i, 3), WAIT_S)
        pid = info.task_managers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert job.wait(WAIT_S).state == "FAILED"
        checkpoint, _ = snapshots_in(tmp_path / "work" / "checkpoints" / job.job_id)[-1]
        assert in_flight_bytes(checkpoint) > 0
        rest = _submit(
            cluster, tmp_path, UNALIGNED, parallelism=4, rate=None, batch_s=0, savepoint=str(checkpoint)
        )
        before = Counter(subtask.vertex_name for subtask in info.subtasks)
        widths = Counter(subtask.vertex_name for subtask in rest.status().subtasks)
        assert widths == {name: 4 if width == 2 else 1 for name, width in before.items()}
        assert rest.wait(WAIT_S).state == "FINISHED"
    _assert_exact(tmp_path)


def test_rows_in_flight_go_to_twice_as_many_tasks(tmp_path: Path) -> None:
    with _cluster(tmp_path / "work") as cluster:
        job = _submit(cluster, tmp_path, UNALIGNED)
        info = job.wait_for(lambda i: _completed(i, 2), WAIT_S)
        job.rescale({subtask.vertex: 4 for subtask in info.subtasks})
        widths = Counter(subtask.vertex for subtask in job.status().subtasks)
        assert set(widths.values()) == {4}
        assert job.wait(WAIT_S).state == "FINISHED"
    _assert_exact(tmp_path)


@pytest.mark.parametrize("config", [{}, UNALIGNED], ids=["aligned", "unaligned"])
def test_only_unaligned_checkpoints_hold_rows_that_wait_before_slow_tasks(
    tmp_path: Path, config: dict[str, str]
) -> None:
    """How much sooner they complete is measured by `benchmarks.checkpoint --slow`."""
    with _cluster(tmp_path / "work") as cluster:
        job = _submit(cluster, tmp_path, config)
        job.wait_for(lambda i: _completed(i, 2), WAIT_S)
        done = [c for c in job.checkpoints().latest if c.status is SnapshotStatus.COMPLETED]
        job.cancel()
        job.wait(WAIT_S)
    assert len(done) >= 2
    for checkpoint in done[:-1]:  # the first one may come before anything waits
        assert any(task.unaligned for task in checkpoint.subtasks) is bool(config)
        assert (checkpoint.persisted_bytes > 0) is bool(config)
