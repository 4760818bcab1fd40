"""Windows over files count every row, in whatever order files, row groups and ranges of lines are read."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.eventually import WAIT_S
from unistream.client.embedded.embedded_cluster import EmbeddedJobClient
from unistream.client.remote.job_client import JobResult
from unistream.connector.collect import CollectSink, read_collected
from unistream.testing.mini_cluster import MiniCluster
from unistream.worker.task.source_operator import SPLITS_NAMED_MAX

ROWS = 40_000
FILES = 5
KEYS = 10
STEP_MS = 25
DISORDER_MS = 4_000
WINDOW_MS = 10_000
CONFIG = {
    "pipeline.auto-watermark-interval": "1 ms",
    "execution.checkpointing.interval": "50 ms",
    "execution.runtime-mode": "STREAMING",
}


def rows() -> pa.Table:
    """In the order of time but for some disorder, as a device writes them."""
    random = np.random.default_rng(7)
    at = np.maximum(0, np.arange(ROWS) * STEP_MS - random.integers(0, DISORDER_MS, ROWS))
    return pa.table({"at": at, "key": random.integers(0, KEYS, ROWS)})


def truth() -> Counter[tuple[int, int]]:
    """(key, start of window in ms) -> rows, without a word of streams."""
    table = rows()
    starts = table["at"].to_numpy() // WINDOW_MS * WINDOW_MS
    return Counter(zip(table["key"].to_pylist(), starts.tolist(), strict=True))


def reversed_files(folder: Path, format: str) -> None:
    """The first file by name has the last rows."""
    for number in range(FILES):
        part = rows().slice(number * ROWS // FILES, ROWS // FILES)
        write(part, folder / f"part-{FILES - number}.{format}")


def interleaved_files(folder: Path, format: str) -> None:
    """Each file has rows of all times."""
    for number in range(FILES):
        write(rows().take(np.arange(number, ROWS, FILES)), folder / f"part-{number}.{format}")


def ordered_files(folder: Path, format: str) -> None:
    """By name, with numbers by value: part-9 is before part-10."""
    for number in range(FILES):
        part = rows().slice(number * ROWS // FILES, ROWS // FILES)
        write(part, folder / f"part-{number + 8}.{format}")


def shuffled_row_groups(folder: Path, format: str) -> None:
    """One file whose row groups are in no order of time."""
    size = 1_000
    table = rows()
    groups = [table.slice(start, size) for start in range(0, ROWS, size)]
    order = np.random.default_rng(8).permutation(len(groups))
    with pq.ParquetWriter(
        folder / "all.parquet", table.schema, write_statistics=format == "statistics"
    ) as file:
        for number in order:
            file.write_table(groups[number])


def write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".json":
            columns = (table[name].to_pylist() for name in table.column_names)
            lines = (f'{{"at": {at}, "key": {key}}}\n' for at, key in zip(*columns, strict=True))
            path.write_text("".join(lines))
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case _:
            pq.write_table(table, path, row_group_size=2_000)


def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
    """So that watermarks are emitted between the splits."""
    time.sleep(0.003)
    return batch


def counting(env: us.Environment, source: us.FileSource, out: Path) -> None:
    strategy = us.WatermarkStrategy.for_bounded_out_of_orderness(DISORDER_MS).with_timestamp_column("at")
    stream = env.from_source(source, strategy, "files").uid("files")
    windows = (
        stream.map_batches(slowly, returns=stream.schema)
        .key_by("key")
        .window(us.TumblingEventTimeWindows.of("10 s"))
        .aggregate(rows=us.count())
        .uid("count")
        .name("count")
    )
    windows.sink_to(CollectSink(str(out))).uid("out")


def source_of(folder: Path, *, in_order: bool = False) -> us.FileSource:
    format = next(folder.iterdir()).suffix[1:]
    return us.FileSource(
        str(folder),
        format=format,  # type: ignore[arg-type]
        quoted_newlines=False,
        split_bytes=30_000,
        block_bytes=4_000,
        in_order=in_order,
    )


def started(
    cluster: MiniCluster, folder: Path, out: Path, parallelism: int, **source: bool
) -> EmbeddedJobClient:
    env = us.Environment({**CONFIG, "parallelism.default": str(parallelism)})
    counting(env, source_of(folder, **source), out)
    graph, code = env.job_graph("files")
    return cluster.submit(graph, code)


def finished(job: EmbeddedJobClient) -> JobResult:
    result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    return result


def assert_all_counted(result: JobResult, out: Path) -> None:
    found = read_collected(str(out)).to_pylist()
    counted = {(row["key"], int(row["window_start"].timestamp() * 1000)): row["rows"] for row in found}
    assert len(counted) == len(found), "no window has fired twice"
    assert counted == truth()
    assert (result.late_rows, result.out_of_order_rows) == ({}, {})


LAYOUTS = [
    pytest.param(reversed_files, "json", id="lines, the last file first"),
    pytest.param(reversed_files, "csv", id="csv, the last file first"),
    pytest.param(reversed_files, "parquet", id="parquet, the last file first"),
    pytest.param(interleaved_files, "json", id="lines, each file of all times"),
    pytest.param(interleaved_files, "parquet", id="parquet, each file of all times"),
    pytest.param(shuffled_row_groups, "statistics", id="row groups in no order"),
    pytest.param(shuffled_row_groups, "none", id="row groups in no order, without statistics"),
]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(("layout", "format"), LAYOUTS)
def test_every_row_is_counted(layout, format: str, parallelism: int, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (folder := tmp_path / "in").mkdir()
    layout(folder, format)
    with MiniCluster(task_managers=2, slots=2) as cluster:
        result = finished(started(cluster, folder, tmp_path / "out", parallelism))
    assert_all_counted(result, tmp_path / "out")


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_every_row_is_counted_once_when_a_worker_is_killed(format: str, tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    reversed_files(folder, format)
    with MiniCluster(task_managers=3, slots=1) as cluster:
        job = started(cluster, folder, tmp_path / "out", 2)
        job.wait_for(lambda info: info.checkpoints_completed >= 1 and info.state == "RUNNING", WAIT_S)
        cluster.kill(cluster.task_managers()[0].id)
        result = finished(job)
    assert result.restarts == 1
    assert_all_counted(result, tmp_path / "out")


@pytest.mark.parametrize("parallelism", [1, 2])
def test_files_that_are_in_order_need_not_be_held_back(parallelism: int, tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    ordered_files(folder, "json")
    with MiniCluster(task_managers=2, slots=1) as cluster:
        job = started(cluster, folder, tmp_path / "out", parallelism, in_order=True)
        job.wait_for(lambda info: 0 < info.metrics.get("watermark", 0) < ROWS * STEP_MS, WAIT_S)
        result = finished(job)
    assert_all_counted(result, tmp_path / "out")


def test_a_wrong_declaration_is_counted_by_file(tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    reversed_files(folder, "json")
    with MiniCluster(task_managers=1, slots=1) as cluster:
        result = finished(started(cluster, folder, tmp_path / "out", 1, in_order=True))
    named = [name for name in result.out_of_order_rows if name.startswith(f"files: {folder}/part-")]
    assert 0 < len(named) <= SPLITS_NAMED_MAX
    assert set(result.out_of_order_rows) == {*named, "files: other splits"}
    least = ROWS - ROWS // FILES - DISORDER_MS // STEP_MS
    assert sum(result.out_of_order_rows.values()) >= least, "all but those of the file that is read first"
    counted = sum(row["rows"] for row in read_collected(str(tmp_path / "out")).to_pylist())
    assert counted + result.late_rows.get("count", 0) == ROWS, "what is dropped is counted"


def test_times_that_are_assigned_behind_files_come_with_the_end(tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    reversed_files(folder, "json")
    env = us.Environment({**CONFIG, "parallelism.default": "2"})
    strategy = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    stream = env.from_source(source_of(folder), us.WatermarkStrategy.no_watermarks(), "files").uid("files")
    windows = (
        stream.map_batches(slowly, returns=stream.schema)
        .assign_timestamps_and_watermarks(strategy)
        .key_by("key")
        .window(us.TumblingEventTimeWindows.of("10 s"))
        .aggregate(rows=us.count())
        .uid("count")
    )
    windows.sink_to(CollectSink(str(tmp_path / "out"))).uid("out")
    graph, code = env.job_graph("files")
    with MiniCluster(task_managers=2, slots=1) as cluster:
        result = finished(cluster.submit(graph, code))
    assert_all_counted(result, tmp_path / "out")
