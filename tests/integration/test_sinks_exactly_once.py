"""A folder of files, and three sinks that share one final checkpoint: SIGKILL at the named places of the way
to a commit, and the rows are still exactly right."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.integration.cascaded_sinks import (
    ONLY_THE_FINAL,
    RECOVERING,
    ROWS,
    cascade,
    check_cascade,
    commits_of,
    read_files,
    rows_of,
)
from tests.integration.crash_runs import Crashes, run_to_end
from tests.walked import walked

OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}


def leftovers(folder: Path) -> list[str]:
    """Staged files of nobody."""
    return [str(path) for path in walked(folder, "*.staged")]


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
def test_a_folder_of_files_loses_and_doubles_nothing(tmp_path: Path, crashes: Crashes, point: str) -> None:
    crashes.arm(point)
    run_to_end(tmp_path, crashes, to_files, OFTEN)
    folder = tmp_path / "lake" / "files"
    assert sorted(read_files(folder)["id"].to_pylist()) == list(range(ROWS))
    assert leftovers(folder) == []
    assert all(pq.ParquetFile(path).metadata.num_rows for path in walked(folder, "part-*.parquet"))


# --- three sinks, one final checkpoint ----------------------------------------------------------------


def test_three_sinks_at_different_depths_share_one_final_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    run_to_end(tmp_path, None, cascade, ONLY_THE_FINAL)
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
    tmp_path: Path, crashes: Crashes, point: str
) -> None:
    crashes.arm(point)
    run_to_end(tmp_path, crashes, cascade, ONLY_THE_FINAL)
    check_cascade(tmp_path / "lake")
    assert {len(ids) for ids in commits_of(tmp_path / "lake").values()} == {1}


# --- what is said of it -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("committer.before_commit:2", id="between checkpoint and commit"),
        pytest.param("delta.appended:2", id="behind the commit to a table"),
        pytest.param("file.first_renamed:2", id="in the middle of a commit to a folder"),
        pytest.param("committer.committed:2", id="behind a commit, before anyone heard of it"),
    ],
)
def test_the_rows_that_a_sink_reports_are_those_that_are_visible(
    tmp_path: Path, crashes: Crashes, point: str
) -> None:
    def both(env: us.Environment, lake: Path) -> None:
        rows = rows_of(env, 16_000)
        rows.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")
        rows.sink_to(us.FileSink(str(lake / "files"))).uid("files")

    crashes.arm(point)
    result = run_to_end(tmp_path, crashes, both, OFTEN)
    assert {uid: sink.rows for uid, sink in result.sinks.items()} == {"raw": ROWS, "files": ROWS}
    assert result.metrics["rows_committed"] == 2 * ROWS
