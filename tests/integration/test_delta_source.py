"""Jobs that read Delta tables: one version in windows, and tables that grow while processes are killed."""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration import delta_growth_pipeline
from tests.integration.crash_runs import (
    RECOVERING,
    Crashes,
    Lives,
    await_info,
    commands_in,
    in_the_gate,
    run_to_end,
)
from tests.integration.delta_growth_pipeline import TABLE, pipeline, source
from unistream.client.remote.rest_client import Poll
from unistream.connector.collect import CollectSink, read_collected
from unistream.testing.mini_cluster import MiniCluster

ROWS = 20_000
KEYS = 10
STEP_MS = 25
DISORDER_MS = 4_000
WINDOW_MS = 10_000
FILES = 5


def rows() -> pa.Table:
    """In the order of time but for some disorder."""
    random = np.random.default_rng(7)
    at_ms = np.maximum(0, np.arange(ROWS) * STEP_MS - random.integers(0, DISORDER_MS, ROWS))
    return pa.table(
        {
            "at": pa.array(at_ms * 1000, pa.int64()).view(pa.timestamp("us", "UTC")),
            "key": random.integers(0, KEYS, ROWS),
        }
    )


def truth() -> Counter[tuple[int, int]]:
    """(key, start of window in ms) -> rows."""
    table = rows()
    starts = table["at"].cast(pa.int64()).to_numpy() // 1000 // WINDOW_MS * WINDOW_MS
    return Counter(zip(table["key"].to_pylist(), starts.tolist(), strict=True))


def write(table: Path, rows: pa.Table, **options: Any) -> None:
    write_deltalake(str(table), rows, mode="append", **options)


def reversed_files(table: Path) -> None:
    for number in reversed(range(FILES)):
        write(table, rows().slice(number * ROWS // FILES, ROWS // FILES))


def interleaved_files(table: Path) -> None:
    for number in range(FILES):
        write(table, rows().take(np.arange(number, ROWS, FILES)))


def files_without_statistics(table: Path) -> None:
    """Of the column; the footers have them."""
    DeltaTable.create(str(table), rows().schema, configuration={"delta.dataSkippingStatsColumns": "key"})
    reversed_files(table)


def shuffled_row_groups(table: Path) -> None:
    """One file whose row groups are in no order of time."""
    size = 1_000
    groups = [rows().slice(start, size) for start in range(0, ROWS, size)]
    order = np.random.default_rng(8).permutation(len(groups))
    shuffled = pa.concat_tables([groups[number] for number in order])
    write(table, shuffled, writer_properties=WriterProperties(max_row_group_size=size))


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize(
    "layout", [reversed_files, interleaved_files, files_without_statistics, shuffled_row_groups]
)
def test_windows_count_every_row_of_a_version(
    tmp_path: Path, layout: Callable[[Path], None], mode: str
) -> None:
    layout(tmp_path / "table")
    env = us.Environment(
        {
            "execution.runtime-mode": mode,
            "pipeline.auto-watermark-interval": "1 ms",
            "parallelism.default": "2",
        }
    )
    given = us.DeltaSource(str(tmp_path / "table"), split_bytes=4_000)
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(DISORDER_MS).with_timestamp_column("at")
    windows = (
        env.from_source(given, times, "table")
        .uid("table")
        .key_by("key")
        .window(us.TumblingEventTimeWindows.of("10 s"))
        .aggregate(rows=us.count())
        .uid("count")
    )
    windows.sink_to(CollectSink(str(tmp_path / "out"))).uid("out")
    graph, code = env.job_graph("windows")
    with MiniCluster(task_managers=2, slots=2) as cluster:
        result = cluster.submit(graph, code).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert result.late_rows == {}
    found = read_collected(str(tmp_path / "out")).to_pylist()
    counted = {(row["key"], int(row["window_start"].timestamp() * 1000)): row["rows"] for row in found}
    assert len(counted) == len(found)
    assert counted == truth()


def test_what_a_sink_wrote_is_read(tmp_path: Path) -> None:
    """Names of folders are encoded by the sink, and once more by the log."""
    given = pa.table(
        {
            "i": pa.array(range(6)),
            "part": ["a b", "c%20d", "é/=", " ", None, "a b"],
            "day": pa.array([0, 1, None, 3, 4, 0], pa.date32()),
            "value": [1.5, None, float("nan"), float("inf"), -0.0, 1e300],
        }
    )
    lake = tmp_path / "lake"
    config = {"execution.runtime-mode": "STREAMING", "execution.checkpointing.interval": "100 ms"}
    env = us.Environment(config)
    written = env.from_source(us.StaticSource(given), us.WatermarkStrategy.no_watermarks(), "rows").uid(
        "rows"
    )
    written.sink_to(us.DeltaSink(str(lake), partition_by=["part", "day"])).uid("lake")
    with MiniCluster() as cluster:
        assert cluster.submit(*env.job_graph("write")).wait(WAIT_S).state == "FINISHED"
        env = us.Environment(config)
        read = env.from_source(us.DeltaSource(str(lake)), us.WatermarkStrategy.no_watermarks(), "lake")
        read.uid("lake").sink_to(CollectSink(str(tmp_path / "out"))).uid("out")
        assert cluster.submit(*env.job_graph("read")).wait(WAIT_S).state == "FINISHED"
    found = read_collected(str(tmp_path / "out")).sort_by("i").select(given.column_names).to_pylist()
    assert list(map(str, found)) == list(map(str, given.to_pylist()))


# --- one version, while the table changes -------------------------------------------------------------


def numbers(numbers: range) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int64())})


