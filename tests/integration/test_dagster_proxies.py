"""A run waits for its job through a proxy that answers for the cluster what makes no sense, as proxies do
while another master takes over: that says nothing of the job, so it ends neither the run nor the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.http_proxy import HttpProxy, Mode
from tests.integration.dagster_location import Location, ids, log_of, progressed, the_run
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine.tokens import token_for
from unistream.client.remote.rest_client import RestClient

ASKED = 5  # a mode lasts until the run has asked for its job this often


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def proxy(cluster: EmbeddedCluster) -> Iterator[HttpProxy]:
    assert cluster.rest_url is not None
    with HttpProxy(cluster.rest_url) as proxy:
        yield proxy


def stop(cluster: EmbeddedCluster, job: JobId) -> None:
    assert cluster.rest_url is not None
    with RestClient(cluster.rest_url) as client:
        client.client(job).stop()


def through(proxy: HttpProxy, **settings: str) -> dict[str, str]:
    """The settings of a location. The proxy's address is none of a cluster of this machine, so the token
    comes from the environment."""
    return {
        "TARGET": "remote",
        "MODE": "attached",
        "JOBMANAGER": proxy.address,
        "UNISTREAM_TOKEN": token_for(proxy.upstream) or "",
        **settings,
    }


def test_answers_that_make_no_sense_end_neither_run_nor_job(
    locate: Callable[..., Location], cluster: EmbeddedCluster, proxy: HttpProxy
) -> None:
    location = locate(**through(proxy))
    child = location.materialize()
    job = location.await_job(progressed)
    location.await_that("the run waits", lambda: the_run(location).tags.get("unistream/job_id"))
    for mode in (mode for mode in Mode if mode is not Mode.OPEN):
        before, rows = proxy.spoiled(f"/jobs/{job.job}"), len(ids(location))
        proxy.mode = mode
        location.await_that(
            f"it asks for its job, and is answered {mode.value}, or ends",
            lambda before=before: (
                child.poll() is not None or proxy.spoiled(f"/jobs/{job.job}") >= before + ASKED
            ),
        )
        assert the_run(location).status == dg.DagsterRunStatus.STARTED, (mode, location.log()[-3000:])
        proxy.mode = Mode.OPEN
        location.await_that("the job goes on", lambda rows=rows: len(ids(location)) > rows)
    stop(cluster, job.job)
    assert location.end(child) == 0, location.log()[-3000:]
    assert the_run(location).status == dg.DagsterRunStatus.SUCCESS
    assert [one.job for one in cluster.dispatcher.jobs()] == [job.job]
    assert ids(location) == list(range(len(ids(location))))


def test_a_run_that_hears_nothing_else_for_too_long_fails_and_leaves_its_job(
    locate: Callable[..., Location], cluster: EmbeddedCluster, proxy: HttpProxy
) -> None:
    location = locate(**through(proxy, CLIENT_TIMEOUT="10 s"))
    child = location.materialize()
    job = location.await_job(progressed)
    location.await_that("the run waits", lambda: the_run(location).tags.get("unistream/job_id"))
    proxy.mode = Mode.FAILS
    assert location.end(child) != 0
    run = the_run(location)
    assert run.status == dg.DagsterRunStatus.FAILURE
    assert any("the next run attaches to it" in line for line in log_of(location, run))
    [why] = _failures(location, run)
    assert "Failure: job numbers: " in why
    assert "status 500" in why
    assert "longer than client.timeout allows" in why
    proxy.mode = Mode.OPEN
    assert [one.state for one in cluster.dispatcher.jobs()] == ["RUNNING"]
    second = location.materialize()
    location.await_that("the attachment", lambda: f"attached to job {job.job}" in location.log())
    stop(cluster, job.job)
    assert location.end(second) == 0
    assert [one.job for one in cluster.dispatcher.jobs()] == [job.job]
    assert ids(location) == list(range(len(ids(location))))


def test_a_cluster_that_makes_no_sense_when_the_run_begins_fails_it_in_one_sentence(
    locate: Callable[..., Location], proxy: HttpProxy
) -> None:
    location = locate(**through(proxy))
    proxy.mode = Mode.DEFECT
    assert location.end(location.materialize()) != 0
    [why] = _failures(location, the_run(location))
    assert "Failure: job numbers: the cluster failed to answer" in why


def _failures(location: Location, run: dg.DagsterRun) -> list[str]:
    """Why steps have failed: the first lines."""
    events = [entry.dagster_event for entry in location.instance.all_logs(run.run_id)]
    errors = [
        event.step_failure_data.error for event in events if event is not None and event.is_step_failure
    ]
    return [error.message for error in errors if error is not None]
