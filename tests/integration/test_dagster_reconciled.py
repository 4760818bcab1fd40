"""A run whose host has died is reported as failed, and the next one goes on with its job.

Nobody in Dagster notices such a death: the run's process is killed together with its parents.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from tests.eventually import eventually
from tests.integration.crash_runs import OF_MATRIX, commands_in
from tests.integration.dagster_location import WAIT_S, Location, ids, log_of, progressed, the_run
from tests.integration.test_clusters_away import Cluster
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.rest_client import Poll, RestClient
from unistream.dagster import UnistreamResource, build_reconciling_sensor, sink_asset, unistream_assets
from unistream.dagster.run.watching import key_of, watcher_of
from unistream.port.run_links import Watcher

HEARTBEAT_S, SILENT_AFTER_S = 0.3, 2.0
SETTINGS = {"TARGET": "remote", "MODE": "attached", "HEARTBEAT_S": str(HEARTBEAT_S)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


def pause(run: subprocess.Popen[bytes], location: Location) -> None:
    """Not while it writes to a database of Dagster's, which would stay locked for everybody."""
    poll = Poll(WAIT_S)
    while poll.next():
        run.send_signal(signal.SIGSTOP)
        if not any(is_locked(path) for path in walked(Path(location.environment["DAGSTER_HOME"]), "*.db")):
            return
        run.send_signal(signal.SIGCONT)
    raise AssertionError("it writes all the time")


