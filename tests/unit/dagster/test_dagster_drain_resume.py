"""What a run that drains a stream does next, and when the stream is started again."""

from pathlib import Path

import dagster as dg
import pytest

from unistream.base.ids import CheckpointId, JobId, LineageId
from unistream.dagster import UnistreamResource, build_drain_and_resume_schedule, sink_asset, unistream_assets
from unistream.dagster.operation.drain_resume import (
    STAGE_TAG,
    STOP,
    STOPS_TAG,
    DrainStage,
    DrainStep,
    NewestJob,
    next_step,
    stage_of,
)
from unistream.dagster.run.savepoints import ended_by
from unistream.model.job_info import CheckpointInfo, JobInfo
from unistream.model.snapshot_kind import SnapshotKind

RUNS = NewestJob("one", "RUNNING", runs=True, was_stopped=False)
RESTARTS = NewestJob("one", "RESTARTING", runs=True, was_stopped=False)
DRAINED = NewestJob("one", "FINISHED", runs=False, was_stopped=True)
FAILED = NewestJob("one", "FAILED", runs=False, was_stopped=False)
BOUNDED = NewestJob("one", "FINISHED", runs=False, was_stopped=False)
NEXT = NewestJob("two", "RUNNING", runs=True, was_stopped=False)


@pytest.mark.parametrize(
    ("stage", "drains", "found", "step"),
    [
        pytest.param(DrainStage.NEW, "", RUNS, DrainStep.STOP, id="it runs"),
        pytest.param(DrainStage.NEW, "", RESTARTS, DrainStep.STOP, id="it restarts"),
        pytest.param(
            DrainStage.NEW, "", DRAINED, DrainStep.BETWEEN, id="an earlier run has died after the drain"
        ),
        pytest.param(DrainStage.NEW, "", FAILED, DrainStep.NOTHING, id="it has failed"),
        pytest.param(DrainStage.NEW, "", BOUNDED, DrainStep.NOTHING, id="it has read everything"),
        pytest.param(DrainStage.NEW, "", None, DrainStep.NOTHING, id="there is none"),
        pytest.param(DrainStage.NOTHING, "", RUNS, DrainStep.STOP, id="repeats one that has found none"),
        pytest.param(DrainStage.STOPPING, "one", RUNS, DrainStep.STOP, id="died before the drain"),
        pytest.param(DrainStage.STOPPING, "one", DRAINED, DrainStep.BETWEEN, id="died in the drain"),
        pytest.param(
            DrainStage.STOPPING, "one", NEXT, DrainStep.NOTHING, id="drained, and resumed by another"
        ),
        pytest.param(DrainStage.STOPPING, "one", FAILED, DrainStep.FAIL, id="failed in the drain"),
        pytest.param(DrainStage.STOPPING, "one", None, DrainStep.FAIL, id="nobody knows how it has ended"),
        pytest.param(DrainStage.STOPPED, "one", DRAINED, DrainStep.BETWEEN, id="died in the step between"),
        pytest.param(DrainStage.STOPPED, "one", None, DrainStep.BETWEEN, id="and the cluster is gone"),
        pytest.param(
            DrainStage.STOPPED, "one", NEXT, DrainStep.NOTHING, id="resumed before the step between"
        ),
        pytest.param(DrainStage.RESUME, "one", DRAINED, DrainStep.RESUME, id="died after the step between"),
        pytest.param(DrainStage.RESUME, "one", None, DrainStep.RESUME, id="without a cluster"),
        pytest.param(DrainStage.RESUME, "one", NEXT, DrainStep.NOTHING, id="resumed"),
    ],
)
def test_the_next_step(stage: DrainStage, drains: str, found: NewestJob | None, step: DrainStep) -> None:
    assert next_step(stage, drains, found)[0] is step
    assert "drain" not in next_step(stage, drains, found, STOP)[1], "a stream that is stopped is not drained"


@pytest.mark.parametrize(
    ("tags", "stage"),
    [
        ({}, DrainStage.NEW),
        ({"unistream/stage": "stopped"}, DrainStage.STOPPED),
        ({"unistream/stage": "draining"}, DrainStage.STOPPING),
        ({"unistream/drain_stage": "drained"}, DrainStage.STOPPED),
        ({"unistream/drain_stage": "resume"}, DrainStage.RESUME),
    ],
    ids=str,
)
def test_how_far_a_run_is_also_one_of_an_earlier_version(tags: dict[str, str], stage: DrainStage) -> None:
    assert stage_of(tags) is stage


