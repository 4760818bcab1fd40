"""Commands next to real clusters that are stopped by SIGSTOP, killed, and started again on the same port."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.crash_runs import WAIT_S, Command, await_info, commands_in, job_of
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient

PIPELINES = """
import unistream as us
from unistream.connector.datagen import DatagenSource, Sequential

def stream(env, **options):
    source = DatagenSource({"n": Sequential()}, **options)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def endless(env):
    stream(env, rows=None, bounded=False, rows_per_second=100).sink_to(us.BlackholeSink()).uid("out")

def short(env):
    stream(env, rows=1000, rows_per_second=250).sink_to(us.BlackholeSink()).uid("out")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    (tmp_path / "away_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


class Cluster:
    """A session cluster on a port of its own, in a process of its own."""

    def __init__(self, start: Callable[..., Command], port: int = 0, *words: str) -> None:
        self.command = start("cluster", "start", "-t", "local", "--json", "-D", f"rest.port={port}", *words)
        self.url = json.loads(self.command.line())["url"]
        self.port = int(self.url.rpartition(":")[2])

    def signal(self, number: int) -> None:
        os.kill(self.command.process.pid, number)

    def kill(self) -> None:
        self.command.end(signal.SIGKILL)
        for child in self.command.family():
            if child.is_running():
                child.kill()


def submit(start: Callable[..., Command], cluster: Cluster, function: str) -> JobId:
    words = ("run", f"away_pipelines:{function}", "-t", "remote", "--detached", "--json")
    run = start(*words, "-D", f"rest.port={cluster.port}", "-D", "execution.runtime-mode=STREAMING")
    assert run.wait() == 0, run.err
    return JobId(json.loads(run.out)["job"])


def ended(start: Callable[..., Command], code: int, *words: str) -> Command:
    command = start(*words)
    assert command.wait() == code, command.err
    return command


def test_a_stopped_cluster_hides_no_job_of_another_one(start: Callable[..., Command]) -> None:
    well, hung = Cluster(start), Cluster(start)
    job, away = submit(start, well, "endless"), submit(start, hung, "endless")
    hung.signal(signal.SIGSTOP)
    try:
        listed = ended(start, 0, "list")
        assert job in listed.out
        assert away not in listed.out
        (line,) = listed.err.splitlines()
        assert line.startswith(f"the cluster at {hung.url} does not answer: no answer within 3 s")
        assert line.endswith("; its jobs are not listed")
        shown = json.loads(ended(start, 0, "list", "--json").out)
        assert [found["job"]["job"] for found in shown["jobs"]] == [job]
        assert [silent["cluster"] for silent in shown["unanswered"]] == [hung.url]
        lost = ended(start, 2, "info", away)
        assert f"there is no job '{away}' here" in lost.err
        assert f"the cluster at {hung.url} does not answer" in lost.err
        assert lost.err.rstrip().endswith("so the job may be there")
        ended(start, 0, "cancel", job)
    finally:
        hung.signal(signal.SIGCONT)
    shown = json.loads(ended(start, 0, "list", "--json").out)
    assert away in [found["job"]["job"] for found in shown["jobs"]]
    assert shown["unanswered"] == []


def test_a_cluster_that_is_alone_and_stopped_ends_every_command(start: Callable[..., Command]) -> None:
    cluster = Cluster(start)
    job = submit(start, cluster, "endless")
    cluster.signal(signal.SIGSTOP)
    try:
        listed = ended(start, 3, "list")
        assert f"error: the cluster at {cluster.url} does not answer" in listed.err
        words = ("-D", "client.timeout=2 s", "-D", f"rest.port={cluster.port}")
        for command in ("info", "cancel", "stop", "savepoint"):
            assert len(ended(start, 3, command, job, *words).err.splitlines()) == 1
    finally:
        cluster.signal(signal.SIGCONT)


def test_a_run_survives_a_cluster_that_is_stopped_for_a_while(start: Callable[..., Command]) -> None:
    cluster = Cluster(start)
    words = ("-t", "remote", "-D", f"rest.port={cluster.port}", "-D", "execution.runtime-mode=STREAMING")
    run = start("run", "away_pipelines:short", *words)
    job = job_of(run.line())
    with RestClient(cluster.url) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")
    cluster.signal(signal.SIGSTOP)
    goes_on = threading.Timer(8.0, lambda: cluster.signal(signal.SIGCONT))  # longer than one short wait
    goes_on.start()
    assert run.wait() == 0, run.err
    goes_on.join()
    assert f"job {job} FINISHED" in run.out


def test_a_run_whose_cluster_was_killed_and_replaced_by_another_ends_with_a_sentence(
    start: Callable[..., Command],
) -> None:
    first = Cluster(start)
    words = ("-t", "remote", "-D", f"rest.port={first.port}", "-D", "client.timeout=40 s")
    run = start("run", "away_pipelines:endless", *words, "-D", "execution.runtime-mode=STREAMING")
    job = job_of(run.line())
    with RestClient(first.url) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")
    first.kill()
    second = Cluster(start, first.port, "--workdir", "elsewhere")
    assert second.url == first.url
    assert run.wait() == 3, run.err
    assert run.err.startswith(
        f"error: how job {job} ends is not known: the cluster at {first.url} has started"
    )
    assert len(run.err.splitlines()) == 1


def test_a_run_whose_cluster_was_killed_for_good_ends_after_the_limit(start: Callable[..., Command]) -> None:
    cluster = Cluster(start)
    words = ("-t", "remote", "-D", f"rest.port={cluster.port}", "-D", "client.timeout=2 s")
    run = start("run", "away_pipelines:endless", *words, "-D", "execution.runtime-mode=STREAMING")
    job_of(run.line())
    cluster.kill()
    assert run.wait() == 3, run.err
    assert f"error: the cluster at {cluster.url} does not answer" in run.err
    assert "client.timeout" in run.err or "start it" in run.err


def test_a_submission_survives_a_restart_of_the_cluster(
    start: Callable[..., Command],
) -> None:
    """What listens first dies with the submission; the cluster behind it gets the same one."""
    with socket.create_server(("127.0.0.1", 0)) as dying:
        port = dying.getsockname()[1]
        run = start(
            *("run", "away_pipelines:endless", "-t", "remote", "--detached", "--json"),
            *("--request-id", "nightly", "-D", f"rest.port={port}", "-D", "execution.runtime-mode=STREAMING"),
        )
        dying.settimeout(WAIT_S)
        connection, _ = dying.accept()
        connection.recv(1_000)
    connection.close()
    cluster = Cluster(start, port)
    assert run.wait() == 0, run.err
    with RestClient(cluster.url) as client:
        assert [job.job for job in client.jobs()] == [json.loads(run.out)["job"]]
