"""Savepoint, stop, drain and resume of a real pipeline on real workers; tables compared row by row.

    rows (slow, 6 splits) ─┬─ join ─┬─ key_by ─ 10 s windows ─ Delta "windows"
    names (bounded, ends) ─┘        └────────────────────────── Delta "rows"

What a run that was never interrupted leaves in its tables is the truth for all others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.crash_runs import Crashes
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.connector.common import OnRewind
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

ROWS = 120_000
SLOW = 2_000  # rows/s: a minute to the end, which no first run comes to
FAST = 150_000
KEYS = 40
SPLITS = 6  # more than any parallelism, so that rescaling moves them
CHECKPOINTS = {"execution.checkpointing.interval": "250 ms", "restart-strategy.fixed-delay.delay": "100 ms"}
ONLY_THE_STOP = {**CHECKPOINTS, "execution.checkpointing.min-pause": "1 h"}  # no other snapshot
FACTS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}
NAMES = {"key": us.datagen.Sequential(), "team": us.datagen.Choice(("red", "green", "blue"))}


@dataclass(frozen=True)
class Lake:
    """The two tables of one job, and a note for each batch that was read of the dimension."""

    folder: Path

    @property
    def rows(self) -> pa.Table:
        return DeltaTable(str(self.folder / "rows")).to_pyarrow_table()

    @property
    def windows(self) -> pa.Table:
        return DeltaTable(str(self.folder / "windows")).to_pyarrow_table()

    @property
    def names_read(self) -> int:
        return len(list((self.folder / "names_read").iterdir()))


def pipeline(
    lake: Lake, *, parallelism: int = 2, rate: float | None = SLOW, on_rewind: OnRewind = "refuse"
) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    notes = lake.folder / "names_read"
    notes.mkdir(parents=True, exist_ok=True)

    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        import uuid

        (notes / uuid.uuid4().hex).touch()
        return batch

    names = us.DatagenSource(NAMES, rows=KEYS, seed=3)
    dimension = env.from_source(names, us.WatermarkStrategy.no_watermarks(), "names").uid("names")
    dimension = dimension.map_batches(noted, returns=names.schema).uid("noted")
    facts = us.DatagenSource(FACTS, rows=ROWS, seed=7, rows_per_second=rate, splits=SPLITS)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    joined = env.from_source(facts, watermarks, "rows").uid("rows").join(dimension, "key").uid("join")
    joined.key_by("key", "team").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(
        n=us.count(), total=us.sum("value")
    ).uid("window").sink_to(us.DeltaSink(str(lake.folder / "windows"), on_rewind=on_rewind)).uid("windows")
    joined.sink_to(us.DeltaSink(str(lake.folder / "rows"), on_rewind=on_rewind)).uid("raw")
    return env


def submit(
    cluster: EmbeddedCluster,
    env: us.Environment,
    savepoint: str | None = None,
    config: dict[str, str] = CHECKPOINTS,
) -> EmbeddedJobClient:
    graph, code = env.job_graph("savepoints")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=config, savepoint=savepoint))


def finish(job: EmbeddedJobClient) -> None:
    result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure


def in_the_middle(info: JobInfo) -> bool:
    """Rows are in the tables, windows are open, and the dimension's task has ended."""
    ended = {task.state for task in info.subtasks if task.vertex_name.startswith("names")}
    return (
        info.state == "RUNNING"
        and info.checkpoints_completed >= 3
        and info.metrics.get("rows_committed", 0) > 0
        and ended == {"FINISHED"}
    )


def reading(info: JobInfo) -> bool:
    return info.state == "RUNNING" and info.metrics.get("records_in", 0) > SLOW


def differences(left: pa.Table, right: pa.Table) -> list[tuple[object, ...]]:
    """Rows that one has and the other has not, as often as it has them not."""
    with duckdb.connect() as connection:
        connection.register("left_", left)
        connection.register("right_", right)
        return connection.sql(
            "(FROM left_ EXCEPT ALL FROM right_) UNION ALL (FROM right_ EXCEPT ALL FROM left_)"
        ).fetchall()


