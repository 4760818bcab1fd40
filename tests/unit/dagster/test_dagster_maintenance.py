"""Who may start a stream while a run works on its table, in a real instance of Dagster."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.

import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import msgspec
import pytest

from tests.eventually import WAIT_S
from tests.unit.dagster.test_dagster_attached import FakeJob
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.client.remote.job_client import JobClient
from unistream.dagster import UnistreamResource, build_drain_and_resume_schedule, sink_asset, unistream_assets
from unistream.dagster.operation.drain_resume import STOPS_TAG
from unistream.dagster.run.maintenance import (
    MAINTAINS_TAG,
    STAGE_TAG,
    STARTING_TAG,
    WORKING,
    GuardedStart,
    Starting,
    await_starts,
    maintains,
)
from unistream.dagster.run.stream import AssetStream, Written

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


ROWS = Starting("rows", {})


def of(name: str, uri: str = "") -> AssetStream:
    return AssetStream(name, (Written(name, "lake", uri),))


def job(name: str, *uris: str) -> Starting:
    return Starting(name, {OperatorUid("lake"): uris} if uris else {})


def run_of(instance: dg.DagsterInstance, status: Status, tags: dict[str, str]) -> dg.DagsterRun:
    return instance.add_run(dg.DagsterRun("job", run_id=None, status=status, tags=tags))


def starting(run: dg.DagsterRun, instance: dg.DagsterInstance) -> list[str]:
    """Values of the run's tags of jobs that it is about to start."""
    known = instance.get_run_by_id(run.run_id)
    assert known is not None
    return [value for tag, value in known.tags.items() if tag.startswith(STARTING_TAG)]


def start(instance: dg.DagsterInstance, job: Starting = ROWS) -> int:
    """Of a run of the stream that has come to its job; how often the job was started."""
    run, started = run_of(instance, Status.STARTED, {}), []

    def begin() -> JobClient:
        started.append(starting(run, instance))
        return FakeJob()

    try:
        GuardedStart(instance, run.run_id, job, begin)()
    finally:
        assert starting(run, instance) == [""], "a drain does not wait for it any more"
    assert all(job.name in value for [value] in started)
    return len(started)


@pytest.mark.parametrize("stage", WORKING)
@pytest.mark.parametrize("status", [Status.NOT_STARTED, Status.STARTING, Status.STARTED, Status.CANCELING])
def test_a_stream_is_not_started_while_a_run_works_on_its_table(
    instance: dg.DagsterInstance, status: Status, stage: str
) -> None:
    """NOT_STARTED: the retry of one whose host has died."""
    run = run_of(instance, status, {STAGE_TAG: stage, **maintains(of("rows"))})
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
    run_of(instance, status, {STAGE_TAG: stage, **maintains(of(name))})
    assert start(instance) == 1


SAME_STREAM = [
    pytest.param(of("rows"), job("rows"), True, id="one name, no tables known"),
    pytest.param(of("rows"), job("other"), False, id="another name"),
    pytest.param(of("rows", "file:///a"), job("rows", "file:///a"), True, id="one table"),
    pytest.param(of("rows", "file:///a"), job("renamed", "file:///a", "file:///b"), True, id="renamed"),
    pytest.param(of("rows", "file:///a"), job("rows", "file:///b"), False, id="one name, other tables"),
    pytest.param(of("rows", "file:///a"), job("rows"), True, id="tables of the job are not known"),
]


@pytest.mark.parametrize(("stream", "job", "is_same"), SAME_STREAM)
def test_a_stream_is_known_by_its_tables(
    instance: dg.DagsterInstance, stream: AssetStream, job: Starting, is_same: bool
) -> None:
    run = run_of(instance, Status.STARTED, {STAGE_TAG: "drained", **maintains(stream)})
    if is_same:
        with pytest.raises(ConfigError, match=f"run {run.run_id} of job has stopped the stream rows"):
            start(instance, job)
    else:
        assert start(instance, job) == 1
    instance.report_run_failed(run)

    refused: list[bool] = []

    def begin() -> JobClient:
        try:
            await_starts(instance, stream, 0)
        except dg.Failure:
            refused.append(True)
        return FakeJob()

    two = run_of(instance, Status.STARTED, {})
    GuardedStart(
        instance,
        two.run_id,
        job,
        GuardedStart(instance, two.run_id, Starting("another step", {}), begin),
    )()
    assert refused == [True] * is_same


def test_a_run_of_an_earlier_version_is_known_by_the_name(instance: dg.DagsterInstance) -> None:
    run_of(instance, Status.STARTED, {STAGE_TAG: "drained", MAINTAINS_TAG: "rows"})
    with pytest.raises(ConfigError, match="has stopped the stream rows"):
        start(instance)
    assert start(instance, Starting("others", {})) == 1


def test_a_drain_waits_for_a_run_that_is_about_to_start_the_stream(kept: dg.DagsterInstance) -> None:
    begun, ends, waited = threading.Event(), threading.Event(), threading.Event()
    run = run_of(kept, Status.STARTED, {})

    def begin() -> JobClient:
        begun.set()
        assert ends.wait(WAIT_S)
        return FakeJob()

    def wait() -> None:
        await_starts(kept, of("rows"), WAIT_S)
        waited.set()

    starting = threading.Thread(target=GuardedStart(kept, run.run_id, ROWS, begin))
    starting.start()
    assert begun.wait(WAIT_S)
    with pytest.raises(dg.Failure, match=f"run {run.run_id} is about to start it for 0 s"):
        await_starts(kept, of("rows"), 0)
    await_starts(kept, of("others"), 0)
    waiting = threading.Thread(target=wait)
    waiting.start()
    ends.set()
    assert waited.wait(WAIT_S)
    for thread in (starting, waiting):
        thread.join(WAIT_S)


def test_a_run_that_has_died_at_its_start_keeps_no_drain(instance: dg.DagsterInstance) -> None:
    run = run_of(instance, Status.STARTED, {f"{STARTING_TAG}.of": msgspec.json.encode(ROWS).decode()})
    with pytest.raises(dg.Failure, match=f"run {run.run_id} is about to start it"):
        await_starts(instance, of("rows"), 0)
    instance.report_run_failed(run)
    await_starts(instance, of("rows"), 0)


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
        tags={STAGE_TAG: "drained", STOPS_TAG: "one"},
        raise_on_error=False,
    )
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert result.success is not fails
    assert run.tags[MAINTAINS_TAG] == "rows"
    [sentence] = refused
    assert f"run {result.run_id} of rows_drain_and_resume has stopped the stream rows" in sentence
    assert start(instance) == 1