def written(table: Path) -> list[int]:
    if not (table / "_delta_log").exists():
        return []
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["i"].to_pylist())


def copying_slowly(env: us.Environment, given: us.DeltaSource, folder: Path) -> None:
    """So slowly, until an armed crash has come, that it does not end before several checkpoints."""

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        import os
        import threading

        marks = os.environ.get("UNISTREAM_CRASH_DIR")
        threading.Event().wait(0.5 if marks is not None and not os.listdir(marks) else 0.05)
        return batch

    stream = env.from_source(given, us.WatermarkStrategy.no_watermarks(), "table").uid("table")
    paused = stream.map_batches(slow, returns=stream.schema).uid("slow")
    paused.sink_to(us.DeltaSink(str(folder))).uid("rows")


@contextmanager
def changing(table: Path) -> Iterator[None]:
    """Rows from 1,000,000 on are appended all the time, and the table is compacted."""
    ended = threading.Event()

    def change() -> None:
        number = 1_000_000
        while not ended.wait(0.1):
            write(table, numbers(range(number, number + 1)))
            number += 1
            if number % 5 == 0:
                DeltaTable(str(table)).optimize.compact()

    writer = threading.Thread(target=change)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join(WAIT_S)


@pytest.mark.parametrize(
    ("mode", "point"),
    [
        ("STREAMING", "snapshot.sync_done:3"),
        ("STREAMING", "snapshot.uploaded:3"),
        ("STREAMING", "delta.appended:2"),
        pytest.param("BATCH", "delta.staged", id="BATCH, which reads all of it again"),
    ],
)
def test_a_worker_is_killed_while_it_reads_a_version_that_is_not_the_newest_any_more(
    tmp_path: Path, crashes: Crashes, mode: str, point: str
) -> None:
    table = tmp_path / "table"
    for part in range(40):
        write(table, numbers(range(part * 500, part * 500 + 500)))
    given = us.DeltaSource(str(table), filter=[("i", "!=", 7)])
    crashes.arm(point)
    with changing(table):
        run_to_end(
            tmp_path,
            crashes,
            lambda env, lake: copying_slowly(env, given, lake / "rows"),
            {"execution.checkpointing.interval": "300 ms", **RECOVERING, "execution.runtime-mode": mode},
        )
    found = written(tmp_path / "lake" / "rows")
    newer = len(found) - 19_999
    assert found == [i for i in range(20_000) if i != 7] + list(range(1_000_000, 1_000_000 + newer))
    assert newer < len(written(table)) - 20_000, "the table has grown since"


# --- tables that grow ---------------------------------------------------------------------------------


CONFIG = {
    "execution.checkpointing.interval": "200 ms",
    "parallelism.default": "2",
    **RECOVERING,
}