def is_locked(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
    return False


class Ticks:
    """The sensor as Dagster's daemon runs it."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        @unistream_assets(specs=[sink_asset(key, sink_uid=key) for key in ("rows", "windows")])
        def numbers():  # type: ignore[no-untyped-def]
            yield

        self._sensor = build_reconciling_sensor([numbers], silent_after_s=SILENT_AFTER_S)
        self._instance = instance
        self._resource = UnistreamResource(target="remote", heartbeat_interval_s=HEARTBEAT_S)
        self._cursor: str | None = None

    def tick(self) -> str:
        """What it says."""
        with dg.build_sensor_context(
            instance=self._instance, cursor=self._cursor, resources={"unistream": self._resource}
        ) as context:
            result = self._sensor.evaluate_tick(context)
        self._cursor = result.cursor
        return result.skip_message or ""

    def says(self, text: str) -> Callable[[], bool]:
        return lambda: text in self.tick()


def stop(cluster: EmbeddedCluster, job: JobId) -> None:
    with RestClient(cluster.rest_url) as client:
        client.client(job).stop()


def test_a_dead_run_is_reported_and_the_next_one_has_its_job(
    locate: Callable[..., Location], cluster: EmbeddedCluster
) -> None:
    location = locate(**SETTINGS)
    ticks = Ticks(location.instance)
    assert ticks.tick() == "no run of these assets is under way"
    first = location.materialize()
    job = location.await_job(progressed)
    location.await_that("the link", ticks.says("1 runs of these assets are under way"))
    first.send_signal(signal.SIGKILL)
    location.end(first)
    dead = the_run(location)
    assert dead.status == dg.DagsterRunStatus.STARTED, "nobody has noticed"
    location.await_that("the suspicion", ticks.says("has sent no heartbeat for"))
    assert the_run(location).status == dg.DagsterRunStatus.STARTED
    location.await_that("the report", ticks.says(f"run {dead.run_id} is reported as failed"))
    assert the_run(location).status == dg.DagsterRunStatus.FAILURE
    said = f"The process of the run is gone: step numbers, which watched job {job.job}, has sent no heartbeat"
    assert any(said in entry.message for entry in location.instance.all_logs(dead.run_id))
    assert ticks.tick() == "no run of these assets is under way"
    second = location.materialize()
    location.await_that("the attachment", lambda: f"attached to job {job.job}" in location.log())
    location.await_that("its link", ticks.says("1 runs of these assets are under way"))
    stop(cluster, job.job)
    assert location.end(second) == 0
    assert the_run(location).status == dg.DagsterRunStatus.SUCCESS
    assert [one.job for one in cluster.dispatcher.jobs()] == [job.job]
    assert ids(location) == list(range(len(ids(location))))


def test_a_paused_run_that_wakes_up_leaves_the_job_to_the_next_one(
    locate: Callable[..., Location], cluster: EmbeddedCluster
) -> None:
    location = locate(**SETTINGS)
    ticks = Ticks(location.instance)
    first = location.materialize()
    job = location.await_job(progressed)
    location.await_that("the link", lambda: len(cluster.dispatcher.run_links.of_job(job.job)) == 1)
    paused = the_run(location)
    location.await_that("the observations", lambda: len(observations(location, paused)) == 2)
    pause(first, location)
    location.await_that("the report", ticks.says(f"run {paused.run_id} is reported as failed"))
    second = location.materialize()
    location.await_that("the attachment", lambda: f"attached to job {job.job}" in location.log())
    first.send_signal(signal.SIGTERM)  # arrives when it wakes up: it must not end the job of the other run
    first.send_signal(signal.SIGCONT)
    assert first.wait(WAIT_S) != 0
    [only] = cluster.dispatcher.jobs()
    assert (only.job, only.state) == (job.job, "RUNNING")
    assert any("this run leaves the job as it is" in line for line in log_of(location, paused))
    assert second.poll() is None
    stop(cluster, job.job)
    assert location.end(second) == 0
    assert ids(location) == list(range(len(ids(location))))


def test_the_job_of_a_dead_run_that_was_being_terminated_is_stopped(
    locate: Callable[..., Location], cluster: EmbeddedCluster
) -> None:
    location = locate(**SETTINGS)
    ticks = Ticks(location.instance)
    first = location.materialize()
    job = location.await_job(progressed)
    location.await_that("the link", lambda: len(cluster.dispatcher.run_links.of_job(job.job)) == 1)
    first.send_signal(signal.SIGKILL)
    location.end(first)
    dead = the_run(location)
    location.instance.report_run_canceling(dead)
    location.await_that("the report", ticks.says(f"run {dead.run_id} is reported as canceled"))
    assert the_run(location).status == dg.DagsterRunStatus.CANCELED
    ended = cluster.dispatcher.job(job.job)
    assert (ended.state, ended.savepoint is None) == ("FINISHED", False)
    said = f"job {job.job} was stopped with savepoint {ended.savepoint}"
    assert any(said in entry.message for entry in location.instance.all_logs(dead.run_id))
    assert ids(location) == list(range(ended.sinks["raw"].rows))


@pytest.mark.parametrize(("on_terminate", "state"), [("cancel", "CANCELED"), ("detach", "RUNNING")])
def test_it_is_ended_as_the_run_would_have_and_not_as_the_resource_of_the_sensor(
    locate: Callable[..., Location], cluster: EmbeddedCluster, on_terminate: str, state: str
) -> None:
    """The resource of the sensor would stop it with a savepoint."""
    location = locate(ON_TERMINATE=on_terminate, **SETTINGS)
    ticks = Ticks(location.instance)
    first = location.materialize()
    job = location.await_job(progressed)
    location.await_that("the link", lambda: len(cluster.dispatcher.run_links.of_job(job.job)) == 1)
    first.send_signal(signal.SIGKILL)
    location.end(first)
    dead = the_run(location)
    location.instance.report_run_canceling(dead)
    location.await_that("the report", ticks.says(f"run {dead.run_id} is reported as canceled"))
    location.await_that(f"the job is {state}", lambda: cluster.dispatcher.job(job.job).state == state)
    assert cluster.dispatcher.job(job.job).savepoint is None


def test_what_another_run_watches_is_not_stopped(cluster: EmbeddedCluster) -> None:
    """The job is one that the cluster does not know, so it would be said that there is none."""
    links, said = cluster.dispatcher.run_links, list[str]()

    @unistream_assets(specs=[sink_asset(key, sink_uid=key) for key in ("rows", "windows")], name="numbers")
    def numbers(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        run, ticks = context.run, Ticks(context.instance)
        links.attach(key_of(run, "numbers"), JobId("a" * 32), watcher_of(run, "numbers"))
        context.instance.report_run_canceling(run)

        def is_reported() -> bool:
            links.attach("other", JobId("a" * 32), Watcher(root_run="0b1e", run="0b1e", step="numbers"))
            return f"run {run.run_id} is reported as canceled" in ticks.tick()

        eventually(is_reported, "it is reported", WAIT_S, 0.2)
        said.extend(entry.message for entry in context.instance.all_logs(run.run_id))
        yield from (dg.MaterializeResult(asset_key=key) for key in ("rows", "windows"))

    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([numbers], instance=instance)
    assert any(f"and run 0b1e watches job {'a' * 32} now" in line for line in said)


def test_a_cluster_that_is_away_ends_no_run(locate: Callable[..., Location], tmp_path: Path) -> None:
    location = locate(**SETTINGS)
    ticks = Ticks(location.instance)
    with commands_in(tmp_path) as start:
        away = Cluster(start, 0, "--workdir", str(tmp_path / "work"))
        run = location.materialize()
        job = location.await_job(progressed)
        location.await_that("the link", ticks.says("1 runs of these assets are under way"))
        away.kill()
        assert "the heartbeats are not known now" in ticks.tick()
        again = Cluster(
            start, away.port, "--workdir", str(tmp_path / "work")
        )  # takes longer than SILENT_AFTER_S
        location.await_that("the heartbeats", ticks.says("1 runs of these assets are under way"))
        assert the_run(location).status == dg.DagsterRunStatus.STARTED
        location.await_job(progressed)
        with RestClient(again.url) as client:
            client.client(job.job).stop()
        assert run.wait(WAIT_S) == 0, location.log()
    assert the_run(location).status == dg.DagsterRunStatus.SUCCESS
    assert ids(location) == list(range(len(ids(location))))


def observations(location: Location, run: dg.DagsterRun) -> Sequence[dg.EventLogEntry]:
    """Of the assets; the next ones follow 10 s later."""
    return location.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION)


HOST = """
telemetry:
  enabled: false
run_queue:
  dequeue_interval_seconds: 1
run_retries:
  enabled: true
  max_retries: 1
run_monitoring:
  enabled: true
  poll_interval_seconds: 5
  free_slots_after_run_end_seconds: 1
concurrency:
  pools:
    default_limit: 1
    granularity: run
"""


def host_of(daemon: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The daemon, the server of the code location, and the run's process, which is a child of that."""
    process = psutil.Process(daemon.pid)
    return [process, *process.children(recursive=True)]


def kill(processes: list[psutil.Process]) -> None:
    """A host dies with all that runs on it: parents first, so that nobody sees a child's end."""
    for process in processes:
        process.suspend()
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=WAIT_S)