@pytest.mark.parametrize(
    ("savepoints", "kind"),
    [
        ([], None),
        ([("checkpoint", "completed")], None),
        ([("suspend", "completed"), ("terminate", "completed")], "terminate"),
        ([("terminate", "failed")], None),
        ([("terminate", "completed"), ("checkpoint", "completed")], "terminate"),
        ([("savepoint", "completed"), ("suspend", "failed")], "savepoint"),
    ],
)
def test_how_a_job_has_ended(savepoints: list[tuple[str, str]], kind: str | None) -> None:
    taken = tuple(
        CheckpointInfo(checkpoint_id=CheckpointId(number), kind=SnapshotKind(of), state=state, triggered_ms=0)
        for number, (of, state) in enumerate(savepoints, 1)
    )
    info = JobInfo(
        job=JobId("a" * 32),
        name="rows",
        lineage=LineageId("l"),
        state="FINISHED",
        target="local",
        submitted_ms=0,
        checkpoints=taken,
    )
    assert ended_by(info) is (None if kind is None else SnapshotKind(kind))


def rows_asset() -> dg.AssetsDefinition:
    @unistream_assets(specs=[sink_asset("rows", sink_uid="lake")], name="rows")
    def rows(): ...  # type: ignore[no-untyped-def]

    return rows


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("tags", "called", "end"),
    [
        pytest.param({}, 0, "nothing", id="there is no stream"),
        pytest.param({STAGE_TAG: "drained", STOPS_TAG: "one"}, 1, "resume", id="drained by the repeated run"),
        pytest.param({STAGE_TAG: "resume", STOPS_TAG: "one"}, 0, "resume", id="only the stream is to go on"),
    ],
)
def test_a_run_goes_on_where_the_repeated_one_was(tags: dict[str, str], called: int, end: str) -> None:
    calls: list[str] = []
    turn = build_drain_and_resume_schedule(
        rows_asset(), "0 3 * * *", between=lambda context: calls.append(context.run_id)
    )
    resources = {"unistream": UnistreamResource(target="remote")}
    with dg.DagsterInstance.ephemeral() as instance:
        result = turn.schedule.job.execute_in_process(instance=instance, resources=resources, tags=tags)
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags[STAGE_TAG] == end
        requested = requested_after(turn.sensor, result, instance)
    assert len(calls) == called
    if end == "nothing":
        assert isinstance(requested, dg.SkipReason)
    else:
        assert isinstance(requested, dg.RunRequest)
        assert (requested.run_key, requested.tags["unistream/resume"]) == (run.run_id, "latest")


def test_a_step_between_that_fails_leaves_the_stream_drained() -> None:
    def fails(_: dg.OpExecutionContext) -> None:
        raise OSError("no space")

    turn = build_drain_and_resume_schedule(rows_asset(), "0 3 * * *", between=fails)
    tags = {STAGE_TAG: "drained", STOPS_TAG: "one"}
    resources = {"unistream": UnistreamResource(target="remote")}
    with dg.DagsterInstance.ephemeral() as instance:
        result = turn.schedule.job.execute_in_process(
            instance=instance, resources=resources, tags=tags, raise_on_error=False
        )
        run = instance.get_run_by_id(result.run_id)
    assert not result.success
    assert run is not None
    assert run.tags[STAGE_TAG] == "drained"


def test_names_of_its_definitions_are_free() -> None:
    turns = [
        build_drain_and_resume_schedule(rows_asset(), "0 3 * * *", drain=drain) for drain in (True, False)
    ]
    defs = dg.Definitions(
        [rows_asset()],
        schedules=[turn.schedule for turn in turns],
        sensors=[turn.sensor for turn in turns],
        resources={"unistream": UnistreamResource(target="remote")},
    )
    dg.Definitions.validate_loadable(defs)
    drain, stop = (turn.schedule.job.description or "" for turn in turns)
    assert drain == "Drains the stream rows, and lets it go on"
    assert stop == "Stops the stream rows with a savepoint, and lets it go on"
    assert {turn.schedule.job_name for turn in turns} == {"rows_drain_and_resume", "rows_stop_and_resume"}


def requested_after(
    sensor: dg.SensorDefinition, result: dg.ExecuteInProcessResult, instance: dg.DagsterInstance
) -> object:
    context = dg.build_run_status_sensor_context(
        sensor_name=sensor.name,
        dagster_event=result.get_run_success_event(),
        dagster_instance=instance,
        dagster_run=result.dagster_run,
    )
    return sensor(context)