def windows_of(rows: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows_", rows)
        return connection.sql(
            """
            SELECT key, team, make_timestamptz(start * 1000) AS window_start,
                   make_timestamptz((start + 10000) * 1000) AS window_end, n, total
            FROM (SELECT key, team, epoch_ms("at") // 10000 * 10000 AS start, count(*) AS n,
                         sum(value)::BIGINT AS total FROM rows_ GROUP BY ALL)
            """
        ).to_arrow_table()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    work = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster("local", Configuration(), workdir=work, rest=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def truth(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("truth"))
    finish(submit(cluster, pipeline(lake, rate=None)))
    assert lake.rows.num_rows == ROWS
    assert differences(lake.windows, windows_of(lake.rows)) == []
    return lake


@dataclass(frozen=True)
class Stopped:
    """A job that was stopped in the middle. `restore`: puts its tables back as the stop left them."""

    lake: Lake
    savepoint: Path
    restore: Callable[[], Lake]


@pytest.fixture(scope="module")
def stopped(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("stopped")
    lake, copy = Lake(folder / "lake"), folder / "copy"
    job = submit(cluster, pipeline(lake))
    job.wait_for(in_the_middle, WAIT_S)
    savepoint = Path(job.stop(target=str(folder / "savepoints")).removeprefix("file://"))
    assert job.wait(WAIT_S).state == "FINISHED"
    shutil.copytree(lake.folder, copy)

    def restore() -> Lake:
        shutil.rmtree(lake.folder)
        shutil.copytree(copy, lake.folder)
        return lake

    return Stopped(lake, savepoint, restore)


def assert_complete(lake: Lake, truth: Lake) -> None:
    assert differences(lake.rows, truth.rows) == []
    assert differences(lake.windows, truth.windows) == []


def test_a_stop_leaves_what_was_read_and_fires_no_open_window(stopped: Stopped) -> None:
    lake = stopped.restore()
    rows, windows = lake.rows, lake.windows
    assert 0 < rows.num_rows < ROWS
    of_rows = windows_of(rows)
    assert windows.num_rows < of_rows.num_rows, "open windows stay open"
    with duckdb.connect() as connection:
        connection.register("written", windows)
        connection.register("closed", of_rows)
        assert connection.sql("FROM written EXCEPT ALL FROM closed").fetchall() == []


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_stopped_job_goes_on_with_any_parallelism(
    cluster: EmbeddedCluster, truth: Lake, stopped: Stopped, parallelism: int
) -> None:
    lake = stopped.restore()
    names_read = lake.names_read
    finish(submit(cluster, pipeline(lake, parallelism=parallelism, rate=FAST), str(stopped.savepoint)))
    assert_complete(lake, truth)
    assert lake.names_read == names_read, "the dimension had ended; it must not be read again"


def test_a_savepoint_may_be_moved(
    cluster: EmbeddedCluster, truth: Lake, stopped: Stopped, tmp_path: Path
) -> None:
    lake = stopped.restore()
    moved = stopped.savepoint.rename(tmp_path / "moved")
    try:
        finish(submit(cluster, pipeline(lake, rate=FAST), str(moved)))
    finally:
        moved.rename(stopped.savepoint)
    assert_complete(lake, truth)


def test_a_drained_job_has_fired_every_window_of_what_it_read(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    job = submit(cluster, pipeline(lake))
    job.wait_for(in_the_middle, WAIT_S)
    terminal = job.stop(drain=True, target=str(tmp_path / "savepoints"))
    finish(job)
    resumable = job.result(WAIT_S).resumable_savepoint
    assert resumable is not None
    for path in (terminal, resumable):
        found = us.finalize_savepoint(path)
        assert found.commits, "committed after it was taken, so it lists them"
        assert found.had_nothing_to_do, "the drain has committed all that either lists"
    assert reached(terminal) == {"end of input"}
    assert reached(resumable) > {"end of input"}, "the dimension had ended, and no time went on for the drain"
    rows = lake.rows
    assert 0 < rows.num_rows < ROWS
    assert differences(lake.windows, windows_of(rows)) == []
    ids = sorted(rows["id"].to_pylist())
    for split in range(SPLITS):
        read = [number for number in ids if number % SPLITS == split]
        assert read == list(range(split, split + len(read) * SPLITS, SPLITS)), "a gap, or a row twice"


def reached(path: str) -> set[str]:
    """The least watermarks of its operators."""
    spans = [operator.watermark for operator in us.read_savepoint(path).operators]
    return {"not recorded" if span is None else span.least for span in spans}


def beyond(left: pa.Table, right: pa.Table) -> list[tuple[object, ...]]:
    """Rows that are in `left` more often than in `right`."""
    with duckdb.connect() as connection:
        connection.register("left_", left)
        connection.register("right_", right)
        return connection.sql("FROM left_ EXCEPT ALL FROM right_").fetchall()


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_drained_job_goes_on_as_if_it_had_not_been_drained(
    cluster: EmbeddedCluster, truth: Lake, tmp_path: Path, parallelism: int
) -> None:
    lake = Lake(tmp_path / "lake")
    job = submit(cluster, pipeline(lake))
    job.wait_for(in_the_middle, WAIT_S)
    terminal = job.stop(drain=True, target=str(tmp_path / "savepoints"))
    resumable = job.result(WAIT_S).resumable_savepoint
    assert resumable is not None
    drained = [tuple(row.values()) for row in lake.windows.to_pylist()]
    fired_early = beyond(lake.windows, truth.windows)
    assert fired_early, "windows were open, and the drain has fired them"
    names_read = lake.names_read

    with pytest.raises(ConfigError, match="terminal savepoint of a job that was drained") as refusal:
        submit(cluster, pipeline(lake), terminal)
    assert resumable.removeprefix("file://") in str(refusal.value)

    finish(submit(cluster, pipeline(lake, parallelism=parallelism, rate=FAST), resumable))
    assert differences(lake.rows, truth.rows) == [], "what was drained is neither lost nor read again"
    assert beyond(truth.windows, lake.windows) == [], "the windows that were open have fired whole"
    twice = beyond(lake.windows, truth.windows)
    open_from = min(start for _, _, start, *_ in twice)
    assert sorted(twice) == sorted(row for row in drained if row[2] >= open_from)
    assert set(fired_early) <= set(twice), "what the drain fired, and nothing else, is there next to"
    assert lake.names_read == names_read, "the dimension had ended; it must not be read again"


def test_a_job_goes_on_after_a_savepoint_and_an_older_one_is_refused(
    cluster: EmbeddedCluster, truth: Lake, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    job = submit(cluster, pipeline(lake))
    job.wait_for(in_the_middle, WAIT_S)
    savepoint = job.savepoint(str(tmp_path / "savepoints"))
    taken = job.status().checkpoints_completed
    job.wait_for(lambda info: info.checkpoints_completed >= taken + 2, WAIT_S)
    newest = job.stop(target=str(tmp_path / "savepoints"))
    finish(submit(cluster, pipeline(lake, rate=FAST), newest))
    assert_complete(lake, truth)

    rewound = submit(cluster, pipeline(lake, rate=FAST), savepoint).wait(WAIT_S)
    assert rewound.state == "FAILED"
    assert rewound.failure is not None
    assert rewound.failure.kind == "ConfigError"
    assert "was restored from checkpoint" in rewound.failure.message
    assert "on_rewind='allow_duplicates'" in rewound.failure.message
    assert rewound.restarts == 0, "what the user has to decide is not tried again"
    assert_complete(lake, truth)

    finish(submit(cluster, pipeline(lake, rate=FAST, on_rewind="allow_duplicates"), savepoint))
    assert_repeated_since_the_savepoint(lake, truth)


def assert_repeated_since_the_savepoint(lake: Lake, truth: Lake) -> None:
    """Each row once or twice, the same whenever it comes; twice is what follows the savepoint."""
    with duckdb.connect() as connection:
        for table, expected in ((lake.rows, truth.rows), (lake.windows, truth.windows)):
            connection.register("written", table)
            connection.register("expected", expected)
            assert connection.sql("FROM expected EXCEPT FROM written").fetchall() == []
            twice = "FROM expected UNION ALL FROM expected"
            assert connection.sql(f"FROM written EXCEPT ALL ({twice})").fetchall() == []
            assert table.num_rows > expected.num_rows
        connection.register("written", lake.rows)
        out_of_order = connection.sql(
            f"""
            WITH counted AS (SELECT id, count(*) AS times FROM written GROUP BY id)
            SELECT id % {SPLITS} FROM counted GROUP BY ALL
            HAVING max(id) FILTER (times = 1) > min(id) FILTER (times = 2)
            """
        ).fetchall()
        assert out_of_order == []


@pytest.fixture
def crashing(tmp_path: Path, crashes: Crashes) -> Callable[[str], EmbeddedCluster]:
    """A cluster one of whose workers dies once, where its first snapshot has come to a named point."""

    def crashing(point: str) -> EmbeddedCluster:
        crashes.arm(point)
        often = Configuration({"heartbeat.interval": "100 ms"})  # they carry the numbers of rows read
        return EmbeddedCluster("local", often, workdir=tmp_path / "work", rest=False)

    return crashing


def test_a_worker_that_dies_before_the_savepoint_is_complete_fails_the_stop_and_nothing_else(
    crashing: Callable[[str], EmbeddedCluster], crashes: Crashes, truth: Lake, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    with crashing("snapshot.uploaded") as cluster:
        job = submit(cluster, pipeline(lake), config=ONLY_THE_STOP)
        job.wait_for(reading, WAIT_S)
        with pytest.raises(ConfigError, match=r"interrupted|could not be triggered"):
            job.stop(target=str(tmp_path / "savepoints"))
        info = job.wait_for(lambda info: info.restarts == 1 and reading(info), WAIT_S)
        assert info.savepoint is None
        savepoint = job.stop(target=str(tmp_path / "savepoints"))
        assert job.wait(WAIT_S).state == "FINISHED"
        finish(submit(cluster, pipeline(lake, rate=FAST), savepoint))
    crashes.assert_happened()
    assert_complete(lake, truth)


def test_a_worker_that_dies_before_the_savepoints_commit_does_not_undo_the_stop(
    crashing: Callable[[str], EmbeddedCluster], crashes: Crashes, truth: Lake, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    with crashing("sink.before_commit") as cluster:
        job = submit(cluster, pipeline(lake), config=ONLY_THE_STOP)
        job.wait_for(reading, WAIT_S)
        savepoint = job.stop(target=str(tmp_path / "savepoints"))
        assert job.wait(WAIT_S).state == "FINISHED"
        assert job.status().restarts == 1, "it came up once more, to commit"
        committed = lake.rows.num_rows
        assert 0 < committed < ROWS
        finish(submit(cluster, pipeline(lake, rate=FAST), savepoint))
    crashes.assert_happened()
    assert_complete(lake, truth)


@pytest.mark.spark
def test_a_job_that_was_stopped_on_local_workers_goes_on_in_spark(
    truth: Lake, stopped: Stopped, tmp_path: Path
) -> None:
    lake = stopped.restore()
    with EmbeddedCluster("spark", Configuration(), workdir=tmp_path / "work", rest=False) as spark:
        finish(submit(spark, pipeline(lake, parallelism=3, rate=FAST), str(stopped.savepoint)))
    assert_complete(lake, truth)
