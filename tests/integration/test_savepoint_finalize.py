"""What a savepoint lists is committed from its directory alone, after its job was ended between the manifest
and the commit; then a job goes on from it, and every table is exactly right.

    rows (slow, 4 splits) ─┬─ Delta "rows"
                           ├─ files
                           └─ 10 s windows ─ Delta "windows"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.crash_runs import Crashes
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.cli.main import main
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

ROWS = 60_000
SLOW = 1_500  # rows/s: no first run comes to the end
SPLITS = 4
KEYS = 20
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}
NO_RESTART = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "250 ms",
    "execution.checkpointing.min-pause": "1 h",  # no snapshot but the savepoint
    "restart-strategy.type": "none",
}
GO_ON = {"parallelism.default": "2", "execution.checkpointing.interval": "400 ms"}


def pipeline(lake: Path, rate: int | None) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": "2"})
    source = us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=rate, splits=SPLITS)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    rows = env.from_source(source, watermarks, "rows").uid("rows")
    rows.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")
    rows.sink_to(us.FileSink(str(lake / "files"), target_file_bytes=40_000)).uid("files")
    windows = rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count())
    windows.uid("window").sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")
    return env


def submit(
    cluster: EmbeddedCluster,
    lake: Path,
    rate: int | None,
    config: dict[str, str],
    savepoint: str | None = None,
) -> EmbeddedJobClient:
    graph, code = pipeline(lake, rate).job_graph("finalized")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=config, savepoint=savepoint))


def rows_of(lake: Path) -> list[int]:
    folder = lake / "rows"
    if not DeltaTable.is_deltatable(str(folder)):
        return []
    return sorted(DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist())


def files_of(lake: Path) -> list[int]:
    found = [pq.ParquetFile(path).read()["id"] for path in (lake / "files").rglob("part-*.parquet")]
    return sorted(one for ids in found for one in ids.to_pylist())


def check_windows(lake: Path) -> None:
    rows = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    truth = pa.table(
        {
            "key": rows["key"],
            "slot": [int(at.timestamp()) // 10 for at in rows["at"].to_pylist()],
            "id": rows["id"],
        }
    )
    wanted = truth.group_by(["key", "slot"]).aggregate([("id", "count")]).to_pylist()
    windows = DeltaTable(str(lake / "windows")).to_pyarrow_table().to_pylist()
    found = [(row["key"], int(row["window_start"].timestamp()) // 10, row["n"]) for row in windows]
    assert sorted(found) == sorted((row["key"], row["slot"], row["id_count"]) for row in wanted)


def read_before(savepoint: us.Savepoint) -> list[int]:
    """Ids that the sources had read: what the tables must hold."""
    ids: list[int] = []
    positions: list[Any] = [split.position for split in savepoint.positions]
    assert len(positions) == SPLITS
    for position in positions:
        ids += range(position["index"] % SPLITS, position["index"], SPLITS)
    return sorted(ids)


def has_read_enough(info: JobInfo) -> bool:
    """Whether the sources alone (a job's `records_in` has the inputs of all its tasks) have read a part of
    the rows."""
    read = sum(task.metrics.records_in for task in info.subtasks if task.source == "rows")
    return info.state == "RUNNING" and read > SLOW // 2


def reported(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["savepoint", *words, "--json"]) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.fixture
def cluster_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], EmbeddedCluster]]:
    """A cluster that other commands find."""
    clusters: list[EmbeddedCluster] = []
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))

    def start() -> EmbeddedCluster:
        often = Configuration({"heartbeat.interval": "100 ms"})  # they carry the numbers of rows read
        clusters.append(EmbeddedCluster("local", often, workdir=tmp_path / "work"))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.close()


def finalize_and_go_on(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str], lake: Path, path: str
) -> set[str]:
    """Commits what `path` lists, compares, goes on from it, and compares again. The outcomes of the first."""
    wanted = read_before(us.read_savepoint(path))
    assert len(wanted) >= SLOW // 2
    shown = reported(capsys, "inspect", path)["pending_commits"]
    found = reported(capsys, "finalize", path)["commits"]
    assert {one["operator"] for one in found} == {one["uid"] for one in shown}
    assert sum(one["committables"] for one in found) == sum(one["committables"] for one in shown)
    assert rows_of(lake) == wanted
    assert files_of(lake) == wanted

    again = reported(capsys, "finalize", path)["commits"]
    assert {one["outcome"] for one in again} == {"already committed"}
    assert (rows_of(lake), files_of(lake)) == (wanted, wanted)

    result = submit(cluster, lake, None, GO_ON, path).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert rows_of(lake) == list(range(ROWS))
    assert files_of(lake) == list(range(ROWS))
    check_windows(lake)
    return {one["outcome"] for one in found}


def test_a_savepoint_of_a_job_that_was_cancelled_then_is_finalized(
    cluster_of: Callable[[], EmbeddedCluster], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the savepoint of a job that goes on lists is committed with the next checkpoint: there is none."""
    lake = tmp_path / "lake"
    cluster = cluster_of()
    job = submit(cluster, lake, SLOW, NO_RESTART)
    job.wait_for(has_read_enough, WAIT_S)
    path = job.savepoint(str(tmp_path / "savepoints"))
    assert main(["savepoint", "finalize", path]) == 2
    assert "is RUNNING here and commits what" in capsys.readouterr().err
    job.cancel()
    assert job.wait(WAIT_S).state == "CANCELED"
    assert rows_of(lake) == files_of(lake) == []
    assert finalize_and_go_on(cluster, capsys, lake, path) == {"committed"}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("sink.before_commit:1", id="when the first task hears of the savepoint"),
        pytest.param("delta.appended:1", id="after one of the tables took its commit"),
        pytest.param("file.first_renamed:1", id="with one file of several renamed"),
    ],
)
def test_the_savepoint_of_a_stop_whose_worker_was_killed_before_it_committed_is_finalized(
    cluster_of: Callable[[], EmbeddedCluster],
    capsys: pytest.CaptureFixture[str],
    crashes: Crashes,
    tmp_path: Path,
    point: str,
) -> None:
    lake = tmp_path / "lake"
    crashes.arm(point)
    cluster = cluster_of()
    job = submit(cluster, lake, SLOW, NO_RESTART)
    job.wait_for(has_read_enough, WAIT_S)
    with pytest.raises(ConfigError):
        job.stop(target=str(tmp_path / "savepoints"))
    assert job.wait(WAIT_S).state == "FAILED"
    crashes.disarm()
    crashes.assert_happened()
    [path] = [str(folder) for folder in (tmp_path / "savepoints").iterdir()]
    assert finalize_and_go_on(cluster, capsys, lake, path) <= {"committed", "already committed"}
