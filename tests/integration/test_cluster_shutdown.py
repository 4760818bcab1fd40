"""A cluster that is shut down suspends its jobs: their checkpoints stay, and each says how it goes on."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.crash_runs import Command, await_info, commands_in, entry_of, job_of
from tests.walked import walked
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.connector.collect import read_collected
from unistream.metadata.store import SqlMetadataStore

PIPELINES = """
import sys
import unistream as us
from unistream.connector.collect import CollectSink
from unistream.connector.datagen import DatagenSource, Sequential

ROWS = 15_000

def slow(env):
    source = DatagenSource({"n": Sequential()}, splits=2, rows=ROWS, rows_per_second=1500)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    rows.sink_to(CollectSink("out")).uid("out")

if __name__ == "__main__":
    stream = {"execution.runtime-mode": "STREAMING", "execution.checkpointing.interval": "100 ms"}
    env = us.Environment(stream, target="local")
    slow(env)
    with env.execute_async("slow") as job:
        print("job", job.job_id, flush=True)
        job.result()
"""
INTERVAL = ("-D", "execution.runtime-mode=STREAMING", "-D", "execution.checkpointing.interval=100ms")
SLOW = ("run", "shutdown_pipelines:slow", "-p", "2", *INTERVAL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    (tmp_path / "shutdown_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def await_checkpoints(url: str, job: JobId) -> None:
    with RestClient(url) as client:
        await_info(client, job, lambda info: info.checkpoints_completed >= 2)


def named_checkpoint(reported: str, job: JobId) -> Path:
    """The one checkpoint that is said to be where `job` goes on."""
    [line] = [line for line in reported.splitlines() if job in line and "suspended" in line]
    found = re.search(r" -s (\S+/chk-\d+)", line)
    assert found is not None, line
    directory = Path(found[1].removeprefix("file://"))
    assert (directory / "_metadata").is_file(), f"{directory} is gone"
    return directory


def assert_goes_on(start: Callable[..., Command], tmp_path: Path, checkpoint: Path) -> None:
    second = start(*SLOW, "-t", "local", "-s", str(checkpoint))
    assert second.wait() == 0, second.err
    assert sorted(read_collected(str(tmp_path / "out"))["n"].to_pylist()) == list(range(15_000))


@pytest.mark.parametrize("signals", [1, 2], ids=["SIGTERM", "SIGTERM twice"])
def test_a_cluster_that_ends_keeps_the_checkpoints_of_its_jobs(
    start: Callable[..., Command], tmp_path: Path, signals: int
) -> None:
    cluster = start("cluster", "start", "-t", "local", "--json", "--workdir", str(tmp_path / "work"))
    url = json.loads(cluster.line())["url"]
    run = start(*SLOW, "-t", "remote", "--detached", "--json")
    assert run.wait() == 0, run.err
    job = JobId(json.loads(run.out)["job"])
    await_checkpoints(url, job)
    for _ in range(signals - 1):
        cluster.process.send_signal(signal.SIGTERM)
    code = cluster.end(signal.SIGTERM)
    second_was_in_time = "a second signal" in cluster.err
    assert code == (143 if second_was_in_time else 0)
    assert signals == 2 or not second_was_in_time
    cluster.assert_nothing_is_left()
    checkpoint = named_checkpoint(cluster.err, job)
    store = SqlMetadataStore(f"sqlite:///{tmp_path / 'home' / 'metadata.db'}")
    record = store.job(job)
    reported = [one.message for one in store.exceptions(job) if one.kind == "JobSuspended"]
    store.close()
    assert record is not None
    assert (record.state, record.ended_ms is not None) == ("SUSPENDED", True)
    assert len(reported) == 1
    assert str(checkpoint) in reported[0]
    assert_goes_on(start, tmp_path, checkpoint)


def test_a_killed_shutdown_has_deleted_nothing(start: Callable[..., Command], tmp_path: Path) -> None:
    cluster = start("cluster", "start", "-t", "local", "--json", "--workdir", str(tmp_path / "work"))
    url = json.loads(cluster.line())["url"]
    run = start(*SLOW, "-t", "remote", "--detached", "--json")
    assert run.wait() == 0, run.err
    job = JobId(json.loads(run.out)["job"])
    await_checkpoints(url, job)
    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.end(signal.SIGKILL) in (-signal.SIGKILL, 0)
    assert walked(tmp_path / "work" / "checkpoints", "_metadata")


def test_a_run_that_is_terminated_keeps_its_checkpoints(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    run = start(*SLOW, "-t", "local")
    job = job_of(run.line())
    await_checkpoints(entry_of(tmp_path)["url"], job)
    assert run.end(signal.SIGTERM) == 130
    run.assert_nothing_is_left()
    assert_goes_on(start, tmp_path, named_checkpoint(run.err, job))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_script_that_is_ended_keeps_the_checkpoints_of_its_job(
    start: Callable[..., Command], tmp_path: Path, number: int
) -> None:
    script = start(program=("shutdown_pipelines.py",))
    job = job_of(script.line())
    await_checkpoints(entry_of(tmp_path)["url"], job)
    assert script.end(number) != 0
    script.assert_nothing_is_left()
    if number == signal.SIGINT:
        checkpoint = named_checkpoint(script.err, job)
    else:  # nobody was asked: the process was gone at once
        manifests = (tmp_path / "home" / "runs").rglob(f"{job}/chk-*/_metadata")
        checkpoint = max(manifests, key=lambda path: path.stat().st_mtime).parent
    assert_goes_on(start, tmp_path, checkpoint)
