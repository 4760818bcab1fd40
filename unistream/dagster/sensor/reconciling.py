"""Runs whose host has died: a sensor reports them as ended, so that the next run can go on with their jobs.

Dagster's launcher for local processes has no health check: a run whose process and parents were killed stays
STARTED for ever, and its pool stays taken. Its heartbeats (`unistream.dagster.run.watching`) have stopped;
`unistream.dagster.sensor.silence` decides.

    STARTED     is reported as failed: Dagster's retries, or the next materialisation, go on with its job
    CANCELING   its job is ended as `on_terminate` says, then it is reported as canceled

Before anything is reported the sensor takes the link in one transaction, which fails if a heartbeat has come
meanwhile; and a process that wakes up later finds that the link is no longer its own. A daemon that dies in
between leaves the link taken and the run unfinished, and the next tick reports it.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import dagster as dg

from unistream.base.errors import AlreadyEnded, ConfigError, NotFound, UnistreamError, Unreachable
from unistream.client.job.run_links import LinkStore
from unistream.client.job.submission import attach
from unistream.client.machine.background import in_background
from unistream.client.remote.job_client import JobClient
from unistream.dagster.operation.drain_resume import DrainAndResume
from unistream.dagster.run.attached import EndPolicy, stop_when_running, takes_no_savepoint
from unistream.dagster.run.metadata import BACKFILL_METADATA, OPERATION_METADATA, SINK_METADATA
from unistream.dagster.run.policy_tag import end_policy_of
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.watching import (
    MISSED_MAX,
    is_operation,
    key_of,
    mark_of,
    operation_key_of,
    watcher_of,
)
from unistream.dagster.sensor.silence import (
    SilenceLimits,
    SilenceVerdict,
    Suspicion,
    UnfinishedStep,
    judged,
    of_run,
    remembered,
    written,
)
from unistream.port.run_links import RunLink

EVERY_S: Final = 30
SILENT_AFTER_S: Final = 60.0
UNLINKED_AFTER_S: Final = 1_800.0  # imports and starts of Spark take minutes
RUNS_MAX: Final = 500  # of one tick, the oldest first
END_WAIT_S: Final = 20.0  # of one tick for the ends of jobs: Dagster ends a tick after 60 s
END_WAIT_MIN_S: Final = 0.5
RETRIED_WITHIN_S: Final = 600.0  # later nobody waits for a retry that did not come

WILL_RETRY_TAG: Final = "dagster/will_retry"
RETRY_TAG: Final = "dagster/auto_retry_run_id"

_OURS: Final = {SINK_METADATA, BACKFILL_METADATA}

logger = logging.getLogger(__name__)


def build_reconciling_sensor(
    assets: Sequence[dg.AssetsDefinition],
    *,
    operations: Sequence[dg.ScheduleDefinition | DrainAndResume] = (),
    name: str = "unistream_reconciling",
    resource: str = "unistream",
    silent_after_s: float = SILENT_AFTER_S,
    unlinked_after_s: float = UNLINKED_AFTER_S,
    minimum_interval_seconds: int = EVERY_S,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    clock: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """A sensor that reports runs of these assets as failed whose process is gone, and ends the jobs of runs
    that were being terminated when it went.

    Args:
        assets: Made by `unistream_assets` or `build_backfill_asset`.
        operations: Made by `build_stop_with_savepoint_schedule`, `build_savepoint_schedule` or
            `build_drain_and_resume_schedule`: the runs of their jobs are looked after, too.
        name: Of the sensor.
        resource: Key of the `UnistreamResource` of the runs.
        silent_after_s: Since the last heartbeat of a run; at least three times `heartbeat_interval_s` counts.
            Half of it later a second tick decides.
        unlinked_after_s: Since the last event in Dagster of a run whose step has begun and never had a job.
        minimum_interval_seconds: Between two ticks.
        default_status: Of a new instance.
        clock: Seconds since the epoch, as Dagster stamps its events.

    Raises:
        ConfigError: an asset or a schedule was made by none of them, or a duration is not above 0.
    """
    if silent_after_s <= 0 or unlinked_after_s <= 0:
        raise ConfigError("silent_after_s and unlinked_after_s must be above 0")
    steps, backfills, performed = _steps(assets), _backfills(assets), _operations(operations)

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource},
    )
    def reconciling(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        unistream: UnistreamResource = getattr(context.resources, resource)
        least_s = MISSED_MAX * unistream.heartbeat_interval_s
        limits = SilenceLimits(
            silent_ms=int(1_000 * max(silent_after_s, least_s)), unlinked_ms=int(1_000 * unlinked_after_s)
        )
        before = remembered(context.cursor)
        tick = _ReconcilingTick(
            context.instance, unistream, limits, steps, backfills, performed, before, clock()
        )
        try:
            text = tick.perform()
        except UnistreamError as error:  # who was suspected could not send a heartbeat either
            return dg.SensorResult(skip_reason=f"the heartbeats are not known now: {error}", cursor="{}")
        return dg.SensorResult(skip_reason=text, cursor=written(tick.suspicions))

    return reconciling


def _steps(assets: Iterable[dg.AssetsDefinition]) -> dict[str, frozenset[dg.AssetKey]]:
    """Assets by step."""
    found: dict[str, frozenset[dg.AssetKey]] = {}
    for definition in assets:
        plain = [spec.key for spec in definition.specs if not _OURS & spec.metadata.keys()]
        if plain:
            raise ConfigError(
                f"asset {plain[0].to_user_string()} is of no sink: build_reconciling_sensor takes what "
                "unistream_assets or build_backfill_asset has made"
            )
        found[definition.op.name] = frozenset(definition.keys)
    return found


def _backfills(assets: Iterable[dg.AssetsDefinition]) -> dict[str, str]:
    """Name of the job by step, of those that compute its table again."""
    return {
        definition.op.name: spec.metadata[BACKFILL_METADATA]
        for definition in assets
        for spec in definition.specs
        if BACKFILL_METADATA in spec.metadata
    }


@dataclass(frozen=True, slots=True)
class _StreamOperation:
    """What the runs of a job of Dagster do. `stream`: name of the stream's job."""

    step: str
    stream: str