def environment(folder: Path, **config: str) -> us.Environment:
    return us.Environment(
        {
            **CONFIG,
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "execution.checkpointing.savepoint-dir": (folder / "savepoints").as_uri(),
            **config,
        },
        target="local",
    )


def start(
    folder: Path, given: us.DeltaSource, *, savepoint: str | None = None, uid: str = "table", **options: bool
) -> us.JobClient:
    env = environment(folder)
    pipeline(env, given, folder / "rows", uid)
    return env.execute_async("growth", savepoint=savepoint, **options)


def expect(folder: Path, expected: list[int]) -> None:
    poll = Poll(WAIT_S)
    while len(written(folder / "rows")) < len(expected):
        assert poll.next(), f"{len(written(folder / 'rows'))} of {len(expected)} rows came"
    assert written(folder / "rows") == expected


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its table has 100 rows."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    write(tmp_path / "table", numbers(range(100)))
    return tmp_path


def test_rows_that_are_added_while_a_job_runs_or_is_stopped_are_read_once(home: Path) -> None:
    table, given = home / "table", source(home / "table")
    with start(home, given) as job:
        expect(home, list(range(100)))
        for part in range(1, 5):
            write(table, numbers(range(part * 100, part * 100 + 100)))
        expect(home, list(range(500)))
        savepoint = job.stop()
        job.wait(WAIT_S)
    write(table, numbers(range(500, 600)))
    DeltaTable(str(table)).optimize.compact()
    write(table, numbers(range(600, 700)))
    DeltaTable(str(table)).create_checkpoint()
    with start(home, given, savepoint=savepoint) as job:
        expect(home, list(range(700)))
        write(table, numbers(range(700, 800)))
        expect(home, list(range(800)))
        assert (info := job.status()).restarts == 0, info.exceptions
        job.cancel()


def replaced(table: Path) -> None:
    shutil.rmtree(table)
    write(table, numbers(range(1_000, 1_100)))


def cleaned_up(table: Path) -> None:
    for part in (1, 2):
        write(table, numbers(range(part * 100, part * 100 + 100)))
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").unlink()


def vacuumed(table: Path) -> None:
    write(table, numbers(range(100, 200)))
    write(table, numbers(range(200, 300)))
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)


def deleted(table: Path) -> None:
    DeltaTable(str(table)).delete("i < 50")


def swap(one: Path, other: Path) -> None:
    """Exchanges two folders at once, as no reader of a table sees anything in between."""
    at_working_directory, exchange = -100, 2
    done = ctypes.CDLL(None, use_errno=True).renameat2(
        at_working_directory, bytes(one), at_working_directory, bytes(other), exchange
    )
    assert done == 0, os.strerror(ctypes.get_errno())


@pytest.mark.parametrize("running", [True, False], ids=["while the job runs", "while it is stopped"])
@pytest.mark.parametrize(
    ("change", "said", "afterwards"),
    [
        pytest.param(
            replaced, "version 0 is not the one that the job has read", range(1_000, 1_100), id="replaced"
        ),
        pytest.param(cleaned_up, "version 1 was cleaned up from its log", range(300), id="cleaned up"),
        pytest.param(vacuumed, "does not exist: VACUUM", range(300), id="vacuumed"),
        pytest.param(deleted, "version 1 (DELETE) rewrites rows", range(50, 100), id="changed"),
    ],
)
def test_what_cannot_be_read_on_ends_the_job_with_a_sentence_until_the_user_chooses(
    home: Path, change: Callable[[Path], None], said: str, afterwards: range, running: bool
) -> None:
    table, given = home / "table", source(home / "table")
    with start(home, given) as job:
        expect(home, list(range(100)))
        savepoint = job.stop()
        job.wait(WAIT_S)
    if running:
        shutil.copytree(table, home / "staged")
    else:
        change(table)
    with start(home, given, savepoint=savepoint) as job:
        if running:
            job.wait_for(lambda info: info.checkpoints_completed > 1, WAIT_S)
            change(home / "staged")
            swap(home / "staged", table)
        result = job.wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert said in result.failure.message
    assert "\n" not in result.failure.message
    assert result.restarts == 0, result.exceptions
    assert written(home / "rows") == list(range(100)), "nothing else was read"
    with start(home, given, savepoint=savepoint, uid="again", allow_non_restored_state=True) as job:
        poll = Poll(WAIT_S)
        while len(written(home / "rows")) < 100 + len(afterwards):
            assert poll.next(), "the rows of the table did not come"
        assert written(home / "rows") == sorted([*range(100), *afterwards])
        job.cancel()


