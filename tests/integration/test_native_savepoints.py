"""Savepoints in files of RocksDB's own, in jobs that run: whole in their directories, and exact from there.

2 subtasks ── savepoint ── stop ──► moved ──► 4 subtasks ── drain ──► resumable half ──► 1 subtask, to the end
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.counted_rows import assert_exact, counted, start
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot_kind import SavepointFormat
from unistream.savepoint.query import query
from unistream.savepoint.states import NATIVE_KIND

ROWS = 8_000  # 80 s, which no life but the last comes to the end of
KEYS = 300
CONFIG = {
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "none",
}


def pipeline(lake: Path, *, parallelism: int, rate: float = 100) -> us.Environment:
    return counted(lake, rows=ROWS, keys=KEYS, rate=rate, parallelism=parallelism, splits=4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    work = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster("local", Configuration(), workdir=work, rest=False) as cluster:
        yield cluster


def under_way(job: EmbeddedJobClient, checkpoints: int) -> JobInfo:
    def reached(info: JobInfo) -> bool:
        return info.checkpoints_completed >= checkpoints and info.metrics.get("rows_committed", 0) > 0

    return job.wait_for(reached, WAIT_S)


def assert_native_and_whole(path: str, subtasks: int) -> None:
    """All files that it names are in its own directory, and RocksDB's are among them."""
    savepoint = us.read_savepoint(path)
    assert savepoint.format is SavepointFormat.NATIVE
    refs = list(referenced_files(savepoint.manifest))
    assert refs
    assert not any(ref.shared for ref in refs)
    folder = Path(path.removeprefix("file://"))
    assert all((folder / ref.path).stat().st_size == ref.size for ref in refs)
    (state,) = [state for state in savepoint.operator("counted").states if state.kind == NATIVE_KIND]
    assert state.files > subtasks
    reported = "take a savepoint in the canonical format, which consists of tables"
    for name in (state.name, "seen"):
        with pytest.raises(
            ConfigError, match=f"{path.rpartition('/')[2]} is in files of 'rocksdb.*{reported}"
        ):
            savepoint.table("counted", name)
    with pytest.raises(ConfigError, match=f"the state of operator uid 'counted' is in files .*{reported}"):
        query(savepoint, 'SELECT * FROM "counted/seen"')


def test_a_job_goes_on_exactly_from_native_savepoints_moved_drained_and_claimed(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    lake, made = tmp_path / "lake", str(tmp_path / "made")
    first = start(cluster, pipeline(lake, parallelism=2), CONFIG)
    done = under_way(first, checkpoints=2).checkpoints_completed
    in_addition = first.savepoint(made, format="native")
    assert_native_and_whole(in_addition, subtasks=2)
    under_way(first, done + 3)  # which share files with those before the savepoint
    stopped = first.stop(target=made, format="native")
    assert_native_and_whole(stopped, subtasks=2)
    assert_native_and_whole(in_addition, subtasks=2)  # outlives the job and its checkpoints

    moved = tmp_path / "elsewhere" / "kept"
    moved.parent.mkdir()
    shutil.move(stopped.removeprefix("file://"), moved)
    shutil.rmtree(cluster.workdir / "checkpoints" / first.job_id, ignore_errors=True)
    wide = start(cluster, pipeline(lake, parallelism=4), CONFIG, str(moved))
    under_way(wide, checkpoints=1)
    terminal = wide.stop(drain=True, target=made, format="native")
    resumable = wide.result(WAIT_S).resumable_savepoint
    assert resumable is not None
    assert_native_and_whole(terminal, subtasks=4)
    assert_native_and_whole(resumable, subtasks=4)
    assert moved.exists(), "not claimed: the user's"

    last = start(
        cluster,
        pipeline(lake, parallelism=1, rate=40_000),
        CONFIG | {"execution.state-recovery.claim-mode": "CLAIM"},
        resumable,
    )
    result = last.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert_exact(lake, ROWS)
    claimed = Path(resumable.removeprefix("file://"))
    eventually(lambda: not claimed.exists(), "it is claimed, so it goes when the job has ended")


def test_another_backend_refuses_a_native_savepoint_and_names_both(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    job = start(cluster, pipeline(lake, parallelism=1), CONFIG)
    under_way(job, checkpoints=1)
    native = job.stop(target=str(tmp_path), format="native")
    config = {"state.backend.type": "hashmap", "restart-strategy.type": "exponential-delay"}
    other = start(cluster, pipeline(lake, parallelism=1), CONFIG | config, native)
    result = other.wait(WAIT_S)
    assert (result.state, other.status().restarts) == ("FAILED", 0)
    assert result.failure is not None
    assert result.failure.kind == "ConfigError"
    assert "'rocksdb" in result.failure.message
    assert "the backend 'hashmap' cannot read" in result.failure.message