def _operations(given: Iterable[dg.ScheduleDefinition | DrainAndResume]) -> dict[str, _StreamOperation]:
    """The operations of these schedules, by the name of their job. Raises ConfigError: one does nothing with
    a stream."""
    found: dict[str, _StreamOperation] = {}
    for one in given:
        schedule = one.schedule if isinstance(one, DrainAndResume) else one
        job = schedule.job if schedule.has_job else None
        stream = job.metadata.get(OPERATION_METADATA) if isinstance(job, dg.JobDefinition) else None
        if not isinstance(job, dg.JobDefinition) or stream is None:
            raise ConfigError(
                f"schedule {schedule.name} does nothing with a stream: build_reconciling_sensor takes what "
                "build_stop_with_savepoint_schedule, build_savepoint_schedule or "
                "build_drain_and_resume_schedule has made"
            )
        [node] = job.nodes
        found[job.name] = _StreamOperation(node.name, str(stream.value))
    return found


@dataclass
class _ReconcilingTick:
    """One evaluation of the sensor.

    Attributes:
        backfills: See `_backfills`.
        operations: See `_operations`.
        now_s: Of Dagster's clock.
        suspicions: For the next one.
        ends_until_s: Until then it waits for the ends of jobs; monotonic.
    """

    instance: dg.DagsterInstance
    unistream: UnistreamResource
    limits: SilenceLimits
    steps: Mapping[str, frozenset[dg.AssetKey]]
    backfills: Mapping[str, str]
    operations: Mapping[str, _StreamOperation]
    before: Mapping[str, Suspicion]
    now_s: float
    suspicions: dict[str, Suspicion] = field(default_factory=dict)
    ends_until_s: float = field(default_factory=lambda: time.monotonic() + END_WAIT_S)

    def perform(self) -> str:
        """Says what was done. Raises UnistreamError: the heartbeats are not known now."""
        runs = [(run, steps) for run in self._unfinished() if (steps := self._of_ours(run))]
        failed = [(run, steps) for run in self._not_retried() if (steps := self._of_ours(run))]
        if not runs and not failed:
            return "no run of these assets is under way"
        links = self.unistream.links()
        if links is None:
            return "no job has run on this machine yet"
        with closing(links):
            done = [text for run, steps in runs if (text := self._guarded(run, steps, links))]
            done += [text for run, steps in failed if (text := self._reported_again(run, steps, links))]
        return "; ".join(done) or f"{len(runs)} runs of these assets are under way"

    def _unfinished(self) -> Iterable[dg.DagsterRun]:
        statuses = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
        filters = dg.RunsFilter(statuses=statuses)
        records = self.instance.get_run_records(filters, limit=RUNS_MAX, ascending=True)
        return [record.dagster_run for record in records]

    def _not_retried(self) -> Iterable[dg.DagsterRun]:
        """Runs that have failed lately, and that Dagster has said it retries."""
        since = datetime.fromtimestamp(self.now_s - RETRIED_WITHIN_S, UTC)
        filters = dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.FAILURE], tags={WILL_RETRY_TAG: "true"}, updated_after=since
        )
        runs = [record.dagster_run for record in self.instance.get_run_records(filters, limit=RUNS_MAX)]
        return [run for run in runs if RETRY_TAG not in run.tags]

    def _of_ours(self, run: dg.DagsterRun) -> list[str]:
        """The steps of ours that the run performs."""
        operation = self.operations.get(run.job_name)
        if operation is not None:
            return [operation.step]
        selected = run.asset_selection  # None or empty: all assets of the run's job
        if selected and not any(selected & keys for keys in self.steps.values()):
            return []
        planned = self.instance.all_logs(
            run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
        )
        events = [entry.dagster_event for entry in planned]
        keys = {event.asset_key for event in events if event is not None}
        return [step for step, of_step in self.steps.items() if of_step & keys]

    def _guarded(self, run: dg.DagsterRun, names: Sequence[str], links: LinkStore) -> str | None:
        """Reconciles a run as `_reconciled`: one that Dagster cannot take a report of now hides no other one.
        A process that was paused while it wrote has its events locked, if Dagster's database is SQLite."""
        try:
            return self._reconciled(run, names, links)
        except UnistreamError:
            raise
        except Exception as error:
            logger.warning("event=run_not_reconciled run=%s", run.run_id, exc_info=error)
            return f"run {run.run_id}: the next tick tries again: {error}"

    def _reconciled(self, run: dg.DagsterRun, names: Sequence[str], links: LinkStore) -> str | None:
        """What was done about a run; None: nothing."""
        seen = {name: self._seen(run, name, links) for name in names}
        found = {name: judged(step, self.limits) for name, step in seen.items()}
        decision = of_run(list(found.values()))
        if decision.verdict is SilenceVerdict.ENDED:
            [name] = [name for name, one in found.items() if one is decision][:1]
            if decision.suspicion is not None:  # until it is reported
                self.suspicions[f"{run.run_id} {name}"] = decision.suspicion
            return self._ended(seen[name], decision.text, links)
        for name, one in found.items():
            if one.suspicion is not None and decision.verdict is not SilenceVerdict.ALIVE:
                self.suspicions[f"{run.run_id} {name}"] = one.suspicion
        return f"run {run.run_id}: {decision.text}" if decision.verdict is SilenceVerdict.SUSPECTED else None

    def _seen(self, run: dg.DagsterRun, name: str, links: LinkStore) -> UnfinishedStep:
        suspicion = self.before.get(f"{run.run_id} {name}")
        step = UnfinishedStep(
            run=run, step=name, seen=links.find(self._key_of(run, name)), quiet_ms=None, suspicion=suspicion
        )
        is_quiet = name in self.backfills  # it computes for hours, also where no job was there to be watched
        if step.link is not None or step.is_taken or is_quiet:
            return step
        return UnfinishedStep(
            run=run, step=name, seen=step.seen, quiet_ms=self._quiet_ms(run, name), suspicion=suspicion
        )

    def _key_of(self, run: dg.DagsterRun, name: str) -> str:
        return (operation_key_of if run.job_name in self.operations else key_of)(run, name)

    def _left_behind(self, run: dg.DagsterRun, name: str) -> str | None:
        """What there is to know of a job that is not left to itself; None: it is that of the run."""
        if run.job_name in self.operations:
            return _OPERATED.format(self.operations[run.job_name].stream, run.job_name)
        return _BACKFILLED.format(self.backfills[name]) if name in self.backfills else None

    def _quiet_ms(self, run: dg.DagsterRun, name: str) -> int | None:
        begun = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_START)
        if not any(entry.step_key == name for entry in begun):
            return None
        newest = self.instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
        return int(1_000 * (self.now_s - newest[0].timestamp)) if newest else None

    # --- a run whose process is gone ----------------------------------------------------------------

    def _ended(self, step: UnfinishedStep, seen: str, links: LinkStore) -> str | None:
        """Reports the run; None: it has come back to life, or has ended meanwhile."""
        if not step.is_taken:
            mark = mark_of(step.link.watcher if step.link else watcher_of(step.run, step.step))
            key = self._key_of(step.run, step.step)
            taken = links.take_over(key, mark, silent_ms=self.limits.silent_ms)
            if taken is not None and taken.watcher != mark:  # a heartbeat has come
                return None
        run = self.instance.get_run_by_id(step.run.run_id)
        if run is None or run.status != step.run.status:
            return None
        text = f"The process of the run is gone: {seen}"
        if run.status == dg.DagsterRunStatus.STARTED:
            then = self._left_behind(run, step.step) or _NEXT[self.unistream.target == "remote"]
            self.instance.report_run_failed(run, f"{text}. {then}")
            return f"run {run.run_id} is reported as failed"
        how = self._ended_job(step, links)
        if how is None:
            return f"run {run.run_id}: its job is being ended"
        self.instance.report_run_canceled(run, f"{text}, and {how}")
        return f"run {run.run_id} is reported as canceled"

    def _reported_again(self, run: dg.DagsterRun, names: Sequence[str], links: LinkStore) -> str | None:
        """Dagster stores the event of a failure before the run's status. Its retries look at the status when
        they read the event, so they miss a run that they see in between; they retry a run only once."""
        for name in names:
            step = UnfinishedStep(run=run, step=name, seen=links.find(self._key_of(run, name)), quiet_ms=None)
            link = step.seen.link
            if link is None or not step.is_taken:  # not reported by this sensor, or repeated since
                continue
            taken_ms = step.seen.now_ms - link.attached_ms
            if self.limits.silent_ms // 4 <= taken_ms < 1_000 * RETRIED_WITHIN_S:
                self.instance.report_run_failed(
                    run, "The run was not retried: it is reported as failed again."
                )
                return f"run {run.run_id} was not retried, and is reported as failed again"
        return None

    def _ended_job(self, step: UnfinishedStep, links: LinkStore) -> str | None:
        """How the job of a run has ended that was being terminated; None: not yet."""
        link = step.seen.link
        left = self._left_behind(step.run, step.step)
        if left is not None:
            return left
        if link is None or not (step.link or step.is_taken):
            return "it had no job"
        if self.unistream.target != "remote":
            return f"job {link.job} has ended with it"
        for other in links.of_job(link.job):
            is_alive = other.released_ms is None and not self._is_silent(other, step.seen.now_ms)
            if other.key != link.key and is_alive and not is_operation(other):
                return f"run {other.watcher.run} watches job {link.job} now"
        waited_s = (step.seen.now_ms - link.attached_ms) / 1_000 if step.is_taken else 0.0
        try:
            with closing(attach(link.job, self.unistream.configuration())) as client:
                within_s = max(END_WAIT_MIN_S, self.ends_until_s - time.monotonic())
                policy = end_policy_of(step.run.tags, self.unistream.end_policy())
                return ended(client, policy, waited_s, within_s=within_s)
        except NotFound as error:
            return str(error)
        except AlreadyEnded:
            return None  # the next tick sees how

    def _is_silent(self, link: RunLink, now_ms: int) -> bool:
        return now_ms - link.heartbeat_ms >= self.limits.silent_ms


