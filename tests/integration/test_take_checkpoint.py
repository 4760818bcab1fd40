"""Checkpoints that a user asks for, in a job that takes none by itself: they commit, a job goes on from them,
and a full one heals what was damaged on the storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.counted_rows import assert_exact, counted, start
from tests.integration.crash_runs import manifest_of
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.manifest_files import referenced_files

ROWS = 8_000  # 80 s, which no life but the last comes to the end of
CONFIG = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}


def pipeline(lake: Path, *, parallelism: int, rate: float = 100) -> us.Environment:
    return counted(lake, rows=ROWS, keys=300, rate=rate, parallelism=parallelism, splits=4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    work = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster("local", Configuration(), workdir=work, rest=False) as cluster:
        yield cluster


def started(cluster: EmbeddedCluster, lake: Path) -> EmbeddedJobClient:
    """A job without a schedule that has read rows."""
    job = start(cluster, pipeline(lake, parallelism=2), CONFIG)
    job.wait_for(lambda info: info.metrics.get("records_in", 0) > 400, WAIT_S)
    return job


def rows_in(lake: Path) -> int:
    return int(DeltaTable(str(lake)).to_pyarrow_table().num_rows) if lake.exists() else 0


def shared_by(directory: str) -> set[str]:
    return {ref.path for ref in referenced_files(manifest_of(directory)) if ref.shared}


def ended(job: EmbeddedJobClient) -> None:
    job.cancel()
    assert job.wait(WAIT_S).state == "CANCELED"


def test_it_commits_where_nothing_else_does_and_a_job_goes_on_from_it(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    first = started(cluster, lake)
    assert rows_in(lake) == 0, "there is no schedule"
    taken = first.checkpoint()
    first.wait_for(lambda info: info.metrics.get("rows_committed", 0) > 0, WAIT_S)
    assert rows_in(lake) > 0
    stored = shared_by(taken)
    again = first.checkpoint()
    assert [path.rpartition("/")[2] for path in (taken, again)] == ["chk-1", "chk-2"]
    assert stored & shared_by(again), "incremental"
    assert first.status().checkpoints_completed == 2
    ended(first)
    last = start(cluster, pipeline(lake, parallelism=1, rate=40_000), CONFIG, again)
    assert last.wait(WAIT_S).state == "FINISHED"
    assert_exact(lake, ROWS)


def test_a_full_one_heals_what_was_damaged_on_the_storage(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first = started(cluster, lake)
    taken = first.checkpoint()
    stored = shared_by(taken)
    shared = Path(taken.removeprefix("file://")).parent / "shared"
    for name in stored:
        (shared / name).write_bytes(b"damaged")
    fresh = shared_by(first.checkpoint(type="full"))
    assert fresh
    assert not fresh & stored
    after = first.checkpoint()
    assert shared_by(after) & fresh, "those that follow refer to its files"
    assert not shared_by(after) & stored
    ended(first)
    last = start(cluster, pipeline(lake, parallelism=4, rate=40_000), CONFIG, after)
    assert last.wait(WAIT_S).state == "FINISHED"
    assert_exact(lake, ROWS)
