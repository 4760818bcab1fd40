"""What every host of workers must do; held to it here: local processes and Spark tasks. The standalone host
starts none, and must leave those alone that come by themselves.

The workers are real TaskManagers, which register with a real server.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S
from tests.integration.crash_runs import OF_MATRIX
from tests.single_messages import decode_single
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import TaskManagerId
from unistream.host.local import LocalProcessHost
from unistream.host.standalone import StandaloneHost
from unistream.model.codec import encode
from unistream.model.messages import Ack, Heartbeat, RegisterTaskManager
from unistream.net.server import FlightServer
from unistream.port.host import LostListener, TaskManagerSpec, WorkerHost

START_S = WAIT_S
STOP_S = WAIT_S
MANY = 100
SILENT_S = 600  # heartbeat.timeout: what is noticed in a test, is noticed sooner

MakeHost = Callable[[LostListener], WorkerHost]


class Master:
    """Records who registers and who sends heartbeats; refuses nobody."""

    def __init__(self) -> None:
        self.registered: queue.Queue[RegisterTaskManager] = queue.Queue()
        self.heartbeats: queue.Queue[TaskManagerId] = queue.Queue()
        self.server = FlightServer("127.0.0.1", control=self.handle, partitions=None)

    def handle(self, body: bytes, caller: str = "", /) -> bytes:
        message = decode_single(body)
        if isinstance(message, RegisterTaskManager):
            self.registered.put(message)
        elif isinstance(message, Heartbeat):
            self.heartbeats.put(message.task_manager)
        return encode(Ack())

    def await_workers(self, count: int) -> dict[TaskManagerId, int]:
        """The next registrations: id and process."""
        found = [self.registered.get(timeout=START_S) for _ in range(count)]
        return {message.task_manager: message.pid for message in found}

    def forget(self) -> None:
        """Who has registered up to now."""
        while not self.registered.empty():
            self.registered.get_nowait()

    def await_heartbeat(self, task_manager: TaskManagerId) -> None:
        """A new one."""
        while not self.heartbeats.empty():
            self.heartbeats.get_nowait()
        seen: Counter[TaskManagerId] = Counter()
        deadline = time.monotonic() + START_S
        while task_manager not in seen:
            assert time.monotonic() < deadline, f"no heartbeat of {task_manager}, but {dict(seen)}"
            with contextlib.suppress(queue.Empty):
                seen[self.heartbeats.get(timeout=1.0)] += 1


class Losses:
    """What the host has reported."""

    def __init__(self) -> None:
        self.reported: queue.Queue[tuple[TaskManagerId, str]] = queue.Queue()

    def __call__(
        self, task_manager: TaskManagerId, reason: str, host: str = "", hopeless: bool = False, /
    ) -> None:
        self.reported.put((task_manager, reason))

    def next(self) -> tuple[TaskManagerId, str]:
        return self.reported.get(timeout=STOP_S)


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def make_host(request: pytest.FixtureRequest) -> Iterator[MakeHost]:
    if request.param == "local":
        yield LocalProcessHost
        return
    from unistream.host.spark import SparkHost

    def make(on_lost: LostListener) -> WorkerHost:
        return SparkHost(on_lost, master="local[*]", workers_max=4, config={})

    keeper = make(lambda *_: None)  # one Spark for all tests of this module
    yield make
    keeper.close()


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    yield master
    master.server.close()


@pytest.fixture
def losses() -> Losses:
    return Losses()


@pytest.fixture
def host(make_host: MakeHost, losses: Losses, master: Master) -> Iterator[WorkerHost]:
    host = make_host(losses)
    yield host
    host.close()


NUMBERS = itertools.count()


@pytest.fixture
def start(host: WorkerHost, master: Master, tmp_path: Path) -> Callable[[], TaskManagerSpec]:
    def start() -> TaskManagerSpec:
        spec = TaskManagerSpec(
            id=TaskManagerId(f"tm-{os.getpid()}-{next(NUMBERS)}"),
            master=master.server.address,
            slots=1,
            config={"heartbeat.interval": "100 ms", "heartbeat.timeout": f"{SILENT_S} s"},
            log_dir=str(tmp_path / "logs"),
        )
        host.start(spec)
        return spec

    return start


StartWorker = Callable[[], TaskManagerSpec]


def test_each_worker_registers_from_a_process_of_its_own(start: StartWorker, master: Master) -> None:
    specs = [start(), start()]
    workers = master.await_workers(2)
    assert set(workers) == {spec.id for spec in specs}
    assert len(set(workers.values()) | {os.getpid()}) == 3


def test_a_killed_worker_is_reported_at_once_and_the_others_live(
    start: StartWorker, master: Master, losses: Losses
) -> None:
    victim, other = start(), start()
    workers = master.await_workers(2)
    os.kill(workers[victim.id], signal.SIGKILL)
    lost, reason = losses.next()
    assert lost == victim.id
    assert "killed" in reason
    try:
        master.await_heartbeat(other.id)
    finally:  # if it does not come, this says why
        assert list(losses.reported.queue) == []


@OF_MATRIX
def test_each_of_many_killed_workers_leaves_the_others_alone(
    start: StartWorker, master: Master, losses: Losses
) -> None:
    """Spark repeats the task of a killed worker, which must not end the daemon from which all are forked."""
    witness = start()
    master.await_workers(1)
    for _ in range(MANY):
        victim = start()
        os.kill(master.await_workers(1)[victim.id], signal.SIGKILL)
        assert losses.next()[0] == victim.id
        master.await_heartbeat(witness.id)
    assert losses.reported.empty()


def test_a_killed_worker_can_be_replaced_at_once(start: StartWorker, master: Master, losses: Losses) -> None:
    victim = start()
    os.kill(master.await_workers(1)[victim.id], signal.SIGKILL)
    losses.next()
    replacement = start()
    assert list(master.await_workers(1)) == [replacement.id]


def test_a_stopped_worker_is_gone_and_reported_once(
    host: WorkerHost, start: StartWorker, master: Master, losses: Losses
) -> None:
    spec = start()
    process = psutil.Process(master.await_workers(1)[spec.id])
    host.stop(spec.id)
    host.stop(spec.id)
    assert losses.next()[0] == spec.id
    assert psutil.wait_procs([process], timeout=STOP_S)[1] == []
    host.stop(spec.id)
    host.close()
    assert losses.reported.empty()


def test_an_unknown_worker_can_be_stopped(host: WorkerHost, losses: Losses) -> None:
    host.stop(TaskManagerId("nobody"))
    assert losses.reported.empty()


def test_close_ends_every_worker_and_reports_each_once(
    host: WorkerHost, start: StartWorker, master: Master, losses: Losses
) -> None:
    specs = [start() for _ in range(3)]
    processes = [psutil.Process(pid) for pid in master.await_workers(3).values()]
    host.close()
    assert psutil.wait_procs(processes, timeout=STOP_S)[1] == []
    assert {losses.next()[0] for _ in specs} == {spec.id for spec in specs}
    assert losses.reported.empty()


def test_close_ends_a_worker_that_has_not_begun(
    host: WorkerHost, start: StartWorker, master: Master, losses: Losses
) -> None:
    spec = start()
    host.close()
    assert losses.next()[0] == spec.id
    master.forget()  # it was faster than the close, where this process stood still
    with pytest.raises(queue.Empty):
        master.registered.get(timeout=1)


def test_an_id_is_never_used_twice(host: WorkerHost, start: StartWorker) -> None:
    spec = start()
    with pytest.raises(ConfigError, match="was used before"):
        host.start(spec)


def test_a_closed_host_starts_nothing(host: WorkerHost, start: StartWorker) -> None:
    host.close()
    with pytest.raises(Unreachable, match="closed"):
        start()


def test_a_worker_writes_its_log_where_it_was_told(start: StartWorker, master: Master) -> None:
    spec = start()
    master.await_workers(1)
    assert (Path(spec.log_dir) / f"taskmanager-{spec.id}.log").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Arrow's own choice is as good")
def test_arrow_allocates_with_jemalloc_in_every_worker(start: StartWorker, master: Master) -> None:
    spec = start()
    master.await_workers(1)
    log = (Path(spec.log_dir) / f"taskmanager-{spec.id}.log").read_text(encoding="utf-8")
    wanted = os.environ.get("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    assert f"event=arrow_set_up allocator={wanted} " in log


def test_a_listener_that_fails_does_no_harm(make_host: MakeHost, master: Master) -> None:
    losses = Losses()

    def failing(task_manager: TaskManagerId, reason: str, host: str = "", hopeless: bool = False, /) -> None:
        losses(task_manager, reason)
        raise ValueError("listener")

    host = make_host(failing)
    spec = TaskManagerSpec(id=TaskManagerId(f"tm-f-{os.getpid()}"), master=master.server.address, slots=1)
    host.start(spec)
    worker = psutil.Process(master.await_workers(1)[spec.id])
    host.close()
    assert losses.next()[0] == spec.id
    assert psutil.wait_procs([worker], timeout=STOP_S)[1] == []


def test_the_standalone_host_starts_nothing_and_ends_nothing(master: Master, losses: Losses) -> None:
    local = LocalProcessHost(lambda *_: None)
    spec = TaskManagerSpec(
        id=TaskManagerId(f"tm-s-{os.getpid()}"),
        master=master.server.address,
        slots=1,
        config={"heartbeat.interval": "100 ms"},
    )
    host: WorkerHost = StandaloneHost(losses)
    try:
        local.start(spec)
        pid = master.await_workers(1)[spec.id]
        with pytest.raises(ConfigError, match="taskmanager start --jobmanager"):
            host.start(spec)
        host.stop(spec.id)
        host.close()
        master.await_heartbeat(spec.id)
        assert psutil.pid_exists(pid)
        assert losses.reported.empty()
    finally:
        local.close()
