"""A job's parallelism is changed while it runs; see `rescaled_windows` for the pipeline."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.rescaled_windows import FAST, SLOW, WAIT_S, all_running, pipeline, stop_and_finish
from unistream.base.config import Configuration
from unistream.base.crash_points import DIRECTORY_VARIABLE, POINTS_VARIABLE, TESTING_VARIABLE
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

CONFIG = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def submit(
    cluster: EmbeddedCluster,
    lake: Path,
    *,
    rate: float = SLOW,
    savepoint: str | None = None,
    **config: str,
) -> EmbeddedJobClient:
    graph, code = pipeline(lake, 2, rate=rate).job_graph("rescaled")
    return cluster.submit(
        SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG | config, savepoint=savepoint)
    )


def widths(info: JobInfo) -> dict[str, int]:
    """Parallelism of each vertex."""
    return dict(Counter(subtask.vertex for subtask in info.subtasks))


def finish(cluster: EmbeddedCluster, job: EmbeddedJobClient, lake: Path) -> JobInfo:
    """The last status of the job, whose rows are all there, each once."""
    return stop_and_finish(job, lake, lambda path: submit(cluster, lake, rate=FAST, savepoint=path))


def runs(info: JobInfo) -> bool:
    return all_running(info) and info.checkpoints_completed >= 1


def everything(info: JobInfo, width: int) -> dict[str, int]:
    return {subtask.vertex: width for subtask in info.subtasks}


def newest_attempts(info: JobInfo) -> set[int]:
    return {subtask.attempt for subtask in info.subtasks}


def local(folder: Path, **config: str) -> EmbeddedCluster:
    values = Configuration({"heartbeat.interval": "200 ms", **config})
    return EmbeddedCluster("local", values, workdir=folder, rest=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with local(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def rescale_twice(job: EmbeddedJobClient) -> None:
    """2 -> 3 -> 1, each after a few rows."""
    for attempt, width in ((1, 3), (2, 1)):
        info = job.wait_for(runs, WAIT_S)
        job.rescale(everything(info, width))
        info = job.status()
        assert set(widths(info).values()) == {width}
        assert info.state == "RUNNING"
        assert info.subtasks[0].attempt == attempt, "subtask 0 was there all the time"
        done = info.checkpoints_completed
        job.wait_for(lambda i, done=done: i.checkpoints_completed >= done + 2, WAIT_S)


def test_a_running_job_is_made_wider_and_narrower(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path)
    rescale_twice(job)
    info = finish(cluster, job, tmp_path)
    assert (info.restarts, info.exceptions) == (0, ()), "a change that was asked for is no failure"
    graph = cluster.dispatcher.graph(job.job_id)
    assert [vertex.parallelism for vertex in graph.vertices] == [1] * len(widths(info))


@pytest.mark.spark
def test_the_same_on_spark(tmp_path: Path) -> None:
    config = Configuration({"heartbeat.interval": "200 ms"})
    with EmbeddedCluster("spark", config, workdir=tmp_path / "work", rest=False) as cluster:
        job = submit(cluster, tmp_path)
        rescale_twice(job)
        assert finish(cluster, job, tmp_path).restarts == 0


def test_one_vertex_by_the_uid_of_an_operator_in_it(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path)
    before = widths(job.wait_for(runs, WAIT_S))
    job.rescale({"window": 3})
    graph = cluster.dispatcher.wanted_graph(job.job_id)
    changed = {vertex.id for vertex in graph.vertices if any(o.uid == "window" for o in vertex.operators)}
    assert widths(job.status()) == before | dict.fromkeys(changed, 3)
    finish(cluster, job, tmp_path)


class TestRefused:
    """The job goes on as it was."""

    def test_names_and_numbers_that_cannot_be(self, cluster: EmbeddedCluster, tmp_path: Path) -> None:
        job = submit(cluster, tmp_path)
        before = widths(job.wait_for(runs, WAIT_S))
        for parallelism, text in (
            ({"windw": 3}, r"has no vertex 'windw'; there are '.*\(uid rows"),
            ({}, "name at least one vertex"),
            ({"window": 17}, "parallelism 17 is above max parallelism 16"),
            ({"window": 0}, "parallelism 0 is less than 1"),
            ({"window": True}, "is a whole number, not True"),
        ):
            with pytest.raises(ConfigError, match=text):
                job.rescale(parallelism)
        job.rescale({"window": 2})
        info = job.status()
        assert (widths(info), newest_attempts(info)) == (before, {0}), "nothing was to be changed"
        finish(cluster, job, tmp_path)
        with pytest.raises(ConfigError, match=r"already ended as FINISHED: it cannot be rescaled"):
            job.rescale({"window": 3})

    def test_while_another_is_under_way(self, cluster: EmbeddedCluster, tmp_path: Path) -> None:
        job = submit(cluster, tmp_path)
        job.wait_for(runs, WAIT_S)
        first = cluster.dispatcher.rescale(job.job_id, {"window": 3})
        second = cluster.dispatcher.rescale(job.job_id, {"window": 1})
        with pytest.raises(ConfigError, match="is already being rescaled"):
            second.result(WAIT_S)
        assert first.result(WAIT_S) == ""
        assert 3 in widths(job.status()).values()
        finish(cluster, job, tmp_path)

    def test_of_a_job_that_restarts(self, cluster: EmbeddedCluster, tmp_path: Path) -> None:
        config = {"restart-strategy.fixed-delay.delay": "5 s"}
        job = submit(cluster, tmp_path, **config)
        info = job.wait_for(runs, WAIT_S)
        kill(info, 0)
        job.wait_for(lambda i: i.state == "RESTARTING", WAIT_S)
        with pytest.raises(ConfigError, match="not all tasks are running; try again when it is RUNNING"):
            job.rescale({"window": 3})
        assert widths(finish(cluster, job, tmp_path)) == widths(info)


def kill(info: JobInfo, place: int) -> None:
    pid = info.task_managers[place].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def crashing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], EmbeddedCluster]:
    """A cluster one of whose workers dies once, at a named point."""

    def crashing(point: str) -> EmbeddedCluster:
        (tmp_path / "crashed").mkdir()
        monkeypatch.setenv(POINTS_VARIABLE, point)
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "crashed"))
        monkeypatch.setenv(TESTING_VARIABLE, "1")
        return local(tmp_path / "work")

    return crashing


ONLY_THE_RESCALE = {"execution.checkpointing.min-pause": "1 h"}  # no other snapshot


@pytest.mark.parametrize(
    ("point", "succeeds"),
    [
        pytest.param("snapshot.uploaded", False, id="before its checkpoint is complete"),
        pytest.param("sink.before_commit", True, id="when its checkpoint is durable and not committed"),
    ],
)
def test_a_worker_that_dies_in_the_middle_loses_and_doubles_nothing(
    crashing: Callable[[str], EmbeddedCluster], tmp_path: Path, point: str, succeeds: bool
) -> None:
    with crashing(point) as cluster:
        job = submit(cluster, tmp_path, **ONLY_THE_RESCALE)
        job.wait_for(lambda i: i.state == "RUNNING" and i.metrics.get("records_in", 0) > SLOW, WAIT_S)
        if succeeds:
            job.rescale({"window": 3, "rows": 3})
        else:
            with pytest.raises(ConfigError, match=r"the job was not rescaled: the checkpoint for it failed"):
                job.rescale({"window": 3, "rows": 3})
            job.wait_for(lambda i: i.state == "RUNNING" and i.restarts == 1, WAIT_S)
            job.rescale({"window": 3, "rows": 3})
        assert 3 in widths(job.status()).values()
        finish(cluster, job, tmp_path)
    assert [mark.name for mark in (tmp_path / "crashed").iterdir()] == [point]


def test_a_worker_is_killed_while_tasks_move(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path)
    info = job.wait_for(runs, WAIT_S)
    answer = cluster.dispatcher.rescale(job.job_id, everything(info, 3))
    job.wait_for(lambda i: i.state == "RESTARTING", WAIT_S)
    kill(info, 1)
    assert answer.result(WAIT_S) == ""
    assert set(widths(job.status()).values()) == {3}
    finish(cluster, job, tmp_path)
