"""Runs a pipeline for a Dagster run and reports what became visible.

The run lives as long as the job ("attached"): it succeeds when the job has finished (a bounded end or a drain
from outside), fails when the job fails, and is CANCELED when it is terminated, after the job was stopped as
`on_terminate` says. Nothing is retried here: the runtime restarts jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import dagster as dg
from pydantic import Field

from unistream.api.environment import Environment
from unistream.api.lineage import written_by
from unistream.base.clock import SystemClock
from unistream.base.config import (
    CHECKPOINT_RETENTION,
    DAGSTER_ASSETS,
    REST_ADDRESS,
    REST_PORT,
    Configuration,
    ConfigValue,
)
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import ConfigError, CorruptSnapshot, UnistreamError
from unistream.base.references import escaped
from unistream.base.targets import known_target
from unistream.client.embedded.hosts import default_target
from unistream.client.job.resume import LATEST
from unistream.client.job.run_links import LinkStore, open_links
from unistream.client.job.upgrade import FIRST_CHECKPOINT_S, WentBack
from unistream.client.machine.surroundings import given_config, surrounding_config
from unistream.client.machine.tokens import GivenAccess, give_access
from unistream.client.remote.address import options_of
from unistream.client.remote.rest_client import timeout_s
from unistream.dagster.run.assets import check_partition, check_sinks
from unistream.dagster.run.attached import INTERRUPTIONS, EndPolicy, OnTerminate, SavepointFormat, run_step
from unistream.dagster.run.ending import has_hook, stopped
from unistream.dagster.run.launch_config import launched_with
from unistream.dagster.run.maintenance import GuardedStart, Starting
from unistream.dagster.run.metadata import asset_metadata, data_version, job_metadata, ordered
from unistream.dagster.run.policy_tag import written
from unistream.dagster.run.report import RunReport, assets_text, specs_of
from unistream.dagster.run.settings import check_resource
from unistream.dagster.run.start import JobStart, OnRunning, chosen_on_running, chosen_resume, repeated_runs
from unistream.dagster.run.watching import (
    CALL_TIMEOUT_S,
    HEARTBEAT_EVERY_S,
    LeftToAnother,
    RunWatch,
    key_of,
    operation_key_of,
    watcher_of,
)
from unistream.model.job_info import JobInfo

Mode = Literal["auto", "attached", "detached"]

DEFAULTS: Final = {CHECKPOINT_RETENTION.key: "RETAIN_ON_CANCELLATION"}
"""Defaults of `config`: a stream that has failed, or could not be stopped in time, can resume."""


class UnistreamResource(dg.ConfigurableResource[Any]):
    """Where and how pipelines run.

    Attributes:
        target: "spark" (workers in Spark tasks), "local" (child processes; the default where Spark is not
            installed) or "remote" (a session cluster).
        jobmanager: Where the session cluster is: HOST:PORT of its REST API, or zookeeper://HOST:PORT,… for
            the leader of several masters; empty: the one that runs on this machine, or as `config` says.
        token: What is presented to the cluster at `jobmanager`: `dg.EnvVar("…")`, so that no page of Dagster
            shows it. Empty: the owner's on its own machine, or UNISTREAM_TOKEN of the process.
        ca_file: Path of a file with the authorities of that cluster, PEM. Empty: the authority that the token
            pins, UNISTREAM_CA_FILE of the process, or those of the machine.
        config: Configuration by key, as on the command line with `-D`; it counts before config.yaml and
            variables of the environment.
        resume: What a new job starts from. "latest": the newest snapshot of the job that wrote last to the
            same tables, however that ended, or the beginning if there is none; "none": the beginning of its
            sources; else the directory of a savepoint or checkpoint. The run's tag `unistream/resume` takes
            precedence.
        on_running: If a job writes the same tables already (target "remote"): "upgrade": it goes on as it is
            if the pipeline has not changed; else it is stopped with a savepoint and replaced, or started
            again from there if the new version does not come up; "attach": it goes on as it is; "refuse": the
            run fails. With other targets a run always fails then. The run's tag `unistream/on_running` takes
            precedence.
        mode: "attached": a run lasts as long as its job; "detached": until the first complete checkpoint, and
            the job goes on in its cluster; "auto": detached with target "remote" for a pipeline with an
            unbounded source, else attached.
        on_terminate: How a terminated run ends its job; "detach": not at all (target "remote").
        savepoint_dir: fsspec URL for the savepoint of a terminated run; empty: the job's own folder.
        savepoint_format: Of that savepoint: "canonical" (open tables) or "native" (files of the state
            backend, quicker to take, and only that backend reads them).
        terminate_timeout_s: Longest wait for that, then the job is cancelled. Must be well below the run
            monitor's `cancel_timeout_seconds`, after which Dagster waits no longer.
        first_checkpoint_timeout_s: Longest wait for the first checkpoint of a new version, before the old one
            is started again.
        heartbeat_interval_s: Between two heartbeats of a run, by which `build_reconciling_sensor` knows that
            its process is alive.

    >>> UnistreamResource(target="local", config={"parallelism.default": "2"}).target
    'local'
    """

    target: str = default_target()
    jobmanager: str = ""
    token: str = ""
    ca_file: str = ""
    config: dict[str, str] = Field(default_factory=dict)
    resume: str = LATEST
    on_running: OnRunning = "upgrade"
    mode: Mode = "auto"
    on_terminate: OnTerminate = "stop_with_savepoint"
    savepoint_dir: str = ""
    savepoint_format: SavepointFormat = "canonical"
    terminate_timeout_s: float = Field(default=120.0, gt=0)
    first_checkpoint_timeout_s: float = Field(default=FIRST_CHECKPOINT_S, gt=0)
    heartbeat_interval_s: float = Field(default=HEARTBEAT_EVERY_S, gt=0)

    def __init__(self, **settings: Any) -> None:
        """Raises ConfigError: a setting is wrong, as far as that is known when definitions are loaded."""
        check_resource(settings)
        super().__init__(**settings)

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
            name: Name of the job; default: that of the step.
            config: Overrides the resource's.

        Raises:
            dg.Failure: the pipeline cannot run, or the job failed; a retry does not help. Or the run was
                reported as failed while its process was paused; the job was left as it is.
            dg.DagsterExecutionInterruptedError: the run was terminated; the job has been stopped.
        """
        launched = launched_with(context)
        options: Mapping[str, ConfigValue] = launched.pop("config", {})
        resource = type(self)(**{**self._settings(), **launched}) if launched else self
        yield from resource._run(context, build, name, {**(config or {}), **options})

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}

    def _run(
        self,
        context: dg.AssetExecutionContext,
        build: Callable[[Environment], None],
        name: str | None,
        config: Mapping[str, ConfigValue],
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """See `run`."""
        name, report = name or context.op_execution_context.op.name, None
        try:
            named = {DAGSTER_ASSETS.key: escaped(assets_text(specs_of(context)))}
            env = Environment(self.options({**named, **config}), target=known_target(self.target))
            build(env)
            check_sinks(specs_of(context), env.sinks())
            check_partition(context, env)
            report = RunReport(context, target=self.target, retention=env.config.get(CHECKPOINT_RETENTION))
            detaches = self._detaches(env)
            start = self._start(context, env, name, report)
            report.policy(written(self._policy(start, detaches=detaches), self.end_policy()))
            watch = self.watch(context)
            job = Starting(name, written_by(env.stream_graph()))
            guarded = GuardedStart(context.instance, context.run.run_id, job, start)
            patience_s = timeout_s(env.config)
            info = run_step(
                guarded,
                self.end_policy(),
                report,
                detaches=detaches,
                watch=watch,
                patience_s=patience_s,
                give_up=start.give_up,
            )
        except WentBack as error:
            raise dg.Failure(f"pipeline {name}: {error}", allow_retries=False) from error
        except (ConfigError, CorruptSnapshot) as error:
            raise dg.Failure(f"pipeline {name} cannot run: {error}", allow_retries=False) from error
        except UnistreamError as error:  # the cluster is away, or what answers for it makes no sense
            raise dg.Failure(f"job {name}: {error}") from error
        except LeftToAnother as left:
            raise _end_of(left) from left
        except INTERRUPTIONS as interrupted:  # Dagster shows it last, and red: it says what is left
            if report is None or report.ended is None or not has_hook(context):
                raise type(interrupted)(report.outcome if report else "") from None
            info = report.ended
            stopped(context.run.run_id, report.outcome)
        else:
            if info.is_terminal and info.state != "FINISHED":
                raise _failure(info, report)
            (report.finished if info.is_terminal else report.detached)(info)
        yield from self._materialised(context, env, info, report)

    def _materialised(
        self, context: dg.AssetExecutionContext, env: Environment, info: JobInfo, report: RunReport
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """What the job has written, when its run ends."""
        page, now_ms = report.page if self.target == "remote" else None, SystemClock().wall_ms()
        for spec in specs_of(context):  # pages of the other targets have ended with their job
            metadata = ordered(asset_metadata(spec, info, now_ms, page) | report.table(spec, env.sinks()))
            yield dg.MaterializeResult(asset_key=spec.key, metadata=metadata, tags=data_version(spec, info))

    def _start(
        self, context: dg.AssetExecutionContext, env: Environment, name: str, report: RunReport
    ) -> JobStart:
        """Raises ConfigError: a tag of the run is wrong."""
        return JobStart(
            environment=env,
            target=self.target,
            run=context.run,
            step=context.op_execution_context.op.name,
            name=name,
            resume=chosen_resume(context.run, self.resume),
            log=report,
            on_running=chosen_on_running(context.run, self.on_running),
            savepoint_dir=self.savepoint_dir or None,
            first_checkpoint_s=self.first_checkpoint_timeout_s,
            giving_up=self.end_policy().giving_up,
            repeated=repeated_runs(context.run, context.instance.get_run_by_id),
        )

    def _policy(self, start: JobStart, *, detaches: bool) -> dict[str, str]:
        """How the run comes to its job, and how long it lasts, as it shows it."""
        return {
            "resume": start.resume,
            "on_running": start.on_running,
            "mode": "detached" if detaches else "attached",
        }

    def configuration(self) -> Configuration:
        """The configuration of the environments that the resource makes. Raises ConfigError."""
        options = self.options()
        return options.as_client() if self.target == "remote" else options.own_cluster()

    def options(self, more: Mapping[str, ConfigValue] | None = None) -> LayeredConfig:
        """That of the resource, and `more`, which counts first; and what surrounds this process: config.yaml
        and variables of the environment, which count before `DEFAULTS`. Raises ConfigError."""
        around = surrounding_config()
        usual = {key: value for key, value in DEFAULTS.items() if key not in around.to_dict()}
        return LayeredConfig(given_config({**usual, **self._cluster(), **(more or {})}), around)

    def links(self) -> LinkStore | None:
        """Which run watches which job; see `open_links`. Not as a run's own `config` says: all runs of the
        resource, and the sensor, have to find the same."""
        return open_links(self.configuration(), self.target, timeout_s=CALL_TIMEOUT_S)

    def watch(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, *, is_operation: bool = False
    ) -> RunWatch:
        """The heartbeats of the step; they begin when it has a job. `is_operation`: the job is not that of
        its run, which only does something with it."""
        step, run, instance = context.op_execution_context.op.name, context.run, context.instance

        def status() -> dg.DagsterRunStatus | None:
            known = instance.get_run_by_id(run.run_id)
            return None if known is None else known.status

        return RunWatch(
            operation_key_of(run, step) if is_operation else key_of(run, step),
            watcher_of(run, step, context.op_execution_context.retry_number),
            open_links=self.links,
            status=status,
            every_s=self.heartbeat_interval_s,
        )

    def _cluster(self) -> dict[str, str]:
        """Raises ConfigError: it is no address, or the target is not remote."""
        if not self.jobmanager:
            return self.config
        if self.target != "remote":
            raise ConfigError(
                f"jobmanager {self.jobmanager!r} names a running cluster, and target {self.target!r} starts "
                "one for each run: let the target be remote, or leave jobmanager out"
            )
        where = options_of(self.jobmanager)
        access = self.access()
        if access.variables():
            give_access(where[REST_ADDRESS.key], int(where[REST_PORT.key]), access)
        return {**where, **self.config}

    def access(self) -> GivenAccess:
        """What is shown to the cluster, and believed of it."""
        return GivenAccess(self.token, self.ca_file)

    def _detaches(self, env: Environment) -> bool:
        """Raises ConfigError: the job cannot outlive the process of the run."""
        outlives = {
            "mode 'detached'": self.mode == "detached",
            "on_terminate 'detach'": self.on_terminate == "detach",
        }
        named = next((name for name, is_chosen in outlives.items() if is_chosen), None)
        if self.target != "remote" and named is not None:
            raise ConfigError(
                f"{named} needs a session cluster, and with target {self.target!r} the job ends with the "
                "process of its run: let the target be remote"
            )
        return self.mode == "detached" or (
            self.mode == "auto" and self.target == "remote" and not env.is_bounded()
        )

    def end_policy(self) -> EndPolicy:
        """What happens to the job of a run that is terminated."""
        return EndPolicy(
            on_terminate=self.on_terminate,
            savepoint_dir=self.savepoint_dir or None,
            timeout_s=self.terminate_timeout_s,
            savepoint_format=self.savepoint_format,
        )


def _end_of(left: LeftToAnother) -> BaseException:
    """Leaves the run as it is in Dagster: a run that was forced to be CANCELED is retried by nobody."""
    if left.lost.is_canceled:
        return dg.DagsterExecutionInterruptedError(str(left))
    return dg.Failure(f"{left}: this run has left the job as it is", allow_retries=False)


def _failure(info: JobInfo, report: RunReport) -> dg.Failure:
    metadata = job_metadata(info, SystemClock().wall_ms(), report.page)
    why = "it was cancelled from outside"
    if info.failure is not None:
        why = info.failure.message
        if info.failure.traceback:
            metadata["unistream/traceback"] = dg.MetadataValue.md(f"```\n{info.failure.traceback}\n```")
    report.note(f"job {info.job} has ended as {info.state}; {report.left(info)}", is_error=False)
    text = f"job {info.name} ({info.job}) is {info.state}: {why}"
    return dg.Failure(text, metadata=metadata, allow_retries=False)
