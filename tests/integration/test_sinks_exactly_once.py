"""A folder of files, and three sinks that share one final checkpoint: SIGKILL at the named places of the way
to a commit, and the rows are still exactly right."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from unistream.base.crash_points import DIRECTORY_VARIABLE, POINTS_VARIABLE
from unistream.client.job_client import JobResult
from unistream.connector.delta_table import CHECKPOINT_KEY

ROWS = 40_000
KEYS = 50
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}
OFTEN = {"execution.checkpointing.interval": "400 ms"}
ONLY_THE_FINAL = {  # the first periodic one comes after the least pause; the final one waits for nothing
    "execution.checkpointing.interval": "10 min",
    "execution.checkpointing.min-pause": "10 min",
}


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str | None,
    pipeline: object,
    checkpoints: dict[str, str],
) -> JobResult:
    """Runs the pipeline to its end; one worker dies at `point`."""
    marks = tmp_path / "crashed"
    marks.mkdir()
    monkeypatch.setenv("UNISTREAM_TESTING", "1")
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    if point is not None:
        monkeypatch.setenv(POINTS_VARIABLE, point)
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(marks))
    env = us.Environment(
        {
            "parallelism.default": "2",
            **checkpoints,
            "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "100 ms",
        },
        target="local",
    )
    pipeline(env, tmp_path / "lake")  # type: ignore[operator]
    result = env.execute("sinks")
    assert result.state == "FINISHED"
    if point is not None:
        assert [mark.name for mark in marks.iterdir()] == [point.partition(":")[0]], "no crash happened"
        assert result.restarts >= 1
    return result


def rows_of(env: us.Environment, rows_per_second: int | None) -> us.DataStream:
    source = us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=rows_per_second, splits=2)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    return env.from_source(source, watermarks, name="rows").uid("rows")


def read_files(folder: Path) -> pa.Table:
    """As every reader does: what is hidden is passed over."""
    return pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(folder.rglob("part-*.parquet"))])


def leftovers(folder: Path) -> list[str]:
    """Staged files of nobody."""
    return [str(path) for path in folder.rglob(".part-*")]


# --- a folder of files --------------------------------------------------------------------------------


def to_files(env: us.Environment, lake: Path) -> None:
    sink = us.FileSink(str(lake / "files"), bucket_by_time="%Y-%m-%d--%H%M", target_file_bytes=40_000)
    rows_of(env, 16_000).sink_to(sink).uid("files")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("file.staged:9", id="after a file was staged"),
        pytest.param("snapshot.uploaded:6", id="after the state was written, before it was acknowledged"),
        pytest.param("committer.before_commit:2", id="between checkpoint and commit"),
        pytest.param("file.before_record:2", id="before the commit was decided"),
        pytest.param("file.recorded:2", id="after the decision, before any file was renamed"),
        pytest.param("file.first_renamed:2", id="with one file of several renamed"),
        pytest.param("committer.committed:2", id="after the commit, before anyone heard of it"),
    ],
)
def test_a_folder_of_files_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    run(tmp_path, monkeypatch, point, to_files, OFTEN)
    folder = tmp_path / "lake" / "files"
    assert sorted(read_files(folder)["id"].to_pylist()) == list(range(ROWS))
    assert leftovers(folder) == []
    assert all(pq.ParquetFile(path).metadata.num_rows for path in folder.rglob("part-*.parquet"))


# --- three sinks, one final checkpoint ----------------------------------------------------------------


def cascade(env: us.Environment, lake: Path) -> None:
    """Sinks behind the source, behind a window, and behind a window over its results."""
    rows = rows_of(env, None)
    rows.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")
    windows = rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count())
    windows = windows.uid("window")
    windows.sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")
    keys = windows.key_by("key").window(us.TumblingEventTimeWindows.of("1 d"))
    keys.aggregate(n=us.sum("n")).uid("keys").sink_to(us.FileSink(str(lake / "keys"))).uid("totals")


def check_cascade(lake: Path) -> None:
    rows = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == list(range(ROWS))
    wanted = {
        row["key"]: row["id_count"] for row in rows.group_by("key").aggregate([("id", "count")]).to_pylist()
    }
    windows = DeltaTable(str(lake / "windows")).to_pyarrow_table()
    summed = windows.group_by("key").aggregate([("n", "sum")]).to_pylist()
    assert {row["key"]: row["n_sum"] for row in summed} == wanted
    totals = read_files(lake / "keys").to_pylist()
    assert sorted((row["key"], row["n"]) for row in totals) == sorted(wanted.items())


def commits_of(lake: Path) -> dict[str, list[int]]:
    """Sink -> checkpoints that it committed."""
    found = {
        name: [
            int(one[CHECKPOINT_KEY])
            for one in DeltaTable(str(lake / name)).history()
            if CHECKPOINT_KEY in one
        ]
        for name in ("rows", "windows")
    }
    records = sorted((lake / "keys" / "_unistream").rglob("*.json"))
    return {**found, "keys": [json.loads(path.read_bytes())["checkpoint_id"] for path in records]}


def test_three_sinks_at_different_depths_share_one_final_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, None, cascade, ONLY_THE_FINAL)
    check_cascade(tmp_path / "lake")
    assert commits_of(tmp_path / "lake") == {"rows": [1], "windows": [1], "keys": [1]}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("snapshot.sync_done:2", id="in the middle of the final snapshot"),
        pytest.param("ack.sent:3", id="after the acknowledgement"),
        pytest.param("sink.before_commit:1", id="when the first task hears of it"),
        pytest.param("committer.before_commit:1", id="before the first commit"),
        pytest.param("delta.appended:1", id="after a table took its commit"),
        pytest.param("file.recorded:1", id="after a folder's commit was decided"),
        pytest.param("committer.committed:1", id="after a commit, before anyone heard of it"),
    ],
)
def test_a_kill_in_the_final_phase_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    run(tmp_path, monkeypatch, point, cascade, ONLY_THE_FINAL)
    check_cascade(tmp_path / "lake")
    assert {len(ids) for ids in commits_of(tmp_path / "lake").values()} == {1}
