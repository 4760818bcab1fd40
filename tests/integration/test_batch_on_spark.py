"""BATCH jobs on Spark's engine in local mode: results, failures, and that nothing is left behind."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.bounded_pipeline import ROWS, TIMES, Numbers, check_results, pipeline, write_rows
from tests.eventually import WAIT_S, eventually
from tests.integration.spark_cluster import interrupted_when_cancelled, spark_drivers
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.remote.job_client import JobResult
from unistream.connector.collect import CollectSink, read_collected
from unistream.connector.datagen import DatagenSource, Sequential
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = [pytest.mark.spark]

SPARK = Configuration(
    {
        "spark.master": "local[2]",
        "parallelism.default": "3",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster("spark", SPARK, workdir=tmp_path_factory.mktemp("cluster"), rest=False) as cluster:
        yield cluster


def submit(cluster: EmbeddedCluster, env: us.Environment) -> EmbeddedJobClient:
    graph, code = env.job_graph("bounded")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=env.config.to_dict()))


def environment(**config: str) -> us.Environment:
    return us.Environment({"parallelism.default": "3", **config})


def finished(job: EmbeddedJobClient) -> tuple[JobResult, JobInfo]:
    result, info = job.wait(WAIT_S), job.status()
    assert (result.state, info.engine) == ("FINISHED", "spark"), result.failure
    assert result.late_rows == {}
    return result, info


def context() -> Any:
    from pyspark import SparkContext

    return SparkContext.getOrCreate()


def active_jobs() -> list[int]:
    return list(context().statusTracker().getActiveJobsIds())


def test_a_job_is_one_spark_job_with_readable_stages_and_its_commit(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    write_rows(tmp_path)
    env = environment()
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    result, info = finished(job)
    check_results(tmp_path)
    assert result.restarts == 0
    assert {subtask.state for subtask in info.subtasks} == {"FINISHED"}
    assert {stage.finished - stage.tasks for stage in info.stages} == {0}
    assert [stage.name for stage in info.stages[:2]] == ["rows", "names, process Numbers -> collect"]
    assert "committer" in info.stages[-1].name
    assert info.stages[0].rows_out > info.stages[0].tasks
    assert sum(stage.shuffle_bytes for stage in info.stages) > 10_000
    assert (info.engine_page or "").startswith("http")
    assert info.engine_page == context().uiWebUrl
    store = context()._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    mine = [jobs.apply(n) for n in range(jobs.size()) if str(job.job_id) in str(jobs.apply(n).jobGroup())]
    assert sorted(str(one.description().get()) for one in mine) == ["bounded: commit", "bounded: stages"]
    stages = next(one for one in mine if "stages" in str(one.description().get())).stageIds()
    names = [str(store.lastStageAttempt(stages.apply(n)).name()) for n in range(stages.size())]
    assert sorted(names) == sorted(f"bounded: {stage.name}" for stage in info.stages[:-1])
    assert result.metrics["rows_committed"] == sum(sink.rows for sink in result.sinks.values()) > 0


class Slowly(Numbers):
    """Takes some seconds in all, and says which process it runs in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        (self._folder / str(os.getpid())).touch()
        time.sleep(0.001)
        super().process_element(row, context, out)


def slow_job(cluster: EmbeddedCluster, folder: Path, **config: str) -> EmbeddedJobClient:
    """It runs its slow stage when this returns."""
    write_rows(folder)
    (folder / "pids").mkdir()
    env = environment(**config)
    pipeline(env, folder, Slowly(folder / "pids"))
    job = submit(cluster, env)
    eventually(lambda: slow_processes(folder), "rows are processed", WAIT_S)
    return job


