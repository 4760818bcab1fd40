"""An Iceberg table as a sink: kills at named places, others who change the table, catalogues that are away.

Tables are read by iceberg-rust.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unistream as us
from tests.eventually import eventually
from tests.iceberg_lake import TABLE, Lake
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import (
    OF_ICEBERG_SINK,
    RECOVERING,
    WAIT_S,
    Crashes,
    in_the_gate,
    points_in_code,
    run_to_end,
    submit,
)
from tests.integration.test_iceberg_upsert import KILLS as KILLS_OF_UPSERTS
from tests.postgres import PostgresServer
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}
BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def to_table(lake: Lake, rows_per_second: int | None = 16_000, **options: Any) -> Callable[..., None]:
    """40,000 rows, in some 3 s."""

    def build(env: us.Environment, _folder: Path) -> None:
        sink = us.IcebergSink(TABLE, catalog_properties=lake.properties, **options)
        rows_of(env, rows_per_second).sink_to(sink).uid("table")

    return build


KILLS = {  # at the first commit: on a busy machine there may be no second one before the last
    "with files staged": ("iceberg.staged:2",),
    "before the commit": ("iceberg.before_commit",),
    "with the manifests written": ("iceberg.manifests_written",),
    "behind the commit": ("iceberg.committed",),
    "after the state was written, before it was acknowledged": ("snapshot.uploaded:2",),
    "between checkpoint and commit": ("committer.before_commit",),
    "while the commit is repeated": (
        *("committer.before_commit", "restore.before_commit", "restore.committed"),
    ),
    "after the commit, before anyone heard of it": ("committer.committed",),
}


def test_every_named_place_of_the_sink_has_a_row_here() -> None:
    every = [*KILLS.values(), *KILLS_OF_UPSERTS.values()]
    killed = {point.partition(":")[0] for points in every for point in points}
    own = {point for point in killed if point.startswith(OF_ICEBERG_SINK)}
    assert own == set(points_in_code(OF_ICEBERG_SINK))


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 3))
def test_a_table_loses_and_doubles_nothing(tmp_path: Path, crashes: Crashes, lake: Lake, what: str) -> None:
    crashes.arm(*KILLS[what])
    result = run_to_end(tmp_path, crashes, to_table(lake, partition_by=["bucket(4, key)"]), OFTEN)
    assert lake.ids() == list(range(ROWS))
    assert result.sinks["table"].rows == ROWS
    summaries = lake.summaries()
    checkpoints = [int(one["unistream.checkpoint-id"]) for one in summaries]
    assert checkpoints == sorted(set(checkpoints)), "one snapshot for each checkpoint"
    assert summaries[-1]["total-records"] == str(ROWS)


@pytest.mark.spark
def test_in_batch_on_spark_all_rows_come_at_the_end(tmp_path: Path, lake: Lake) -> None:
    env = us.Environment(BATCH, target="spark")
    to_table(lake, None, partition_by="bucket(4, key)", mode="overwrite-partitions")(env, tmp_path)
    result = env.execute("batch")
    assert lake.ids() == list(range(ROWS))
    with lake.table() as table:
        [snapshot] = table.snapshots()
    assert result.sinks["table"].table_version == snapshot.snapshot_id
    assert result.sinks["table"].rows == ROWS


def test_in_batch_the_table_takes_no_second_line_and_partitions_are_replaced(
    tmp_path: Path, lake: Lake
) -> None:
    def run(**options: Any) -> us.JobResult:
        env = us.Environment(BATCH, target="local")
        to_table(lake, None, partition_by="bucket(4, key)", **options)(env, tmp_path)
        return env.execute("batch")

    assert run().state == "FINISHED"
    with pytest.raises(ConfigError, match=r"another line of jobs.*on_foreign='append'"):
        run()
    assert run(on_foreign="append", mode="overwrite-partitions").sinks["table"].rows == ROWS
    assert lake.ids() == list(range(ROWS))


def test_a_stream_that_would_overwrite_is_refused_before_its_first_row(tmp_path: Path, lake: Lake) -> None:
    streaming = {
        "execution.runtime-mode": "STREAMING",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
    }
    env = us.Environment(streaming, target="local")
    to_table(lake, None, mode="overwrite-partitions")(env, tmp_path)
    with pytest.raises(ConfigError, match="this job takes checkpoints"):
        env.execute("stream")
    assert lake.ids() == []


# --- a catalogue that is away -------------------------------------------------------------------------


def test_a_catalog_that_is_not_there_is_said_before_a_job_starts(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "postgresql+psycopg://nobody@127.0.0.1:9/nothing")
    env = us.Environment(BATCH)
    with pytest.raises(Unreachable, match=r"Iceberg, catalog 'default' did not answer while opening it: "):
        to_table(lake)(env, tmp_path)


def test_a_catalog_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    """The job restarts, and nothing is lost or doubled. A server of its own: others use the shared one."""
    server = PostgresServer()
    try:
        lake = Lake(tmp_path, server.new_database())
        values = Configuration({"heartbeat.interval": "200 ms"})
        with EmbeddedCluster("local", values, workdir=tmp_path / "cluster", rest=False) as cluster:
            env = us.Environment({"parallelism.default": "2"})
            source = us.DatagenSource(
                {"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=2_000
            )
            rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
            sink = us.IcebergSink(TABLE, catalog_properties=lake.properties)
            rows.rebalance().sink_to(sink).uid("table")
            job = submit(cluster, env, OFTEN, None)
            eventually(lambda: bool(lake.ids()), "the first commit", WAIT_S, 0.3)
            server.stop()
            server.start()
            before = len(lake.ids())
            eventually(lambda: len(lake.ids()) > before + 500, "more rows", WAIT_S, 0.3)
            job.stop()
            found = lake.ids()
            assert found == list(range(len(found)))
    finally:
        server.close()
