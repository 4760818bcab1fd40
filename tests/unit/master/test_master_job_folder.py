"""What a job leaves in `execution.checkpointing.dir` when it has ended: what is to be kept, else nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from tests.walked import walked
from unistream.testing.mini_cluster import MiniCluster

NO_TIME = us.WatermarkStrategy.no_watermarks()


class Count(us.KeyedProcessFunction):
    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)


@pytest.mark.parametrize(
    ("end", "kept", "left"),
    [
        pytest.param("FINISHED", "NO_EXTERNALIZED_CHECKPOINTS", False, id="its input has ended"),
        pytest.param("CANCELED", "NO_EXTERNALIZED_CHECKPOINTS", False, id="it was cancelled"),
        pytest.param("CANCELED", "RETAIN_ON_CANCELLATION", True, id="cancelled, and to be kept then"),
    ],
)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_an_empty_folder_is_removed(tmp_path: Path, backend: str, end: str, kept: str, left: bool) -> None:
    env = us.Environment({
        **STREAMING,
        "state.backend.type": backend,
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.externalized-checkpoint-retention": kept,
    })  # fmt: skip
    numbers = us.DatagenSource(
        {"n": us.datagen.RandomInt(0, 5)},
        rows=200 if end == "FINISHED" else None,
        bounded=end == "FINISHED",
        rows_per_second=500,
    )
    rows = env.from_source(numbers, NO_TIME, "numbers").uid("numbers").key_by("n")
    rows.process(Count(), returns={"n": pa.int64()}).uid("count").sink_to(us.BlackholeSink()).uid("out")
    with MiniCluster(task_managers=1, slots=1) as cluster:  # its end waits for what is removed
        job = cluster.submit(*env.job_graph("counts"))
        if end == "CANCELED":
            job.wait_for(lambda info: info.checkpoints_completed > 2, WAIT_S)
            job.cancel()
        result = job.wait(WAIT_S)
    assert result.state == end, result.failure
    assert result.checkpoints > 0
    folders = list(tmp_path.iterdir())
    assert [folder.name for folder in folders] == ([result.job] if left else [])
    assert bool(walked(tmp_path, "_metadata")) is left
