"""A worker dies between the commits of a BATCH job: what the others commit does not overlap with it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.integration.crash_runs import Crashes, run_to_end
from tests.integration.tapped_rows import SliceSink, committed

ROWS, SPLITS = 400, 8
CONFIG = {
    "execution.runtime-mode": "BATCH",
    "taskmanager.numberOfTaskSlots": "1",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def pipeline(env: us.Environment, folder: Path) -> None:
    """Each writer has its own committer. Until the crash the task that gets the first split is slow, so that
    the others get more."""
    crashed = str(folder.parent / "crashed" / "0" / "sink.committed")

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        import os
        import threading

        if not os.path.exists(crashed) and 0 in batch.column("id").to_pylist():
            threading.Event().wait(2)
        return batch

    rows = us.StaticSource(pa.table({"id": pa.array(range(ROWS), pa.int64())}), splits=SPLITS)
    read = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    read.map_batches(slow).uid("slow").sink_to(SliceSink(folder)).uid("out")


@pytest.mark.parametrize("strategy", ["region", "full"])
@pytest.mark.parametrize("point", ["sink.before_commit", "sink.committed"])
def test_a_worker_that_dies_between_two_commits_doubles_and_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, strategy: str
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    crashes.arm(point)
    config = CONFIG | {"jobmanager.execution.failover-strategy": strategy}
    run_to_end(tmp_path, crashes, pipeline, config)
    assert committed(tmp_path / "lake") == list(range(ROWS))
