"""Session clusters without a folder of the user's have one by their name, and go on with what is there."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.crash_runs import Command, await_info, commands_in, in_the_gate
from tests.walked import walked
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.connector.collect import read_collected
from unistream.metadata.store import SqlMetadataStore

PIPELINES = """
import time
import unistream as us
from unistream.connector.collect import CollectSink
from unistream.connector.datagen import DatagenSource, Sequential

def numbers(env, rows=None, **more):
    source = DatagenSource(
        {"n": Sequential()}, splits=2, rows=rows, bounded=rows is not None, rows_per_second=1500
    )
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def short(env):
    numbers(env, rows=6000).sink_to(CollectSink("out")).uid("out")

def endless(env):
    numbers(env).sink_to(us.BlackholeSink()).uid("out")

def stuck(env):
    def sleep(batch):
        time.sleep(3600)
        return batch
    numbers(env).map_batches(sleep).uid("sleep").sink_to(us.BlackholeSink()).uid("out")
"""
STREAM = ("-D", "execution.runtime-mode=STREAMING", "-D", "execution.checkpointing.interval=100ms")
Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "session_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def begin(start: Start, *words: str, target: str = "local") -> tuple[Command, dict[str, Any]]:
    """A session cluster, and what it says of itself."""
    cluster = start("cluster", "start", "-t", target, "--json", *words)
    line = cluster.line()
    assert line, cluster.wait() or cluster.err
    return cluster, json.loads(line)


def submit(start: Start, url: str, name: str, *more: str) -> JobId:
    port = url.rpartition(":")[2]
    words = (
        "run",
        f"session_pipelines:{name}",
        "-t",
        "remote",
        "-d",
        "--json",
        "--name",
        name,
        "-p",
        "2",
        *STREAM,
    )
    run = start(*words, "-D", f"rest.port={port}", *more)
    assert run.wait() == 0, run.err
    return JobId(json.loads(run.out)["job"])


def await_checkpoints(url: str, job: JobId, count: int = 2) -> None:
    with RestClient(url) as client:
        await_info(client, job, lambda info: info.checkpoints_completed >= count)


def begin_shutdown(cluster: Command, url: str, number: int) -> None:
    """Returns when it has heard the signal: two that it hears at once are one."""
    cluster.family()
    cluster.process.send_signal(number)
    address = ("127.0.0.1", int(url.rpartition(":")[2]))

    def listens() -> bool:
        with socket.socket() as looking:
            return looking.connect_ex(address) == 0

    eventually(lambda: not listens(), "its REST API is closed")


def await_finished(url: str, job: JobId) -> None:
    with RestClient(url) as client:
        ended = await_info(client, job, lambda info: info.is_terminal)
    assert ended.state == "FINISHED", ended.failure


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "shut down"])
def test_a_cluster_goes_on_with_what_it_finds_in_its_default_folder(
    start: Start, tmp_path: Path, number: int
) -> None:
    first, facts = begin(start)
    assert facts["workdir"] == str(tmp_path / "home" / "sessions" / "default")
    assert facts["jobs_found"] == 0
    job = submit(start, facts["url"], "short")
    await_checkpoints(facts["url"], job)
    first.end(number)
    first.assert_nothing_is_left()
    second, again = begin(start)
    assert (again["workdir"], again["jobs_found"]) == (facts["workdir"], 1)
    await_finished(again["url"], job)
    assert second.end(signal.SIGTERM) == 0
    assert sorted(read_collected(str(tmp_path / "out"))["n"].to_pylist()) == list(range(6000))
    third, nothing = begin(start)
    assert (nothing["workdir"], nothing["jobs_found"]) == (facts["workdir"], 0)
    assert third.end(signal.SIGTERM) == 0


def test_a_further_cluster_without_a_name_has_the_next_free_folder(start: Start, tmp_path: Path) -> None:
    sessions = tmp_path / "home" / "sessions"
    clusters = [begin(start) for _ in range(3)]
    assert [facts["workdir"] for _, facts in clusters] == [
        str(sessions / name) for name in ("default", "default-2", "default-3")
    ]
    job = submit(start, clusters[1][1]["url"], "endless")
    await_checkpoints(clusters[1][1]["url"], job)
    assert clusters[1][0].end(signal.SIGKILL) == -signal.SIGKILL
    again, facts = begin(start)
    assert (facts["workdir"], facts["jobs_found"]) == (str(sessions / "default-2"), 1)
    for cluster in (clusters[0][0], clusters[2][0], again):
        assert cluster.end(signal.SIGTERM) == 0


def test_a_cluster_with_a_name_is_that_one_or_refused(start: Start, tmp_path: Path) -> None:
    named = ("-D", "high-availability.cluster-id=lines")
    first, facts = begin(start, *named)
    assert facts["workdir"] == str(tmp_path / "home" / "sessions" / "lines")
    second = start("cluster", "start", "-t", "local", *named)
    assert second.wait() == 2
    [sentence] = second.err.splitlines()
    assert f"(process {first.process.pid} at {facts['url']})" in sentence
    assert "'unistream cluster stop lines'" in sentence
    assert "under another high-availability.cluster-id" in sentence
    as_default = start("cluster", "start", "-t", "local", "-D", "high-availability.cluster-id=default")
    assert "sessions/default" in as_default.line() + as_default.line()
    refused = start("cluster", "start", "-t", "local", "-D", "high-availability.cluster-id=default")
    assert refused.wait() == 2, "a name that was chosen means that cluster, also if it is the default"
    for cluster in (first, as_default):
        assert cluster.end(signal.SIGTERM) == 0


def test_a_person_reads_where_the_folder_is_and_what_was_found(start: Start, tmp_path: Path) -> None:
    first, facts = begin(start)
    submit(start, facts["url"], "endless")
    assert first.end(signal.SIGTERM) == 0
    second = start("cluster", "start", "-t", "local")
    said = second.line() + second.line() + second.line()
    assert f"its folder is {facts['workdir']}; it goes on with 1 job(s) that it found there" in said
    assert "unistream cluster stop" in said
    assert second.end(signal.SIGTERM) == 0


def test_another_target_goes_on_with_the_jobs_of_the_folder(start: Start, tmp_path: Path) -> None:
    """local, then standalone: a job does not know its target."""
    first, facts = begin(start)
    job = submit(start, facts["url"], "short")
    await_checkpoints(facts["url"], job)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    second, again = begin(start, target="standalone")
    assert (again["workdir"], again["jobs_found"]) == (facts["workdir"], 1)
    worker = start(
        "taskmanager", "start", "--jobmanager", again["jobmanager"], "-D", "taskmanager.numberOfTaskSlots=2"
    )
    await_finished(again["url"], job)
    with RestClient(again["url"]) as client:
        info = client.info(job)
    assert info.target == "standalone"
    assert (info.restarts, {task.attempt for task in info.subtasks}) == (1, {1})
    assert second.end(signal.SIGTERM) == 0
    worker.end(signal.SIGTERM)
    assert sorted(read_collected(str(tmp_path / "out"))["n"].to_pylist()) == list(range(6000))


# --- signals ------------------------------------------------------------------------------------------


def recorded_state(home: Path, job: JobId) -> str:
    store = SqlMetadataStore(f"sqlite:///{home / 'metadata.db'}")
    try:
        record = store.job(job)
    finally:
        store.close()
    assert record is not None
    return record.state


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_second_signal_waits_for_no_task_and_keeps_everything(
    start: Start, tmp_path: Path, number: int, code: int
) -> None:
    """The task ends in an hour, and its cancellation is enforced after minutes."""
    cluster, facts = begin(start)
    job = submit(start, facts["url"], "stuck")
    other = submit(start, facts["url"], "endless")
    await_checkpoints(facts["url"], other)
    with RestClient(facts["url"]) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")
    work = Path(facts["workdir"])
    begin_shutdown(cluster, facts["url"], number)
    assert cluster.process.poll() is None, "it waits for the task"
    assert cluster.end(number) == code
    cluster.assert_nothing_is_left()
    assert "nothing is waited for any more" in cluster.err
    assert recorded_state(tmp_path / "home", job) == "SUSPENDED"
    assert recorded_state(tmp_path / "home", other) == "SUSPENDED"
    assert walked(work / "checkpoints" / other, "_metadata")
    again, found = begin(start)
    assert found["jobs_found"] == 2
    await_checkpoints(found["url"], other)
    assert again.end(signal.SIGKILL) == -signal.SIGKILL


def test_a_run_that_is_interrupted_twice_keeps_its_checkpoints(start: Start, tmp_path: Path) -> None:
    run = start("run", "session_pipelines:endless", "-t", "local", "-p", "2", *STREAM)
    job = JobId(run.line().split()[1])
    [entry] = (tmp_path / "home" / "clusters").glob("*.json")
    await_checkpoints(json.loads(entry.read_text())["url"], job)
    run.family()
    os.kill(run.process.pid, signal.SIGINT)
    code = run.end(signal.SIGINT)
    assert code == 130
    run.assert_nothing_is_left()
    assert f"suspending job {job}; a second Ctrl-C does not wait for its tasks" in run.err
    assert "Traceback" not in run.err
    assert list((tmp_path / "home" / "runs").rglob(f"{job}/chk-*/_metadata"))


@pytest.mark.parametrize("number", in_the_gate([signal.SIGINT, signal.SIGTERM], 0))
def test_an_interrupted_run_goes_on_as_a_session_cluster(start: Start, tmp_path: Path, number: int) -> None:
    run = start("run", "session_pipelines:short", "-t", "local", "-p", "2", *STREAM)
    job = JobId(run.line().split()[1])
    [entry] = (tmp_path / "home" / "clusters").glob("*.json")
    await_checkpoints(json.loads(entry.read_text())["url"], job)
    assert run.end(number) == 130
    [folder] = (tmp_path / "home" / "runs").iterdir()
    cluster, facts = begin(start, "--workdir", str(folder))
    assert facts["jobs_found"] == 1
    await_finished(facts["url"], job)
    assert cluster.end(signal.SIGTERM) == 0
    assert sorted(read_collected(str(tmp_path / "out"))["n"].to_pylist()) == list(range(6000))
