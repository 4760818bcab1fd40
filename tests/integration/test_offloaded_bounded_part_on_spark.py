"""The bounded part of a stream as a Spark job in local mode: results, failures, what is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import unistream as us
from tests.bounded_pipeline import KEYS
from tests.eventually import WAIT_S, eventually
from tests.integration import mixed_jobs
from tests.integration.crash_runs import OF_MATRIX
from tests.integration.mixed_jobs import (
    OFFLOAD,
    fact_values,
    found,
    lake,
    lake_found,
    lake_truth,
    latest_note,
    notes,
    part,
    part_finished,
    pipeline,
    prepare,
    prepare_lake,
    truth,
)
from tests.integration.spark_cluster import spark_drivers
from tests.integration.test_batch_on_spark import context
from tests.integration.test_offloaded_bounded_part import check_a_job_from_a_savepoint, finish, victim
from tests.support.servers.kafka_tools import produce_values
from unistream.base.config import Configuration
from unistream.base.errors import AlreadyEnded
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = [pytest.mark.spark]

NAME = "mixed"
SPARK = {
    **OFFLOAD,
    "spark.master": "local[2,4]",  # Spark repeats a task up to three times
    "parallelism.default": "2",
    "execution.checkpointing.interval": "500 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(workdir: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster("spark", Configuration(SPARK), workdir=workdir, rest=False) as cluster:
        yield cluster


_SUBMITTED: list[EmbeddedJobClient] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """No job of a test that has failed disturbs the next."""
    yield
    for job in _SUBMITTED:
        with contextlib.suppress(AlreadyEnded):
            job.cancel()
        job.wait(WAIT_S)
    _SUBMITTED.clear()


def joins(info: JobInfo) -> bool:
    """Each subtask of the join has read the stored rows, and then some of the stream.

    What it has emitted says nothing: its sink emits at barriers, and the first may come before the first row.
    """
    read = [task.metrics.records_in for task in info.subtasks if "join" in task.vertex_name]
    return bool(read) and min(read) > KEYS


def environment(**config: str) -> us.Environment:
    return us.Environment({**SPARK, **config})


def submit(cluster: EmbeddedCluster, env: us.Environment, savepoint: str | None = None) -> EmbeddedJobClient:
    graph, code = env.job_graph(NAME)
    artifact = pack(code, by_value=[mixed_jobs])
    request = SubmitRequest(graph=graph, artifact=artifact, config=env.config.to_dict(), savepoint=savepoint)
    _SUBMITTED.append(cluster.submit(request))
    return _SUBMITTED[-1]


def stored_folders(workdir: Path) -> list[Path]:
    """Where the engine stores rows for streams; some may be removed just now."""
    return [
        Path(folder, name)
        for folder, names, _ in os.walk(workdir / "checkpoints")
        for name in names
        if name.startswith("stored-")
    ]


def stored_files(workdir: Path) -> list[Path]:
    """Everything in there, hidden files too."""
    return [
        Path(root, name)
        for folder in stored_folders(workdir)
        for root, _, names in os.walk(folder)
        for name in names
    ]


def part_runs() -> bool:
    """Spark runs stages of a job; the jobs in which workers live are others."""
    tracker = context().statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return any(stage is not None and stage.name.startswith(f"{NAME}: ") for stage in stages)


def nothing_left(workdir: Path) -> bool:
    return not part_runs() and not stored_folders(workdir)


def await_notes(folder: Path, count: int = 2) -> None:
    """The part runs, and has read so many batches."""
    eventually(lambda: len(notes(folder)) >= count, "the part reads", WAIT_S)


def test_it_is_one_spark_job_and_the_stream_reads_what_that_has_stored(
    cluster: EmbeddedCluster, workdir: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    info = job.wait_for(lambda i: part_finished(i) and i.checkpoints_completed >= 1, WAIT_S)
    workers = {worker.pid for worker in info.task_managers}
    assert workers.isdisjoint(notes(tmp_path)), "no worker has read the files"
    assert [stage.finished - stage.tasks for stage in info.stages] == [0, 0, 0]
    assert info.stages[0].rows_out > 0
    assert list(part(info).values()) == 3 * [{("FINISHED", 0)}]
    eventually(lambda: stored_files(workdir) == [], "they lie behind a checkpoint")
    info = finish(job, tmp_path)
    assert info.restarts == 0
    assert (info.job_type, info.late_rows) == ("STREAMING", {})
    assert sum(t.metrics.records_in for t in info.subtasks if t.vertex_name.startswith("slots")) > 0
    eventually(lambda: nothing_left(workdir), "nothing is left")


def test_a_killed_python_worker_of_spark(cluster: EmbeddedCluster, workdir: Path, tmp_path: Path) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path, pause_s=1.0)
    job = submit(cluster, env)
    await_notes(tmp_path)
    os.kill(latest_note(tmp_path), signal.SIGKILL)
    info = finish(job, tmp_path)
    assert info.restarts == 0, "Spark has repeated its task"
    assert info.stages[0].failed >= 1
    assert list(part(info).values()) == 3 * [{("FINISHED", 0)}]
    eventually(lambda: nothing_left(workdir), "nothing is left")


@OF_MATRIX
def test_a_worker_killed_before_the_first_checkpoint_reads_the_files_again(
    cluster: EmbeddedCluster, workdir: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    env = environment(**{"execution.checkpointing.interval": "1 h"})
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    info = job.wait_for(part_finished, WAIT_S)
    read = len(notes(tmp_path))
    assert len(stored_files(workdir)) == 2
    os.kill(victim(info, "join"), signal.SIGKILL)
    job.wait_for(lambda i: i.restarts == 1 and i.state == "RUNNING", WAIT_S)
    job.wait_for(joins, WAIT_S)
    job.stop(drain=True)
    assert job.wait(WAIT_S).state == "FINISHED"
    assert len(notes(tmp_path)) == read, "nothing ran on Spark again"
    assert found(tmp_path) <= truth()
    assert found(tmp_path).total() > 0
    eventually(lambda: nothing_left(workdir), "nothing is left")


@OF_MATRIX
def test_a_worker_killed_after_the_first_checkpoint(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    info = job.wait_for(lambda i: part_finished(i) and i.checkpoints_completed >= 2, WAIT_S)
    read = len(notes(tmp_path))
    os.kill(victim(info, "join"), signal.SIGKILL)
    assert finish(job, tmp_path).restarts == 1
    assert len(notes(tmp_path)) == read


@pytest.mark.kafka
def test_a_table_and_a_topic_with_a_worker_killed_after_the_hand_over(
    cluster: EmbeddedCluster, workdir: Path, tmp_path: Path, kafka: str, topic: str
) -> None:
    prepare_lake(tmp_path)
    env = environment()
    lake(env, tmp_path, kafka, topic)
    produce_values(kafka, topic, fact_values(range(1_000)), partitions=[i % 2 for i in range(1_000)])
    job = submit(cluster, env)
    info = job.wait_for(part_finished, WAIT_S)
    read = len(notes(tmp_path))
    os.kill(victim(info, "join"), signal.SIGKILL)
    produce_values(kafka, topic, fact_values(range(1_000, 2_000)), partitions=[i % 2 for i in range(1_000)])
    job.wait_for(lambda i: i.metrics.get("rows_committed", 0) >= 2_000, WAIT_S)
    job.stop(drain=True)
    assert job.wait(WAIT_S).state == "FINISHED"
    assert lake_found(tmp_path) == lake_truth(range(2_000))
    info = job.status()
    assert (info.restarts, info.late_rows) == (1, {})
    assert len(notes(tmp_path)) == read, "the table is not read again"
    eventually(lambda: nothing_left(workdir), "nothing is left")


def test_a_stored_file_that_is_damaged_makes_it_run_again(
    cluster: EmbeddedCluster, workdir: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path, fact_rows=200)
    job = submit(cluster, env)

    def spoiled() -> bool:
        """Before the stream is deployed."""
        for path in stored_files(workdir):
            if path.name.startswith("state-"):
                content = bytearray(path.read_bytes())
                content[len(content) // 2] ^= 1
                path.write_bytes(content)
                return True
        return False

    eventually(spoiled, "something is stored", WAIT_S, step_s=0.005)
    job.wait_for(lambda i: part_finished(i) and i.restarts == 1, WAIT_S)
    job.wait_for(lambda _: found(tmp_path) == truth(200), WAIT_S)
    info = job.status()
    assert "cannot be read" in info.exceptions[-1].message
    assert list(part(info).values()) == 3 * [{("FINISHED", 1)}]


def test_an_error_of_a_function_names_operator_and_row(
    cluster: EmbeddedCluster, workdir: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    env = environment(**{"restart-strategy.type": "none"})
    pipeline(env, tmp_path, fail_at=77)
    job = submit(cluster, env)
    result, info = job.wait(WAIT_S), job.status()
    assert result.state == "FAILED"
    assert result.failure is not None
    assert "noted" in result.failure.message
    assert "row 77 is not good" in result.failure.message
    states = {state for states in part(info).values() for state, _ in states}
    assert {"FAILED"} < states <= {"FAILED", "CANCELED", "FINISHED"}
    eventually(lambda: nothing_left(workdir), "nothing is left")


def test_cancel_leaves_no_spark_job_and_no_file(
    cluster: EmbeddedCluster, workdir: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path, pause_s=1.0)
    job = submit(cluster, env)
    await_notes(tmp_path)
    assert part_runs()
    with pytest.raises(us.ConfigError, match="the bounded part of the job runs before the stream"):
        job.stop()
    job.cancel()
    assert job.wait(WAIT_S).state == "CANCELED"
    eventually(lambda: nothing_left(workdir), "nothing is left")


@OF_MATRIX
def test_from_a_savepoint_nothing_runs_on_spark(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    job = check_a_job_from_a_savepoint(partial(submit, cluster), environment, tmp_path)
    assert job.status().stages == ()


@OF_MATRIX
def test_the_built_in_runtime_on_request(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    env = environment(**{"execution.batch.engine": "native"})
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    info = job.wait_for(part_finished, WAIT_S)
    assert info.stages == ()
    finish(job, tmp_path)


@OF_MATRIX
def test_a_lost_spark_is_started_again_and_the_part_with_it(tmp_path: Path) -> None:
    prepare(tmp_path)
    work = tmp_path / "work"
    with EmbeddedCluster("spark", Configuration(SPARK), workdir=work, rest=False) as cluster:
        env = environment()
        pipeline(env, tmp_path, pause_s=0.5)
        job = submit(cluster, env)
        _SUBMITTED.clear()  # its cluster ends it
        await_notes(tmp_path)
        for driver in spark_drivers():
            driver.kill()
        info = finish(job, tmp_path)
        assert info.restarts == 1
        assert list(part(info).values()) == 3 * [{("FINISHED", 1)}]
        eventually(lambda: nothing_left(work), "nothing is left")
