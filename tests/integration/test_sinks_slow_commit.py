"""A stop is answered when everything is committed, and not before: with a sink whose commit takes as long as
the test wants, and with its worker killed in the middle of it.

    the commit ── its pid ──► pipe "started" ──► the test
        ▲                                          │
        └────────────── pipe "go" ◄────────────────┘   one byte for each commit
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.elements import Batch
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

UNANSWERED_S = 0.5  # how long nothing is said while the commit waits
SLOW = 2_000  # rows/s
CONFIG = {
    **STREAMING,
    "parallelism.default": "1",
    "execution.checkpointing.interval": "250 ms",
    "execution.checkpointing.min-pause": "1 h",  # no snapshot but those of the stop
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


class Pipes:
    """What test and commits tell each other. Both ends are held open, so that nobody waits to open one."""

    def __init__(self, folder: Path) -> None:
        for name in ("started", "go"):
            os.mkfifo(folder / name)
        self._started = os.open(folder / "started", os.O_RDWR)
        self._go = os.open(folder / "go", os.O_RDWR)

    def next_commit(self) -> int:
        """The process in which the next commit has begun, and waits."""
        ready, _, _ = select.select([self._started], [], [], WAIT_S)
        assert ready, "no commit began"
        return int(os.read(self._started, 16))

    def let_go(self) -> None:
        os.write(self._go, b"g" * 16)

    def close(self) -> None:
        os.close(self._started)
        os.close(self._go)


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[Pipes]:
    found = Pipes(tmp_path)
    yield found
    found.let_go()  # nobody waits for ever
    found.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    often = Configuration({"heartbeat.interval": "100 ms"})  # they carry the numbers of rows read
    work = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster("local", often, workdir=work, rest=False) as cluster:
        yield cluster


def slow_sink(folder: Path) -> us.TwoPhaseCommitSink[str]:
    """A file of ids for each transaction, moved by its commit. (Made here so that it travels by value.)"""
    staged, committed, root = str(folder / "staged"), str(folder / "committed"), str(folder)
    os.makedirs(staged)
    os.makedirs(committed)

    class SlowSink(us.TwoPhaseCommitSink[str]):
        name = "slow"

        def begin_transaction(self) -> str:
            import uuid

            handle = uuid.uuid4().hex
            with open(os.path.join(staged, handle), "x"):
                return handle

        def invoke(self, transaction: str, batch: Batch) -> None:
            with open(os.path.join(staged, transaction), "a") as file:
                file.writelines(f"{number}\n" for number in batch.records["id"].to_pylist())

        def commit(self, transaction: str) -> None:
            with open(os.path.join(root, "started"), "w") as started:
                started.write(f"{os.getpid():16}")
            with open(os.path.join(root, "go"), "rb", buffering=0) as go:
                go.read(1)
            if not os.path.exists(os.path.join(committed, transaction)):
                os.rename(os.path.join(staged, transaction), os.path.join(committed, transaction))

        def abort(self, transaction: str) -> None:
            if os.path.exists(os.path.join(staged, transaction)):
                os.remove(os.path.join(staged, transaction))

    return SlowSink()


def submit(cluster: EmbeddedCluster, folder: Path) -> EmbeddedJobClient:
    env = us.Environment(CONFIG)
    source = us.DatagenSource(
        {"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=SLOW, splits=1
    )
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.sink_to(slow_sink(folder)).uid("slow")
    graph, code = env.job_graph("slow commit")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG))


def committed(folder: Path) -> list[int]:
    texts = [path.read_text() for path in (folder / "committed").iterdir()]
    return sorted(int(line) for text in texts for line in text.splitlines())


def read_before(savepoint: str) -> list[int]:
    [split] = us.read_savepoint(savepoint).positions
    position: Any = split.position
    return list(range(position["index"]))


def assert_unanswered(answer: Future[str]) -> None:
    with pytest.raises(TimeoutError):
        answer.result(UNANSWERED_S)


@pytest.mark.parametrize("drain", [False, True], ids=["stop", "drain"])
@pytest.mark.parametrize("kill", [False, True], ids=["slow", "killed meanwhile"])
def test_a_stop_is_answered_when_its_commit_is_done(
    cluster: EmbeddedCluster, pipes: Pipes, tmp_path: Path, drain: bool, kill: bool
) -> None:
    job = submit(cluster, tmp_path)
    job.wait_for(lambda info: info.metrics.get("records_in", 0) > SLOW // 4, WAIT_S)
    savepoints = tmp_path / "savepoints"
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(job.stop, drain=drain, target=str(savepoints))
        worker = pipes.next_commit()
        assert [path for path in savepoints.iterdir() if (path / "_metadata").exists()], "it is complete"
        assert_unanswered(answer)
        if kill:
            os.kill(worker, signal.SIGKILL)
            assert pipes.next_commit() != worker, "it is asked for again, elsewhere"
            assert_unanswered(answer)
        assert committed(tmp_path) == []
        pipes.let_go()
        savepoint = answer.result(WAIT_S)
        reported = committed(tmp_path)
    assert len(reported) > SLOW // 4
    assert reported == read_before(savepoint), "each row once, and all of them before the answer"
    result = job.wait(WAIT_S)
    assert (result.state, result.restarts) == ("FINISHED", 1 if kill else 0)
    assert committed(tmp_path) == reported
