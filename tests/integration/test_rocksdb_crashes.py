"""A worker dies in the middle of an incremental checkpoint of RocksDB: what it leaves is removed.

    links made, nothing stored                  "snapshot.sync_done"
    one file stored in part                     "snapshot.half_written"
    one file stored, nobody knows its name      "snapshot.unnamed"
    files stored, the master not told           "snapshot.uploaded"

What it kept on the local disk goes with its folder when another worker starts. Files that it had stored and
no checkpoint names are found when the job has ended.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crash_runs import Crashes, submit
from deltalake import DeltaTable

import unistream as us
from unistream.base.config import Configuration
from unistream.client.embedded import EmbeddedCluster
from unistream.master.job_info import JobInfo
from unistream.worker.local_folder import PREFIX

WAIT_S = 90.0
ROWS = 12_000
KEYS = 500
COLUMNS: dict[str, Any] = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, KEYS)}
CONFIG = {
    "execution.checkpointing.interval": "300 ms",
    "execution.checkpointing.incremental": "true",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "state.backend.type": "rocksdb",
}


class Counted(us.KeyedProcessFunction):
    seen = us.ValueStateDescriptor("seen", pa.int64())
    ids = us.ListStateDescriptor("ids", pa.int64())

    def process_element(self, row: Any, context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)
        context.state(self.ids).add(row["id"])
        kept = context.state(self.ids).get()
        out.emit({"id": row["id"], "key": row["key"], "seen": seen.value(), "kept": len(kept)})


def counted(lake: Path) -> us.Environment:
    env = us.Environment({"parallelism.default": "2"})
    source = us.DatagenSource(COLUMNS, rows=ROWS, rows_per_second=2_000, seed=3, splits=2)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    returns = {"id": pa.int64(), "key": pa.int64(), "seen": pa.int64(), "kept": pa.int64()}
    found = rows.key_by("key").process(Counted(), returns=returns).uid("counted")
    found.sink_to(us.DeltaSink(str(lake / "counted"))).uid("table")
    return env


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
    crashes.arm(*points)
    with EmbeddedCluster("local", config, workdir=tmp_path / "work", rest=False) as cluster:
        job = submit(cluster, counted(tmp_path / "lake"), CONFIG, by_value=[sys.modules[__name__]])
        info = job.wait_for(lambda info: _went_on(info) and crashes.all_happened, WAIT_S)
        crashes.assert_happened()
        workers = {subtask.task_manager for subtask in info.subtasks}
        assert len(list((tmp_path / "tmp").glob(f"{PREFIX}*"))) == len(workers), (
            "one folder for each that lives"
        )
        stored = tmp_path / "work" / "checkpoints" / job.job_id
        assert next((stored / "shared").glob("[!.]*-sst-*"), None) is not None, "files are shared"
        result = job.wait(WAIT_S)
        assert result.state == "FINISHED", result.failure
    assert _files(stored) == [], "nor does a finished job leave any"
    assert list((tmp_path / "tmp").glob(f"{PREFIX}*")) == []
    _assert_exact(tmp_path / "lake" / "counted")


def _went_on(info: JobInfo) -> bool:
    return info.state == "RUNNING" and info.restarts >= 1 and info.checkpoints_completed >= 6


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _assert_exact(table: Path) -> None:
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    by_key: dict[int, list[int]] = {}
    for row in rows:
        assert row["kept"] == row["seen"]
        by_key.setdefault(row["key"], []).append(row["seen"])
    assert all(sorted(seen) == list(range(1, len(seen) + 1)) for seen in by_key.values())
