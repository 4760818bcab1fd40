"""Regional failover with real processes: one part of a job fails, restarts and catches up; the other goes on.

Both parts read generated rows, count them in keyed windows and write a Delta table of their own, so a row
that is lost or read twice shows; a tap behind each source notes which rows came by, and when. The rows come
so slowly that no job ends before the test has seen what it is about: it is stopped with a savepoint then, and
a job without faults reads the rest.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.asking import as_owner
from tests.eventually import WAIT_S
from tests.integration import tapped_rows
from tests.integration.tapped_rows import (
    COLUMNS,
    SliceSink,
    Tap,
    committed,
    failed_ms,
    rows,
    seen,
    times_seen,
    windows,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.remote.job_client import checked
from unistream.model.job_info import JobInfo, SubtaskInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

ROWS = 90_000  # of each part
SLOW = 1_500  # rows/s of each part: a minute to the end, which no job comes to before its stop
FAST = 100_000
SEEDS = {"a": 1, "b": 2}
FIXED = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "1500 ms",  # also a busy machine gives the other part some of it
}
CONFIG = {
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "20 s",
    "execution.checkpointing.interval": "200 ms",
    "pipeline.auto-watermark-interval": "50 ms",
    **FIXED,
}


@dataclass(frozen=True)
class Lake:
    """Where the two parts write, and what their taps noted."""

    folder: Path

    @property
    def taps(self) -> Path:
        return self.folder / "taps"

    def table(self, name: str) -> Path:
        return self.folder / name

    def check(self, name: str) -> None:
        """The windows of part `name` are those of all its rows, each counted once."""
        table = DeltaTable(str(self.table(name))).to_pyarrow_table().to_pylist()
        found = sorted(
            (row["key"], round(row["window_start"].timestamp() * 1000), row["n"], row["total"])
            for row in table
        )
        assert found == windows(ROWS, seed=SEEDS[name])


def two_parts(env: us.Environment, lake: Lake, taps: Mapping[str, Tap], rate: float) -> None:
    """Parts a and b, which have nothing in common but the job; each has slots of its own."""
    for name, tap in taps.items():
        source = us.DatagenSource(COLUMNS, rows=ROWS, seed=SEEDS[name], rows_per_second=rate)
        watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_column("at")
        numbers = env.from_source(source, watermarks, f"numbers {name}").uid(f"numbers-{name}")
        tapped = numbers.slot_sharing_group(name).map_batches(tap, returns=source.schema)
        windowed = tapped.uid(f"tap-{name}").key_by("key").window(us.TumblingEventTimeWindows.of("1 s"))
        counted = (
            windowed.aggregate(n=us.count(), total=us.sum("value"))
            .uid(f"windows-{name}")
            .name(f"windows {name}")
        )
        counted.sink_to(us.DeltaSink(str(lake.table(name)))).uid(f"out-{name}").name(f"out {name}")


def submit(
    cluster: EmbeddedCluster,
    env: us.Environment,
    config: Mapping[str, str] | None = None,
    savepoint: str | None = None,
) -> EmbeddedJobClient:
    graph, code = env.job_graph("parts")
    artifact = pack(code, by_value=[tapped_rows])
    return cluster.submit(
        SubmitRequest(graph=graph, artifact=artifact, config=CONFIG | dict(config or {}), savepoint=savepoint)
    )


def start_parts(
    cluster: EmbeddedCluster, lake: Lake, taps: Mapping[str, Tap], config: Mapping[str, str] | None = None
) -> EmbeddedJobClient:
    env = us.Environment(STREAMING)
    two_parts(env, lake, taps, SLOW)
    return submit(cluster, env, config)


def recovered(restarts: int) -> Callable[[JobInfo], bool]:
    """All tasks run after so many restarts, and a checkpoint was triggered and completed since the last."""

    def condition(info: JobInfo) -> bool:
        up = info.state == "RUNNING" and {task.state for task in info.subtasks} == {"RUNNING"}
        failed = max((entry.at_ms for entry in info.exceptions), default=0)
        return up and info.restarts == restarts and completed_between(info, failed, sys.maxsize) > 0

    return condition


def first_deployed(info: JobInfo) -> bool:
    """Each first attempt has a worker."""
    return all(task.attempt == 0 and task.task_manager for task in info.subtasks) and bool(info.subtasks)


def stop(job: EmbeddedJobClient, folder: Path, restarts: int) -> tuple[JobInfo, str]:
    """The last status of a job that has recovered so often, and its savepoint."""
    job.wait_for(recovered(restarts), WAIT_S)
    savepoint = job.stop(target=str(folder / "savepoints"))
    assert job.wait(WAIT_S).state == "FINISHED"
    return job.status(), savepoint


def stop_and_finish(
    cluster: EmbeddedCluster, job: EmbeddedJobClient, lake: Lake, *, restarts: int = 1
) -> JobInfo:
    """The last status of the slow job; one without faults reads the rest, and the tables are right."""
    info, savepoint = stop(job, lake.folder, restarts)
    env = us.Environment(STREAMING)
    two_parts(env, lake, {name: Tap(name, lake.taps) for name in SEEDS}, FAST)
    assert submit(cluster, env, savepoint=savepoint).wait(WAIT_S).state == "FINISHED"
    lake.check("a")
    lake.check("b")
    return info


def local(folder: Path, *, target: str = "local", rest: bool = False) -> EmbeddedCluster:
    return EmbeddedCluster(target, Configuration(CONFIG), workdir=folder / "cluster", rest=rest)


def tasks_of(info: JobInfo, part: str) -> list[SubtaskInfo]:
    return [task for task in info.subtasks if re.search(rf"\b{part}\b", task.vertex_name)]


def attempts(info: JobInfo, part: str) -> set[int]:
    """Attempt numbers of all tasks of a part."""
    tasks = tasks_of(info, part)
    assert len(tasks) == 3, "source, window, committer"
    return {task.attempt for task in tasks}


def completed_between(info: JobInfo, start_ms: int, end_ms: int) -> int:
    """Checkpoints that were triggered in that time and have completed."""
    return sum(c.state == "completed" and start_ms < c.triggered_ms < end_ms for c in info.checkpoints)


def check_goes_on(lake: Lake, name: str, failures_ms: list[int], other: str) -> None:
    """`name` met each row once and in order, also each time that `other` was down."""
    batches = seen(name, lake.taps)
    ids = [row for batch in batches for row in batch.ids]
    assert ids == list(range(ROWS)), "no row is read again, none is left out"
    for at_ms in failures_ms:
        back_ms = next(batch.at_ms for batch in seen(other, lake.taps) if batch.at_ms > at_ms)
        meanwhile = [batch for batch in batches if at_ms < batch.at_ms < back_ms]
        assert len(meanwhile) >= 3, f"{name} stood still from {at_ms} to {back_ms}"


class TestTwoParts:
    def test_a_part_that_fails_again_and_again_leaves_the_other_alone(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        thresholds = (1_000, 5_000, 9_000)
        taps = {"a": Tap("a", lake.taps, fail_at=thresholds), "b": Tap("b", lake.taps)}
        with local(tmp_path) as cluster:
            job = start_parts(cluster, lake, taps)
            info = stop_and_finish(cluster, job, lake, restarts=3)
        assert (attempts(info, "a"), attempts(info, "b")) == ({3}, {0})
        failures = failed_ms("a", lake.taps)
        check_goes_on(lake, "b", failures, "a")
        ends = [*failures[1:], info.ended_ms or 0]
        for start_ms, end_ms in zip(failures, ends, strict=True):
            assert completed_between(info, start_ms, end_ms), "checkpoints go on after each recovery"
        again = times_seen("a", lake.taps)
        assert set(again) == set(range(ROWS))
        assert max(again.values()) <= 1 + len(thresholds)

    def test_a_killed_worker_takes_only_its_part_along(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        taps = {name: Tap(name, lake.taps) for name in SEEDS}
        with local(tmp_path) as cluster:
            job = start_parts(cluster, lake, taps)
            killed_ms = kill_worker_of(job, "a")
            info = stop_and_finish(cluster, job, lake)
        assert attempts(info, "b") == {0}
        assert attempts(info, "a") == {1}
        check_goes_on(lake, "b", [killed_ms], "a")
        (root,) = info.exceptions
        assert root.kind == "TaskManagerLost", "not that nobody answers there, which may be noticed before"

    def test_restart_all_restarts_both(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        taps = {"a": Tap("a", lake.taps, fail_at=[2_000]), "b": Tap("b", lake.taps)}
        with local(tmp_path) as cluster:
            job = start_parts(cluster, lake, taps, {"jobmanager.execution.failover-strategy": "full"})
            info = stop_and_finish(cluster, job, lake)
        assert (attempts(info, "a"), attempts(info, "b")) == ({1}, {1})

    @pytest.mark.spark
    def test_a_killed_spark_task_takes_only_its_part_along(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        taps = {name: Tap(name, lake.taps) for name in SEEDS}
        with local(tmp_path, target="spark") as cluster:
            job = start_parts(cluster, lake, taps)
            killed_ms = kill_worker_of(job, "a")
            info = stop_and_finish(cluster, job, lake)
        assert (attempts(info, "a"), attempts(info, "b")) == ({1}, {0}), [
            (entry.kind, entry.message, entry.task_name) for entry in info.exceptions
        ]
        check_goes_on(lake, "b", [killed_ms], "a")


class TestSlices:
    """source -> tap -> sink, chained three times: each subtask is a region of its own."""

    @pytest.mark.parametrize("kind", ["push", "pull"])
    @pytest.mark.parametrize("fault", ["error", "kill"])
    def test_one_slice_restarts_and_no_split_is_lost_or_doubled(
        self, tmp_path: Path, kind: str, fault: str
    ) -> None:
        taps = tmp_path / "taps"
        pause_ms = 300 if kind == "pull" else 5
        tap = Tap("slice", taps, fail_at=[3_000] if fault == "error" else [], pause_ms=pause_ms)
        if kind == "pull":
            write_files(tmp_path / "files")
        with local(tmp_path) as cluster:
            job = submit(cluster, slices(tmp_path, kind, tap, SLOW))
            if fault == "kill":
                info = job.wait_for(lambda i: i.state == "RUNNING" and i.checkpoints_completed >= 2, WAIT_S)
                victim = info.task_managers[0].pid
                assert victim is not None
                os.kill(victim, signal.SIGKILL)
            info, savepoint = stop(job, tmp_path, restarts=1)
            rest = submit(cluster, slices(tmp_path, kind, Tap("rest", taps), FAST), savepoint=savepoint)
            assert rest.wait(WAIT_S).state == "FINISHED"
        grown = {s.index for s in info.subtasks if s.attempt}
        assert len(grown) == 1, "one slice only"
        assert {s.attempt for s in info.subtasks if s.index in grown} == {1}
        assert committed(tmp_path / "out") == list(range(ROWS))


FILES = 300


def write_files(folder: Path) -> None:
    """All rows, which 3 slices that take 300 ms for a file read in half a minute."""
    folder.mkdir()
    step = ROWS // FILES
    table = rows(ROWS, seed=1)
    for start in range(0, ROWS, step):
        pq.write_table(table.slice(start, step), folder / f"{start:06d}.parquet")


def slices(folder: Path, kind: str, tap: Tap, rate: float) -> us.Environment:
    """Rows 0 … ROWS - 1 in 3 splits that are given out ("push"), or in 300 that are asked for ("pull")."""
    env = us.Environment({**STREAMING, "parallelism.default": "3"})
    source = (
        us.DatagenSource(COLUMNS, rows=ROWS, seed=1, rows_per_second=rate, splits=3)
        if kind == "push"
        else us.FileSource(str(folder / "files"))
    )
    numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    tapped = numbers.map_batches(tap, returns=numbers.schema).uid("tap")
    tapped.sink_to(SliceSink(folder / "out")).uid("out")
    return env


class TestHistory:
    def test_the_history_names_task_attempt_worker_time_and_what_failed_along(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """b fails while the restart of a waits, so it is reported along with it."""
        monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
        lake = Lake(tmp_path)
        first = lake.taps / "a.failed-2000"
        taps = {"a": Tap("a", lake.taps, fail_at=[2_000]), "b": Tap("b", lake.taps, after=first)}
        backoff = {
            "restart-strategy.type": "exponential-delay",
            "restart-strategy.exponential-delay.initial-backoff": "5 s",
        }
        with local(tmp_path, rest=True) as cluster:
            job = start_parts(cluster, lake, taps, backoff)
            deployed = job.wait_for(first_deployed, WAIT_S)  # it may fail before all of its tasks run
            worker = {part: tasks_of(deployed, part)[0].task_manager for part in SEEDS}
            job.wait_for(recovered(1), WAIT_S)
            asked_ms = int(time.time() * 1000)
            url = f"{cluster.rest_url}/jobs/{job.job_id}/exceptions"
            with urllib.request.urlopen(urllib.request.Request(url, headers=as_owner(url))) as answer:
                history = json.load(answer)["exceptionHistory"]
            words = [sys.executable, "-m", "unistream.cli.main", "exceptions", job.job_id]
            reported = subprocess.run(words, capture_output=True, text=True, check=True, timeout=WAIT_S)
            info, _ = stop(job, tmp_path, restarts=1)
        (root,) = history["entries"]
        (along,) = root["concurrentExceptions"]
        for part, entry, text in (("a", root, "does not like row 2000"), ("b", along, "fails too")):
            assert entry["exceptionName"] == "UserCodeError"
            assert f"{part} {text}" in entry["stacktrace"]
            assert entry["taskName"].startswith(f"numbers {part} -> ")
            assert entry["taskName"].endswith("(1/1) - execution #0")
            assert entry["taskManagerId"] == worker[part]
            assert failed_ms(part, lake.taps)[0] <= entry["timestamp"] <= asked_ms
        assert (attempts(info, "a"), attempts(info, "b")) == ({1}, {1})
        assert re.search(r"numbers a .*execution #0", " ".join(reported.stdout.split())), reported.stdout
        assert "does not like row 2000" in " ".join(reported.stdout.split())


class TestNoRestart:
    @pytest.mark.parametrize("error", ["SuppressRestarts", "ConfigError"])
    def test_an_error_that_is_not_recoverable_fails_the_job_at_once(self, tmp_path: Path, error: str) -> None:
        lake = Lake(tmp_path)
        taps = {"a": Tap("a", lake.taps, fail_at=[1_000], error=error), "b": Tap("b", lake.taps)}
        with local(tmp_path) as cluster:
            job = start_parts(cluster, lake, taps)
            result = job.wait(WAIT_S)
            info = job.status()
        assert (result.state, info.restarts) == ("FAILED", 0)
        assert result.failure is not None
        assert not result.failure.recoverable
        assert "a does not like row 1000" in result.failure.message
        assert {s.attempt for s in info.subtasks} == {0}
        if error == "SuppressRestarts":
            with pytest.raises(us.SuppressRestarts, match="does not like row 1000"):
                checked(result)


def kill_worker_of(job: EmbeddedJobClient, part: str) -> int:
    """SIGKILL to the worker of that part when some checkpoints are there; when that was."""
    info = job.wait_for(lambda i: i.state == "RUNNING" and i.checkpoints_completed >= 2, WAIT_S)
    workers = {s.task_manager for s in tasks_of(info, part)}
    others = {s.task_manager for s in info.subtasks} - workers
    assert (len(workers), len(others)) == (1, 1), "the parts are on different workers"
    (victim,) = (worker for worker in info.task_managers if worker.id in workers)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    return int(time.time() * 1000)
