"""Rows that a table or a file cannot hold become dead letters before they are staged; the others are written
once, whatever is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.iceberg_lake import TABLE, Lake
from tests.integration.cascaded_sinks import read_files
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end
from unistream.operator.common import decoded_row
from unistream.port.sink import Sink

ROWS = 4_000
OFTEN = {"execution.checkpointing.interval": "300 ms", **RECOVERING}
SINKS: dict[str, Callable[[Path], Sink]] = {
    "delta": lambda folder: us.DeltaSink(str(folder / "out")),
    "iceberg": lambda folder: us.IcebergSink(TABLE, catalog_properties=Lake(folder).properties),
    "files": lambda folder: us.FileSink(str(folder / "out"), bucket_by_time="%H", time_column="at"),
}
KILLS = [("delta", "delta.appended:2"), ("iceberg", "iceberg.committed:2"), ("files", "file.recorded:2")]


def timed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Of 20 rows one has a nanosecond too many, and one has no time."""
    ids = batch.column("id").to_numpy()
    numbers = ids * 1_000 + (ids % 20 == 3)
    times = pa.array(numbers, pa.timestamp("ns"), mask=np.asarray(ids % 20 == 5))
    return pa.RecordBatch.from_arrays([batch.column("id"), times], names=["id", "at"])


def is_bad(kind: str, i: int) -> bool:
    return i % 20 == (5 if kind == "files" else 3)


def ids_of(kind: str, folder: Path) -> list[int]:
    if kind == "iceberg":
        return Lake(folder).ids()
    rows = (
        DeltaTable(str(folder / "out")).to_pyarrow_table() if kind == "delta" else read_files(folder / "out")
    )
    return sorted(rows["id"].to_pylist())


@pytest.mark.parametrize(("kind", "point"), in_the_gate(KILLS, 0))
def test_a_target_has_what_it_takes_and_letters_the_rest(
    kind: str, point: str, tmp_path: Path, crashes: Crashes
) -> None:
    def pipeline(env: us.Environment, _lake: Path) -> None:
        source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=ROWS, rows_per_second=2_000)
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "ids").uid("ids")
        sink = rows.map_batches(timed).sink_to(SINKS[kind](tmp_path), on_error="dead-letter").uid("table")
        sink.dead_letters_to(us.DeltaSink(str(tmp_path / "refused")))

    crashes.arm(point)
    result = run_to_end(tmp_path, crashes, pipeline, OFTEN)
    bad = [i for i in range(ROWS) if is_bad(kind, i)]
    assert ids_of(kind, tmp_path) == [i for i in range(ROWS) if not is_bad(kind, i)]
    letters = DeltaTable(str(tmp_path / "refused")).to_pyarrow_table()
    found = [decoded_row(content).column("id")[0].as_py() for content in letters["row_ipc"].to_pylist()]
    assert sorted(found) == bad
    assert set(letters["error_type"].to_pylist()) == {"RowRefused"}
    assert set(letters["operator_uid"].to_pylist()) == {"table-rows"}
    (operator,) = result.dead_letters
    assert operator.endswith(" rows")
