"""A run whose pipeline has changed replaces the job that runs, or leaves it, by policy."""

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.session_jobs import procedures, stop
from tests.modes import STREAMING
from tests.unit.dagster.test_dagster_attached import Story, policy
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId
from unistream.client.job import upgrade
from unistream.client.job.upgrade import _Run
from unistream.client.remote.job_client import JobClient
from unistream.client.remote.rest_client import RestClient, RestJobClient
from unistream.dagster import UnistreamResource, unistream_assets
from unistream.dagster.run import attached
from unistream.dagster.run.attached import OnTerminate, run_step
from unistream.dagster.run.policy_tag import POLICY_TAG
from unistream.dagster.run.start import JobStart, OnRunning
from unistream.model.procedures import ProcedureState

CONFIG = STREAMING | {"execution.checkpointing.interval": "300 ms", "restart-strategy.type": "none"}
HOURS_S = 10_000.0
ROWS = pa.schema([("id", pa.int64()), ("version", pa.string())])


class Stamped:
    """Says which version it is; version "broken" fails."""

    def __init__(self, version: str) -> None:
        self.version = version

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.version == "broken":
            raise ValueError("this version is broken")
        return {"id": row["id"], "version": self.version}


def pipeline(env: us.Environment, lake: Path, version: str) -> None:
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=500)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.map(Stamped(version), returns=ROWS).uid("stamped").sink_to(us.DeltaSink(str(lake))).uid("lake")


class Location:
    """A code location whose pipeline changes; one instance."""

    def __init__(self, lake: Path, instance: dg.DagsterInstance) -> None:
        self._lake = lake
        self.instance = instance

    def run(self, version: str, **tags: str) -> tuple[dg.ExecuteInProcessResult, list[str]]:
        """A run of this version, and its log."""

        def build(env: us.Environment) -> None:
            pipeline(env, self._lake, version)

        @unistream_assets(build, name="rows")
        def rows(context: dg.AssetExecutionContext, unistream: UnistreamResource):  # type: ignore[no-untyped-def]
            yield from unistream.run(context, build)

        result = dg.materialize(
            [rows],
            instance=self.instance,
            resources={"unistream": UnistreamResource(target="remote", config=CONFIG)},
            tags={f"unistream/{name}": value for name, value in tags.items()},
            raise_on_error=False,
        )
        failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
        said = [data.user_failure_data.description or "" for data in failures if data.user_failure_data]
        return result, [*(entry.user_message for entry in self.instance.all_logs(result.run_id)), *said]

    def tags(self, result: dg.ExecuteInProcessResult) -> dict[str, str]:
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return dict(run.tags)

    def versions(self) -> list[str]:
        """Of the rows in their order; no row is missing or twice."""
        rows = DeltaTable(str(self._lake)).to_pyarrow_table().sort_by("id").to_pylist()
        assert [row["id"] for row in rows] == list(range(len(rows)))
        return list(dict.fromkeys(row["version"] for row in rows))


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Location(tmp_path / "lake", instance)


def running(session: RestClient) -> list[JobId]:
    return [job.job for job in session.jobs() if job.ended_ms is None]


def test_a_changed_pipeline_replaces_the_job_and_the_same_one_attaches(
    session: RestClient, location: Location
) -> None:
    first, log = location.run("first")
    policy = (
        "resume=latest, on_running=upgrade, mode=detached, on_terminate=stop_with_savepoint, "
        "terminate_timeout_s=120, savepoint_format=canonical"
    )
    assert f"this run: {policy}" in log
    assert location.tags(first)[POLICY_TAG] == policy
    shown = {tag for tag in location.tags(first) if tag.startswith("unistream/")}
    assert shown == {"unistream/job_id"}, "a page of a run shows one tag of ours"
    [old] = running(session)
    same, log = location.run("first")
    assert same.success
    assert any(f"attached to job {old}, which writes the same tables" in line for line in log)
    second, log = location.run("second")
    assert second.success
    [new] = running(session)
    assert new != old
    assert any(f"attached to job {new}, the new version of job {old}" in line for line in log)
    assert location.tags(second)["unistream/job_id"] == new
    broken, log = location.run("broken")
    assert not broken.success
    [back] = running(session)
    assert back not in (old, new)
    assert any("the old one goes on from" in line and f"as job {back}" in line for line in log)
    assert any("this version is broken" in line for line in log)
    again, log = location.run("second")
    assert again.success
    assert running(session) == [back]
    stop(session, back)
    assert location.versions() == ["first", "second"]
    undone, done = procedures(session)
    assert (undone.state, undone.done, undone.job) == (ProcedureState.GIVEN_UP, 3, new)
    assert "this version is broken" in undone.text
    assert (done.state, done.done, done.job) == (ProcedureState.DONE, 4, old)