def test_windows_over_a_growing_table_fire_as_versions_come(home: Path) -> None:
    """Each file is read within an interval of the watermarks, and then there is nothing to read."""
    table = home / "events"

    def events(first_ms: int) -> pa.Table:
        return pa.table(
            {"at": pa.array([first_ms + 100 * n for n in range(100)], pa.int64()), "key": [1] * 100}
        )

    write(table, events(0))
    env = environment(home)
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    (
        env.from_source(source(table), times.with_idleness("500 ms"), "table")
        .uid("table")
        .key_by("key")
        .window(us.TumblingEventTimeWindows.of("5 s"))
        .aggregate(rows=us.count())
        .uid("count")
        .sink_to(us.DeltaSink(str(home / "windows")))
        .uid("windows")
    )

    def fired() -> int:
        found = home / "windows"
        return DeltaTable(str(found)).to_pyarrow_table().num_rows if (found / "_delta_log").exists() else 0

    with env.execute_async("windows") as job:
        for part in range(1, 5):
            eventually(lambda part=part: fired() >= 2 * part - 1, "windows of what was read have fired")
            write(table, events(10_000 * part))
        eventually(lambda: fired() >= 9, "windows of the last version have fired")
        rows = DeltaTable(str(home / "windows")).to_pyarrow_table()["rows"].to_pylist()
        assert set(rows) == {50}
        assert job.status().late_rows == {}
        job.cancel()


# --- kills --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", in_the_gate(["snapshot.sync_done", "snapshot.uploaded", "delta.appended"], 1)
)
def test_a_worker_that_is_killed_between_a_discovery_and_the_next_checkpoint(
    tmp_path: Path, crashes: Crashes, point: str
) -> None:
    """The new splits were given out, and are in no checkpoint."""
    table = tmp_path / "table"
    write(table, numbers(range(100)))
    crashes.arm(point, later=True)
    with start(tmp_path, source(table)) as job:
        expect(tmp_path, list(range(100)))
        for part in range(1, 6):
            write(table, numbers(range(part * 100, part * 100 + 100)))
        crashes.go()
        number = 600
        while not crashes.all_happened:
            write(table, numbers(range(number, number + 100)))
            number += 100
            job.wait_for(lambda info: info.restarts >= 1 or info.checkpoints_completed > 0, WAIT_S)
        job.wait_for(lambda info: info.restarts >= 1, WAIT_S)
        write(table, numbers(range(number, number + 100)))
        expect(tmp_path, list(range(number + 100)))
        job.cancel()
    crashes.assert_happened()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    with commands_in(tmp_path) as command:
        yield Lives(tmp_path, command, f"{delta_growth_pipeline.__name__}:build", CONFIG)


@pytest.mark.parametrize("point", in_the_gate(["manifest.before_create", "manifest.created"], 1))
def test_a_master_that_is_killed_between_a_discovery_and_its_checkpoint(
    crashes: Crashes, lives: Lives, point: str
) -> None:
    table = lives.folder / "table"
    write(table, numbers(range(100)))
    facts = {TABLE: str(table)}
    life = lives.start(**facts, **crashes.environment(point, later=True))
    with lives.watch(life) as (client, job):
        await_info(client, job, lambda info: info.checkpoints_completed > 0)
        expect(lives.folder, list(range(100)))
        for part in range(1, 6):
            write(table, numbers(range(part * 100, part * 100 + 100)))
        crashes.go()
    lives.assert_killed(life)
    crashes.assert_happened()
    write(table, numbers(range(600, 700)))
    DeltaTable(str(table)).optimize.compact()
    life = lives.start(**facts, parallelism=3)
    with lives.watch(life) as (client, job):
        await_info(client, job, lambda info: info.checkpoints_completed > 1)
        expect(lives.folder, list(range(700)))
        client.client(job).stop(drain=True, target=str(lives.folder / "savepoints"))
    assert life.wait() == 0, life.err
