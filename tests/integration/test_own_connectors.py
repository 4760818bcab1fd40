"""Sources and sinks of a user's own, without a package: kills, restores, other parallelism, both engines."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration import own_ends
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end, submit
from tests.integration.own_ends import (
    Feed,
    assert_all_there,
    build,
    collected,
    expected,
    name_splits,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient

ROWS = 400
NAMES = ("a", "b", "c", "d")
OFTEN = {**RECOVERING, "execution.checkpointing.interval": "100 ms"}
KILLS = [
    "task.batch:3",
    "snapshot.sync_done:3",
    "snapshot.uploaded:3",
    "committer.before_commit:2",
    "committer.committed:2",
]


@pytest.mark.parametrize("point", in_the_gate(KILLS, 0, 2, 4))
def test_a_killed_worker_costs_no_row(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    crashes.arm(point)
    names = tmp_path / "names"
    name_splits(names, *NAMES)
    feed = Feed(names, ROWS, bounded=True, until=crashes.marks)
    run_to_end(tmp_path, crashes, lambda env, _lake: build(env, tmp_path, feed), OFTEN)
    assert_all_there(tmp_path, NAMES, ROWS, twice=True)


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_bounded_job_reads_each_split_to_its_end(target: str, tmp_path: Path) -> None:
    names = tmp_path / "names"
    name_splits(names, *NAMES)
    env = us.Environment({"parallelism.default": "3"}, target=target)
    build(env, tmp_path, Feed(names, ROWS, bounded=True))
    assert env.is_bounded()
    assert env.execute("bounded").state == "FINISHED"
    assert_all_there(tmp_path, NAMES, ROWS, twice=False)


class Job:
    """The unbounded job, in one cluster."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.cluster, self.folder, self.names = cluster, folder, folder / "names"
        name_splits(self.names, "a", "b")

    def start(self, parallelism: int, savepoint: str | None = None) -> EmbeddedJobClient:
        env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
        build(env, self.folder, Feed(self.names, ROWS, bounded=False, pause="20 ms"))
        return submit(self.cluster, env, OFTEN, savepoint, by_value=[own_ends])

    def await_begun(self, name: str) -> None:
        eventually(lambda: (name, 0) in collected(self.folder), f"rows of {name} are there")


def test_an_unbounded_job_grows_is_killed_rescaled_stopped_and_drained(tmp_path: Path) -> None:
    config = Configuration({"heartbeat.interval": "200 ms"})
    with EmbeddedCluster("local", config, workdir=tmp_path / "work", rest=False) as cluster:
        all_of_it = Job(cluster, tmp_path)
        job = all_of_it.start(2)
        all_of_it.await_begun("b")
        name_splits(all_of_it.names, "c")
        all_of_it.await_begun("c")
        pid = job.wait_for(lambda info: bool(info.task_managers), WAIT_S).task_managers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        job.wait_for(lambda info: info.restarts == 1 and info.state == "RUNNING", WAIT_S)
        name_splits(all_of_it.names, "d")
        all_of_it.await_begun("d")
        job.rescale({"feed": 3})
        done = job.status().checkpoints_completed
        job.wait_for(lambda info: info.checkpoints_completed > done, WAIT_S)
        savepoint = job.stop(target=str(tmp_path / "savepoints"))
        assert job.wait(WAIT_S).state == "FINISHED"
        name_splits(all_of_it.names, "e")
        last = all_of_it.start(1, savepoint)
        names = (*NAMES, "e")
        eventually(lambda: collected(tmp_path) == expected(names, ROWS), "each row is there once", WAIT_S)
        assert any("begins with e" in line.message for line in last.log()), "what a poll logs is the job's"
        assert "polls" in repr(last.status().metrics), "and so is what it counts"
        last.stop(target=str(tmp_path / "savepoints"), drain=True)
        assert last.wait(WAIT_S).state == "FINISHED"
    assert_all_there(tmp_path, names, ROWS, twice=True)
