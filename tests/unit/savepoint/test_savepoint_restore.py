"""Savepoints that were written from tables, in jobs that start from them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.errors import ConfigError
from unistream.connector.collect import read_collected
from unistream.model.state import (
    EXPIRES_COLUMN,
    ListStateDescriptor,
    MapStateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.testing.mini_cluster import MiniCluster

KEYS = 1_000
COUNT = ValueStateDescriptor("count", pa.int64())


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_managers=1, slots=3) as cluster:
        yield cluster


class Counts(us.KeyedProcessFunction):
    """One more for every row."""

    count = COUNT

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        seen = context.state(self.count)
        seen.update((seen.value() or 0) + 1)
        out.emit({"user": row["user"], "count": seen.value()})


class Notes(us.KeyedProcessFunction):
    """Shows what its states hold."""

    tags = ListStateDescriptor("tags", pa.string())
    scores = MapStateDescriptor("scores", pa.int64(), key_type=pa.string())

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        tags = list(context.state(self.tags).get())
        scores = sorted(context.state(self.scores).items())
        out.emit({"user": row["user"], "count": len(tags) + sum(score for _, score in scores)})


class Forgets(Counts):
    """The same, for as long as a count lives."""

    count = ValueStateDescriptor("count", pa.int64(), options=StateOptions(ttl=StateTtl("1 h")))


class Rings(us.KeyedProcessFunction):
    """Shows when a timer was due."""

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        pass

    def on_timer(self, timestamp: int, context: Any, out: Any) -> None:
        out.emit({"user": context.key, "count": timestamp})


def users() -> pa.Table:
    seen = pa.array(range(0, 10 * KEYS, 10), pa.int64())
    return pa.table({"user": pa.array(range(KEYS), pa.int64()), "value": seen})


def pipeline(
    results: Path, function: us.KeyedProcessFunction, *, parallelism: int = 1, uid: str = "counts"
) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    rows = pa.table({"user": pa.array(range(KEYS), pa.int64())})
    source = env.from_source(us.StaticSource(rows), us.WatermarkStrategy.no_watermarks(), "users").uid(
        "users"
    )
    counted = source.key_by("user").process(function, returns={"user": pa.int64(), "count": pa.int64()})
    counted.uid(uid).sink_to(us.CollectSink(str(results))).uid("out")
    return env


def run(
    cluster: MiniCluster, env: us.Environment, savepoint: str, *, allow_non_restored: bool = False
) -> None:
    graph, code = env.job_graph()
    job = cluster.submit(graph, code, savepoint=savepoint, allow_non_restored=allow_non_restored)
    result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure


def counts(results: Path) -> list[int]:
    found = read_collected(str(results)).sort_by("user")
    assert found.column("user").to_pylist() == list(range(KEYS))
    return found.column("count").to_pylist()


def start(tmp_path: Path, name: str = "start") -> str:
    return us.SavepointWriter().with_state("counts", COUNT, users(), keys=["user"]).write(tmp_path / name)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_starts_with_the_rows_of_a_table(
    cluster: MiniCluster, tmp_path: Path, parallelism: int
) -> None:
    path = start(tmp_path)
    run(cluster, pipeline(tmp_path / "rows", Counts(), parallelism=parallelism), path)
    assert counts(tmp_path / "rows") == [10 * user + 1 for user in range(KEYS)]


def test_lists_and_maps(cluster: MiniCluster, tmp_path: Path) -> None:
    tags = pa.table({"user": pa.array([1, 2], pa.int64()), "value": [["a", "b"], ["c"]]})
    scores = pa.table(
        {
            "user": pa.array([1, 1, 3], pa.int64()),
            "map_key": ["x", "y", "x"],
            "value": pa.array([10, 20, 40], pa.int64()),
        }
    )
    writer = us.SavepointWriter(max_parallelism=16)
    writer.with_state("counts", Notes.tags, tags, keys=["user"])
    path = writer.with_state("counts", Notes.scores, scores, keys=["user"]).write(tmp_path / "start")
    run(cluster, pipeline(tmp_path / "rows", Notes(), parallelism=2), path)
    assert counts(tmp_path / "rows")[:5] == [0, 32, 1, 40, 0]


def test_a_changed_savepoint(cluster: MiniCluster, tmp_path: Path) -> None:
    """Read, change a table, write, start."""
    first = us.read_savepoint(start(tmp_path, "first"))
    table = first.table("counts", "count")
    halved = table.set_column(
        table.schema.get_field_index("value"), "value", pc.divide(table.column("value"), 2)
    )
    path = (
        us.SavepointWriter.change(first)
        .with_state("counts", COUNT, halved, keys=["user"])
        .write(tmp_path / "second")
    )
    shutil.rmtree(first.path)  # the second one is whole by itself
    second = us.read_savepoint(path)
    assert second.manifest.lineage == first.manifest.lineage
    run(cluster, pipeline(tmp_path / "rows", Counts(), parallelism=2), path)
    assert counts(tmp_path / "rows") == [5 * user + 1 for user in range(KEYS)]


def test_what_had_expired_stays_so_after_a_change_by_name(cluster: MiniCluster, tmp_path: Path) -> None:
    """A table that is read, and written back under its name, keeps the times of its rows."""
    times = pa.array([5 if user % 2 else 10**14 for user in range(KEYS)], pa.int64())
    rows = users().append_column(EXPIRES_COLUMN, times)
    writer = us.SavepointWriter().with_state("counts", Forgets.count, rows, keys=["user"])
    first = us.read_savepoint(writer.write(tmp_path / "first"))
    writer = us.SavepointWriter.change(first)
    writer.with_state("counts", "count", first.table("counts", "count"), keys=["user"])
    run(cluster, pipeline(tmp_path / "rows", Forgets(), parallelism=2), writer.write(tmp_path / "second"))
    assert counts(tmp_path / "rows") == [1 if user % 2 else 10 * user + 1 for user in range(KEYS)]


def test_timers_are_due(cluster: MiniCluster, tmp_path: Path) -> None:
    due = pa.table({"user": users().column("user"), "__timestamp": users().column("value")})
    path = us.SavepointWriter().with_timers("counts", due, keys=["user"]).write(tmp_path / "start")
    run(cluster, pipeline(tmp_path / "rows", Rings(), parallelism=2), path)
    assert counts(tmp_path / "rows") == [10 * user for user in range(KEYS)]


def test_a_moved_directory(cluster: MiniCluster, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(start(tmp_path), moved)
    run(cluster, pipeline(tmp_path / "rows", Counts(), parallelism=2), str(moved))
    assert counts(tmp_path / "rows")[:3] == [1, 11, 21]


def test_an_operator_with_another_uid_gets_nothing(cluster: MiniCluster, tmp_path: Path) -> None:
    path = start(tmp_path)
    graph, code = pipeline(tmp_path / "rows", Counts(), uid="renamed").job_graph()
    with pytest.raises(ConfigError, match="operator uid 'counts'"):
        cluster.submit(graph, code, savepoint=path)
    run(cluster, pipeline(tmp_path / "rows", Counts(), uid="renamed"), path, allow_non_restored=True)
    assert counts(tmp_path / "rows") == [1] * KEYS


def test_a_subtask_reads_its_share_of_a_large_state(tmp_path: Path) -> None:
    """A state of several parts is in several files, each of a range of key groups."""
    many = 140_000
    rows = pa.table({"user": pa.array(range(many), pa.int64()), "value": pa.repeat("x" * 500, many)})
    path = us.SavepointWriter().with_state("big", "text", rows, keys=["user"]).write(tmp_path / "big")
    [vertex] = us.read_savepoint(path).manifest.vertices
    handles = [handle for task in vertex.subtasks if task for handle in task.operators["big"].keyed]
    ranges = [(handle.key_groups[0], handle.key_groups[-1]) for handle in handles]
    assert len(ranges) == vertex.parallelism == 2
    assert ranges == [(0, 63), (64, 127)]
    assert sum(handle.rows for handle in handles) == many
