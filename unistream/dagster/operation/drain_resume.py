"""A stream that makes room at night: it is stopped with a savepoint, or drained, a batch step runs while
nobody writes, and it goes on.

    run of the job   stop, then the batch step; a tag of the run says how far it is
    run of the       after that run has succeeded, a sensor requests a run of the assets, which goes on from
    assets           the savepoint

A step of Dagster cannot start another run by a public call, and the run of a stream is more than a call: it
has its own executor, tags, pool and end. A run that the daemon starts for a sensor has all of that, and it is
requested once (`run_key`), however often the daemon dies.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

import dagster as dg

from unistream.base.errors import AlreadyEnded, ClusterEnded, NotFound, UnistreamError
from unistream.base.ids import JobId
from unistream.client.job.lookup import find_job
from unistream.client.job.resume import LATEST
from unistream.client.job.submission import NothingRuns
from unistream.client.remote.job_client import JobClient
from unistream.dagster.operation.operations import RESOURCE, check_own
from unistream.dagster.run.attached import stop_when_running
from unistream.dagster.run.maintenance import EARLIER_STAGE_TAG, STAGE_TAG, await_starts, maintains
from unistream.dagster.run.metadata import OPERATION_METADATA, SAVEPOINT_TAG
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.savepoints import ended_by
from unistream.dagster.run.start import RESUME_TAG
from unistream.dagster.run.stream import AssetStream
from unistream.dagster.run.watching import RunWatch
from unistream.model.snapshot_kind import SnapshotKind

STOPS_TAG: Final = "unistream/stops"
"""Tag of a run: id of the job that it stops or drains."""

EARLIER_STOPS_TAG: Final = "unistream/drains"
"""The tag that runs of earlier versions have instead of `STOPS_TAG`."""

Between = Callable[[dg.OpExecutionContext], None]


class DrainStage(Enum):
    """How far a run, or the one that it repeats, has come. Values are those of the tag of a stop."""

    NEW = ""
    STOPPING = "stopping"
    STOPPED = "stopped"
    RESUME = "resume"  # the batch step is done
    NOTHING = "nothing"  # there was no job to stop, or it goes on already


_OF_DRAIN: Final = {DrainStage.STOPPING: "draining", DrainStage.STOPPED: "drained"}
"""Values of the tag of a drain."""


class DrainStep(Enum):
    """What a run does next."""

    STOP = "stop"
    BETWEEN = "between"
    RESUME = "resume"
    NOTHING = "nothing"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Words:
    """How a run says what it does."""

    stop: str
    stopped: str
    next_step: str


STOP: Final = Words("stop", "stopped", "stop it with a savepoint")
DRAIN: Final = Words("drain", "drained", "drain it: all its windows fire")


@dataclass(frozen=True, slots=True)
class NewestJob:
    """The newest job of the stream. `was_stopped`: it has ended, by the savepoint that a run would take."""

    job: str
    state: str
    runs: bool
    was_stopped: bool


class DrainAndResume(NamedTuple):
    """Both go into the definitions: the schedule stops or drains, the sensor lets the stream go on."""

    schedule: dg.ScheduleDefinition
    sensor: dg.SensorDefinition


def stage_of(tags: Mapping[str, str]) -> DrainStage:
    """The stage of a run, which its tags say."""
    text = tags.get(STAGE_TAG) or tags.get(EARLIER_STAGE_TAG, "")
    drains = {value: stage for stage, value in _OF_DRAIN.items()}
    return drains[text] if text in drains else DrainStage(text)


def next_step(
    stage: DrainStage, stops: str, found: NewestJob | None, words: Words = STOP
) -> tuple[DrainStep, str]:
    """What a run does next, and why.

    Args:
        stage: By its tag, or that of the run that it repeats.
        stops: Id of the job that it stops; empty: none yet.
        found: The newest job of the stream; None: no cluster knows one.
        words: For the sentence.
    """
    if found is not None and found.runs:
        if stops and found.job != stops:
            return DrainStep.NOTHING, f"the stream goes on already, as job {found.job}"
        return DrainStep.STOP, f"job {found.job} is {found.state}"
    if stage is DrainStage.RESUME:
        return DrainStep.RESUME, "the step between is done"
    if stage is DrainStage.STOPPED:
        return DrainStep.BETWEEN, f"job {stops} is {words.stopped}"
    if found is not None and found.was_stopped:
        return DrainStep.BETWEEN, f"job {found.job} is {words.stopped} already"
    how = "no cluster knows it" if found is None else f"job {found.job} has ended as {found.state}"
    if stage is DrainStage.STOPPING:
        return (
            DrainStep.FAIL,
            f"job {stops} was to be {words.stopped}, and has ended without its savepoint: {how}",
        )
    return DrainStep.NOTHING, f"there is nothing to {words.stop}: {how}"


def build_drain_and_resume_schedule(
    assets: dg.AssetsDefinition,
    cron_schedule: str,
    *,
    between: Between | None = None,
    drain: bool = True,
    savepoint_dir: str | None = None,
    job_name: str | None = None,
    resource: str = RESOURCE,
    **options: Any,
) -> DrainAndResume:
    """A schedule whose runs drain the job of `assets`, or stop it with a savepoint, and call `between` while
    no job writes, and a sensor that then requests a run of the assets, which goes on from the resumable
    savepoint.

    A run that repeats one that has died goes on where that was; it does nothing if the stream goes on
    already. A run that finds the stream stopped, by an earlier run or by hand, goes on from there too; one
    that finds no job, or one that has ended otherwise, leaves it so. A job that restarts is stopped when its
    tasks run again, within `terminate_timeout_s` of the resource; else the run fails. If `between` raises,
    the run fails and the stream stays stopped until a run succeeds.

    Args:
        assets: Made by `unistream_assets`.
        cron_schedule: When, such as ``"0 3 * * *"``.
        between: Such as a compaction of the table. It is called once for each drain, and again if its run
            dies in it, so it has to be repeatable. None: the job is only replaced.
        drain: All windows fire before the end. The windows that were open fire again when the stream goes on
            and they are complete; False: it is stopped with a savepoint, and windows stay open in that.
        savepoint_dir: Where the savepoint goes; None: as the job's configuration says.
        job_name: Of the job, if `UnistreamResource.run` was given another one than that of the step.
        resource: Key of the `UnistreamResource` that knows the cluster.
        options: Further arguments of `dg.ScheduleDefinition`, such as `execution_timezone`.
    """
    step = assets.op.name
    name = f"{step}_{'drain' if drain else 'stop'}_and_resume"
    turn = _Turn(AssetStream.of(assets, job_name), between, drain, savepoint_dir)

    @dg.op(name=f"{name}_op", required_resource_keys={resource}, pool=f"unistream_{name}")
    def operation(context: dg.OpExecutionContext) -> None:
        unistream: UnistreamResource = getattr(context.resources, resource)
        with closing(unistream.watch(context, is_operation=True)) as watch:
            turn.run(context, unistream, watch)

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        description=turn.description,
        metadata={OPERATION_METADATA: turn.name},
    )
    def job() -> None:
        operation()

    schedule = dg.ScheduleDefinition(name=f"{name}_schedule", job=job, cron_schedule=cron_schedule, **options)
    return DrainAndResume(schedule, _sensor(assets, job, name))


def _sensor(assets: dg.AssetsDefinition, job: dg.JobDefinition, name: str) -> dg.SensorDefinition:
    resumed = dg.define_asset_job(
        f"{name}_assets", dg.AssetSelection.assets(*assets.keys), executor_def=dg.in_process_executor
    )

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=f"{name}_sensor",
        monitored_jobs=[job],
        request_job=resumed,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Requests a run of the assets after each run of {name} that has stopped their job",
    )
    def sensor(context: dg.RunStatusSensorContext) -> dg.RunRequest | dg.SkipReason:
        run = context.instance.get_run_by_id(context.dagster_run.run_id)
        if run is None or stage_of(run.tags) is not DrainStage.RESUME:
            return dg.SkipReason(f"run {context.dagster_run.run_id} has stopped nothing")
        return dg.RunRequest(run_key=run.run_id, tags={RESUME_TAG: LATEST})

    return sensor


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a run does."""

    stream: AssetStream
    between: Between | None
    drain: bool
    savepoint_dir: str | None

    @property
    def name(self) -> str:
        return self.stream.name

    def run(self, context: dg.OpExecutionContext, unistream: UnistreamResource, watch: RunWatch) -> None:
        """Raises dg.Failure: the job could not be stopped, or another run goes on with this."""
        tags = context.run.tags
        stage, stops = stage_of(tags), tags.get(STOPS_TAG) or tags.get(EARLIER_STOPS_TAG, "")
        while True:
            check_own(watch)  # a step between may have been paused for hours
            newest = self._found(unistream)
            step, why = next_step(stage, stops, newest, self.words)
            context.log.info("stream %s: %s; next: %s", self.name, why, self._says(step))
            match step:
                case DrainStep.FAIL:
                    raise dg.Failure(f"stream {self.name}: {why}")
                case DrainStep.STOP if newest is not None:
                    stage, stops = DrainStage.STOPPING, newest.job
                    self._working(context, stage, stops)
                    watch.begin(JobId(stops))
                    self._stop(context, unistream, stops)
                case DrainStep.BETWEEN:
                    stops = newest.job if newest is not None and newest.was_stopped else stops
                    stage = DrainStage.STOPPED
                    self._working(context, stage, stops)
                    watch.begin(JobId(stops))
                    await_starts(context.instance, self.stream, unistream.terminate_timeout_s)
                    newest = self._found(unistream)
                    if newest is not None and newest.runs:  # by a run that had begun to start it
                        continue
                    if self.between is not None:
                        self.between(context)
                    stage = DrainStage.RESUME
                case DrainStep.RESUME:
                    _tag(context, {STAGE_TAG: DrainStage.RESUME.value})
                    return
                case _:
                    _tag(context, {STAGE_TAG: DrainStage.NOTHING.value})
                    return

    @property
    def words(self) -> Words:
        return DRAIN if self.drain else STOP

    @property
    def description(self) -> str:
        """The description of the job, for people."""
        does = "Drains" if self.drain else "Stops"
        how = "" if self.drain else " with a savepoint"
        then = "" if self.between is None else ", calls a step while nobody writes its tables"
        return f"{does} the stream {self.name}{how}{then}, and lets it go on"

    def _says(self, step: DrainStep) -> str:
        return {
            DrainStep.STOP: self.words.next_step,
            DrainStep.BETWEEN: "the step between" if self.between else "let it go on",
            DrainStep.RESUME: "let it go on",
            DrainStep.NOTHING: "nothing",
            DrainStep.FAIL: "this run fails",
        }[step]

    def _working(self, context: dg.OpExecutionContext, stage: DrainStage, stops: str) -> None:
        """Tags the run with its stage: from now on no run starts the stream."""
        value = _OF_DRAIN[stage] if self.drain else stage.value
        _tag(context, {STAGE_TAG: value, STOPS_TAG: stops, **maintains(self.stream)})

    def _found(self, unistream: UnistreamResource) -> NewestJob | None:
        try:
            with closing(self.stream.find(unistream.configuration())) as client:
                info = client.status()
        except (NotFound, NothingRuns, ClusterEnded):
            return None
        except UnistreamError as error:
            raise dg.Failure(f"job {self.name}: {error}") from error
        was_stopped = info.state == "FINISHED" and ended_by(info) is self._kind
        return NewestJob(str(info.job), info.state, not info.is_terminal, was_stopped)

    def _stop(self, context: dg.OpExecutionContext, unistream: UnistreamResource, job: str) -> None:
        try:
            with closing(find_job(unistream.configuration(), job)) as client:
                savepoint = self._stopped(client, unistream)
                resumable = client.status().resumable_savepoint or savepoint
        except (AlreadyEnded, NotFound) as error:  # the next look says how
            context.log.info("stream %s: %s", self.name, error)
            return
        except UnistreamError as error:
            raise dg.Failure(f"stream {self.name}: {error}") from error
        _tag(context, {SAVEPOINT_TAG: resumable})
        context.log.info("stream %s goes on from %s", self.name, resumable)

    def _stopped(self, client: JobClient, unistream: UnistreamResource) -> str:
        """A job that restarts is stopped when its tasks run again, within the resource's time."""
        policy = replace(
            unistream.end_policy(),
            on_terminate="drain" if self.drain else "stop_with_savepoint",
            savepoint_dir=self.savepoint_dir,
        )
        given_up = threading.Event()
        timer = threading.Timer(policy.timeout_s, given_up.set)
        timer.daemon = True
        timer.start()
        try:
            return stop_when_running(client, policy, given_up)
        except AlreadyEnded:
            raise
        except UnistreamError as error:
            if not given_up.is_set():
                raise
            raise UnistreamError(f"not all of its tasks run within {policy.timeout_s:.0f} s") from error
        finally:
            timer.cancel()

    @property
    def _kind(self) -> SnapshotKind:
        return SnapshotKind.TERMINATE if self.drain else SnapshotKind.SUSPEND


def _tag(context: dg.OpExecutionContext, tags: dict[str, str]) -> None:
    context.instance.add_run_tags(context.run_id, tags)
