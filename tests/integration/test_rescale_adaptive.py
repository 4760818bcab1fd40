"""An adaptive job runs on the workers that there are: fewer when one is lost, more when one comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.rescaled_windows import FAST, SLOW, WAIT_S, pipeline, stop_and_finish
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.remote.rest_client import Poll
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

EXECUTING = "jobmanager.adaptive-scheduler.executing"
SUBMISSION = "jobmanager.adaptive-scheduler.submission"
CONFIG = {
    "jobmanager.scheduler": "adaptive",
    f"{SUBMISSION}.resource-wait-timeout": "30 s",
    f"{SUBMISSION}.resource-stabilization-timeout": "300 ms",
    f"{EXECUTING}.cooldown-after-rescaling": "200 ms",
    f"{EXECUTING}.resource-stabilization-timeout": "200 ms",
    "execution.checkpointing.interval": "300 ms",
    "heartbeat.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "50 ms",
    "jobmanager.rpc.port": "0",
}


class Workers:
    """`unistream taskmanager start`, each with one slot, in processes of their own."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> int:
        """Its process id."""
        assert self._cluster.jobmanager is not None
        words = ["taskmanager", "start", "--jobmanager", self._cluster.jobmanager, "--slots", "1"]
        process = subprocess.Popen(
            [sys.executable, "-m", "unistream.cli.main", *words, "-Dheartbeat.interval=200 ms"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(process)
        return process.pid

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(WAIT_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(
        "standalone", Configuration(CONFIG), workdir=tmp_path / "work", rest=False
    ) as cluster:
        yield cluster


@pytest.fixture
def workers(cluster: EmbeddedCluster) -> Iterator[Workers]:
    workers = Workers(cluster)
    yield workers
    workers.close()


def submit(
    cluster: EmbeddedCluster,
    lake: Path,
    parallelism: int,
    *,
    windows_in: str = "default",
    rate: float = SLOW,
    savepoint: str | None = None,
) -> EmbeddedJobClient:
    graph, code = pipeline(lake, parallelism, windows_in=windows_in, rate=rate).job_graph("adaptive")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG, savepoint=savepoint))


def check_rest(
    cluster: EmbeddedCluster, job: EmbeddedJobClient, lake: Path, restarts: int, windows_in: str = "default"
) -> None:
    """A stop in the middle, with no restarts but these, and then the other rows: each is there once."""

    def go_on(savepoint: str) -> EmbeddedJobClient:
        return submit(cluster, lake, 1, windows_in=windows_in, rate=FAST, savepoint=savepoint)

    assert stop_and_finish(job, lake, go_on).restarts == restarts, "growing is none"


def widest(info: JobInfo) -> int:
    return max(Counter(subtask.vertex for subtask in info.subtasks).values())


def runs_with(slots: int) -> Callable[[JobInfo], bool]:
    def condition(info: JobInfo) -> bool:
        up = {s.state for s in info.subtasks} <= {"RUNNING", "FINISHED"}
        return info.state == "RUNNING" and up and widest(info) == slots

    return condition


def test_workers_come_and_go(cluster: EmbeddedCluster, workers: Workers, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, parallelism=3)
    first, second = workers.start(), workers.start()
    job.wait_for(runs_with(2), WAIT_S)
    job.wait_for(lambda info: info.checkpoints_completed >= 2, WAIT_S)
    os.kill(first, signal.SIGKILL)
    info = job.wait_for(runs_with(1), WAIT_S)
    assert [worker.pid for worker in info.task_managers] == [second]
    restarts = info.restarts
    assert restarts >= 1, "the loss is a failure"
    for _ in range(3):  # one more than it may use
        workers.start()
    job.wait_for(runs_with(3), WAIT_S)
    check_rest(cluster, job, tmp_path, restarts)
    assert widest(job.status()) == 3


def test_a_user_gives_it_another_maximum(cluster: EmbeddedCluster, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    workers.start()
    poll = Poll(WAIT_S)
    while len(cluster.dispatcher.task_managers()) < 2:  # of which the job needs one at first
        assert poll.next(), "not all workers came"
    job = submit(cluster, tmp_path, parallelism=1)
    job.wait_for(runs_with(1), WAIT_S)
    job.rescale({subtask.vertex: 2 for subtask in job.status().subtasks})
    assert runs_with(2)(job.status())
    check_rest(cluster, job, tmp_path, restarts=0)


def test_slot_sharing_groups_share_what_is_left(
    cluster: EmbeddedCluster, workers: Workers, tmp_path: Path
) -> None:
    """The only worker of the windows dies; one that had a slot of the rows takes their place."""
    job = submit(cluster, tmp_path, parallelism=2, windows_in="windows")
    graph, _ = pipeline(tmp_path, 2, windows_in="windows").job_graph("adaptive")
    groups = {vertex.id: vertex.slot_sharing_group for vertex in graph.vertices}
    assert set(groups.values()) == {"default", "windows"}

    def runs_at(**expected: int) -> Callable[[JobInfo], bool]:
        def condition(info: JobInfo) -> bool:
            found: dict[str, int] = {}
            for vertex, count in Counter(subtask.vertex for subtask in info.subtasks).items():
                found[groups[vertex]] = max(found.get(groups[vertex], 0), count)
            up = {s.state for s in info.subtasks} <= {"RUNNING", "FINISHED"}
            return info.state == "RUNNING" and up and found == expected

        return condition

    for _ in range(3):
        workers.start()
    job.wait_for(runs_at(default=2, windows=1), WAIT_S)
    info = job.wait_for(lambda info: info.checkpoints_completed >= 2, WAIT_S)
    (victim,) = {s.task_manager for s in info.subtasks if groups[s.vertex] == "windows"}
    (pid,) = (worker.pid for worker in info.task_managers if worker.id == victim and worker.pid is not None)
    os.kill(pid, signal.SIGKILL)
    info = job.wait_for(runs_at(default=1, windows=1), WAIT_S)
    assert victim not in {s.task_manager for s in info.subtasks}
    restarts = info.restarts
    workers.start()
    workers.start()
    job.wait_for(runs_at(default=2, windows=2), WAIT_S)
    check_rest(cluster, job, tmp_path, restarts, windows_in="windows")
