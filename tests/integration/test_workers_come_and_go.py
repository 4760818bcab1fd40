"""Workers with real processes: they join by themselves, are killed, stand still, are idle, are too small."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from msgspec import structs

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.cli.errors import UNREACHABLE
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.connector.datagen import DatagenSource, Sequential
from unistream.model.job_info import JobInfo, TaskManagerInfo
from unistream.model.resources import ResourceProfile
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

FAST = {
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "5 min",  # what is noticed here, is not noticed by its silence
    "execution.checkpointing.interval": "500 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def endless(
    cluster: EmbeddedCluster,
    *,
    profile: ResourceProfile | None = None,
    parallelism: int = 1,
    rows: int | None = None,
    each: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    **config: str,
) -> EmbeddedJobClient:
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    source = DatagenSource(
        {"n": Sequential()}, rows=rows, bounded=rows is not None, rows_per_second=500, splits=parallelism
    )
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    if each is not None:
        stream = stream.map_batches(each).uid("each")
    stream.sink_to(us.BlackholeSink()).uid("out")
    graph, code = env.job_graph("numbers")
    if profile is not None:
        graph = structs.replace(graph, profiles={graph.vertices[0].slot_sharing_group: profile})
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=config))


def runs(info: JobInfo) -> bool:
    return info.state == "RUNNING"


class Worker:
    """`unistream taskmanager start` in a process of its own."""

    def __init__(self, jobmanager: str, *words: str, **config: str) -> None:
        defines = [f"-D{key}={value}" for key, value in (FAST | config).items()]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "unistream.cli.main", "taskmanager", "start"),
                *("--jobmanager", jobmanager, "--verbose", *words, *defines),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self) -> tuple[int, str]:
        """(exit code, what it has said)."""
        _, said = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, said

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        assert self.process.stderr is not None
        if not self.process.stderr.closed:
            self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(cluster: EmbeddedCluster, *words: str, **config: str) -> Worker:
        assert cluster.jobmanager is not None
        workers.append(Worker(cluster.jobmanager, *words, **config))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


StartWorker = Callable[..., Worker]


def standalone(folder: Path, **config: str) -> EmbeddedCluster:
    values = {**FAST, "jobmanager.rpc.port": "0", **config}
    return EmbeddedCluster("standalone", Configuration(values), workdir=folder, rest=False)


def registered(cluster: EmbeddedCluster) -> dict[int, TaskManagerInfo]:
    return {worker.pid: worker for worker in cluster.dispatcher.task_managers() if worker.pid is not None}


def await_worker(cluster: EmbeddedCluster, worker: Worker) -> TaskManagerInfo:
    eventually(lambda: worker.pid in registered(cluster), "a worker registers")
    return registered(cluster)[worker.pid]


class TestStandalone:
    def test_a_worker_joins_is_killed_and_another_goes_on(self, tmp_path: Path, start: StartWorker) -> None:
        with standalone(tmp_path) as cluster:
            job = endless(cluster)
            first = start(cluster, "--slots", "2")
            job.wait_for(runs, WAIT_S)
            worker = registered(cluster)[first.pid]
            assert (worker.slots, worker.free_slots, worker.host) == (2, 1, socket.gethostname())
            os.kill(first.pid, signal.SIGKILL)
            eventually(lambda: not registered(cluster), "it is noticed that nobody listens at its address")
            second = start(cluster)
            info = job.wait_for(lambda i: runs(i) and i.restarts >= 1, WAIT_S)
            assert [w.pid for w in info.task_managers] == [second.pid]
            job.cancel()
            assert job.wait(WAIT_S).state == "CANCELED"
            eventually(lambda: await_worker(cluster, second).free_slots == 1, "its slot is given back")

    def test_one_that_stood_still_is_fenced_and_exits(self, tmp_path: Path, start: StartWorker) -> None:
        with standalone(tmp_path, **{"heartbeat.timeout": "3 s"}) as cluster:
            job = endless(cluster)
            zombie = start(cluster)
            job.wait_for(runs, WAIT_S)
            os.kill(zombie.pid, signal.SIGSTOP)
            heard_ms = 0

            def lost() -> bool:
                nonlocal heard_ms
                here = registered(cluster).get(zombie.pid)
                heard_ms = heard_ms if here is None else here.heartbeat_ms or 0
                return here is None

            eventually(lost, "its silence is noticed")
            assert time.time() * 1000 - heard_ms > 2_900, "heartbeat.timeout is 3 s"
            heir = start(cluster)
            job.wait_for(lambda i: runs(i) and [w.pid for w in i.task_managers] == [heir.pid], WAIT_S)
            os.kill(zombie.pid, signal.SIGCONT)
            code, said = zombie.wait()
            assert (code, "event=task_manager_ends" in said) == (1, True), said
            assert list(registered(cluster)) == [heir.pid]

    def test_workers_find_the_next_master(self, tmp_path: Path, start: StartWorker) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        with standalone(tmp_path / "1", **{"jobmanager.rpc.port": port}) as cluster:
            worker = start(cluster)
            first = await_worker(cluster, worker)
        with standalone(tmp_path / "2", **{"jobmanager.rpc.port": port}) as cluster:
            again = await_worker(cluster, worker)
            assert again.id != first.id, "a registration is never repeated under the same id"
            job = endless(cluster, rows=200)
            assert job.wait(WAIT_S).state == "FINISHED"
            worker.process.send_signal(signal.SIGTERM)
            assert worker.wait()[0] == 0

    def test_a_worker_without_a_master_gives_up(self) -> None:
        worker = Worker("127.0.0.1:9", **{"taskmanager.registration.timeout": "300 ms"})
        code, said = worker.wait()
        assert code == 3
        assert "did not answer" in said

    def test_a_cluster_with_workers_of_its_own_takes_no_others(self, tmp_path: Path) -> None:
        values = {**FAST, "jobmanager.rpc.port": "0"}
        with EmbeddedCluster("local", Configuration(values), workdir=tmp_path, rest=False) as cluster:
            address = cluster.dispatcher.control_address
            assert cluster.jobmanager is None
            assert address.startswith("grpc+unix:"), "it does not even listen for them"

    def test_slots_that_no_worker_is_big_enough_for(self, tmp_path: Path, start: StartWorker) -> None:
        with standalone(tmp_path, **{"resourcemanager.standalone.start-up-time": "1 s"}) as cluster:
            small = start(cluster, **{"taskmanager.memory.process.size": "1 gb"})
            profile = await_worker(cluster, small).profile
            assert 400 < profile.memory_mb < 600
            big = ResourceProfile(memory_mb=4096)
            job = endless(cluster, profile=big, **{"restart-strategy.type": "none"})
            result = job.wait(WAIT_S)
            assert result.state == "FAILED"
            failure = job.status().failure
            assert failure is not None
            assert failure.kind == "NoResourceAvailable"
            assert "1 slot of slot sharing group 'default' with 4096 MiB" in failure.message
            assert f"their slots have {profile.memory_mb} MiB of memory (1 worker)" in failure.message


def local(folder: Path, **config: str) -> EmbeddedCluster:
    return EmbeddedCluster("local", Configuration({**FAST, **config}), workdir=folder, rest=False)


class TestLocal:
    def test_idle_workers_are_released(self, tmp_path: Path) -> None:
        with local(tmp_path, **{"resourcemanager.taskmanager-timeout": "500 ms"}) as cluster:
            job = endless(cluster, rows=500, parallelism=2)
            info = job.wait_for(runs, WAIT_S)
            processes = [psutil.Process(worker.pid) for worker in info.task_managers]
            assert len(processes) == 2
            assert job.wait(WAIT_S).state == "FINISHED"
            eventually(lambda: not cluster.dispatcher.task_managers(), "they are given back")
            eventually(lambda: not any(map(_lives, processes)), "their processes have ended")

    def test_a_killed_worker_is_noticed_at_once(self, tmp_path: Path) -> None:
        with local(tmp_path) as cluster:
            job = endless(cluster)
            info = job.wait_for(runs, WAIT_S)
            victim = info.task_managers[0]
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            eventually(lambda: not _knows(cluster, victim.id), "the loss is noticed")
            job.wait_for(lambda i: runs(i) and i.restarts == 1, WAIT_S)

    def test_a_profile_above_what_this_machine_has_is_refused_at_submission(self, tmp_path: Path) -> None:
        with local(tmp_path) as cluster:
            with pytest.raises(ConfigError, match="no worker can serve that") as refused:
                endless(cluster, profile=ResourceProfile(cpu_cores=100_000))
            assert "operator 'numbers -> blackhole': slot sharing group 'default'" in str(refused.value)
            assert "taskmanager.numberOfTaskSlots" in str(refused.value)
            assert not cluster.dispatcher.task_managers()

    def test_a_worker_is_made_to_measure_and_held_to_it(self, tmp_path: Path) -> None:
        def eat(batch: pa.RecordBatch) -> pa.RecordBatch:

            hoard = [bytearray(os.urandom(16)) * (1 << 20) for _ in range(100)]  # 1.6 GB
            time.sleep(60)
            return batch.slice(0, len(hoard))

        config = {"restart-strategy.type": "none"}
        by_its_host = {"heartbeat.rpc-failure-threshold": "-1"}  # which knows why it ended
        with local(tmp_path, **by_its_host) as cluster:
            profile = ResourceProfile(memory_mb=200, cpu_cores=1)
            job = endless(cluster, profile=profile, each=eat, **config)
            job.wait_for(lambda i: bool(i.task_managers), WAIT_S)
            (worker,) = cluster.dispatcher.task_managers()
            assert (worker.slots, worker.profile) == (1, profile)
            assert job.wait(WAIT_S).state == "FAILED"
            failure = job.status().failure
            assert failure is not None
            assert "it exceeded its memory limit" in failure.message
            log = (tmp_path / "logs" / f"taskmanager-{worker.id}.log").read_text()
            assert "event=out_of_memory" in log


@pytest.mark.spark
class TestSpark:
    def test_idle_release_and_the_loss_of_a_worker(self, tmp_path: Path) -> None:
        values = {**FAST, "resourcemanager.taskmanager-timeout": "500 ms"}
        with EmbeddedCluster("spark", Configuration(values), workdir=tmp_path, rest=False) as cluster:
            job = endless(cluster)
            info = job.wait_for(runs, WAIT_S)
            victim = info.task_managers[0]
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            eventually(lambda: not _knows(cluster, victim.id), "the loss is noticed")
            info = job.wait_for(lambda i: runs(i) and i.restarts == 1, WAIT_S)
            process = psutil.Process(info.task_managers[0].pid)
            job.cancel()
            assert job.wait(WAIT_S).state == "CANCELED"
            eventually(lambda: not cluster.dispatcher.task_managers(), "it is given back")
            eventually(lambda: not _lives(process), "its process has ended")


def test_the_command_line_lists_workers(tmp_path: Path, start: StartWorker) -> None:
    environment = {**os.environ, "UNISTREAM_HOME": str(tmp_path / "home")}
    words = [sys.executable, "-m", "unistream.cli.main"]
    options = ["-t", "standalone", "-Djobmanager.rpc.port=0", "--json"]
    process = subprocess.Popen(
        [*words, "cluster", "start", *options], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        cluster = json.loads(process.stdout.readline())
        worker = Worker(cluster["jobmanager"], "--slots", "3")
        try:
            listed: list[dict[str, object]] = []
            while not listed:
                answer = subprocess.run(
                    [*words, "taskmanager", "list", "--json"],
                    env=environment,
                    capture_output=True,
                    check=False,
                    timeout=WAIT_S,
                )
                assert answer.returncode in (0, UNREACHABLE), answer.stderr  # a busy cluster may be too slow
                listed = json.loads(answer.stdout)["taskmanagers"] if answer.returncode == 0 else []
            assert [(w["pid"], w["slots"], w["free_slots"]) for w in listed] == [(worker.pid, 3, 3)]
        finally:
            worker.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)


def _knows(cluster: EmbeddedCluster, task_manager: TaskManagerId) -> bool:
    return any(worker.id == task_manager for worker in cluster.dispatcher.task_managers())


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
