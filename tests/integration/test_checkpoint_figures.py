"""Figures of snapshots of a real job: what tasks say they stored is what lies on the disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.codec import decode_manifest
from unistream.model.job_info import JobInfo
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

KEYS = 20_000
RATE = 20_000  # rows/s
CONFIG = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


class Count(us.KeyedProcessFunction):
    """Remembers how often each key came."""

    def open(self, context: us.ProcessContext) -> None:
        self.seen = context.state("seen", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        out.emit({"key": row["key"], "count": count})


@pytest.fixture
def job(tmp_path: Path) -> Iterator[EmbeddedJobClient]:
    """Rows counted by key into a table, by two workers, until it is cancelled."""
    env = us.Environment({**STREAMING, "parallelism.default": "2", "pipeline.max-parallelism": "16"})
    columns = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, KEYS)}
    source = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=RATE, splits=2)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    schema = pa.schema([("key", pa.int64()), ("count", pa.int64())])
    counts = rows.key_by("key").process(Count(), returns=schema).uid("counts")
    counts.sink_to(us.DeltaSink(str(tmp_path / "lake" / "counts"))).uid("out")
    graph, code = env.job_graph("figures")
    values = Configuration({"heartbeat.interval": "200 ms"})
    with EmbeddedCluster("local", values, workdir=tmp_path / "work", rest=False) as cluster:
        client = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG))
        yield client
        client.cancel()
        client.wait(WAIT_S)


def _running(info: JobInfo, checkpoints: int) -> bool:
    return info.state == "RUNNING" and info.checkpoints_completed >= checkpoints


def _folder(directory: str) -> Path:
    return Path(directory.removeprefix("file://"))


def _on_disk(directory: str) -> int:
    """Bytes of all files but the manifest."""
    files = (path for path in _folder(directory).rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files if not path.name.startswith("_metadata"))


def _inlined(manifest: Manifest) -> int:
    """Bytes of lists that lie in the manifest itself."""
    tasks = [task for vertex in manifest.vertices for task in vertex.subtasks if task is not None]
    lists = [stored for task in tasks for operator in task.operators.values() for stored in operator.lists]
    return sum(len(item) for stored in lists for item in stored.inline or ())


def _savepoint(job: EmbeddedJobClient, target: Path) -> CheckpointFigures:
    path = job.savepoint(str(target))
    saved = job.checkpoints().latest_savepoint
    assert saved is not None
    assert saved.path == path
    return saved


def test_figures_are_those_of_the_files_and_outlive_the_job(job: EmbeddedJobClient, tmp_path: Path) -> None:
    job.wait_for(lambda info: _running(info, 3), WAIT_S)
    saved = _savepoint(job, tmp_path / "savepoints")
    assert saved.path is not None
    manifest = decode_manifest((_folder(saved.path) / "_metadata").read_bytes())

    assert (saved.status, saved.kind) == (SnapshotStatus.COMPLETED, SnapshotKind.SAVEPOINT)
    assert len(saved.subtasks) == saved.expected == len(job.status().subtasks)
    assert saved.new_bytes == _on_disk(saved.path) > 0
    assert saved.state_bytes == _on_disk(saved.path) + _inlined(manifest)
    assert sum(subtask.sync_ms for subtask in saved.subtasks) > 0
    assert sum(subtask.async_ms for subtask in saved.subtasks) > 0
    assert all(0 < subtask.acked_after_ms <= saved.duration_ms for subtask in saved.subtasks)
    assert saved.timestamp_ms == manifest.timestamp_ms
    counting = [v for v in saved.vertices if any(s.state_bytes > KEYS for s in v.subtasks)]
    assert len(counting) == 1, "all keyed state is in one vertex"

    before = job.checkpoints()
    assert before.restored == 0
    assert before.summary["state_bytes"].max >= saved.state_bytes >= before.summary["state_bytes"].min > 0
    assert before.summary["duration_ms"].max > 0

    job.cancel()
    job.wait(WAIT_S)
    after = job.checkpoints()
    assert after.completed >= before.completed
    assert (after.in_progress, after.latest_savepoint) == (0, saved)


def test_a_failover_is_a_restore_from_a_completed_checkpoint(job: EmbeddedJobClient) -> None:
    info = job.wait_for(lambda info: _running(info, 2), WAIT_S)
    pid = info.task_managers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    job.wait_for(lambda info: info.restarts >= 1 and info.state == "RUNNING", WAIT_S)
    figures = job.checkpoints()
    restored = figures.latest_restored
    assert figures.restored >= 1
    assert restored is not None
    assert restored.kind is SnapshotKind.CHECKPOINT
    assert restored.checkpoint_id >= 2
    assert restored.restored_ms > info.submitted_ms
