"""Windows over files count each row once, whatever fails, in whatever order the files are read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.simulation.reached_by import seeds
from unistream.connector.common import RowChunk
from unistream.connector.file.decode import decode
from unistream.connector.file.format import FileSpec
from unistream.connector.file.split import FileSplit
from unistream.testing import Faults, simulate

ROWS = 240
FILES = 6
DISORDER_MS = 30
SCHEMA = pa.schema([("at", pa.int64()), ("key", pa.int64())])


def rows() -> pa.Table:
    random = np.random.default_rng(3)
    at = np.maximum(0, np.arange(ROWS) * 10 - random.integers(0, DISORDER_MS, ROWS))
    return pa.table({"at": at, "key": random.integers(0, 4, ROWS)}, SCHEMA)


def write(folder: Path, format: str, *, in_order: bool) -> None:
    """In order of time by name, or the other way round."""
    size = ROWS // FILES
    for number in range(FILES):
        part = rows().slice(number * size, size)
        path = folder / f"part-{8 + number if in_order else 20 - number}.{format}"
        if format == "parquet":
            pq.write_table(part, path, row_group_size=10)
        else:
            path.write_text(
                "".join(f'{{"at": {row["at"]}, "key": {row["key"]}}}\n' for row in part.to_pylist())
            )


def counts(env: us.Environment, folder: Path, format: str, in_order: bool) -> None:
    env.set_parallelism(2)
    source = us.FileSource(
        str(folder), format=format, schema=SCHEMA, split_bytes=200, block_bytes=100, in_order=in_order
    )  # type: ignore[arg-type]
    at = us.WatermarkStrategy.for_bounded_out_of_orderness(DISORDER_MS).with_timestamp_column("at")
    stream = env.from_source(source, at, "files").uid("files")
    windows = stream.key_by("key").window(us.TumblingEventTimeWindows.of(200)).aggregate(rows=us.count())
    windows.uid("windows").sink_to(us.CollectSink("out")).uid("out")


def test_a_slow_disk_takes_no_virtual_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's own thread is slower than hours of virtual time."""

    slept: list[str] = []

    def slowly(split: FileSplit, spec: FileSpec) -> Iterator[RowChunk]:
        if not slept:
            slept.append(split.path)
            time.sleep(3.0)
        yield from decode(split, spec)

    monkeypatch.setattr("unistream.connector.file.reader.decode", slowly)
    write(tmp_path, "parquet", in_order=True)
    pipeline = partial(counts, folder=tmp_path, format="parquet", in_order=True)
    report = simulate(pipeline, seeds=[0], faults=Faults(), check=complete())
    report.raise_for_failures()
    assert slept


def complete() -> Callable[[dict[str, pa.Table]], None]:
    table = rows()
    starts = table["at"].to_numpy() // 200 * 200
    truth = Counter(zip(table["key"].to_pylist(), starts.tolist(), strict=True))

    def check(sinks: dict[str, pa.Table]) -> None:
        found = sinks["out"].to_pylist()
        counted = {(row["key"], int(row["window_start"].timestamp() * 1000)): row["rows"] for row in found}
        assert len(counted) == len(found), "a window has fired twice"
        assert counted == truth

    return check


@pytest.mark.parametrize(
    ("format", "in_order", "rescale"),
    [
        pytest.param("parquet", False, False, id="with statistics"),
        pytest.param("parquet", False, True, id="with statistics, rescaled"),
        pytest.param("json", False, False, id="without"),
        pytest.param("json", True, True, id="in order, rescaled"),
    ],
)
def test_every_row_is_counted_once(format: str, in_order: bool, rescale: bool, tmp_path: Path) -> None:
    write(tmp_path, format, in_order=in_order)
    pipeline = partial(counts, folder=tmp_path, format=format, in_order=in_order)
    report = simulate(pipeline, seeds=seeds(3, 10), check=complete(), rescale=rescale)
    report.raise_for_failures()
    assert report.restarts, "something has failed on the way"
