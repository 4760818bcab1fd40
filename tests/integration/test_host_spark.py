"""A Spark of our own: what it is started with, and that nothing of it stays."""

from __future__ import annotations

import gc
import queue
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S
from tests.integration.spark_cluster import interrupted_when_cancelled, spark_drivers
from tests.single_messages import decode_single
from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.model.codec import encode
from unistream.model.messages import Ack, RegisterTaskManager
from unistream.net.server import FlightServer
from unistream.port.host import TaskManagerSpec

pytestmark = pytest.mark.spark

PURPOSE = "orders: kafka -> parse, window -> delta"
RESTART_S = 150  # with another JVM; a busy machine takes its time


class Master:
    """Tells the processes that register."""

    def __init__(self) -> None:
        self.pids: queue.Queue[int] = queue.Queue()
        self.server = FlightServer("127.0.0.1", control=self.handle, partitions=None)

    def handle(self, body: bytes, caller: str = "", /) -> bytes:
        message = decode_single(body)
        if isinstance(message, RegisterTaskManager):
            self.pids.put(message.pid)
        return encode(Ack())


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def names_of_stages(group: str) -> tuple[str, ...]:
    """As Spark's own tools show them, of the jobs of a group."""
    from pyspark import SparkContext

    tracker = SparkContext.getOrCreate().statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return tuple(stage.name for stage in stages if stage is not None)


def test_close_leaves_neither_jvm_nor_python_and_spark_can_start_again(tmp_path: Path) -> None:
    from unistream.host.spark import SparkHost

    master, before = Master(), children()
    handler = signal.getsignal(signal.SIGINT)
    for attempt in range(2):
        losses: queue.Queue[tuple[TaskManagerId, str]] = queue.Queue()
        host = SparkHost(
            lambda *lost, reported=losses: reported.put(lost),
            master="local[*]",
            workers_max=2,
            config={"spark.app.name": "host-test", "parallelism.default": "1"},
        )
        try:
            for n in range(2):
                name = TaskManagerId(f"tm-{attempt}-{n}")
                orders = TaskManagerSpec(id=name, master=master.server.address, slots=1, purpose=PURPOSE)
                host.start(orders)
            started = {psutil.Process(master.pids.get(timeout=WAIT_S)) for _ in range(2)}
            assert started < children() - before
            assert signal.getsignal(signal.SIGINT) is handler, "Ctrl-C must reach the program, not Spark"
            assert {names_of_stages(f"unistream-tm-{attempt}-{n}") for n in range(2)} == {(PURPOSE,)}
            assert interrupted_when_cancelled() == [False, False]
        finally:
            host.close()
            host.close()
        assert children() - before == set()
        assert not any(process.is_running() for process in started)
        assert losses.qsize() == 2
    master.server.close()


def kill_jvm() -> None:
    for process in spark_drivers():
        process.kill()
        process.wait(WAIT_S)


def stop_context() -> None:
    from pyspark import SparkContext

    SparkContext.getOrCreate().stop()


@pytest.mark.parametrize("end", [kill_jvm, stop_context])
def test_when_spark_has_ended_the_next_worker_begins_a_new_one(end: Callable[[], None]) -> None:
    from unistream.host.spark import SparkHost

    master, before = Master(), children()
    losses: queue.Queue[tuple[str, str, str, bool]] = queue.Queue()
    host = SparkHost(lambda *lost: losses.put(lost), master="local[*]", workers_max=2, config={})
    try:
        host.start(TaskManagerSpec(id=TaskManagerId("tm-1"), master=master.server.address, slots=1))
        master.pids.get(timeout=RESTART_S)
        end()
        name, reason, *_ = losses.get(timeout=RESTART_S)
        assert (name, reason.partition(" (")[0]) == ("tm-1", "Spark has ended")
        host.start(TaskManagerSpec(id=TaskManagerId("tm-2"), master=master.server.address, slots=1))
        assert psutil.Process(master.pids.get(timeout=RESTART_S)) in children()
    finally:
        host.close()
    assert children() - before == set()
    master.server.close()


def test_no_worker_outlives_a_killed_driver(tmp_path: Path) -> None:
    master = Master()
    program = textwrap.dedent("""
        import sys, threading
        from unistream.host.spark import SparkHost
        from unistream.port.host import TaskManagerSpec
        host = SparkHost(lambda *_: None, master="local[*]", workers_max=1, config={})
        host.start(TaskManagerSpec(id="tm-1", master=sys.argv[1], slots=1))
        threading.Event().wait()
    """)
    driver = subprocess.Popen([sys.executable, "-c", program, master.server.address])
    try:
        master.pids.get(timeout=WAIT_S)
        tree = psutil.Process(driver.pid).children(recursive=True)
        assert len(tree) >= 2
    finally:
        driver.kill()
        driver.wait(WAIT_S)
    assert psutil.wait_procs(tree, timeout=WAIT_S)[1] == []
    master.server.close()


def test_a_java_that_is_not_there_is_a_configuration_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from unistream.host.spark import SparkHost

    before = children()
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    with pytest.raises(ConfigError, match="needs Java 17 or later: JAVA_HOME is /nowhere/java"):
        SparkHost(lambda *_: None, master="local[*]", workers_max=1, config={})
    assert children() - before == set()


# pyspark leaves the pipe of a JVM that did not start to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_master_that_is_none_is_a_configuration_error_and_leaves_nothing() -> None:
    from unistream.host.spark import SparkHost

    before = children()
    with pytest.raises(ConfigError, match="does not start with master 'moon://x'"):
        SparkHost(lambda *_: None, master="moon://x", workers_max=1, config={})
    gc.collect()
    assert children() - before == set()


def test_a_host_without_room_is_refused() -> None:
    from unistream.host.spark import SparkHost

    with pytest.raises(ConfigError, match="at least one worker, not 0"):
        SparkHost(lambda *_: None, master="local[*]", workers_max=0, config={})
