"""Real workers are drained: their tasks move, their processes end with 0, and every row is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import RECOVERING, Command, assert_exact, commands_in, keyed_windows
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import Busy, NotFound
from unistream.base.ids import TaskManagerId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import DrainPhase, JobInfo, TaskManagerInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

ROWS = 6_000
COLUMNS: dict[str, us.datagen.Sequential | us.datagen.RandomInt | us.datagen.EventTime] = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, 10),
    "value": us.datagen.RandomInt(0, 1_000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=20, disorder_ms=500),
}
FAST = {
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "30 s",
    "execution.checkpointing.interval": "300 ms",
    **RECOVERING,
}
StartWorker = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartWorker]:
    """Starts `unistream taskmanager start` at an address."""
    processes: list[subprocess.Popen[str]] = []

    def start(jobmanager: str | None, slots: int = 2, **config: str) -> subprocess.Popen[str]:
        defines = [f"-D{key}={value}" for key, value in (FAST | config).items()]
        words = ("-m", "unistream.cli.main", "taskmanager", "start", "--jobmanager", str(jobmanager))
        processes.append(
            subprocess.Popen(
                [sys.executable, *words, "--slots", str(slots), *defines],
                env={**os.environ, "UNISTREAM_HOME": str(tmp_path / "home")},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=WAIT_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    values = {**FAST, "jobmanager.rpc.port": "0"}
    with EmbeddedCluster("standalone", Configuration(values), workdir=tmp_path, rest=False) as cluster:
        yield cluster


def submit(cluster: EmbeddedCluster, folder: Path, mode: dict[str, str] = STREAMING) -> EmbeddedJobClient:
    """`keyed_windows` of `ROWS` rows, some seconds long, at parallelism 2."""
    config = {"execution.checkpointing.dir": (folder / "checkpoints").as_uri(), **FAST}
    env = us.Environment({**mode, "parallelism.default": "2", **config})
    keyed_windows(env, folder / "lake", rows(pace=mode == STREAMING))
    graph, code = env.job_graph("drained")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=config))


def rows(*, pace: bool) -> us.DatagenSource:
    rate = 1_000 if pace else None
    return us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=rate, splits=2)


def of_process(cluster: EmbeddedCluster, process: subprocess.Popen[str]) -> TaskManagerInfo:
    def found() -> list[TaskManagerInfo]:
        return [one for one in cluster.dispatcher.task_managers() if one.pid == process.pid]

    eventually(lambda: bool(found()), "the worker registers")
    return found()[0]


def runs_on(process: subprocess.Popen[str]) -> Callable[[JobInfo], bool]:
    """It runs, has taken checkpoints, and has tasks there."""
    return lambda info: (
        info.state == "RUNNING"
        and info.checkpoints_completed > 1
        and any(worker.pid == process.pid for worker in info.task_managers)
    )


def ended(process: subprocess.Popen[str]) -> int:
    return process.wait(timeout=WAIT_S)


def drain(cluster: EmbeddedCluster, worker: TaskManagerId, *, wait: bool = False) -> None:
    cluster.dispatcher.drain(worker, wait=wait).result(WAIT_S)


def assert_done(job: EmbeddedJobClient, folder: Path) -> None:
    assert job.wait(WAIT_S).state == "FINISHED"
    assert_exact(folder / "lake", ROWS)


def test_its_tasks_move_and_it_ends(cluster: EmbeddedCluster, tmp_path: Path, start: StartWorker) -> None:
    first = start(cluster.jobmanager)
    worker = of_process(cluster, first)
    job = submit(cluster, tmp_path)
    job.wait_for(runs_on(first), WAIT_S)
    second = start(cluster.jobmanager)
    of_process(cluster, second)
    drain(cluster, worker.id)
    drain(cluster, worker.id)  # a second time it is the same
    assert ended(first) == 0
    assert cluster.dispatcher.drain_status(worker.id).phase is DrainPhase.DRAINED
    assert job.status().restarts == 0, "nothing has failed"
    assert [one.pid for one in cluster.dispatcher.task_managers()] == [second.pid]
    assert_done(job, tmp_path)


def test_two_at_once(cluster: EmbeddedCluster, tmp_path: Path, start: StartWorker) -> None:
    leaving = [start(cluster.jobmanager, 1) for _ in range(2)]
    workers = [of_process(cluster, process) for process in leaving]
    job = submit(cluster, tmp_path)
    job.wait_for(runs_on(leaving[0]), WAIT_S)
    of_process(cluster, start(cluster.jobmanager, 2))
    for worker in workers:
        drain(cluster, worker.id)
    assert [ended(process) for process in leaving] == [0, 0]
    assert_done(job, tmp_path)


def test_without_room_nothing_is_done_but_with_wait_it_moves_later(
    cluster: EmbeddedCluster, tmp_path: Path, start: StartWorker
) -> None:
    only = start(cluster.jobmanager)
    worker = of_process(cluster, only)
    job = submit(cluster, tmp_path)
    job.wait_for(runs_on(only), WAIT_S)
    with pytest.raises(Busy, match="need 2 slots elsewhere, and other workers have 0"):
        drain(cluster, worker.id)
    with pytest.raises(NotFound, match="is not being drained"):
        cluster.dispatcher.drain_status(worker.id)
    drain(cluster, worker.id, wait=True)
    assert cluster.dispatcher.drain_status(worker.id).jobs == (job.job_id,)
    start(cluster.jobmanager)
    assert ended(only) == 0
    assert job.status().restarts == 0
    assert_done(job, tmp_path)


def test_it_is_killed_meanwhile(cluster: EmbeddedCluster, tmp_path: Path, start: StartWorker) -> None:
    first = start(cluster.jobmanager)
    worker = of_process(cluster, first)
    job = submit(cluster, tmp_path)
    job.wait_for(runs_on(first), WAIT_S)
    of_process(cluster, start(cluster.jobmanager))
    drain(cluster, worker.id)
    first.kill()
    eventually(lambda: of(cluster, worker.id) is None, "it is gone")
    assert_done(job, tmp_path)


def of(cluster: EmbeddedCluster, worker: TaskManagerId) -> TaskManagerInfo | None:
    return next((one for one in cluster.dispatcher.task_managers() if one.id == worker), None)


def test_sigterm_moves_its_tasks_first(cluster: EmbeddedCluster, tmp_path: Path, start: StartWorker) -> None:
    first = start(cluster.jobmanager, **{"taskmanager.drain.timeout": "5 min"})
    worker = of_process(cluster, first)
    job = submit(cluster, tmp_path)
    job.wait_for(runs_on(first), WAIT_S)
    of_process(cluster, start(cluster.jobmanager))
    first.send_signal(signal.SIGTERM)
    assert ended(first) == 0
    assert cluster.dispatcher.drain_status(worker.id).phase is DrainPhase.DRAINED
    assert job.status().restarts == 0
    assert_done(job, tmp_path)


def test_sigterm_without_room_ends_it_and_its_jobs_restart_when_there_is(
    cluster: EmbeddedCluster, tmp_path: Path, start: StartWorker
) -> None:
    only = start(cluster.jobmanager, **{"taskmanager.drain.timeout": "5 min"})
    worker = of_process(cluster, only)
    job = submit(cluster, tmp_path)
    job.wait_for(runs_on(only), WAIT_S)
    only.send_signal(signal.SIGTERM)
    assert ended(only) == 0
    status = cluster.dispatcher.drain_status(worker.id)
    assert (status.phase, "need 2 slots elsewhere" in status.reason) == (DrainPhase.LOST, True)
    start(cluster.jobmanager)
    assert_done(job, tmp_path)


def test_a_worker_without_tasks_ends_at_once(cluster: EmbeddedCluster, start: StartWorker) -> None:
    idle = start(cluster.jobmanager, **{"taskmanager.drain.timeout": "5 min"})
    of_process(cluster, idle)
    idle.send_signal(signal.SIGTERM)
    assert ended(idle) == 0


def test_tasks_of_a_batch_job_end_first(cluster: EmbeddedCluster, tmp_path: Path, start: StartWorker) -> None:
    first = start(cluster.jobmanager)
    worker = of_process(cluster, first)
    job = submit(cluster, tmp_path, {"execution.runtime-mode": "BATCH"})
    job.wait_for(lambda info: bool(info.task_managers), WAIT_S)
    of_process(cluster, start(cluster.jobmanager))
    drain(cluster, worker.id, wait=True)
    assert ended(first) == 0
    assert_done(job, tmp_path)
    assert job.status().restarts == 0


def test_its_master_is_killed_meanwhile(tmp_path: Path, start: StartWorker) -> None:
    """What runs on it ends with its master, so it ends, too; the next master goes on with the job."""
    pipeline = tmp_path / "drained.py"
    pipeline.write_text(
        "import unistream as us\n"
        "def build(env):\n"
        "    source = us.DatagenSource({'n': us.datagen.Sequential()}, rows=None, bounded=False,\n"
        "                              rows_per_second=100)\n"
        "    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), 'numbers')\n"
        "    rows.sink_to(us.BlackholeSink()).uid('out')\n"
    )
    with commands_in(tmp_path) as command:
        master, port = started(command, tmp_path, "0")
        words = ("run", "drained:build", "-m", rest_of(tmp_path), "--detached", "-p", "1")
        assert command(*words).wait() == 0
        worker = start(port, 1)
        eventually(lambda: tasks_run(command, tmp_path), "the job runs")
        listed = command("taskmanager", "list", "--json")
        assert listed.wait() == 0
        (id_,) = [one["id"] for one in json.loads(listed.out)["taskmanagers"]]
        begun = command("taskmanager", "drain", id_, "--wait", "--detached", "--json")
        assert begun.wait() == 0, begun.err
        assert json.loads(begun.out)["phase"] == "DRAINING"
        master.process.kill()
        assert ended(worker) == 0
        started(command, tmp_path, port.rpartition(":")[2])
        start(port, 1)
        eventually(lambda: tasks_run(command, tmp_path), "the job goes on")


def started(command: Callable[..., Command], folder: Path, port: str) -> tuple[Command, str]:
    options = ["-t", "standalone", f"-Djobmanager.rpc.port={port}", "--json", "-Dheartbeat.interval=200 ms"]
    folders = [f"-Dexecution.checkpointing.dir={(folder / 'checkpoints').as_uri()}"]
    cluster = command("cluster", "start", *options, *folders)
    said = json.loads(cluster.line())
    return cluster, str(said["jobmanager"])


def rest_of(folder: Path) -> str:
    entries = [json.loads(file.read_text()) for file in (folder / "home" / "clusters").glob("*.json")]
    return str(entries[-1]["url"])


def tasks_run(command: Callable[..., Command], folder: Path) -> bool:
    listed = command("list", "--json")
    if listed.wait() != 0:
        return False
    return any(one["job"]["state"] == "RUNNING" for one in json.loads(listed.out)["jobs"])
