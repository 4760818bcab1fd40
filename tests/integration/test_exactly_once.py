"""SIGKILL at the named places of the path from a row to a commit: the table is still exactly right.

Each case runs a real pipeline (datagen -> keyed window -> Delta, and a second sink) on real workers; one
worker dies at the named point, once. The windows are compared with what DuckDB computes from the rows.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

import unistream as us
from unistream.base.crash_points import DIRECTORY_VARIABLE, POINTS_VARIABLE

ROWS = 60_000
RATE = 20_000  # rows/s: about 3 s, so that several checkpoints fall into the run
STEP_MS = 10
KEYS = 50
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=STEP_MS, disorder_ms=500),
}


def pipeline(env: us.Environment, lake: Path) -> None:
    source = us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=RATE, splits=2)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    rows = env.from_source(source, watermarks, name="rows").uid("rows")
    rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(
        n=us.count(), total=us.sum("value")
    ).uid("window").sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")
    rows.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")


def environment(tmp_path: Path, target: str) -> us.Environment:
    return us.Environment(
        {
            "parallelism.default": "2",
            "execution.checkpointing.interval": "400 ms",
            "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
            "restart-strategy.fixed-delay.delay": "100 ms",
        },
        target=target,
    )


def check_tables(lake: Path) -> None:
    """Every row once, every window right."""
    rows = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    windows = DeltaTable(str(lake / "windows")).to_pyarrow_table()
    with duckdb.connect() as connection:
        connection.register("rows_", rows)
        connection.register("windows_", windows)
        [(count, distinct, low, high)] = connection.sql(
            "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM rows_"
        ).fetchall()
        assert (count, distinct, low, high) == (ROWS, ROWS, 0, ROWS - 1)
        differences = connection.sql(
            """
            WITH truth AS (
                SELECT key, epoch_ms("at") // 10000 AS slot, count(*) AS n, sum(value)::BIGINT AS total
                FROM rows_ GROUP BY ALL
            ), written AS (
                SELECT key, epoch_ms(window_start) // 10000 AS slot, n, total FROM windows_
            )
            (SELECT * FROM truth EXCEPT ALL SELECT * FROM written)
            UNION ALL (SELECT * FROM written EXCEPT ALL SELECT * FROM truth)
            """
        ).fetchall()
        assert differences == []


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("task.batch:15", id="while processing"),
        pytest.param("snapshot.sync_done:6", id="in the middle of a snapshot"),
        pytest.param("snapshot.uploaded:6", id="after the state was written, before it was acknowledged"),
        pytest.param("ack.sent:8", id="after the acknowledgement"),
        pytest.param("delta.staged:3", id="after output was staged"),
        pytest.param("sink.before_commit:2", id="between checkpoint and commit"),
        pytest.param("delta.appended:2", id="after the table took the commit"),
        pytest.param("sink.committed:2", id="after the commit, before anyone heard of it"),
    ],
)
def test_a_killed_local_worker_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    restarts = run_with_crash(tmp_path, monkeypatch, point, target="local")
    check_tables(tmp_path / "lake")
    assert restarts >= 1


@pytest.mark.spark
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("task.batch:15", id="while processing"),
        pytest.param("snapshot.uploaded:6", id="in the middle of a snapshot"),
        pytest.param("sink.before_commit:2", id="between checkpoint and commit"),
    ],
)
def test_a_killed_spark_worker_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    restarts = run_with_crash(tmp_path, monkeypatch, point, target="spark")
    check_tables(tmp_path / "lake")
    assert restarts >= 1


def run_with_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, *, target: str) -> int:
    """Runs the pipeline to its end; one worker dies at `point`. Restarts that it took."""
    marks = tmp_path / "crashed"
    marks.mkdir()
    monkeypatch.setenv(POINTS_VARIABLE, point)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(marks))
    monkeypatch.setenv("UNISTREAM_TESTING", "1")
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    env = environment(tmp_path, target)
    pipeline(env, tmp_path / "lake")
    result = env.execute("exactly once")
    assert result.state == "FINISHED"
    assert [mark.name for mark in marks.iterdir()] == [point.partition(":")[0]], "the crash did not happen"
    return result.restarts
