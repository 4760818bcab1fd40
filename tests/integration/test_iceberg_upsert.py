"""An Iceberg table whose rows are replaced by key: kills around the commit, a stop and a start with more
subtasks, and what comes again in at-least-once mode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.iceberg_lake import TABLE, Lake
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import Crashes, in_the_gate, run_to_end
from tests.integration.test_delta_upsert import BATCH, OFTEN, Seen
from tests.modes import STREAMING
from unistream.testing import MiniCluster

SLOW = 5_000  # rows per second, so that there is a second commit also on a busy machine
AT_LEAST_ONCE = {**OFTEN, "execution.checkpointing.mode": "AT_LEAST_ONCE"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def sink(lake: Lake, **options: Any) -> us.IcebergSink:
    return us.IcebergSink(TABLE, catalog_properties=lake.properties, mode="upsert", **options)


def counted(env: us.Environment, folder: Path, rows_per_second: int | None = SLOW) -> us.DataStream:
    """Each row changes the count of its key; every second one says that the key is gone."""
    rows = rows_of(env, rows_per_second)
    rows.sink_to(us.DeltaSink(str(folder / "rows"))).uid("raw")
    columns = {"key": pa.int64(), "seen": pa.int64(), "odd": pa.bool_()}
    return rows.key_by("key").process(Seen(), returns=columns).uid("seen")


def to_table(lake: Lake, rows_per_second: int | None = SLOW) -> Any:
    """A count is in the partition of its value, and so moves each time."""

    def build(env: us.Environment, folder: Path) -> None:
        keys = sink(lake, key="key", delete_when=us.col("odd"), partition_by=["bucket(3, seen)"])
        counted(env, folder, rows_per_second).sink_to(keys).uid("keys")

    return build


def check(lake: Lake, folder: Path) -> None:
    counts = Counter(DeltaTable(str(folder / "rows")).to_pyarrow_table()["key"].to_pylist())
    assert sum(counts.values()) == ROWS
    found = lake.rows("SELECT key, seen FROM t ORDER BY key")
    assert found == sorted((key, count) for key, count in counts.items() if count % 2 == 0)


KILLS = {
    "with rows staged": ("iceberg.staged:3",),
    "before the files are written again": ("iceberg.before_commit:2",),
    "with the files written again": ("iceberg.rewritten:2",),
    "with the manifests written": ("iceberg.manifests_written:2",),
    "behind the commit": ("iceberg.committed:2",),
    "while it is repeated": ("committer.before_commit:2", "restore.before_commit", "restore.committed"),
}


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 2))
def test_each_key_has_its_last_row(tmp_path: Path, crashes: Crashes, lake: Lake, what: str) -> None:
    crashes.arm(*KILLS[what])
    run_to_end(tmp_path, crashes, to_table(lake), OFTEN)
    check(lake, tmp_path / "lake")


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_in_batch_it_is_one_snapshot(tmp_path: Path, lake: Lake, target: str) -> None:
    env = us.Environment(BATCH, target=target)
    to_table(lake, None)(env, tmp_path)
    result = env.execute("batch")
    check(lake, tmp_path)
    assert result.sinks["keys"].rows == ROWS
    assert len(lake.summaries()) == 1


def test_a_stopped_job_goes_on_with_more_subtasks(tmp_path: Path, lake: Lake) -> None:
    def pipeline(parallelism: int, rate: int) -> us.Environment:
        env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
        to_table(lake, rate)(env, tmp_path)
        return env

    config = {"execution.checkpointing.interval": "300 ms"}
    with MiniCluster(task_managers=3, slots=1) as cluster:
        slow = cluster.submit(*pipeline(1, 4_000).job_graph("slow"), config=config)
        slow.wait_for(lambda info: info.checkpoints_completed >= 2, WAIT_S)
        savepoint = slow.stop(target=str(tmp_path / "savepoints"))
        fast = cluster.submit(*pipeline(3, 40_000).job_graph("fast"), config=config, savepoint=savepoint)
        assert fast.wait(WAIT_S).state == "FINISHED"
    check(lake, tmp_path)


def test_rows_that_come_again_replace_themselves(tmp_path: Path, crashes: Crashes, lake: Lake) -> None:
    def build(env: us.Environment, _folder: Path) -> None:
        rows_of(env, SLOW).key_by("id").sink_to(sink(lake, key="id")).uid("table")

    crashes.arm("iceberg.rewritten")
    run_to_end(tmp_path, crashes, build, AT_LEAST_ONCE)
    assert lake.ids() == list(range(ROWS))
