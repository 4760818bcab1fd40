"""A run goes on from what the last one has left, however that ended, and never starts a second writer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

import unistream as us
from tests.integration.dagster_location import (
    ROWS,
    WAIT_S,
    Location,
    ids,
    log_of,
    progressed,
    the_run,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.ids import job_of_request
from unistream.client import home
from unistream.client.embedded import EmbeddedCluster
from unistream.client.job_client import JobClient
from unistream.client.rest_client import RestClient
from unistream.dagster.start import JobStart, request_of
from unistream.master.job_info import JobInfo

pytestmark = pytest.mark.timeout(240)  # up to three processes of Dagster, one after the other


SLOW = "800"  # rows/s: the job outlives the start of a second process


def by_kill(location: Location, child: object, _job: JobInfo) -> None:
    child.send_signal(signal.SIGKILL)  # type: ignore[attr-defined]
    location.end(child)  # type: ignore[arg-type]


def by_stop(location: Location, child: object, job: JobInfo, *, drain: bool = False) -> None:
    [entry] = home.clusters()
    with RestClient(entry.url) as cluster:
        cluster.client(job.job).stop(drain=drain)
    assert location.end(child) == 0  # type: ignore[arg-type]
    assert the_run(location).status == dg.DagsterRunStatus.SUCCESS


def by_drain(location: Location, child: object, job: JobInfo) -> None:
    by_stop(location, child, job, drain=True)


@pytest.mark.parametrize("ends", [by_kill, by_stop, by_drain], ids=lambda ends: ends.__name__)
def test_the_next_run_goes_on(locate: Callable[..., Location], ends: Callable[..., None]) -> None:
    location = locate(ROWS=str(ROWS))
    child = location.materialize()
    job = location.await_job(progressed)
    ends(location, child, job)
    assert 0 < len(ids(location)) < ROWS
    assert location.end(location.materialize()) == 0, location.log()
    second = the_run(location)
    assert second.status == dg.DagsterRunStatus.SUCCESS
    assert any("job numbers starts from " in line and "/" in line for line in log_of(location, second))
    assert ids(location) == list(range(ROWS))
    assert location.end(location.materialize()) != 0
    assert any("on_foreign='append'" in line for line in location.log().splitlines())
    assert ids(location) == list(range(ROWS)), "it has read everything, and writes nothing a second time"


def test_a_second_run_writes_nothing_while_the_first_one_does(locate: Callable[..., Location]) -> None:
    location = locate(ROWS=str(ROWS), RATE=SLOW)
    first = location.materialize()
    job = location.await_job(progressed)
    second = location.materialize()
    assert second.wait(WAIT_S) != 0
    assert f"job {job.job} (numbers) is RUNNING and writes the same output" in location.log()
    assert location.end(first) == 0
    assert ids(location) == list(range(ROWS))


def test_a_run_attaches_to_the_job_that_a_killed_one_has_left(
    locate: Callable[..., Location],
    tmp_path: Path,
) -> None:
    location = locate(ROWS=str(ROWS), RATE=SLOW, TARGET="remote")
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        first = location.materialize()
        job = location.await_job(progressed)
        first.send_signal(signal.SIGKILL)
        location.end(first)
        assert location.end(location.materialize()) == 0, location.log()
        assert [one.job for one in cluster.dispatcher.jobs()] == [job.job]
    run = the_run(location)
    assert run.tags["unistream/job_id"] == job.job
    assert any(f"attached to job {job.job}" in line for line in log_of(location, run))
    assert ids(location) == list(range(ROWS))


class Notes:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str, *, is_error: bool) -> None:
        self.texts.append(text)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


def come_to(lake: Path, run: dg.DagsterRun) -> tuple[JobClient, str]:
    """The job that a run comes to, and how, as its log says it."""
    env, notes = us.Environment(STREAMING, target="remote"), Notes()
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=3_000, rows_per_second=1_000)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.sink_to(us.DeltaSink(str(lake), on_foreign="append")).uid("lake")
    start = JobStart(
        environment=env, target="remote", run=run, step="rows", name="rows", resume="none", log=notes
    )
    return start(), notes.texts[-1]


def repeat_of(run_id: str, **tags: str) -> dg.DagsterRun:
    return dg.DagsterRun("job", root_run_id=run_id, parent_run_id=run_id, tags=tags)


def test_a_run_that_repeats_another_one_submits_nothing_a_second_time(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    first = dg.DagsterRun("job")
    lake, again, retry = tmp_path / "lake", repeat_of(first.run_id), {"dagster/retry_number": "1"}
    job, _ = come_to(lake, first)
    with job:
        for run in (again, repeat_of(first.run_id, **retry)):
            same, how = come_to(lake, run)
            same.close()
            assert (same.job_id, how.split(",")[0]) == (job.job_id, f"attached to job {job.job_id}")
        assert job.result(WAIT_S).state == "FINISHED"
    result, _ = come_to(lake, repeat_of(first.run_id, **retry))
    with result:
        assert result.job_id == job.job_id, "what has finished is not done again by a retry"
    other, how = come_to(lake, again)
    with other:
        assert other.job_id != job.job_id
        assert how == "job rows starts from the beginning of its sources"
        assert other.job_id == job_of_request(request_of(again.run_id, "rows"))
        assert other.result(WAIT_S).state == "FINISHED"
    further, _ = come_to(lake, repeat_of(again.run_id, **retry, **{"unistream/job_id": str(job.job_id)}))
    with further:
        assert further.job_id == other.job_id
    assert len(cluster.dispatcher.jobs()) == 2
