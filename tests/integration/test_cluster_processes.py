"""The command line with real processes: workers of their own, signals, kills; nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S
from tests.integration.crash_runs import Command, await_info, commands_in, entry_of, job_of
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.crash_points import POINTS_VARIABLE, TESTING_VARIABLE
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.rest_client import RestClient
from unistream.connector.collect import read_collected

PIPELINES = """
import unistream as us
from unistream.connector.collect import CollectSink
from unistream.connector.datagen import DatagenSource, Sequential

def stream(env, **options):
    source = DatagenSource({"n": Sequential()}, splits=2, **options)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def endless(env):
    stream(env, rows=None, bounded=False, rows_per_second=500).sink_to(us.BlackholeSink()).uid("out")

def collected(env):
    stream(env, rows=9000, rows_per_second=1500).sink_to(CollectSink("out")).uid("out")
"""

COLLECTED = (
    *("run", "process_pipelines:collected", "-t", "local", "-p", "2"),
    *("-D", "execution.runtime-mode=STREAMING", "-D", "execution.checkpointing.interval=200ms"),
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    (tmp_path / "process_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


@pytest.mark.parametrize(
    ("number", "reported"),
    [(signal.SIGINT, "interrupted; suspending"), (signal.SIGTERM, "terminated; suspending")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_an_interrupted_run_ends_its_job(
    start: Callable[..., Command], tmp_path: Path, number: int, reported: str
) -> None:
    run = start("run", "process_pipelines:endless", "-t", "local", "-p", "2")
    job = job_of(run.line())
    with RestClient(entry_of(tmp_path)["url"]) as client:
        info = await_info(client, job, lambda info: info.state == "RUNNING")
        assert len({worker.pid for worker in info.task_managers} - {run.process.pid}) == 2
    assert run.end(number) == 130
    assert f"{reported} job {job}" in run.err
    run.assert_nothing_is_left()
    assert not list((tmp_path / "home" / "clusters").iterdir())


def test_a_killed_run_leaves_no_process(start: Callable[..., Command], tmp_path: Path) -> None:
    run = start("run", "process_pipelines:endless", "-t", "local")
    job = job_of(run.line())
    with RestClient(entry_of(tmp_path)["url"]) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")
    assert run.end(signal.SIGKILL) == -signal.SIGKILL
    run.assert_nothing_is_left()
    listed = start("list", "--json")
    assert listed.wait() == 0
    assert json.loads(listed.out) == {"jobs": [], "unanswered": []}


def test_a_session_cluster_takes_jobs_and_ends_on_sigterm(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    cluster = start("cluster", "start", "-t", "local", "--json")
    url = json.loads(cluster.line())["url"]
    run = start("run", "process_pipelines:endless", "-t", "remote", "--detached", "--json")
    assert run.wait() == 0, run.err
    job = json.loads(run.out)["job"]
    with RestClient(url) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")
    stop = start("stop", job, "-p", "sp", "--json")
    assert stop.wait() == 0, stop.err
    savepoint = json.loads(stop.out)["savepoint"]
    assert str(tmp_path / "sp") in savepoint
    assert cluster.end(signal.SIGTERM) == 0
    cluster.assert_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize(
    ("options", "says", "state"),
    [((), "goes on in its cluster", "RUNNING"), (("-sae",), "interrupted; cancelling", "CANCELED")],
    ids=["left", "cancelled"],
)
def test_who_watches_a_job_of_a_session_cluster_leaves_it(
    start: Callable[..., Command], options: tuple[str, ...], says: str, state: str, number: signal.Signals
) -> None:
    cluster = start("cluster", "start", "-t", "local", "--json")
    url = json.loads(cluster.line())["url"]
    run = start("run", "process_pipelines:endless", "-t", "remote", *options)
    job = job_of(run.line())
    with RestClient(url) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")
        assert run.end(number) == 130
        assert says in run.err
        assert await_info(client, job, lambda info: info.state == state).restarts == 0
    assert cluster.end(signal.SIGTERM) == 0
    cluster.assert_nothing_is_left()


def test_delete_cluster_ends_it(start: Callable[..., Command]) -> None:
    cluster = start("cluster", "start", "-t", "local", "--json")
    with RestClient(json.loads(cluster.line())["url"]) as client:
        client.shutdown()
    assert cluster.wait() == 0


def test_a_stop_from_elsewhere_tells_the_savepoint_although_the_run_ends(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    run = start("run", "process_pipelines:endless", "-t", "local", "--name", "steered")
    job = job_of(run.line())
    with RestClient(entry_of(tmp_path)["url"]) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")
    stop = start("stop", "steered", "--json", "-p", "sp")
    assert stop.wait() == 0, stop.err
    assert run.wait() == 0, run.err
    assert json.loads(stop.out)["savepoint"] in run.out
    run.assert_nothing_is_left()


def test_a_killed_worker_process_is_replaced_and_no_row_is_lost_or_repeated(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    run = start(*COLLECTED)
    job = job_of(run.line())
    with RestClient(entry_of(tmp_path)["url"]) as client:
        info = await_info(client, job, lambda i: i.state == "RUNNING" and i.checkpoints_completed >= 2)
        victim = info.task_managers[0]
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        info = await_info(client, job, lambda i: i.state == "RUNNING" and i.restarts == 1)
        assert victim.id not in {worker.id for worker in info.task_managers}
    run.family()
    assert run.wait() == 0, run.err
    numbers = read_collected(str(tmp_path / "out"))["n"].to_pylist()
    assert sorted(numbers) == list(range(9000))
    run.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("point", "resumes_from"),
    [("manifest.before_create:3", "chk-2"), ("manifest.created:3", "chk-3"), ("notify.sent:7", "chk-3")],
)
def test_a_master_that_dies_on_the_commit_path_is_resumed_exactly_once(
    start: Callable[..., Command], tmp_path: Path, point: str, resumes_from: str
) -> None:
    words = (*COLLECTED, "-D", f"execution.checkpointing.dir={tmp_path / 'checkpoints'}")
    first = start(*words, env={POINTS_VARIABLE: point, TESTING_VARIABLE: "1"})
    job = job_of(first.line())
    first.family()
    assert first.wait() == -signal.SIGKILL
    first.assert_nothing_is_left()
    newest = max((tmp_path / "checkpoints" / job).glob("chk-?/_metadata"))
    assert newest.parent.name == resumes_from
    second = start(*words, "-s", str(newest.parent))
    assert second.wait() == 0, second.err
    numbers = read_collected(str(tmp_path / "out"))["n"].to_pylist()
    assert sorted(numbers) == list(range(9000))


def jvms() -> set[psutil.Process]:
    return {child for child in psutil.Process().children(recursive=True) if "java" in child.name()}


@pytest.mark.spark
def test_a_killed_worker_in_a_spark_task_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import unistream as us
    from unistream.connector.collect import CollectSink
    from unistream.connector.datagen import DatagenSource, Sequential
    from unistream.model.submission import SubmitRequest
    from unistream.worker.code import pack

    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    env = us.Environment(
        {**STREAMING, "parallelism.default": "2", "execution.checkpointing.interval": "200 ms"}
    )
    source = DatagenSource({"n": Sequential()}, rows=9000, rows_per_second=1500, splits=2)
    env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").sink_to(
        CollectSink(str(tmp_path / "out"))
    ).uid("out")
    graph, code = env.job_graph()
    shared = jvms()  # of the session's own stack, if another test has begun it
    with EmbeddedCluster("spark", Configuration(), workdir=tmp_path / "work") as cluster:
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code)))
        info = job.wait_for(lambda i: i.state == "RUNNING" and i.checkpoints_completed >= 2, WAIT_S)
        pid = info.task_managers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        result = job.wait(WAIT_S)
    assert (result.state, result.restarts) == ("FINISHED", 1)
    assert sorted(read_collected(str(tmp_path / "out"))["n"].to_pylist()) == list(range(9000))
    assert not psutil.pid_exists(pid)
    assert not jvms() - shared
