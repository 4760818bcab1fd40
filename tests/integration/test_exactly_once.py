"""SIGKILL at the named places of the path from a row to a commit: the table is still exactly right.

Each case runs a real pipeline (datagen -> keyed window -> Delta, and a second sink) on real workers; one
worker dies at the named point, once. The windows are compared with what DuckDB computes from the rows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import unistream as us
from tests.integration.crash_runs import Crashes, assert_exact, in_the_gate, keyed_windows, run_to_end

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
CONFIG = {
    "execution.checkpointing.interval": "400 ms",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def pipeline(env: us.Environment, lake: Path) -> None:
    keyed_windows(env, lake, us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=RATE, splits=2))


@pytest.mark.parametrize(
    "point",
    in_the_gate(
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
        *range(1, 8),
    ),
)
def test_a_killed_local_worker_loses_and_doubles_nothing(
    tmp_path: Path, crashes: Crashes, point: str
) -> None:
    crashes.arm(point)
    run_to_end(tmp_path, crashes, pipeline, CONFIG)
    assert_exact(tmp_path / "lake", ROWS)


@pytest.mark.spark
@pytest.mark.parametrize(
    "point",
    in_the_gate(
        [
            pytest.param("task.batch:15", id="while processing"),
            pytest.param("snapshot.uploaded:6", id="in the middle of a snapshot"),
            pytest.param("sink.before_commit:2", id="between checkpoint and commit"),
        ],
        -1,
    ),
)
def test_a_killed_spark_worker_loses_and_doubles_nothing(
    tmp_path: Path, crashes: Crashes, point: str
) -> None:
    crashes.arm(point)
    run_to_end(tmp_path, crashes, pipeline, CONFIG, target="spark")
    assert_exact(tmp_path / "lake", ROWS)
