"""Runs a pipeline for a Dagster run and tells Dagster what became visible.

The run lives as long as the job ("attached"): it succeeds when the job has finished (a bounded end or a
drain from outside), fails when the job fails, and is CANCELED when a user terminates it, after the job was
stopped the way `on_terminate` says. Nothing is retried here: restarting is the runtime's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import dagster as dg
from pydantic import Field

from unistream.api.environment import Environment
from unistream.base.errors import UnistreamError
from unistream.client.job_client import JobClient, JobInfo, JobResult

SINK_METADATA: Final = "unistream/sink_uid"
"""Metadata key of an AssetSpec: the uid of the sink that writes this asset."""

POLL_S: Final = 1.0
OBSERVE_EVERY_S: Final = 10.0  # Dagster's event log grows with each event and is never trimmed

TerminatePolicy = Literal["stop_with_savepoint", "drain", "cancel"]


class UnistreamResource(dg.ConfigurableResource[Any]):
    """Where and how pipelines run.

    Attributes:
        target: "spark" (workers in Spark tasks), "local" (child processes) or "remote" (a session cluster).
        config: Configuration by key, as on the command line with `-D`.
        on_terminate: What a terminated run does with its job.
        savepoint_dir: fsspec URL for the savepoint of a terminated run; empty: the job's own folder.
        terminate_timeout_s: Longest wait for that; must be below the run monitor's cancel timeout.

    >>> UnistreamResource(target="local", config={"parallelism.default": "2"}).target
    'local'
    """

    target: str = "spark"
    config: dict[str, str] = Field(default_factory=dict)
    on_terminate: TerminatePolicy = "stop_with_savepoint"
    savepoint_dir: str = ""
    terminate_timeout_s: float = 120.0

    def run(
        self,
        context: dg.AssetExecutionContext,
        build: Callable[[Environment], None],
        *,
        name: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """Builds the pipeline, runs it to its end, and yields one result for each asset of the step.

        Args:
            context: Of the asset function.
            build: Adds the pipeline to the environment.
            name: Of the job; default: the name of the step.
            config: On top of the resource's.

        Raises:
            dg.Failure: the job failed; the text is the job's own.
            dg.DagsterExecutionInterruptedError: the run was terminated; the job is stopped by then.
        """
        env = Environment({**self.config, **(config or {})}, target=self.target)
        build(env)
        client = env.execute_async(name or context.op_execution_context.op.name)
        with client:
            context.log.info("job %s runs on %s", client.job_id, self.target)
            try:
                result = self._watch(context, client)
            except dg.DagsterExecutionInterruptedError:
                self._terminate(context, client)
                raise
            info = client.status()
        if result.state != "FINISHED":
            raise dg.Failure(
                description=f"job {info.job} is {info.state}: {result.failure or 'stopped from outside'}",
                metadata=_job_metadata(info),
                allow_retries=False,
            )
        for spec in _specs(context):
            yield dg.MaterializeResult(
                asset_key=spec.key,
                metadata=_job_metadata(info) | _sink_metadata(spec, info),
                tags=_data_version(spec, info),
            )

    def _watch(self, context: dg.AssetExecutionContext, client: JobClient) -> JobResult:
        """Waits for the end in short pieces, so that a termination gets through, and reports checkpoints."""
        reported, next_report = 0, time.monotonic() + OBSERVE_EVERY_S
        while True:
            try:
                return client.wait(timeout_s=POLL_S)
            except TimeoutError:
                if time.monotonic() < next_report:
                    continue
            next_report = time.monotonic() + OBSERVE_EVERY_S
            info = client.status()
            if info.checkpoints_completed > reported:
                reported = info.checkpoints_completed
                for spec in _specs(context):
                    context.log_event(
                        dg.AssetObservation(
                            asset_key=spec.key, metadata=_job_metadata(info) | _sink_metadata(spec, info)
                        )
                    )

    def _terminate(self, context: dg.AssetExecutionContext, client: JobClient) -> None:
        """Ends the job as `on_terminate` says; if that fails the job is cancelled, so that none is left."""
        try:
            if self.on_terminate == "cancel":
                client.cancel()
                client.wait(timeout_s=self.terminate_timeout_s)
                return
            path = client.stop(drain=self.on_terminate == "drain", target=self.savepoint_dir or None)
            context.log.info("job %s stopped with savepoint %s", client.job_id, path)
        except UnistreamError:
            context.log.exception("job %s could not be stopped; cancelling it", client.job_id)
            client.cancel()
            client.wait(timeout_s=self.terminate_timeout_s)


def _specs(context: dg.AssetExecutionContext) -> Sequence[dg.AssetSpec]:
    return list(context.assets_def.specs)


def _job_metadata(info: JobInfo) -> dict[str, Any]:
    return {
        "unistream/job_id": str(info.job),
        "unistream/checkpoints": info.checkpoints_completed,
        "unistream/restarts": info.restarts,
        "unistream/savepoint": info.savepoint or "",
    }


def _sink_metadata(spec: dg.AssetSpec, info: JobInfo) -> dict[str, Any]:
    sink = info.sinks.get(spec.metadata.get(SINK_METADATA, ""))
    if sink is None:
        return {}
    values: dict[str, Any] = {"dagster/row_count": sink.rows, "unistream/commits": sink.commits}
    if sink.table_version is not None:
        values["unistream/table_version"] = sink.table_version
    return values


def _data_version(spec: dg.AssetSpec, info: JobInfo) -> dict[str, str] | None:
    sink = info.sinks.get(spec.metadata.get(SINK_METADATA, ""))
    if sink is None or sink.table_version is None:
        return None
    return {"dagster/data_version": str(sink.table_version)}
