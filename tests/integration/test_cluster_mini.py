"""Whole jobs on a MiniCluster: real master, real network, real tasks; workers are threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.modes import STREAMING
from unistream.base.errors import AlreadyEnded, ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedJobClient
from unistream.client.job.reported import reported_result
from unistream.connector.collect import CollectSink, read_collected
from unistream.connector.datagen import DatagenSource, RandomInt, Sequential
from unistream.testing.mini_cluster import MiniCluster

KEYS = 5
CHECKPOINTS = {"execution.checkpointing.interval": "50 ms"}


class Count(us.KeyedProcessFunction):
    """Numbers the rows of each key: 1, 2, 3, …, so that a lost or repeated update of state shows."""

    def open(self, context: us.ProcessContext) -> None:
        self.seen = context.state("seen", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        out.emit({"n": row["n"], "k": row["k"], "count": count})


def counted(out: Path, *, rows: int | None, rate: float | None = None, parallelism: int = 2) -> tuple:
    """datagen -> key_by -> count -> collect"""
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    source = DatagenSource(
        {"n": Sequential(), "k": RandomInt(0, KEYS)},
        rows=rows,
        rows_per_second=rate,
        splits=2,
        bounded=rows is not None,
    )
    schema = pa.schema([("n", pa.int64()), ("k", pa.int64()), ("count", pa.int64())])
    (
        env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        .uid("numbers")
        .key_by("k")
        .process(Count(), returns=schema)
        .uid("count")
        .sink_to(CollectSink(str(out)))
        .uid("out")
    )
    return env.job_graph("counted")


def assert_exactly_once(out: Path, *, at_least: int = 1) -> int:
    """Each row once, each key counted without gap or repetition; returns the number of rows."""
    rows = read_collected(str(out)).to_pylist()
    assert len(rows) >= at_least
    numbers = sorted(row["n"] for row in rows)
    assert len(set(numbers)) == len(numbers), "a row was repeated"
    for key in {row["k"] for row in rows}:
        counts = sorted(row["count"] for row in rows if row["k"] == key)
        assert counts == list(range(1, len(counts) + 1)), f"state of key {key} was lost or repeated"
    return len(rows)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_S)
    left = [t for t in set(threading.enumerate()) - before if "fsspec" not in t.name.lower()]
    assert not left, f"threads are left: {left}"


def await_checkpoints(job: EmbeddedJobClient, count: int) -> None:
    job.wait_for(lambda info: info.state == "RUNNING" and info.checkpoints_completed >= count, WAIT_S)


@pytest.mark.parametrize("config", [{}, CHECKPOINTS], ids=["without checkpoints", "with checkpoints"])
def test_a_bounded_job_finishes_with_every_row_once(tmp_path: Path, config: dict[str, str]) -> None:
    with MiniCluster(task_managers=2, slots=1) as cluster:
        job = cluster.submit(*counted(tmp_path / "out", rows=5_000), config=config)
        result = job.wait(WAIT_S)
    assert result.state == "FINISHED"
    assert result.metrics["rows_committed"] == 5_000
    assert assert_exactly_once(tmp_path / "out") == 5_000


def test_a_cancelled_job_ends_and_frees_its_slots_for_the_next(tmp_path: Path) -> None:
    with MiniCluster(slots=2) as cluster:
        first = cluster.submit(*counted(tmp_path / "a", rows=None, rate=1_000), config=CHECKPOINTS)
        await_checkpoints(first, 2)
        first.cancel()
        assert first.wait(WAIT_S).state == "CANCELED"
        first.cancel()  # again: nothing happens
        second = cluster.submit(*counted(tmp_path / "b", rows=100))
        assert second.wait(WAIT_S).state == "FINISHED"
        with pytest.raises(AlreadyEnded):
            second.cancel()


def test_a_lost_worker_is_replaced_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    with MiniCluster(task_managers=2, slots=1) as cluster:
        # ten seconds of rows: both kills come long before its end, also on a busy machine
        job = cluster.submit(*counted(tmp_path / "out", rows=6_000, rate=600), config=CHECKPOINTS)
        for checkpoints in (2, 6):
            await_checkpoints(job, checkpoints)
            used = job.status().task_managers
            cluster.kill(used[0].id)
        result = job.wait(WAIT_S)
    assert result.state == "FINISHED"
    assert result.restarts >= 1
    assert assert_exactly_once(tmp_path / "out") == 6_000


def test_a_stopped_job_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with MiniCluster() as cluster:
        first = cluster.submit(*counted(out, rows=None, rate=2_000), config=CHECKPOINTS)
        await_checkpoints(first, 3)
        path = first.stop(target=str(tmp_path / "savepoints"))
        assert first.status().state == "FINISHED"
        assert first.status().savepoint == path
        before = assert_exactly_once(out)
        second = cluster.submit(*counted(out, rows=None, rate=2_000), config=CHECKPOINTS, savepoint=path)
        assert second.status().lineage == first.status().lineage
        await_checkpoints(second, 3)
        second.stop()
    assert assert_exactly_once(out) > before


def test_a_stopped_job_goes_on_with_another_parallelism_on_another_cluster(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with MiniCluster() as cluster:
        job = cluster.submit(*counted(out, rows=None, rate=2_000), config=CHECKPOINTS)
        await_checkpoints(job, 2)
        path = job.stop(target=str(tmp_path / "savepoints"))
    (tmp_path / "savepoints").rename(tmp_path / "moved")
    path = path.replace("/savepoints/", "/moved/")
    with MiniCluster(task_managers=3, slots=1) as cluster:
        job = cluster.submit(
            *counted(out, rows=None, rate=2_000, parallelism=3), config=CHECKPOINTS, savepoint=path
        )
        await_checkpoints(job, 2)
        job.stop()
    assert_exactly_once(out)


def test_a_drained_job_has_committed_all_that_it_read(tmp_path: Path) -> None:
    with MiniCluster() as cluster:
        job = cluster.submit(*counted(tmp_path / "out", rows=None, rate=2_000), config=CHECKPOINTS)
        await_checkpoints(job, 2)
        path = job.stop(drain=True)
        result = job.wait(WAIT_S)
    assert (result.state, result.savepoint) == ("FINISHED", path)
    assert assert_exactly_once(tmp_path / "out") == result.metrics["rows_committed"]


def test_a_fresh_start_never_collides_with_an_older_one(tmp_path: Path) -> None:
    with MiniCluster() as cluster:
        for _ in range(2):
            job = cluster.submit(*counted(tmp_path / "out", rows=100))
            assert job.wait(WAIT_S).state == "FINISHED"
    assert read_collected(str(tmp_path / "out")).num_rows == 200


def test_user_code_that_raises_fails_the_job_and_names_the_operator(tmp_path: Path) -> None:
    def explode(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no such flight")

    env = us.Environment(STREAMING)
    env.from_source(
        DatagenSource({"n": Sequential()}, rows=10), us.WatermarkStrategy.no_watermarks(), "numbers"
    ).map_batches(explode).sink_to(CollectSink(str(tmp_path / "out")))
    with MiniCluster() as cluster:
        job = cluster.execute_async(env)
        result = job.wait(WAIT_S)
        assert result.state == "FAILED"
        assert result.failure is not None
        assert result.failure.kind == "UserCodeError"
        assert "explode" in result.failure.message
        assert "no such flight" in result.failure.message
        assert "ValueError" in job.status().exceptions[0].traceback
        with pytest.raises(us.UserCodeError, match="no such flight"):
            job.result()
        with pytest.raises(us.UserCodeError, match="no such flight"):
            cluster.execute(env)
    assert list((tmp_path / "out").glob("commits/*")) == []


def test_a_cluster_that_is_too_small_says_so(tmp_path: Path) -> None:
    with MiniCluster(task_managers=1, slots=1, config={"slot.request.timeout": "300 ms"}) as cluster:
        result = cluster.submit(*counted(tmp_path / "out", rows=10)).wait(WAIT_S)
    assert result.state == "FAILED"
    assert "slot" in result.failure.message


def test_a_savepoint_of_another_pipeline_is_refused_before_the_job_exists(tmp_path: Path) -> None:
    env = us.Environment(STREAMING)
    source = DatagenSource({"n": Sequential()}, rows=None, bounded=False, rows_per_second=100)
    env.from_source(source, us.WatermarkStrategy.no_watermarks(), "other").uid("other").sink_to(
        CollectSink(str(tmp_path / "other"))
    ).uid("elsewhere")
    with MiniCluster() as cluster:
        job = cluster.execute_async(env, "other")
        job.wait_for(lambda info: info.state == "RUNNING", WAIT_S)
        assert job.status().name == "other"
        path = job.stop()
        with pytest.raises(ConfigError, match="other"):
            cluster.submit(*counted(tmp_path / "out", rows=10), savepoint=path)
        again = cluster.execute_async(env, "other", savepoint=path)
        again.wait_for(lambda info: info.state == "RUNNING", WAIT_S)
        assert len(cluster.dispatcher.jobs()) == 2


def test_closing_ends_a_running_job(tmp_path: Path) -> None:
    with MiniCluster() as cluster:
        job = cluster.submit(*counted(tmp_path / "out", rows=None, rate=100))
    assert job.status().state == "SUSPENDED"


def test_a_folder_has_one_cluster_at_a_time(tmp_path: Path) -> None:
    with MiniCluster(workdir=tmp_path), pytest.raises(ConfigError, match="in use by another cluster"):
        MiniCluster(workdir=tmp_path)
    with MiniCluster(workdir=tmp_path) as cluster:
        job = cluster.submit(*counted(tmp_path / "out", rows=10))
        assert job.wait(WAIT_S).state == "FINISHED"


@pytest.mark.parametrize(
    ("cores", "memory", "named"),
    [
        pytest.param(4000, "64 mb", "4000 cpu cores", id="cores"),
        pytest.param(0.1, "900000 gb", "921600000 MiB", id="memory"),
    ],
)
def test_a_slot_that_no_worker_has_is_refused_at_submission(cores: float, memory: str, named: str) -> None:
    env = us.Environment(STREAMING)
    env.register_slot_sharing_group(us.SlotSharingGroup("heavy", cpu_cores=cores, task_memory=memory))
    numbers = env.from_source(
        DatagenSource({"n": Sequential()}, rows=10), us.WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.uid("numbers").slot_sharing_group("heavy").sink_to(us.BlackholeSink()).uid("out")
    with MiniCluster() as cluster:
        with pytest.raises(ConfigError, match=r"operator 'numbers.*'heavy' needs .*SlotSharing") as caught:
            cluster.submit(*env.job_graph("heavy"))
        assert named in str(caught.value)
        assert cluster.task_managers() == ()


def test_a_program_that_waits_hears_of_restarts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    goes_on = tmp_path / "goes on"

    def fails_at_first(row: dict) -> dict:
        if not goes_on.exists():
            raise ValueError("not yet")
        return row

    restarts = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000000"}
    env = us.Environment({**STREAMING, **restarts, "restart-strategy.fixed-delay.delay": "100 ms"})
    rows = env.from_collection([{"n": 1}]).map(fails_at_first, returns={"n": pa.int64()})
    rows.uid("map").sink_to(CollectSink(str(tmp_path / "out"))).uid("out")
    graph, code = env.job_graph("restarts")
    with MiniCluster(task_managers=1, slots=1) as cluster, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(reported_result, cluster.submit(graph, code))
        eventually(lambda: "event=job_restarts" in caplog.text, "it is said", WAIT_S)
        goes_on.touch()
        assert waiting.result(WAIT_S).restarts > 0
    assert "ValueError: not yet" in caplog.text
    assert read_collected(str(tmp_path / "out")).to_pydict() == {"n": [1]}