def test_the_policy_of_a_run_decides(session: RestClient, location: Location) -> None:
    assert location.run("first")[0].success
    [job] = running(session)
    attached, log = location.run("second", on_running="attach")
    assert attached.success
    assert "on_running=attach" in location.tags(attached)[POLICY_TAG]
    assert any(f"attached to job {job}, which writes the same tables" in line for line in log)
    refused, log = location.run("second", on_running="refuse")
    assert not refused.success
    assert any(f"job {job} (rows) is RUNNING and writes the same output" in line for line in log)
    unknown, log = location.run("second", on_running="perhaps")
    assert not unknown.success
    assert any("'perhaps' is not one of upgrade, attach, refuse" in line for line in log)
    assert running(session) == [job]
    stop(session, job)
    assert location.versions() == ["first"]


class Notes:
    def note(self, text: str, *, is_error: bool) -> None:
        """Nobody reads it."""

    def tag(self, tags: Mapping[str, str]) -> None:
        """Nobody reads them."""


class Meets(Notes):
    """A run's log; two runs that are about to submit their jobs wait for each other."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self._barrier = barrier

    def note(self, text: str, *, is_error: bool) -> None:
        if "starts from the beginning" in text:
            self._barrier.wait(WAIT_S)


@pytest.mark.parametrize("on_running", ["upgrade", "refuse"])
def test_of_two_runs_at_once_one_starts_the_job(
    session: RestClient, location: Location, tmp_path: Path, on_running: OnRunning
) -> None:
    """As without a limit of the pool: both have looked, and nobody wrote."""
    barrier = threading.Barrier(2)

    def begun(_: int) -> JobClient | ConfigError:
        env = us.Environment(CONFIG, target="remote")
        pipeline(env, tmp_path / "lake", "first")
        start = JobStart(
            environment=env, target="remote", run=dg.DagsterRun("job"), step="rows", name="rows",
            resume="latest", log=Meets(barrier), on_running=on_running,
        )  # fmt: skip
        try:
            return start()
        except ConfigError as error:
            return error

    with ThreadPoolExecutor(2) as both:
        found = list(both.map(begun, range(2)))
    [job] = running(session)
    assert len(session.jobs()) == 1
    clients = [one for one in found if not isinstance(one, ConfigError)]
    assert {one.job_id for one in clients} == {job}
    assert len(clients) == (2 if on_running == "upgrade" else 1)
    assert all(f"job {job} (rows) is" in str(one) for one in found if isinstance(one, ConfigError))
    for one in clients:
        one.close()
    stop(session, job)


class Terminates:
    """A run's log; the run is terminated when this is said."""

    def __init__(self, text: str) -> None:
        self._text = text

    def note(self, text: str, *, is_error: bool) -> None:
        if self._text in text:
            os.kill(os.getpid(), signal.SIGTERM)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Nobody reads them."""


STOPPING, STARTING = "is stopped with a savepoint, to be replaced", "starts the new version from"


@pytest.mark.parametrize(
    ("when", "on_terminate", "states"),
    [
        pytest.param(STOPPING, "stop_with_savepoint", ["FINISHED"], id="the same stop"),
        pytest.param(STOPPING, "drain", ["FINISHED"], id="another stop, which has to wait"),
        pytest.param(STOPPING, "detach", ["FINISHED", "RUNNING"], id="a job is left, so there has to be one"),
        pytest.param(STARTING, "stop_with_savepoint", ["FINISHED", "FINISHED"], id="the new job is stopped"),
        pytest.param(STARTING, "cancel", ["FINISHED", "CANCELED"], id="the new job is cancelled"),
        pytest.param(STARTING, "detach", ["FINISHED", "RUNNING"], id="the new job is left"),
    ],
)
def test_a_run_that_is_terminated_in_an_upgrade_ends_its_job_by_the_policy(
    session: RestClient,
    location: Location,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    when: str,
    on_terminate: OnTerminate,
    states: list[str],
) -> None:
    """The first checkpoint of the new version would take hours."""
    assert location.run("first")[0].success
    env = us.Environment(CONFIG, target="remote")
    pipeline(env, tmp_path / "lake", "second")
    end, story = policy(on_terminate, timeout_s=60), Story()
    run = dg.DagsterRun("job")
    start = JobStart(
        environment=env, target="remote", run=run, step="rows", name="rows", resume="latest",
        log=Terminates(when), first_checkpoint_s=HOURS_S, giving_up=end.giving_up,
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(upgrade, "PROBATION_S", HOURS_S)
        patched.setattr(attached, "START_GRACE_S", HOURS_S)  # which is not waited for
        with dg.raise_execution_interrupts(), pytest.raises(dg.DagsterExecutionInterruptedError):
            run_step(start, end, story, give_up=start.give_up)
    eventually(lambda: len(session.jobs()) == len(states), f"there are {states}")
    assert _states(session) == states, story
    again = dg.DagsterRun("job", root_run_id=run.run_id, parent_run_id=run.run_id)
    if on_terminate == "detach":
        [left] = running(session)
        RestJobClient(session, left).checkpoint()
        with dataclasses.replace(start, run=again, log=Notes())() as client:
            assert client.job_id == left, "it is the new version, and has a checkpoint"
    else:
        assert location.run("second")[0].success
    [left] = running(session)
    stop(session, left)
    assert location.versions() == ["first", "second"]


def _states(session: RestClient) -> list[str]:
    """Of the jobs, once those that are to end have ended, in the order of their submission."""
    ended = {"FINISHED", "CANCELED"}
    jobs = sorted(session.jobs(), key=lambda job: job.submitted_ms)
    found = []
    for job in jobs:
        client = RestJobClient(session, job.job, accepted=True)
        eventually(lambda client=client: client.status().state in ended | {"RUNNING"}, "it runs or has ended")
        found.append(client.status().state)
    return found


class Killed(BaseException):
    """The process of the run dies here."""


def test_a_retry_goes_on_with_the_upgrade_in_which_its_run_died(
    session: RestClient, location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert location.run("first")[0].success
    [old] = running(session)
    kept = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    env = us.Environment(kept | CONFIG, target="remote")
    pipeline(env, tmp_path / "lake", "broken")

    def start(run: dg.DagsterRun) -> JobStart:
        return JobStart(
            environment=env,
            target="remote",
            run=run,
            step="rows",
            name="rows",
            resume="latest",
            log=Notes(),
        )

    def dies(*_arguments: object) -> None:
        raise Killed

    died = dg.DagsterRun("job")
    with monkeypatch.context() as patched:
        patched.setattr(_Run, "_go_back", dies)
        with pytest.raises(Killed):
            start(died)()
    assert running(session) == [], "the old job is stopped, and the new one has failed"
    retry = dg.DagsterRun(
        "job", root_run_id=died.run_id, parent_run_id=died.run_id, tags={"dagster/retry_number": "1"}
    )
    with pytest.raises(us.UnistreamError, match="the old one goes on from"):
        start(retry)()
    [back] = running(session)
    assert back != old
    stop(session, back)
    assert location.versions() == ["first"]
