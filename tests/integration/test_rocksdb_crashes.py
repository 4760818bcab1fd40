"""A worker dies in the middle of an incremental checkpoint of RocksDB: what it leaves is removed.

    links made, nothing stored                  "snapshot.sync_done"
    one file stored in part                     "snapshot.half_written"
    one file stored, nobody knows its name      "snapshot.unnamed"
    files stored, the master not reported           "snapshot.uploaded"

What it kept on the local disk goes with its folder when another worker starts. Files that it had stored and
no checkpoint names are found when the job has ended.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.integration.counted_rows import assert_exact, counted, start
from tests.integration.crash_runs import Crashes
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.job_info import JobInfo
from unistream.worker.exchange import STATE_FOLDER_PREFIX

ROWS = 12_000
KEYS = 500
CONFIG = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@pytest.mark.parametrize(
    "points",
    [("snapshot.sync_done:5", "snapshot.half_written:30"), ("snapshot.uploaded:5", "snapshot.unnamed:30")],
    ids=" ".join,
)
def test_workers_killed_in_snapshots_of_rocksdb_leave_nothing_behind(
    tmp_path: Path, crashes: Crashes, points: tuple[str, str]
) -> None:
    (tmp_path / "tmp").mkdir()
    config = Configuration({"heartbeat.interval": "200 ms", "io.tmp.dirs": str(tmp_path / "tmp")})
    table = tmp_path / "lake" / "counted"
    crashes.arm(*points)
    with EmbeddedCluster("local", config, workdir=tmp_path / "work", rest=False) as cluster:
        job = start(cluster, counted(table, rows=ROWS, keys=KEYS, rate=2_000), CONFIG)
        info = job.wait_for(lambda info: _went_on(info) and crashes.all_happened, WAIT_S)
        crashes.assert_happened()
        workers = {subtask.task_manager for subtask in info.subtasks}
        assert len(list((tmp_path / "tmp").glob(f"{STATE_FOLDER_PREFIX}*"))) == len(workers), (
            "one folder for each that lives"
        )
        stored = tmp_path / "work" / "checkpoints" / job.job_id
        assert next((stored / "shared").glob("[!.]*-sst-*"), None) is not None, "files are shared"
        result = job.wait(WAIT_S)
        assert result.state == "FINISHED", result.failure
    assert _files(stored) == [], "nor does a finished job leave any"
    assert list((tmp_path / "tmp").glob(f"{STATE_FOLDER_PREFIX}*")) == []
    assert_exact(table, ROWS)


def _went_on(info: JobInfo) -> bool:
    return info.state == "RUNNING" and info.restarts >= 1 and info.checkpoints_completed >= 6


def _files(folder: Path) -> list[Path]:
    return [path for path in walked(folder) if path.is_file()]