def slow_processes(folder: Path) -> list[int]:
    """The one that has processed a row last is the first."""
    files = sorted((folder / "pids").iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    return [int(file.name) for file in files]


def test_a_killed_python_worker_costs_and_doubles_no_row(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = slow_job(cluster, tmp_path)
    os.kill(slow_processes(tmp_path)[0], signal.SIGKILL)
    result, info = finished(job)
    check_results(tmp_path)
    assert result.restarts == 0, "Spark has repeated the task"
    assert sum(stage.failed for stage in info.stages) == 1
    assert max(subtask.attempt for subtask in info.subtasks) == 1


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_files_of_a_killed_writer_are_not_seen(kind: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    write_rows(tmp_path)
    (tmp_path / "pids").mkdir()
    out = tmp_path / "out"
    sink = us.DeltaSink(str(out)) if kind == "delta" else us.FileSink(str(out), target_file_bytes=4_096)
    env = environment()
    rows = env.from_source(us.FileSource(str(tmp_path / "in")), TIMES, "rows").uid("rows")
    rows.rebalance().process(Marks(tmp_path / "pids")).uid("marks").sink_to(sink).uid("out")
    job = submit(cluster, env)
    eventually(lambda: slow_processes(tmp_path), "rows are processed", WAIT_S)
    eventually(lambda: kind == "delta" or staged(out), "a file is staged", WAIT_S)
    os.kill(slow_processes(tmp_path)[0], signal.SIGKILL)
    result, info = finished(job)
    assert sum(stage.failed for stage in info.stages) == 1
    assert staged(out) == []
    table = DeltaTable(str(out)).to_pyarrow_table() if kind == "delta" else pq.read_table(out)
    assert sorted(table.column("n").to_pylist()) == list(range(ROWS))
    assert result.sinks["out"].rows == ROWS


def staged(folder: Path) -> list[Path]:
    return walked(folder, "*.staged")


class Marks(us.ProcessFunction):
    """Says which process it runs in, and takes its time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        (self._folder / str(os.getpid())).touch()
        time.sleep(0.002)
        out.emit(row)


def test_a_lost_spark_is_started_again_and_the_job_with_it(tmp_path: Path) -> None:
    with EmbeddedCluster("spark", SPARK, workdir=tmp_path / "work", rest=False) as cluster:
        job = slow_job(cluster, tmp_path)
        for process in spark_drivers():
            process.kill()
        result, _ = finished(job)
        assert result.restarts == 1
        check_results(tmp_path)


def test_cancel_leaves_no_spark_job_and_no_process(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = slow_job(cluster, tmp_path)
    assert interrupted_when_cancelled() == [False]
    job.cancel()
    assert job.wait(WAIT_S).state == "CANCELED"
    eventually(lambda: not active_jobs(), "no Spark job is active", WAIT_S)
    eventually(
        lambda: not any(map(psutil.pid_exists, slow_processes(tmp_path))), "its processes have ended", WAIT_S
    )
    for sink in ("named", "counted", "tens"):
        assert_nothing_visible(tmp_path / sink)


def assert_nothing_visible(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no rows were ever committed"):
        read_collected(str(folder))


def divides(row: dict) -> dict:
    return {"n": 1 // row["n"]}


@pytest.mark.parametrize("at", [0, 10_000])
def test_an_error_of_a_function_is_final_and_names_operator_and_row(
    at: int, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """In the first stage, and in the second one."""
    env = environment()
    numbers = [{"n": 1 if n != at else 0} for n in range(at + 1)]
    stream = env.from_collection(numbers, name="numbers")
    stream = stream if not at else stream.rebalance()
    stream.map(divides, returns={"n": pa.int64()}).name("inverse").sink_to(CollectSink(str(tmp_path / "out")))
    job = submit(cluster, env)
    result = job.wait(WAIT_S)
    assert (result.state, result.restarts) == ("FAILED", 0)
    assert result.failure is not None
    assert result.failure.kind == "UserCodeError"
    assert "inverse" in result.failure.message
    assert f"integer division or modulo by zero at row {at} of the batch" in result.failure.message
    info = job.status()
    assert "inverse" in (info.exceptions[0].concurrent[0].task_name or "")
    assert sum(stage.failed for stage in info.stages) == 0, "Spark was not asked to repeat it"
    assert_nothing_visible(tmp_path / "out")
    eventually(lambda: not active_jobs(), "no Spark job is active", WAIT_S)


@pytest.mark.parametrize("fails", [False, True], ids=["finishes", "fails"])
def test_what_functions_log_is_there_when_their_tasks_have_ended(
    fails: bool, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    def said(row: dict) -> dict:
        if row["n"] % 100 == 0:
            logging.getLogger("orders").info("row %s", row["n"])
        assert not fails or row["n"] < 250
        return row

    env = environment(**{"parallelism.default": "1"})
    stream = env.from_collection([{"n": n} for n in range(301)], name="numbers").rebalance()
    stream.map(said, returns={"n": pa.int64()}).name("said").sink_to(CollectSink(str(tmp_path / "out")))
    job = submit(cluster, env)
    assert job.wait(WAIT_S).state == ("FAILED" if fails else "FINISHED")
    lines = [(line.level, line.logger, line.message) for line in job.log()]
    assert lines == [("INFO", "orders", f"row {n}") for n in ((0, 100, 200) if fails else (0, 100, 200, 300))]
    assert all("said" in line.task for line in job.log())


def test_two_jobs_and_a_stream_share_one_spark(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    stream = environment(**{"execution.runtime-mode": "STREAMING", "parallelism.default": "1"})
    source = DatagenSource({"n": Sequential()}, rows=10**7, rows_per_second=100)
    stream.from_source(source, us.WatermarkStrategy.no_watermarks(), "endless").sink_to(us.BlackholeSink())
    endless = submit(cluster, stream)
    eventually(lambda: endless.status().state == "RUNNING", "the stream runs", WAIT_S)
    folders = [tmp_path / name for name in ("a", "b")]
    jobs = []
    for folder in folders:
        folder.mkdir()
        write_rows(folder)
        env = environment()
        pipeline(env, folder)
        jobs.append(submit(cluster, env))
    for job, folder in zip(jobs, folders, strict=True):
        finished(job)
        check_results(folder)
    assert endless.status().state == "RUNNING"
    endless.cancel()
    assert endless.wait(WAIT_S).state == "CANCELED"


def test_savepoints_and_rescaling_are_refused(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = slow_job(cluster, tmp_path)
    with pytest.raises(ConfigError, match="BATCH job"):
        job.savepoint()
    with pytest.raises(ConfigError, match="keeps its parallelism"):
        job.rescale({"numbers": 1})
    finished(job)
    check_results(tmp_path)


def test_the_native_engine_can_be_chosen(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    write_rows(tmp_path)
    env = environment(**{"execution.batch.engine": "native", "taskmanager.numberOfTaskSlots": "3"})
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    result = job.wait(WAIT_S)
    assert (result.state, job.status().engine) == ("FINISHED", "native"), result.failure
    check_results(tmp_path)


def test_spark_is_refused_where_there_is_none(tmp_path: Path) -> None:
    env = environment(**{"execution.batch.engine": "spark"})
    env.from_collection([{"n": 1}]).print()
    with (
        EmbeddedCluster("local", Configuration(), workdir=tmp_path / "work", rest=False) as cluster,
        pytest.raises(ConfigError, match="needs a cluster on Spark, and this one has the target local"),
    ):
        submit(cluster, env)
