"""What users give who have pandas. All other tests do without: where it is installed, the first Arrow array
of a process loads it. So these run by themselves, in `make test-nightly`, with pandas next to the locked
packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from unistream.testing.mini_cluster import MiniCluster

pd = pytest.importorskip(
    "pandas", reason="needs pandas, which only `make test-nightly` adds, for these tests alone"
)


def filtered_frame() -> Any:
    """Whose index is no range, so that pyarrow makes a column of it."""
    frame = pd.DataFrame({"k": ["a", "x", "b"], "value": [1, 9, 2]}, index=pd.Index([7, 3, 5]))
    return frame[frame["k"] != "x"]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(filtered_frame(), id="without those that were filtered"),
        pytest.param(filtered_frame().set_index("k"), id="whose index is the key"),
    ],
)
def test_a_state_can_be_made_of_a_frame(tmp_path: Path, rows: Any) -> None:
    state = us.ValueStateDescriptor("s", pa.int64())
    made = us.SavepointWriter().with_state("op", state, rows, keys=("k",)).write(tmp_path / "sp")
    stored = us.read_savepoint(made).table("op", "s").sort_by("k")
    assert stored.select(["k", "value"]).to_pylist() == [{"k": "a", "value": 1}, {"k": "b", "value": 2}]
    tables = us.SavepointWriter().with_table("op", "t", rows, keys=["k"]).write(tmp_path / "tables")
    assert us.read_savepoint(tables).table("op", "t").num_rows == 2


def test_a_function_of_rows_may_use_frames(tmp_path: Path) -> None:
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        frame = batch.to_pandas()
        frame["n"] *= 2
        return pa.RecordBatch.from_pandas(frame, preserve_index=False)

    env = us.Environment({"parallelism.default": "1"})
    source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=100)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows")
    rows.map_batches(doubled).sink_to(us.FileSink(str(tmp_path / "out"), format="json"))
    with MiniCluster(task_managers=1, slots=1) as cluster:
        assert cluster.submit(*env.job_graph("frames")).wait(WAIT_S).state == "FINISHED"
    reported = [line for path in (tmp_path / "out").rglob("part-*") for line in path.read_text().splitlines()]
    assert sorted(int(line.partition(":")[2].rstrip("}")) for line in reported) == list(range(0, 200, 2))