_NEXT: Final = {
    True: "Its job is left as it is: the next run attaches to it.",
    False: "Its job has ended with it: the next run goes on from its newest checkpoint.",
}


_BACKFILLED: Final = (
    "the backfill of job {0} may be unfinished, and the job stopped: the same run again goes on, and so does "
    "'unistream backfill {0}'"
)
_OPERATED: Final = (
    "the stream {0} may be stopped: the retry, *Re-execute*, or the next run of {1} goes on where this one "
    "was"
)


def ended(
    client: JobClient, policy: EndPolicy, waited_s: float, *, within_s: float = END_WAIT_S
) -> str | None:
    """Ends a job by the policy, as far as that is possible within one tick; it may be called again.

    Args:
        client: Of the job.
        policy: Of the run that was being terminated.
        waited_s: Since the first call; above the time of the policy the job is cancelled.
        within_s: Longest wait of this call.

    Returns:
        A sentence; None: the job has not ended yet.

    Raises:
        Unreachable, NotFound, AlreadyEnded: from the client.
    """
    info = client.status()
    if policy.on_terminate == "detach" and not info.is_terminal:
        return f"job {info.job} goes on"
    if info.is_terminal:
        at = f" with savepoint {info.savepoint}" if info.savepoint else ""
        return f"job {info.job} has ended as {info.state}{at}"
    if policy.on_terminate == "cancel" or waited_s > policy.timeout_s or takes_no_savepoint(client):
        client.cancel()
        return f"job {info.job} is cancelled"
    given_up = threading.Event()
    stopping = in_background(lambda: stop_when_running(client, policy, given_up), "stop")
    try:
        savepoint = stopping.result(within_s)
    except (TimeoutError, AlreadyEnded, Unreachable):
        return None  # the next tick looks at it again
    except UnistreamError as failure:
        client.cancel()
        return f"job {info.job} is cancelled, since it could not be stopped with a savepoint: {failure}"
    finally:
        given_up.set()
    return f"job {info.job} was stopped with savepoint {savepoint}"
