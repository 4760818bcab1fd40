"""Jobs that read Iceberg tables: a snapshot in windows, and a table that grows, is compacted and expires
while jobs are stopped, rescaled and killed."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.iceberg_lake import TABLE, Lake
from tests.integration.crash_runs import RECOVERING, Crashes
from tests.unit.connector.iceberg.source_tables import append, compact, delete_equal, head, numbers
from unistream.client.remote.rest_client import Poll
from unistream.connector.collect import CollectSink, read_collected
from unistream.testing.mini_cluster import MiniCluster

COPY = "lake.copy"
CONFIG = {"execution.checkpointing.interval": "200 ms", **RECOVERING}
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = 4_000


def events() -> pa.Table:
    """One each second, in no order of time within a file."""
    seconds = np.random.default_rng(5).permutation(ROWS)
    return pa.table(
        {
            "at": pa.array([DAY + dt.timedelta(seconds=int(s)) for s in seconds], pa.timestamp("us", "UTC")),
            "key": pa.array(seconds % 7, pa.int64()),
        }
    )


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_windows_count_every_row_of_a_snapshot_that_was_not_deleted(tmp_path: Path, mode: str) -> None:
    lake = Lake(tmp_path)
    lake.create(events().schema, properties={"write.parquet.row-group-limit": "500"})
    for part in range(4):
        append(lake, events().slice(part * 1_000, 1_000))
    lake.change(lambda table: delete_equal(table, pa.table({"key": pa.array([3], pa.int64())}), 2))
    env = us.Environment({"execution.runtime-mode": mode, "parallelism.default": "2"})
    given = us.IcebergSource(TABLE, catalog_properties=lake.properties, split_bytes=2_000)
    times = us.WatermarkStrategy.for_bounded_out_of_orderness("2 h").with_timestamp_column("at")
    (
        env.from_source(given, times, "table")
        .uid("table")
        .key_by("key")
        .window(us.TumblingEventTimeWindows.of("10 min"))
        .aggregate(rows=us.count())
        .uid("count")
        .sink_to(CollectSink(str(tmp_path / "out")))
        .uid("out")
    )
    with MiniCluster(task_managers=2, slots=2) as cluster:
        result = cluster.submit(*env.job_graph("windows")).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert result.late_rows == {}
    found = read_collected(str(tmp_path / "out")).to_pylist()
    counted = {(row["key"], (row["window_start"] - DAY).total_seconds()): row["rows"] for row in found}
    assert len(counted) == len(found)
    assert counted == Counter((s % 7, s // 600 * 600.0) for s in range(ROWS) if s % 7 != 3)


# --- a table that grows ---------------------------------------------------------------------------


def start(lake: Lake, folder: Path, *, parallelism: int = 2, savepoint: str | None = None) -> us.JobClient:
    env = us.Environment(
        {
            **CONFIG,
            "parallelism.default": str(parallelism),
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "execution.checkpointing.savepoint-dir": (folder / "savepoints").as_uri(),
        },
        target="local",
    )
    given = us.IcebergSource(
        TABLE, catalog_properties=lake.properties, bounded=False, discovery_interval_ms=100
    )
    rows = env.from_source(given, us.WatermarkStrategy.no_watermarks(), "table").uid("table")
    rows.sink_to(us.IcebergSink(COPY, catalog_properties=lake.properties)).uid("rows")
    return env.execute_async("growth", savepoint=savepoint)


def expect(lake: Lake, expected: list[int]) -> None:
    def copied() -> list[int]:
        return [row[0] for row in lake.rows("SELECT i FROM t ORDER BY i", COPY)]

    poll = Poll(WAIT_S)
    while len(copied()) < len(expected):
        assert poll.next(), f"{len(copied())} of {len(expected)} rows came"
    assert copied() == expected


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Its table has 100 rows."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    made = Lake(tmp_path)
    made.create(numbers().schema)
    append(made, numbers(*range(100)))
    return made


def expire(lake: Lake, but: int) -> None:
    """All old snapshots but the last `but` ones."""
    with lake.table() as table:
        old = [one.snapshot_id for one in table.snapshots()][:-but]
        table.maintenance.expire_snapshots().by_ids(old).commit()


def test_rows_that_are_added_while_a_job_runs_or_is_stopped_are_read_once(lake: Lake, tmp_path: Path) -> None:
    """The job goes on with another parallelism, and with a table that was compacted and whose snapshots have
    expired."""
    with start(lake, tmp_path) as job:
        expect(lake, list(range(100)))
        append(lake, numbers(*range(100, 200)))
        expect(lake, list(range(200)))
        savepoint = job.stop()
        job.wait(WAIT_S)
    append(lake, numbers(*range(200, 300)))
    lake.change(compact)
    append(lake, numbers(*range(300, 400)))
    expire(lake, but=4)
    with start(lake, tmp_path, parallelism=3, savepoint=savepoint) as job:
        expect(lake, list(range(400)))
        assert (info := job.status()).restarts == 0, info.exceptions
        job.cancel()


def test_a_table_that_was_set_back_while_the_job_runs_ends_it_with_a_sentence(
    lake: Lake, tmp_path: Path
) -> None:
    first = head(lake)
    append(lake, numbers(100))
    env = us.Environment({**CONFIG, "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri()})
    given = us.IcebergSource(
        TABLE, catalog_properties=lake.properties, bounded=False, discovery_interval_ms=50
    )
    rows = env.from_source(given, us.WatermarkStrategy.no_watermarks(), "table").uid("table")
    rows.sink_to(CollectSink(str(tmp_path / "out"))).uid("out")
    with MiniCluster() as cluster:
        job = cluster.submit(*env.job_graph("copy"))
        job.wait_for(lambda info: info.checkpoints_completed > 1, WAIT_S)
        lake.change(lambda table: table.manage_snapshots().rollback_to_snapshot(first).commit())
        result = job.wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert "was set back or replaced" in result.failure.message
    assert "\n" not in result.failure.message
    assert result.restarts == 0, result.exceptions


@contextmanager
def growing(lake: Lake, added: list[int]) -> Iterator[None]:
    """Rows are appended all the time, and the table is compacted."""
    ended = threading.Event()

    def change() -> None:
        while not ended.wait(0.1):
            append(lake, numbers(100 + len(added)))
            added.append(100 + len(added))
            if len(added) % 7 == 0:
                lake.change(compact)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join(WAIT_S)


@pytest.mark.parametrize("point", ["snapshot.sync_done", "snapshot.uploaded", "iceberg.committed"])
def test_a_worker_is_killed_while_another_writer_appends_and_compacts(
    lake: Lake, tmp_path: Path, crashes: Crashes, point: str
) -> None:
    added: list[Any] = []
    crashes.arm(point, later=True)
    with start(lake, tmp_path) as job:
        expect(lake, list(range(100)))
        with growing(lake, added):
            crashes.go()
            job.wait_for(lambda info: info.restarts >= 1, WAIT_S)
        expect(lake, [*range(100), *added])
        job.cancel()
    crashes.assert_happened()
