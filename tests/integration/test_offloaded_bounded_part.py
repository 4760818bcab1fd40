"""The bounded part of a streaming job on the built-in runtime, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.integration import mixed_jobs
from tests.integration.crash_runs import OF_MATRIX
from tests.integration.mixed_jobs import OFFLOAD, found, notes, part, part_finished, pipeline, prepare, truth
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

CONFIG = {
    **OFFLOAD,
    "parallelism.default": "2",
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "20 s",
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = Configuration(CONFIG)
    with EmbeddedCluster("local", config, workdir=tmp_path / "cluster", rest=False) as cluster:
        yield cluster


def submit(cluster: EmbeddedCluster, env: us.Environment, savepoint: str | None = None) -> EmbeddedJobClient:
    graph, code = env.job_graph("mixed")
    artifact = pack(code, by_value=[mixed_jobs])
    return cluster.submit(
        SubmitRequest(graph=graph, artifact=artifact, config=env.config.to_dict(), savepoint=savepoint)
    )


def environment(**config: str) -> us.Environment:
    return us.Environment({**CONFIG, **config})


def all_committed(info: JobInfo) -> bool:
    return info.metrics.get("rows_committed", 0) >= truth().total()


def test_what_plain_python_gives(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    job.wait_for(all_committed, WAIT_S)
    job.stop(drain=True)
    result, info = job.wait(WAIT_S), job.status()
    assert result.state == "FINISHED"
    assert found(tmp_path) == truth()
    assert list(part(info).values()) == 3 * [{("FINISHED", 0)}]
    assert info.late_rows == {}, "the files are in no order, and no row of them is late"
    assert info.job_type == "STREAMING"
    assert info.checkpoints_completed > 0


def victim(info: JobInfo, name: str) -> int:
    """The process of a worker with a subtask of that vertex."""
    task = next(task for task in info.subtasks if name in task.vertex_name)
    pid = next(worker.pid for worker in info.task_managers if worker.id == task.task_manager)
    assert pid is not None
    return pid


def finish(job: EmbeddedJobClient, folder: Path) -> JobInfo:
    job.wait_for(all_committed, WAIT_S)
    job.stop(drain=True)
    assert job.wait(WAIT_S).state == "FINISHED"
    assert found(folder) == truth()
    return job.status()


def test_a_worker_killed_before_the_first_checkpoint(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path, pause_s=0.3)
    job = submit(cluster, env)
    info = job.wait_for(lambda i: i.state == "RUNNING" and len(notes(tmp_path)) > 1, WAIT_S)
    os.kill(victim(info, "files"), signal.SIGKILL)
    info = finish(job, tmp_path)
    assert info.restarts == 1
    assert info.late_rows == {}


@OF_MATRIX
def test_a_worker_killed_after_the_first_checkpoint(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    env = environment()
    pipeline(env, tmp_path)
    job = submit(cluster, env)
    info = job.wait_for(lambda i: part_finished(i) and i.checkpoints_completed >= 2, WAIT_S)
    read = len(notes(tmp_path))
    os.kill(victim(info, "join"), signal.SIGKILL)
    info = finish(job, tmp_path)
    assert info.restarts == 1
    assert len(notes(tmp_path)) == read, "the files are not read again"


def test_a_savepoint_and_a_job_from_it(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    check_a_job_from_a_savepoint(partial(submit, cluster), environment, tmp_path)


def check_a_job_from_a_savepoint(
    submit: Callable[[us.Environment, str | None], EmbeddedJobClient],
    environment: Callable[[], us.Environment],
    folder: Path,
) -> EmbeddedJobClient:
    """Stops a job behind its bounded part; the job from the savepoint, which has written what was left."""

    def submitted(savepoint: str | None = None) -> EmbeddedJobClient:
        env = environment()
        pipeline(env, folder)
        return submit(env, savepoint)

    job = submitted()
    job.wait_for(lambda i: part_finished(i) and i.checkpoints_completed >= 1, WAIT_S)
    savepoint = job.stop(target=str(folder / "savepoints"))
    assert job.wait(WAIT_S).state == "FINISHED"
    read = len(notes(folder))
    job = submitted(savepoint)
    job.wait_for(lambda _: found(folder).total() >= truth().total(), WAIT_S)
    job.stop(drain=True)
    assert job.wait(WAIT_S).state == "FINISHED"
    assert found(folder) == truth()
    assert len(notes(folder)) == read, "the files are not read again"
    return job
