"""Who may start a stream while a run works on its table, in a real instance of Dagster."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.

import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.eventually import WAIT_S
from tests.unit.dagster.test_dagster_attached import FakeJob
from unistream.base.errors import ConfigError
from unistream.client.job_client import JobClient
from unistream.dagster import UnistreamResource, build_drain_and_resume_schedule, sink_asset, unistream_assets
from unistream.dagster.drain_resume import DRAINS_TAG
from unistream.dagster.maintenance import MAINTAINS_TAG, STAGE_TAG, STARTING_TAG, GuardedStart, await_starts

Status = dg.DagsterRunStatus


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """On disk, as users have it: in memory, one that reads while another writes fails (`table is locked`)."""
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        yield instance


def run_of(instance: dg.DagsterInstance, status: Status, **tags: str) -> dg.DagsterRun:
    named = {f"unistream/{name}": value for name, value in tags.items()}
    return instance.add_run(dg.DagsterRun("job", run_id=None, status=status, tags=named))


def start(instance: dg.DagsterInstance, name: str = "rows") -> tuple[dg.DagsterRun, list[str]]:
    """A run of the stream that has come to its job, and the job's starts."""
    run, started = run_of(instance, Status.STARTED), []

    def begin() -> JobClient:
        known = instance.get_run_by_id(run.run_id)
        assert known is not None
        started.append(known.tags[STARTING_TAG])
        return FakeJob()

    try:
        GuardedStart(instance, run.run_id, name, begin)()
    finally:
        known = instance.get_run_by_id(run.run_id)
        assert known is not None
        assert known.tags[STARTING_TAG] == "", "a drain does not wait for it any more"
    return run, started


@pytest.mark.parametrize("stage", ["draining", "drained"])
@pytest.mark.parametrize("status", [Status.NOT_STARTED, Status.STARTING, Status.STARTED, Status.CANCELING])
def test_a_stream_is_not_started_while_a_run_works_on_its_table(
    instance: dg.DagsterInstance, status: Status, stage: str
) -> None:
    """NOT_STARTED: the retry of one whose host has died."""
    run = run_of(instance, status, maintains="rows", drain_stage=stage)
    with pytest.raises(ConfigError, match=f"run {run.run_id} of job has stopped the stream rows to work on"):
        start(instance)


@pytest.mark.parametrize(
    ("status", "stage", "name"),
    [
        pytest.param(Status.SUCCESS, "drained", "rows", id="it has ended"),
        pytest.param(Status.FAILURE, "drained", "rows", id="it has failed"),
        pytest.param(Status.CANCELED, "draining", "rows", id="it was terminated"),
        pytest.param(Status.STARTED, "resume", "rows", id="it is done with the table"),
        pytest.param(Status.STARTED, "nothing", "rows", id="the stream goes on already"),
        pytest.param(Status.STARTED, "drained", "others", id="it is of another stream"),
    ],
)
def test_a_stream_is_started(instance: dg.DagsterInstance, status: Status, stage: str, name: str) -> None:
    run_of(instance, status, maintains=name, drain_stage=stage)
    assert start(instance)[1] == ["rows"]


def test_a_drain_waits_for_a_run_that_is_about_to_start_the_stream(kept: dg.DagsterInstance) -> None:
    begun, ends, waited = threading.Event(), threading.Event(), threading.Event()
    run = run_of(kept, Status.STARTED)

    def begin() -> JobClient:
        begun.set()
        assert ends.wait(WAIT_S)
        return FakeJob()

    def wait() -> None:
        await_starts(kept, "rows", WAIT_S)
        waited.set()

    starting = threading.Thread(target=GuardedStart(kept, run.run_id, "rows", begin))
    starting.start()
    assert begun.wait(WAIT_S)
    with pytest.raises(dg.Failure, match=f"run {run.run_id} is about to start it for 0 s"):
        await_starts(kept, "rows", 0)
    await_starts(kept, "others", 0)
    waiting = threading.Thread(target=wait)
    waiting.start()
    ends.set()
    assert waited.wait(WAIT_S)
    for thread in (starting, waiting):
        thread.join(WAIT_S)


def test_a_run_that_has_died_at_its_start_keeps_no_drain(instance: dg.DagsterInstance) -> None:
    run = run_of(instance, Status.STARTED, starting="rows")
    with pytest.raises(dg.Failure, match=f"run {run.run_id} is about to start it"):
        await_starts(instance, "rows", 0)
    instance.report_run_failed(run)
    await_starts(instance, "rows", 0)


@pytest.mark.parametrize("fails", [False, True])
def test_the_step_between_is_guarded_until_it_ends(instance: dg.DagsterInstance, fails: bool) -> None:
    refused: list[str] = []

    @unistream_assets(specs=[sink_asset("table", sink_uid="lake")], name="rows")
    def rows(): ...  # type: ignore[no-untyped-def]

    def between(context: dg.OpExecutionContext) -> None:
        with pytest.raises(ConfigError) as error:
            start(context.instance)
        refused.append(str(error.value))
        if fails:
            raise OSError("no space")

    turn = build_drain_and_resume_schedule(rows, "0 3 * * *", between=between)
    result = turn.schedule.job.execute_in_process(
        instance=instance,
        resources={"unistream": UnistreamResource(target="remote")},
        tags={STAGE_TAG: "drained", DRAINS_TAG: "one"},
        raise_on_error=False,
    )
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert result.success is not fails
    assert run.tags[MAINTAINS_TAG] == "rows"
    [sentence] = refused
    assert f"run {result.run_id} of rows_drain_and_resume has stopped the stream rows" in sentence
    assert start(instance)[1] == ["rows"]
