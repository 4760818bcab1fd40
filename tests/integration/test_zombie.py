"""A worker that is given up and yet lives: it stands still longer than its lease, then wakes up.

Its machine cannot be reached, so nobody kills it: what keeps the tables right is that its word counts no
more (attempts), that its commits are found done (transactions of the table), and that it ends by itself.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path

import psutil
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.crash_runs import assert_exact, keyed_windows
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.ids import TaskManagerId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.host.local import LocalProcessHost
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.port.host import LostListener, TaskManagerSpec
from unistream.worker.code import pack

ROWS = 120_000
SLOW = 1_000  # rows/s: two minutes to the end, which the first job does not come to
FAST = 150_000
COMMITTER = "delta committer"
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, 50),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}
CONFIG = {
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "4 s",  # on a busy machine another worker may be silent for a while
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


class UnreachableMachines:
    """Starts workers; cannot stop any."""

    def __init__(self, on_lost: LostListener) -> None:
        self._on_lost = on_lost
        self._host = LocalProcessHost(self._lost)
        self._ends: dict[TaskManagerId, str] = {}
        self._ended = threading.Condition()

    def start(self, spec: TaskManagerSpec) -> None:
        self._host.start(spec)

    def stop(self, task_manager: TaskManagerId) -> None:
        """The word does not get there."""

    def close(self) -> None:
        self._host.close()

    def _lost(
        self, task_manager: TaskManagerId, reason: str, host: str = "", hopeless: bool = False, /
    ) -> None:
        with self._ended:
            self._ends[task_manager] = reason
            self._ended.notify_all()
        self._on_lost(task_manager, reason, host, hopeless)

    def await_end(self, task_manager: TaskManagerId, timeout_s: float) -> str:
        """How it ended, by the host that waits for it. A test that waited for the process itself would take
        its exit code away: the kernel gives it to one of them only."""
        with self._ended:
            assert self._ended.wait_for(lambda: task_manager in self._ends, timeout_s), "it lives on"
            return self._ends[task_manager]


def pipeline(lake: Path, rate: float) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": "2"})
    source = us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=rate, splits=2)
    keyed_windows(env, lake, source)
    return env


def worker_of(info: JobInfo, *, committer: bool) -> tuple[TaskManagerId, int]:
    """A worker that commits, or one that does not: (id, process)."""
    commits = {task.task_manager for task in info.subtasks if task.vertex_name == COMMITTER}
    worker = next(w for w in info.task_managers if (w.id in commits) is committer)
    assert worker.pid is not None
    return worker.id, worker.pid


@pytest.mark.parametrize("committer", [True, False], ids=["the one that commits", "one that only writes"])
def test_a_worker_that_wakes_up_after_its_lease_changes_nothing_and_ends(
    tmp_path: Path, committer: bool
) -> None:
    lake = tmp_path / "lake"
    hosts: list[UnreachableMachines] = []

    def host(on_lost: LostListener) -> UnreachableMachines:
        hosts.append(UnreachableMachines(on_lost))
        return hosts[0]

    with EmbeddedCluster(
        "local", Configuration(CONFIG), workdir=tmp_path / "work", create_host=host, rest=False
    ) as cluster:
        graph, code = pipeline(lake, SLOW).job_graph("zombie")
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code)))
        info = job.wait_for(lambda i: i.state == "RUNNING" and i.metrics.get("rows_committed", 0) > 0, WAIT_S)
        zombie, pid = worker_of(info, committer=committer)
        process = psutil.Process(pid)
        os.kill(pid, signal.SIGSTOP)
        try:
            info = job.wait_for(lambda i: i.restarts == 1 and i.state == "RUNNING", WAIT_S)
            assert zombie not in {worker.id for worker in info.task_managers}
            taken, committed = info.checkpoints_completed, info.metrics.get("rows_committed", 0)
            job.wait_for(
                lambda i: i.checkpoints_completed > taken and i.metrics.get("rows_committed", 0) > committed,
                WAIT_S,
            )
            assert process.status() == psutil.STATUS_STOPPED
        finally:
            os.kill(pid, signal.SIGCONT)
        end = hosts[0].await_end(zombie, WAIT_S)  # by itself
        savepoint = job.stop(target=str(tmp_path / "savepoints"))
        assert job.status().restarts == 1, "its end has no effect on the job"
        graph, code = pipeline(lake, FAST).job_graph("zombie")
        again = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), savepoint=savepoint))
        assert again.wait(WAIT_S).state == "FINISHED"
    # 1: its lease was over; 0: the release that was sent while it stood still was read first
    assert re.search(r"exited with code [01]\b", end)
    log = (tmp_path / "work" / "logs" / f"taskmanager-{zombie}.log").read_text()
    assert "event=task_manager_ends" in log
    assert_exact(lake, ROWS)
