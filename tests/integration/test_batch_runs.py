"""Bounded jobs in BATCH mode on real processes: the same rows as in STREAMING mode, from fewer slots.

Their stages run one after the other over results that are stored on disk, so workers may be fewer than tasks,
die between two stages, or find what was stored damaged.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration import tapped_rows
from tests.integration.tapped_rows import COLUMNS, Tap, rows, seen, windows
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.base.crash_points import DIRECTORY_VARIABLE, POINTS_VARIABLE
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.connector.collect import CollectSink, read_collected
from unistream.connector.datagen import DatagenSource
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

ROWS = 8_000
FILES = 4
SEED = 3
WORDS = ("a", "stream", "is", "a", "table", "and", "a", "table", "is", "a", "stream")
SCHEMA = DatagenSource(COLUMNS, rows=0).schema
BY_TIME = us.WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_column("at")
SECONDS = us.TumblingEventTimeWindows.of("1 s")
CONFIG = {
    "execution.batch.engine": "native",
    "execution.batch-shuffle.write-buffer.size": "2 kb",  # what is stored for windows comes bucket by bucket
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "20 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}
Pipeline = Callable[[us.Environment, Path], us.DataStream]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in the order of their time in several files, words, and names of the keys."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "rows").mkdir()
    table, step = rows(ROWS, seed=SEED), ROWS // FILES
    for number in range(FILES):
        pq.write_table(table.slice(number * step, step), folder / "rows" / f"{number}.parquet")
    lines = [{"line": " ".join(WORDS[n % 5 :]), "at": n} for n in range(500)]
    (folder / "words.json").write_text("\n".join(json.dumps(line) for line in lines))
    names = pa.table({"number": list(range(8)), "name": [f"key {n}" for n in range(8)]})
    pq.write_table(names, folder / "names.parquet")
    return folder


def numbers(env: us.Environment, files: Path, name: str = "numbers") -> us.DataStream:
    return env.from_source(us.FileSource(str(files / "rows"), schema=SCHEMA), BY_TIME, name).uid(name)


def word_count(env: us.Environment, files: Path) -> us.DataStream:
    schema = pa.schema([("line", pa.string()), ("at", pa.int64())])
    source = us.FileSource(str(files / "words.json"), format="json", schema=schema, split_bytes=4_000)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness("1 h").with_timestamp_column("at")
    lines = env.from_source(source, watermarks, "lines").uid("lines")
    words = lines.flat_map(
        lambda row: [{"word": word} for word in row["line"].split()],
        returns=pa.schema([("word", pa.string())]),
    )
    hours = us.TumblingEventTimeWindows.of("1 h")
    return words.uid("words").key_by("word").window(hours).aggregate(n=us.count()).uid("count")


def windowed_count(env: us.Environment, files: Path) -> us.DataStream:
    keyed = numbers(env, files).key_by("key").window(SECONDS)
    return keyed.aggregate(n=us.count(), total=us.sum("value")).uid("count")


def join(env: us.Environment, files: Path) -> us.DataStream:
    names = us.FileSource(str(files / "names.parquet"))
    dimension = env.from_source(names, us.WatermarkStrategy.no_watermarks(), "names").uid("names")
    return numbers(env, files).join(dimension, {"key": "number"}, how="left").uid("join").select("id", "name")


def union(env: us.Environment, files: Path) -> us.DataStream:
    both = numbers(env, files).union(numbers(env, files, "again"))
    return both.key_by("key").window(SECONDS).aggregate(n=us.count()).uid("count")


def broadcast(env: us.Environment, files: Path) -> us.DataStream:
    everywhere = numbers(env, files).broadcast().filter(us.col("value") < 500).uid("filter")
    return everywhere.key_by("key").window(SECONDS).aggregate(n=us.count()).uid("count")


PIPELINES: dict[str, Pipeline] = {f.__name__: f for f in (word_count, windowed_count, join, union, broadcast)}


class Cluster:
    """One that starts with the first job, and the folder in which its workers store results."""

    def __init__(self, folder: Path, target: str = "local", workers: int | None = None) -> None:
        self.folder = folder
        self.config_of_runs: Mapping[str, str] = {}
        self.spill = folder / "spill"
        self.spill.mkdir()
        config = Configuration(CONFIG | {"io.tmp.dirs": str(self.spill)})
        self.embedded = EmbeddedCluster(
            target, config, workdir=folder / "cluster", rest=False, max_workers=workers
        )

    def submit(self, env: us.Environment, config: Mapping[str, str] | None = None) -> EmbeddedJobClient:
        graph, code = env.job_graph("bounded")
        artifact = pack(code, by_value=[tapped_rows])
        return self.embedded.submit(SubmitRequest(graph=graph, artifact=artifact, config=dict(config or {})))

    def host_local_inputs(self) -> int:
        """So many times a worker has read what another had stored from its files."""
        logs = [path.read_text() for path in (self.folder / "cluster" / "logs").glob("taskmanager-*.log")]
        assert logs, "workers write logs"
        return sum(log.count("event=host_local_input ") for log in logs)

    def stored(self) -> list[Path]:
        """Files with results of tasks."""
        return [p for p in walked(self.spill) if p.is_file() and p.name != "lock"]

    def stored_by(self, pid: int | None) -> list[Path]:
        """The same of one worker."""
        opened = {Path(file.path).parent for file in psutil.Process(pid).open_files()}
        found = [p for p in self.stored() if not opened.isdisjoint(p.parents)]
        assert found, "it has stored what its task made"
        return found

    def close(self) -> None:
        self.embedded.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()
    assert list(cluster.spill.iterdir()) == [], "nothing is left on disk"


def environment(mode: str, parallelism: int = 2) -> us.Environment:
    return us.Environment({"parallelism.default": str(parallelism), "execution.runtime-mode": mode})


def collected(folder: Path) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in read_collected(str(folder)).to_pylist())


def run(cluster: Cluster, name: str, mode: str, files: Path, out: Path) -> list[tuple[object, ...]]:
    """The rows that the pipeline makes in that mode, sorted."""
    env = environment(mode)
    PIPELINES[name](env, files).sink_to(CollectSink(str(out))).uid("out")
    job = cluster.submit(env, cluster.config_of_runs)
    assert job.wait(WAIT_S).state == "FINISHED", job.status().failure
    assert job.status().restarts == 0
    return collected(out)


class TestSameRows:
    @pytest.mark.parametrize("host_local", ["true", "false"])
    def test_every_pipeline_makes_the_rows_of_its_streaming_run(
        self, host_local: str, cluster: Cluster, files: Path, tmp_path: Path
    ) -> None:
        """What another worker has stored comes from its files, or through the socket."""
        cluster.config_of_runs = {"execution.batch-shuffle.read-host-local": host_local}
        for name in PIPELINES:
            batch = run(cluster, name, "BATCH", files, tmp_path / f"{name}-batch")
            assert batch, name
            assert batch == run(cluster, name, "STREAMING", files, tmp_path / f"{name}-stream"), name
        assert (cluster.host_local_inputs() > 0) == (host_local == "true")
        eventually(lambda: not cluster.stored(), "what was read is deleted while the workers live on")

    def test_one_slot_is_enough(self, files: Path, tmp_path: Path) -> None:
        cluster = Cluster(tmp_path, workers=1)
        try:
            for name in ("windowed_count", "join", "union"):
                assert run(cluster, name, "BATCH", files, tmp_path / name), name
            found = collected(tmp_path / "windowed_count")
            assert len(cluster.embedded.dispatcher.task_managers()) == 1
        finally:
            cluster.close()
        truth = windows(ROWS, seed=SEED)
        assert sorted((row[0], row[-2], row[-1]) for row in found) == sorted(
            (k, n, t) for k, _, n, t in truth
        )

    def test_one_stored_exchange_in_a_streaming_job(
        self, cluster: Cluster, files: Path, tmp_path: Path
    ) -> None:
        env = environment("STREAMING")
        stored = numbers(env, files).exchange_mode(us.StreamExchangeMode.BATCH)
        counted = stored.key_by("key").window(SECONDS).aggregate(n=us.count(), total=us.sum("value"))
        counted.uid("count").sink_to(CollectSink(str(tmp_path / "out"))).uid("out")
        job = cluster.submit(env, {"execution.checkpointing.interval": "100 ms"})
        assert job.wait(WAIT_S).state == "FINISHED"
        assert job.status().checkpoints_completed >= 1, "once what was stored has been read"
        stream = run(cluster, "windowed_count", "STREAMING", files, tmp_path / "stream")
        assert collected(tmp_path / "out") == stream

    @pytest.mark.spark
    def test_spark_runs_it_too(self, files: Path, tmp_path: Path) -> None:
        cluster = Cluster(tmp_path, "spark")
        try:
            batch = run(cluster, "windowed_count", "BATCH", files, tmp_path / "batch")
            stream = run(cluster, "windowed_count", "STREAMING", files, tmp_path / "stream")
            assert batch == stream
            assert run(cluster, "join", "BATCH", files, tmp_path / "join")
        finally:
            cluster.close()
        assert list(cluster.spill.iterdir()) == []


def staged(env: us.Environment, files: Path, lake: Path, first: Tap, second: Tap) -> None:
    """files -> first -> stored -> second -> stored -> windows -> Delta"""
    tapped = numbers(env, files).map_batches(first, returns=SCHEMA).uid("first").name("first")
    again = tapped.rebalance().map_batches(second, returns=SCHEMA).uid("second").name("second")
    counted = again.key_by("key").window(SECONDS).aggregate(n=us.count(), total=us.sum("value"))
    counted.uid("count").name("count").sink_to(us.DeltaSink(str(lake))).uid("out").name("out")


def check(lake: Path) -> None:
    """Every row is counted once, and there was one commit."""
    table = DeltaTable(str(lake))
    found = sorted(
        (row["key"], round(row["window_start"].timestamp() * 1000), row["n"], row["total"])
        for row in table.to_pyarrow_table().to_pylist()
    )
    assert found == windows(ROWS, seed=SEED)
    assert table.version() <= 1, "made, and written once"


def attempts(info: JobInfo, name: str) -> list[int]:
    return sorted(s.attempt for s in info.subtasks if name in s.vertex_name)


def go(tap: Tap, folder: Path) -> None:
    (folder / f"{tap.name}.go").touch()


class TestFaults:
    @pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
    def test_what_a_killed_worker_had_stored_is_made_again(
        self, files: Path, tmp_path: Path, target: str
    ) -> None:
        cluster = Cluster(tmp_path, target)
        taps = tmp_path / "taps"
        first, second = Tap("first", taps), Tap("second", taps, hold_at=ROWS - 1)
        env = environment("BATCH")
        staged(env, files, tmp_path / "lake", first, second)
        try:
            job = cluster.submit(env)
            eventually(lambda: len(seen("second", taps)) > 0, "the second stage reads")
            info = job.status()
            made_by = {s.task_manager for s in info.subtasks if "first" in s.vertex_name}
            victim = next(w for w in info.task_managers if w.id in made_by)
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            go(second, taps)
            assert job.wait(WAIT_S).state == "FINISHED"
            info = job.status()
        finally:
            cluster.close()
        check(tmp_path / "lake")
        assert attempts(info, "first")[-1] >= 1, "its producer ran again"
        assert all(attempt >= 1 for attempt in attempts(info, "second"))
        assert list(cluster.spill.iterdir()) == []

    def test_what_was_damaged_on_disk_is_made_again(
        self, cluster: Cluster, files: Path, tmp_path: Path
    ) -> None:
        taps = tmp_path / "taps"
        first, second = Tap("first", taps, hold_at=ROWS - 1), Tap("second", taps)
        env = environment("BATCH")
        staged(env, files, tmp_path / "lake", first, second)
        job = cluster.submit(env)
        info = job.wait_for(lambda i: any(s.state == "FINISHED" for s in i.subtasks), WAIT_S)
        (done,) = (s.task_manager for s in info.subtasks if s.state == "FINISHED")
        (pid,) = (worker.pid for worker in info.task_managers if worker.id == done)
        for path in cluster.stored_by(pid):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 4
            path.write_bytes(content)
        go(first, taps)
        assert job.wait(WAIT_S).state == "FINISHED"
        info = job.status()
        check(tmp_path / "lake")
        assert attempts(info, "first") == [0, 1], "the one whose file was damaged"
        reported = [(entry.kind, entry.message) for entry in info.exceptions]
        assert any("does not match its checksum" in message for _, message in reported), reported
        eventually(lambda: not cluster.stored(), "nothing is kept")

    @pytest.mark.parametrize("point", ["sink.before_commit", "delta.appended", "sink.committed"])
    def test_a_worker_that_dies_around_the_commit_commits_once(
        self, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
    ) -> None:
        marks = tmp_path / "crashed"
        marks.mkdir()
        monkeypatch.setenv(POINTS_VARIABLE, point)
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(marks))
        monkeypatch.setenv("UNISTREAM_TESTING", "1")
        cluster = Cluster(tmp_path)
        taps = tmp_path / "taps"
        env = environment("BATCH")
        staged(env, files, tmp_path / "lake", Tap("first", taps), Tap("second", taps))
        try:
            job = cluster.submit(env)
            assert job.wait(WAIT_S).state == "FINISHED", job.status().failure
        finally:
            cluster.close()
        assert [mark.name for mark in marks.iterdir()] == [point], "it did not happen"
        check(tmp_path / "lake")