@pytest.mark.slow
@OF_MATRIX
def test_dagster_s_own_retry_goes_on_with_the_job(
    locate: Callable[..., Location], cluster: EmbeddedCluster
) -> None:
    location = locate(**SETTINGS, SILENT_AFTER_S=str(SILENT_AFTER_S))
    Path(location.environment["DAGSTER_HOME"], "dagster.yaml").write_text(HOST)
    daemon = location.start("dagster._daemon", "run", "-m", "dagster_assets")
    location.start("dagster", "job", "launch", "-m", "dagster_assets", "-j", "stream").wait(WAIT_S)
    job = location.await_job(progressed)
    first = the_run(location)
    location.await_that("the link", lambda: len(cluster.dispatcher.run_links.of_job(job.job)) == 1)
    kill(host_of(daemon))
    assert the_run(location).status == dg.DagsterRunStatus.STARTED, "nobody has noticed"
    daemon = location.start("dagster._daemon", "run", "-m", "dagster_assets")
    location.await_that("the attachment", lambda: f"attached to job {job.job}" in attached(location, first))
    retry = the_run(location)
    assert (retry.parent_run_id, retry.tags["dagster/retry_number"]) == (first.run_id, "1")
    known = location.instance.get_run_by_id(first.run_id)
    assert known is not None
    assert known.status == dg.DagsterRunStatus.FAILURE
    stop(cluster, job.job)
    location.await_that("the end", lambda: the_run(location).status == dg.DagsterRunStatus.SUCCESS)
    kill(host_of(daemon))
    assert [one.job for one in cluster.dispatcher.jobs()] == [job.job]
    assert ids(location) == list(range(len(ids(location))))


def attached(location: Location, first: dg.DagsterRun) -> str:
    """The log of the run that repeats `first`."""
    newest = the_run(location)
    return "" if newest.run_id == first.run_id else "\n".join(log_of(location, newest))
