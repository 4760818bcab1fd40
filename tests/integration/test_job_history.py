"""What is known of jobs when their cluster was killed, was started again, or is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import Command, await_info, commands_in
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.connector.datagen import DatagenSource, Sequential
from unistream.metadata.store import SqlMetadataStore
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

CONFIG = {
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "100 ms",
    "parallelism.default": "2",
    "restart-strategy.type": "none",
    "spark.hadoop.fs.password": "hunter2",
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    with commands_in(tmp_path) as start:
        yield start


class Cluster:
    """A session cluster on a folder, and what its pages show."""

    def __init__(self, folder: Path, start: Callable[..., Command], name: str = "work") -> None:
        words = ("cluster", "start", "-t", "local", "--json", "--workdir", str(folder / name))
        self.life = start(*words)
        self.url = json.loads(self.life.line())["url"]

    def kill(self) -> None:
        self.life.family()
        self.life.end(signal.SIGKILL)
        self.life.assert_nothing_is_left()

    def get(self, path: str) -> Any:
        with RestClient(self.url, timeout_s=WAIT_S) as client:
            return json.loads(client.request("GET", path).content)

    def submit(self, request: SubmitRequest) -> JobId:
        with RestClient(self.url, timeout_s=WAIT_S) as client:
            return client.submit(request).job_id

    def until(self, job: JobId, state: str, checkpoints: int = 0) -> None:
        with RestClient(self.url, timeout_s=WAIT_S) as client:
            await_info(client, job, lambda i: i.state == state and i.checkpoints_completed >= checkpoints)

    def cancel(self, job: JobId) -> None:
        with RestClient(self.url, timeout_s=WAIT_S) as client:
            client.client(job).cancel()

    def states(self) -> dict[str, str]:
        return {job["jid"]: job["state"] for job in self.get("/jobs/overview")["jobs"]}

    def pages(self, job: JobId) -> dict[str, Any]:
        """All pages of a job; without the time of the request, and the workers that there are now."""
        paths = [f"/jobs/{job}{page}" for page in ("", "/status", "/exceptions", "/plan", "/checkpoints")]
        paths += [f"/jobs/{job}/checkpoints/config", f"/jobs/{job}/resource-requirements"]
        paths += [f"/unistream/jobs/{job}", f"/unistream/jobs/{job}/checkpoints"]
        found = {path: self.get(path) for path in paths}
        vertices = [vertex["id"] for vertex in found[f"/jobs/{job}"]["vertices"]]
        paths = [f"/jobs/{job}/vertices/{vertex}/subtasks/metrics" for vertex in vertices]
        for checkpoint in found[f"/jobs/{job}/checkpoints"]["history"]:
            details = f"/jobs/{job}/checkpoints/details/{checkpoint['id']}"
            found[details] = self.get(details)
            paths += [f"{details}/subtasks/{vertex}" for vertex in found[details]["tasks"]]
        found |= {path: self.get(path) for path in paths}
        del found[f"/jobs/{job}"]["now"]
        found[f"/unistream/jobs/{job}"]["task_managers"] = []
        return found


def request(name: str, rows: int | None, *, fails: bool = False) -> SubmitRequest:
    env = us.Environment(CONFIG)
    source = DatagenSource(
        {"n": Sequential()}, splits=2, rows=rows, rows_per_second=500, bounded=rows is not None
    )
    numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

    def explode(batch: pa.RecordBatch) -> pa.RecordBatch:
        if fails and batch.num_rows and max(batch["n"].to_pylist()) > 400:
            raise ValueError("no such flight")
        return batch

    numbers.map_batches(explode).uid("checked").sink_to(us.BlackholeSink()).uid("out")
    graph, code = env.job_graph(name)
    return SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG)


def listed(folder: Path, *words: str) -> dict[str, dict[str, Any]]:
    """`unistream list -a` in a terminal of the same user."""
    command = [sys.executable, "-m", "unistream.cli", "list", "-a", "--json", *words]
    environment = {**os.environ, "UNISTREAM_HOME": str(folder / "home")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return {item["job"]["job"]: item for item in json.loads(done.stdout)["jobs"]}


def test_pages_of_ended_jobs_are_the_same_after_their_cluster_was_killed_twice(
    tmp_path: Path, start: Callable[..., Command]
) -> None:
    cluster = Cluster(tmp_path, start)
    jobs = {
        cluster.submit(request("finishes", 600)): "FINISHED",
        cluster.submit(request("fails", None, fails=True)): "FAILED",
        cluster.submit(request("is cancelled", None)): "CANCELED",
    }
    runs = cluster.submit(request("runs", None))
    finishes, fails, cancelled = jobs
    cluster.until(cancelled, "RUNNING", checkpoints=3)
    cluster.cancel(cancelled)
    for job, state in jobs.items():
        cluster.until(job, state)
    cluster.until(runs, "RUNNING", checkpoints=1)
    eventually(
        lambda: not any("incomplete" in cluster.get(f"/jobs/{job}") for job in jobs),
        "they are in the history",
        WAIT_S,
    )
    before = {job: cluster.pages(job) for job in jobs}
    assert "hunter2" not in json.dumps(before)
    [failure] = before[fails][f"/jobs/{fails}/exceptions"]["exceptionHistory"]["entries"]
    assert "no such flight" in failure["stacktrace"]
    assert before[cancelled][f"/jobs/{cancelled}/checkpoints"]["counts"]["completed"] >= 3
    details = before[finishes][f"/jobs/{finishes}"]
    assert details["status-counts"]["FINISHED"] == sum(v["parallelism"] for v in details["vertices"])
    overview = {job["jid"]: job for job in cluster.get("/jobs/overview")["jobs"]}
    for _ in range(2):
        cluster.kill()
        without = listed(tmp_path)
        assert {job: item["job"]["state"] for job, item in without.items()} == {**jobs, runs: "SUSPENDED"}
        assert {item["cluster"] for item in without.values()} == {None}, "it does not run"
        cluster = Cluster(tmp_path, start)
        assert {job: cluster.states()[job] for job in jobs} == jobs
        for job in jobs:
            after = cluster.pages(job)
            assert set(after) == set(before[job])
            for path, page in after.items():
                assert page == before[job][path], path
        again = {job["jid"]: job for job in cluster.get("/jobs/overview")["jobs"]}
        assert {job: again[job] for job in jobs} == {job: overview[job] for job in jobs}
        cluster.until(runs, "RUNNING", checkpoints=1)
        with_it = listed(tmp_path)
        assert with_it[runs]["cluster"] == cluster.url
        assert with_it[runs]["job"]["state"] == "RUNNING"
        assert with_it.keys() == without.keys()
    cluster.kill()


def test_clusters_of_a_user_show_each_others_ended_jobs_and_not_those_that_run(
    tmp_path: Path, start: Callable[..., Command]
) -> None:
    first, second = Cluster(tmp_path, start, "first"), Cluster(tmp_path, start, "second")
    short, long = first.submit(request("short", 100)), first.submit(request("long", None))
    first.until(short, "FINISHED")
    first.until(long, "RUNNING", checkpoints=1)
    eventually(lambda: second.states() == {short: "FINISHED"}, "the second one shows it", WAIT_S)
    assert second.get(f"/jobs/{long}")["state"] == "RUNNING", "its cluster runs"
    assert second.pages(short)[f"/jobs/{short}/plan"] == first.pages(short)[f"/jobs/{short}/plan"]
    assert listed(tmp_path)[long]["cluster"] == first.url
    first.kill()
    eventually(lambda: second.states().get(long) == "SUSPENDED", "its cluster is gone", WAIT_S)
    failure = second.get(f"/unistream/jobs/{long}")["failure"]
    assert failure["message"].startswith("its cluster has ended while it was RUNNING; it goes on with: uni")
    assert f"--workdir {tmp_path / 'first'}" in failure["message"]
    again = Cluster(tmp_path, start, "first")
    again.until(long, "RUNNING", checkpoints=1)
    eventually(lambda: long not in second.states(), "it runs again, elsewhere", WAIT_S)
    again.cancel(long)
    eventually(lambda: second.states().get(long) == "CANCELED", "the second one shows it", WAIT_S)
    for cluster in (again, second):
        assert cluster.life.end(signal.SIGTERM) == 0
    assert {item["job"]["state"] for item in listed(tmp_path).values()} == {"FINISHED", "CANCELED"}
    store = SqlMetadataStore(f"sqlite:///{tmp_path / 'home' / 'metadata.db'}")
    try:
        assert len(store.epochs()) == 3, "each leadership is recorded"
        assert all(cluster.ended_ms is not None for cluster in store.clusters())
        assert len(store.clusters()) == 2
        assert len(store.artifacts.of_job(long)) == 1
    finally:
        store.close()
