"""What is done with running jobs from Dagster: schedules that stop a job, or take its savepoint.

A run of them repeats nothing: a job that is stopped already, by an earlier attempt of the same run or by
another tool, is only reported; a stop that is under way is waited for.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import hashlib
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import dagster as dg

from unistream.base.errors import AlreadyEnded, ClusterEnded, ConfigError, NotFound, UnistreamError
from unistream.client.job.submission import NothingRuns
from unistream.client.remote.rest_client import RestJobClient
from unistream.dagster.run.metadata import OPERATION_METADATA, SAVEPOINT_TAG
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.stream import AssetStream
from unistream.dagster.run.watching import RunWatch

RESOURCE: Final = "unistream"

FAILED_TAG: Final = "unistream/savepoints_failed"
"""Tag of a run: how many savepoints it, and the runs that it repeats, have seen fail. The cluster knows the
outcome of each by its trigger id, so the next one has another id."""

Take = Callable[[RestJobClient, str], str]
"""(job, trigger id) -> the savepoint."""


def build_stop_with_savepoint_schedule(
    assets: dg.AssetsDefinition,
    cron_schedule: str,
    *,
    drain: bool = False,
    savepoint_dir: str | None = None,
    job_name: str | None = None,
    resource: str = RESOURCE,
    **options: Any,
) -> dg.ScheduleDefinition:
    """A schedule whose runs stop the job of `assets` with a savepoint, if it runs.

    The next materialisation of the assets goes on from there.

    Args:
        assets: Made by `unistream_assets`.
        cron_schedule: When, such as ``"0 22 * * *"``.
        drain: The input counts as ended: all windows fire.
        savepoint_dir: Where the savepoint goes; None: as the job's configuration says.
        job_name: Of the job, if `UnistreamResource.run` was given another one than that of the step.
        resource: Key of the `UnistreamResource` that knows the cluster.
        options: Further arguments of `dg.ScheduleDefinition`, such as `execution_timezone`.
    """
    how = "drain" if drain else "stop_with_savepoint"
    says = "Drains the stream {}: all windows fire" if drain else "Stops the stream {} with a savepoint"

    def stop(client: RestJobClient, _: str) -> str:
        return client.stopped(drain=drain, target=savepoint_dir)[1]  # from which a run can go on

    return _schedule(
        assets,
        how,
        f"{says}; the next run of its assets goes on from there",
        stop,
        cron_schedule=cron_schedule,
        job_name=job_name,
        resource=resource,
        options=options,
    )


def build_savepoint_schedule(
    assets: dg.AssetsDefinition,
    cron_schedule: str,
    *,
    savepoint_dir: str | None = None,
    job_name: str | None = None,
    resource: str = RESOURCE,
    **options: Any,
) -> dg.ScheduleDefinition:
    """A schedule whose runs take a savepoint of the job of `assets`, which goes on. Arguments as of
    `build_stop_with_savepoint_schedule`."""

    def savepoint(client: RestJobClient, trigger_id: str) -> str:
        return client.savepoint(savepoint_dir, trigger_id=trigger_id)

    return _schedule(
        assets,
        "savepoint",
        "Takes a savepoint of the stream {}, which goes on",
        savepoint,
        cron_schedule=cron_schedule,
        job_name=job_name,
        resource=resource,
        options=options,
    )


def _schedule(
    assets: dg.AssetsDefinition,
    how: str,
    says: str,
    take: Take,
    *,
    cron_schedule: str,
    job_name: str | None,
    resource: str,
    options: dict[str, Any],
) -> dg.ScheduleDefinition:
    step = assets.op.name
    stream = AssetStream.of(assets, job_name)
    streamed = stream.name
    name = f"{step}_{how}"

    @dg.op(name=f"{how}_of_{step}", required_resource_keys={resource})
    def operation(context: dg.OpExecutionContext) -> None:
        unistream: UnistreamResource = getattr(context.resources, resource)
        with closing(unistream.watch(context, is_operation=True)) as watch:
            savepoint = _savepoint_of(context, unistream, stream, take, watch)
        if savepoint is not None:
            context.log.info("stream %s: the savepoint is %s", streamed, savepoint)
            context.instance.add_run_tags(context.run_id, {SAVEPOINT_TAG: savepoint})
            context.add_output_metadata({SAVEPOINT_TAG: dg.MetadataValue.path(savepoint)})

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        description=says.format(streamed),
        metadata={OPERATION_METADATA: streamed},
    )
    def job() -> None:
        operation()

    return dg.ScheduleDefinition(name=f"{name}_schedule", job=job, cron_schedule=cron_schedule, **options)


def _savepoint_of(
    context: dg.OpExecutionContext,
    unistream: UnistreamResource,
    stream: AssetStream,
    take: Take,
    watch: RunWatch,
) -> str | None:
    """None: the job does not run. Raises dg.Failure: it could not be taken."""
    name = stream.name
    try:
        client = stream.find(unistream.configuration())
    except (NotFound, NothingRuns, ClusterEnded) as error:
        context.log.info("there is nothing to do: %s", error)
        return None
    except UnistreamError as error:
        raise dg.Failure(f"job {name}: {error}") from error
    with closing(client):
        info = client.status()
        if info.is_terminal:
            context.log.info(
                "there is nothing to do: job %s (%s) has ended as %s", name, info.job, info.state
            )
            return None
        watch.begin(client.job_id)
        try:
            savepoint = take(client, trigger_of(context, name))
        except AlreadyEnded as error:
            context.log.info("there is nothing to do: %s", error)
            return None
        except UnistreamError as error:
            if isinstance(
                error, ConfigError
            ):  # else the outcome is not known: the same one is asked for again
                failed = int(context.run.tags.get(FAILED_TAG, 0)) + 1
                context.instance.add_run_tags(context.run_id, {FAILED_TAG: str(failed)})
            raise dg.Failure(f"job {name} ({info.job}): {error}") from error
        check_own(watch)
        return savepoint


def trigger_of(context: dg.OpExecutionContext, name: str) -> str:
    """The trigger id of the savepoint that a run takes: that of the run which it repeats, if that has died or
    failed before it could say so. *Re-execute* of a run that has succeeded takes another savepoint."""
    run: dg.DagsterRun | None = context.run
    first = context.run_id
    while run is not None and run.parent_run_id is not None:
        parent = context.instance.get_run_by_id(run.parent_run_id)
        if parent is not None and parent.status == dg.DagsterRunStatus.SUCCESS:
            break
        first, run = run.parent_run_id, parent
    failed = context.run.tags.get(FAILED_TAG, "0")
    words = " ".join((first, context.op.name, name, failed))
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def check_own(watch: RunWatch) -> None:
    """A process that was paused leaves everything else to the run that repeats its own.

    Raises:
        dg.Failure: the run was reported as failed meanwhile, or another one has its link.
        dg.DagsterExecutionInterruptedError: it is CANCELED.
    """
    lost = watch.ask()
    if lost is None:
        return
    if lost.is_canceled:
        raise dg.DagsterExecutionInterruptedError(lost.reason)
    raise dg.Failure(f"{lost.reason}: this run does nothing more", allow_retries=False)
