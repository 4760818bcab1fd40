"""`unistream cluster stop`: what happens to the jobs, told once, twice, and with a kill in between."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.crash_runs import Command, await_info, commands_in, manifest_of
from tests.integration.test_cluster_sessions import await_checkpoints, begin, submit
from tests.walked import walked
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.connector.collect import read_collected

PIPELINES = """
import time
import unistream as us
from unistream.connector.collect import CollectSink
from unistream.connector.datagen import DatagenSource, Sequential

def numbers(env, rows=None):
    source = DatagenSource(
        {"n": Sequential()}, splits=2, rows=rows, bounded=rows is not None, rows_per_second=1500
    )
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def endless(env):
    numbers(env).sink_to(us.BlackholeSink()).uid("out")

def collected(env):
    numbers(env).sink_to(CollectSink("out")).uid("out")

def batch(env):
    numbers(env, rows=1_000_000).sink_to(us.BlackholeSink()).uid("out")

def sleeps(env, seconds):
    def sleep(batch):
        time.sleep(seconds)
        return batch
    numbers(env).map_batches(sleep).uid("sleep").sink_to(us.BlackholeSink()).uid("out")

def stuck(env):
    sleeps(env, 3600)

def slow(env):
    sleeps(env, 4)
"""
Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "session_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def stop(start: Start, *words: str) -> tuple[int, dict[str, Any]]:
    """What `cluster stop --json` says."""
    command = start("cluster", "stop", "--json", *words)
    code = command.wait()
    return code, json.loads(command.out) if command.out else {"error": command.err}


def await_running(url: str, job: JobId) -> None:
    with RestClient(url) as client:
        await_info(client, job, lambda info: info.state == "RUNNING")


def state_of(url: str, job: JobId) -> str:
    with RestClient(url) as client:
        return client.info(job).state


def has_snapshot(path: str) -> bool:
    return Path(path.removeprefix("file://"), "_metadata").is_file()


def test_it_suspends_the_jobs_and_says_so_when_told_again(start: Start, tmp_path: Path) -> None:
    cluster, facts = begin(start)
    job = submit(start, facts["url"], "endless")
    await_checkpoints(facts["url"], job)
    code, said = stop(start)
    assert (code, said["ended"], said["jobs"]) == (0, True, [])
    assert cluster.wait() == 0
    cluster.assert_nothing_is_left()
    for words, why in (
        ((), "no session cluster runs here"),
        (("default",), "the cluster 'default' does not run"),
    ):
        again = start("cluster", "stop", *words)
        assert again.wait() == 0, "nothing is to be done"
        assert why in again.out
    unknown = start("cluster", "stop", "nothere")
    assert unknown.wait() == 2
    assert "there is no cluster 'nothere' here" in unknown.err
    second, found = begin(start)
    assert found["jobs_found"] == 1
    await_checkpoints(found["url"], job)
    assert second.end(signal.SIGKILL) == -signal.SIGKILL


def test_all_jobs_are_stopped_with_savepoints_first(start: Start, tmp_path: Path) -> None:
    cluster, facts = begin(start)
    jobs = [submit(start, facts["url"], name) for name in ("endless", "collected", "endless")]
    for job in jobs:
        await_checkpoints(facts["url"], job)
    code, said = stop(start, facts["cluster"][:8], "--savepoint", "-p", "kept")
    assert (code, said["ended"]) == (0, True), said
    assert cluster.wait() == 0
    assert {one["job"]: one["state"] for one in said["jobs"]} == dict.fromkeys(jobs, "FINISHED")
    for one in said["jobs"]:
        assert one["savepoint"].removeprefix("file://").startswith(str(tmp_path / "kept"))
        assert (one["resumable"], one["error"]) == (one["savepoint"], None)
        assert has_snapshot(one["savepoint"])
    found = sorted(read_collected(str(tmp_path / "out"))["n"].to_pylist())
    for split in (0, 1):
        rows = [n for n in found if n % 2 == split]
        assert rows == list(range(split, 2 * len(rows), 2)), "what the savepoint covers is visible"


def test_a_drain_names_the_savepoint_to_resume_from(start: Start, tmp_path: Path) -> None:
    cluster, facts = begin(start)
    job = submit(start, facts["url"], "collected")
    await_checkpoints(facts["url"], job)
    code, said = stop(start, "-m", facts["url"], "--savepoint", "--drain")
    assert (code, said["ended"]) == (0, True), said
    assert cluster.wait() == 0
    [one] = said["jobs"]
    assert one["savepoint"] != one["resumable"]
    assert manifest_of(one["savepoint"]).resumable is not None
    assert manifest_of(one["resumable"]).resumable is None


def test_all_jobs_are_cancelled_first(start: Start, tmp_path: Path) -> None:
    cluster, facts = begin(start)
    stream, batch = submit(start, facts["url"], "endless"), submit_batch(start, facts["url"])
    await_checkpoints(facts["url"], stream)
    code, said = stop(start, "default", "--cancel")
    assert (code, said["ended"]) == (0, True), said
    assert {one["job"]: one["state"] for one in said["jobs"]} == dict.fromkeys((stream, batch), "CANCELED")
    assert cluster.wait() == 0
    second, found = begin(start)
    assert found["jobs_found"] == 0
    assert second.end(signal.SIGTERM) == 0


def submit_batch(start: Start, url: str) -> JobId:
    words = ("run", "session_pipelines:batch", "-t", "remote", "-d", "--json", "--name", "batch")
    run = start(*words, "-D", f"rest.port={url.rpartition(':')[2]}")
    assert run.wait() == 0, run.err
    return JobId(json.loads(run.out)["job"])


def test_a_batch_job_has_no_savepoint_so_nothing_is_stopped(start: Start, tmp_path: Path) -> None:
    cluster, facts = begin(start)
    stream, batch = submit(start, facts["url"], "endless"), submit_batch(start, facts["url"])
    await_running(facts["url"], stream)
    refused = start("cluster", "stop", "--savepoint")
    assert refused.wait() == 2
    [sentence] = refused.err.splitlines()
    assert f"job 'batch' ({batch}) is a BATCH job, which takes no savepoint; nothing was stopped" in sentence
    assert state_of(facts["url"], stream) == "RUNNING"
    submit(start, facts["url"], "endless")
    assert stop(start)[0] == 0
    assert cluster.wait() == 0


def test_a_job_that_cannot_be_stopped_keeps_the_cluster(start: Start, tmp_path: Path) -> None:
    cluster, facts = begin(start)
    good = submit(start, facts["url"], "endless")
    bad = submit(start, facts["url"], "stuck", "-D", "task.cancellation.timeout=1s")
    await_checkpoints(facts["url"], good)
    await_running(facts["url"], bad)
    failing = start("cluster", "stop", "--savepoint", "--timeout", "8 s")
    with RestClient(facts["url"]) as client:
        await_info(client, good, lambda info: info.is_terminal)
    late = start("run", "session_pipelines:endless", "-t", "remote", "-d")
    assert late.wait() == 2, "no jobs are accepted meanwhile"
    assert "is being stopped and takes no jobs now" in late.err
    assert failing.wait() == 1
    assert f"job stuck ({bad}) was not stopped: it has not ended within 8 s" in failing.out
    assert f"job endless ({good}) was stopped: " in failing.out
    assert f"was not ended, and accepts jobs again: 'stuck' ({bad[:8]})" in failing.err
    third = submit(start, facts["url"], "endless")
    await_checkpoints(facts["url"], third)
    with RestClient(facts["url"]) as client:
        client.client(bad).cancel()
        await_info(client, bad, lambda info: info.state == "CANCELED")
    code, said = stop(start, "--savepoint")
    assert (code, said["ended"]) == (0, True), said
    assert [one["job"] for one in said["jobs"]] == [third]
    assert [one["job"] for one in said["before"]] == [good], "told twice: what was stopped before is named"
    assert cluster.wait() == 0


@pytest.mark.parametrize("who", ["client", "cluster"])
def test_the_same_command_goes_on_where_it_was_killed(start: Start, tmp_path: Path, who: str) -> None:
    cluster, facts = begin(start)
    quick, slow = submit(start, facts["url"], "endless"), submit(start, facts["url"], "slow")
    await_checkpoints(facts["url"], quick)
    await_running(facts["url"], slow)
    killed = start("cluster", "stop", "--savepoint", "-p", "kept")
    with RestClient(facts["url"]) as client:
        await_info(client, quick, lambda info: info.is_terminal)
    request = Path(facts["workdir"]) / "ha" / "values" / "jobs" / slow / "request"
    eventually(request.exists, "the stop of the slow one was accepted")
    if who == "client":
        killed.process.kill()
        assert killed.wait() == -signal.SIGKILL
    else:
        assert cluster.end(signal.SIGKILL) == -signal.SIGKILL
        assert killed.wait() == 3, killed.err
        assert "has ended meanwhile; what it had begun goes on when it is started again" in killed.err
        cluster, facts = begin(start)
        assert facts["jobs_found"] == 1
    code, said = stop(start, "--savepoint", "-p", "kept")
    assert (code, said["ended"]) == (0, True), said
    assert cluster.wait() == 0
    known = {one["job"]: one for one in (*said["jobs"], *said["before"])}
    assert known[slow]["state"] == "FINISHED"
    assert has_snapshot(known[slow]["savepoint"])
    if who == "client":
        assert has_snapshot(known[quick]["savepoint"])
    kept = [manifest_of(path.parent).job for path in walked(tmp_path / "kept", "_metadata")]
    assert sorted(kept) == sorted([quick, slow]), "each was stopped once"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--cancel", "--savepoint"), "--cancel and --savepoint: choose one of them"),
        (("--drain",), "--drain is for --savepoint: give that, too"),
        (("-p", "here"), "--target is for --savepoint: give that, too"),
        (("one", "-m", "http://127.0.0.1:1"), "give CLUSTER or -m, not both"),
        (("--timeout", "soon"), "'soon' is not a duration"),
    ],
)
def test_what_does_not_go_together_is_refused(start: Start, words: tuple[str, ...], sentence: str) -> None:
    command = start("cluster", "stop", *words)
    assert command.wait() == 2
    assert sentence in command.err


def test_several_clusters_are_told_apart(start: Start, tmp_path: Path) -> None:
    first, _ = begin(start)
    second, facts = begin(start, "-D", "high-availability.cluster-id=lines")
    ambiguous = start("cluster", "stop")
    assert ambiguous.wait() == 2
    assert f"{facts['cluster'][:8]} at {facts['url']} (local); name one of them" in ambiguous.err
    assert stop(start, "lines")[0] == 0
    assert second.wait() == 0
    assert first.process.poll() is None
    assert stop(start)[0] == 0
    assert first.wait() == 0
