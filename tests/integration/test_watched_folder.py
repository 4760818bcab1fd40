"""A folder that is watched by a whole job: each file once, through a lost worker and a rescaled savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.modes import STREAMING
from unistream.base.object_stores import file_system
from unistream.testing import MiniCluster

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = 20  # of a file


def put(url: str, number: int) -> None:
    system, folder = file_system(url)
    text = "".join(f'{{"n": {number * ROWS + row}}}\n' for row in range(ROWS))
    with system.open(f"{folder}/{number}.tmp", "wb") as file:
        file.write(text.encode())
    system.mv(f"{folder}/{number}.tmp", f"{folder}/{number}.json")


def watched(url: str, out: Path, parallelism: int) -> us.Environment:
    env = us.Environment(
        {
            **STREAMING,
            "parallelism.default": str(parallelism),
            "execution.checkpointing.interval": "50 ms",
        }
    )
    source = us.FileSource(
        url,
        format="json",
        schema=SCHEMA,
        continuous=True,
        interval="50 ms",
        min_age=0,
        ignore_suffixes=[".tmp"],
        split_bytes=100,
        block_bytes=40,
    )
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "folder").uid("folder")
    rows.sink_to(us.FileSink(str(out))).uid("out")
    return env


def expect(out: Path, files: int) -> None:
    def numbers() -> list[int]:
        parts = [pq.ParquetFile(path).read()["n"].to_pylist() for path in out.glob("part-*.parquet")]
        return sorted(n for part in parts for n in part)

    eventually(lambda: len(numbers()) >= files * ROWS, "all rows come")
    assert numbers() == list(range(files * ROWS))


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        (tmp_path / "in").mkdir()
        return str(tmp_path / "in")
    request.getfixturevalue("s3")
    return f"s3://unistream/watched/{tmp_path.name}"


def test_each_file_is_read_once(tmp_path: Path, folder: str) -> None:
    out = tmp_path / "out"
    with MiniCluster(task_managers=3, slots=1) as cluster:
        job: Any = cluster.execute_async(watched(folder, out, 2), "watch")
        for number in range(3):
            put(folder, number)
        expect(out, 3)
        cluster.kill(cluster.task_managers()[0].id)
        put(folder, 3)
        expect(out, 4)
        savepoint = job.stop()
        put(folder, 4)
        system, inner = file_system(folder)
        system.rm(f"{inner}/0.json")
        job = cluster.execute_async(watched(folder, out, 1), "watch", savepoint=savepoint)
        expect(out, 5)
        put(folder, 5)
        expect(out, 6)
        job.cancel()
        assert job.wait(WAIT_S).state == "CANCELED"
