"""A sensor that follows streams, also those for which no run waits: their commits become materialisations,
the ends of their jobs observations, and their checks have results.

    outbox  ──►  OutboxReading: one event for each asset and tick  ──►  Dagster's event log
       ▲                                                                   │
       └── cursor: the last commit that was read        what was reported already, after a tick that died

Dagster's event log is never trimmed, and its queries slow down with the events of an asset, so what became
visible since the last tick is one event. The daemon may die after it has stored the events and before it has
stored the cursor: each event names the last commit in it, and what an asset has reported is left out.

The watermark of each commit closes time partitions of assets below (`closing_partitions`). What is reported
of jobs and checks is decided by `following`. Dagster shows the result of a check if it names the newest
materialisation by its number in the event log. So the tick stores materialisations itself; all other events
it returns, and the daemon stores them.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import dagster as dg

from unistream.base.config import CLIENT_TIMEOUT, Configuration
from unistream.base.errors import ClusterEnded, ConfigError, UnistreamError
from unistream.base.ids import JobId
from unistream.client.job.commits import commits_after
from unistream.client.job.resume import known_job
from unistream.client.job.submission import NothingRuns
from unistream.dagster.run.metadata import JOB, SEQ, SINK_METADATA, STATE, asset_metadata, ordered
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.seen import NotSeen, Seen, SeenJob
from unistream.dagster.run.stream import AssetStream, CommittedAssets, Written
from unistream.dagster.sensor.checks import CHECK, limits_of, verdict_of
from unistream.dagster.sensor.closing_partitions import Cursor, Partitioned, newly_closed, partitioned
from unistream.dagster.sensor.commits import (
    OutboxReading,
    Visible,
    event_of,
    lost_text,
    now_metadata,
    read_within,
)
from unistream.dagster.sensor.following import (
    Checked,
    ReportedStream,
    StreamChange,
    changes,
    is_due,
    is_followed,
    reported_text,
    results_text,
)
from unistream.dagster.sensor.judging import CheckVerdict, judged_seen
from unistream.dagster.sensor.looking import Target, is_reported, look, newest_materialisation, provenance
from unistream.model.job_info import JobInfo

EVERY_S: Final = 30
LOOK_BACK: Final = 100  # events of an asset that are read at once to find the last one with SEQ
READ_S: Final = 15.0  # of a tick, which Dagster ends after 60 s; what is left is read by the next one
ASK_S: Final = 30.0  # since the begin of a tick: later the jobs are not asked for what they are at now
CALL_S: Final = 10.0  # longest wait for an answer of the cluster

Event: TypeAlias = dg.AssetMaterialization | dg.AssetObservation

logger = logging.getLogger(__name__)


def build_commit_sensor(
    assets: Sequence[dg.AssetsDefinition],
    *,
    partitions: Sequence[dg.AssetSpec | dg.AssetsDefinition] = (),
    name: str = "unistream_commits",
    resource: str = "unistream",
    job_names: Mapping[str, str] | None = None,
    minimum_interval_seconds: int = EVERY_S,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    clock: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """A sensor that reports the commits of these assets as materialisations without a run, that their jobs
    run, or have ended and how, as observations, and the results of `build_stream_checks` in the same
    definitions.

    Args:
        assets: Made by `unistream_assets`.
        partitions: Assets by hour, day, week or month, without a step, with `deps` on some of `assets`: each
            partition is reported, once, when the watermarks of all those have passed its end.
        name: Of the sensor.
        resource: Key of the `UnistreamResource` that knows the cluster, or the history, to ask.
        job_names: Name of the job by that of the step, where `UnistreamResource.run` was given another one.
        minimum_interval_seconds: Between two ticks; each reports one event for each asset at most, and a
            result for each of its checks.
        default_status: Of a new instance.
        clock: Seconds since the epoch.

    Raises:
        ConfigError: an asset was not made by `unistream_assets`, two are of one sink, or no watermark can
            close one of `partitions`.
    """
    names = job_names or {}
    keys = _keys(assets, names)
    closing = partitioned(_specs(partitions), keys.values())
    followed = [_Followed.of(one, names.get(one.op.name)) for one in assets]

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource},
    )
    def commits(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        unistream: UnistreamResource = getattr(context.resources, resource)
        tick = _CommitTick(
            instance=context.instance,
            target=unistream.target,
            config=impatient(unistream.configuration()),
            keys=keys,
            closing=closing,
            followed=followed,
            checks=_checks(context.repository_def, set(keys.values())),
            before=Cursor.read(context.cursor),
            now_ms=int(clock() * 1_000),
        )
        result = tick.perform()
        if tick.not_kept:
            context.log.warning("%s", lost_text(tick.not_kept))
        return result

    return commits


@dataclass(frozen=True, slots=True)
class _Followed:
    """The assets of one step, and whose job it is."""

    step: str
    stream: AssetStream
    specs: tuple[dg.AssetSpec, ...]

    @classmethod
    def of(cls, assets: dg.AssetsDefinition, job_name: str | None) -> "_Followed":
        return cls(assets.op.name, AssetStream.of(assets, job_name), tuple(assets.specs))


@dataclass
class _CommitTick:
    """One evaluation of the sensor.

    Attributes:
        keys: Assets, with what their sinks write.
        checks: Of each asset, those that `build_stream_checks` has made.
        before: The cursor.
        now_ms: Wall clock.
        seen: Streams by step; without those for which there was no time.
        streams, checked: For the next tick.
        sentences: About jobs.
    """

    instance: dg.DagsterInstance
    target: str
    config: Configuration
    keys: Mapping[Written, dg.AssetKey]
    closing: Sequence[Partitioned]
    followed: Sequence[_Followed]
    checks: Mapping[dg.AssetKey, Sequence[dg.AssetCheckSpec]]
    before: Cursor
    now_ms: int
    not_kept: int = 0
    seen: dict[str, Seen] = field(default_factory=dict)
    streams: dict[str, ReportedStream] = field(default_factory=dict)
    checked: dict[str, Checked] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def perform(self) -> dg.SensorResult:
        reading, unread = self._read()
        self._look(unread)
        visible = reading.visible()
        after = self.before.seen(reading.watermarks, reading.seq)
        steps = {one.key: newly_closed(one, after, _known(self.instance, one)) for one in self.closing}
        for event in self._materialisations(visible):
            self.instance.report_runless_asset_event(event)
        events: list[Event] = [
            event for key, step in steps.items() for event in _closed(key, step.partitions, after.seq)
        ]
        events += [event for one in self.followed for event in self._observations(one)]
        results = [event for one in self.followed for event in self._results(one)]
        shown = {key.to_user_string(): (one.rows, one.commits) for key, one in visible.items()}
        text = reported_text(shown, self.sentences, len(results)) or self._nothing(reading, bool(events))
        if unread is not None:
            text = f"the commits are not known now: {unread}" + (f"; {text}" if events or results else "")
        cursor = after.after(steps).reporting(self.streams, self.checked).written()
        return dg.SensorResult(asset_events=[*events, *results], cursor=cursor, skip_reason=text)

    def _read(self) -> tuple[OutboxReading, UnistreamError | None]:
        """What could be read, and why nothing could be."""
        committed = CommittedAssets(self.keys, lambda job: known_job(job, self.config, self.target))
        reading = OutboxReading(committed, lambda key: last_reported(self.instance, key), self.before.seq)
        try:
            pages = commits_after(self.before.seq, config=self.config, target=self.target)
            read_within(reading, pages, self.began_s + READ_S)
        except UnistreamError as error:  # read again at the next tick
            return reading, error
        self.not_kept = reading.not_kept
        return reading, None

    def _nothing(self, reading: OutboxReading, has_events: bool) -> str:
        if has_events:
            return "partitions were closed"
        text = "nothing new is visible in these assets"
        if not reading.records:
            text = f"there is no commit behind number {self.before.seq}"
        return f"{text}; {lost_text(self.not_kept)}" if self.not_kept else text

    def _look(self, unread: UnistreamError | None) -> None:
        """Who does not answer for the commits is not asked for each job as well."""
        is_away = unread is not None and not isinstance(unread, NothingRuns | ClusterEnded)
        for one in self.followed:
            if is_away:
                self.seen[one.step] = NotSeen(str(unread))
            elif self._has_time:
                self.seen[one.step] = look(one.stream, self.config, self.target)

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self.began_s + ASK_S

    def _materialisations(self, found: Mapping[dg.AssetKey, Visible]) -> Iterator[dg.AssetMaterialization]:
        known = {one.info.job: one for one in self.seen.values() if isinstance(one, SeenJob)}
        specs = {spec.key: spec for one in self.followed for spec in one.specs}
        for key, visible in found.items():
            if visible.job not in known:
                info = self._ask(visible.job)
                known |= {} if info is None else {visible.job: SeenJob(info)}
            job = known.get(visible.job)
            info, page = (None, None) if job is None else (job.info, job.page)
            now = now_metadata(visible, info, self.now_ms, page)
            known_code = provenance(self.instance, specs[key])
            yield event_of(key, visible, now, self.not_kept, known_code)

    def _ask(self, job: JobId) -> JobInfo | None:
        """A job as it is now; None: nobody knows it, or there is no time."""
        if not self._has_time:
            return None
        try:
            return known_job(job, self.config, self.target)
        except UnistreamError as error:
            logger.warning("event=job_not_asked job=%s reason=%r", job, str(error))
            return None

    def _observations(self, one: _Followed) -> Iterator[dg.AssetObservation]:
        seen, before = self.seen.get(one.step), self.before.streams.get(one.step, ReportedStream())
        if seen is None:
            return
        former = self._ask(JobId(before.job)) if is_followed(before, seen) else None
        found, self.streams[one.step] = changes(before, seen, former, self.now_ms)
        page = seen.page if isinstance(seen, SeenJob) else None
        for change in found:
            for spec in one.specs:
                if not is_reported(self.instance, spec.key, change.job, change.state):
                    yield _observation(spec, change, self.now_ms, page)
            self.sentences.append(f"{one.step}: {change.text}")

    def _results(self, one: _Followed) -> Iterator[dg.AssetCheckEvaluation]:
        seen = self.seen.get(one.step)
        if seen is None:
            return
        for spec in one.specs:
            checks = self.checks.get(spec.key)
            if not checks:
                continue
            verdicts = judged_seen(seen, limits_of(checks), self.now_ms)
            final = {check.name: verdict_of(check, verdicts) for check in checks}
            target, name = newest_materialisation(self.instance, spec.key), spec.key.to_user_string()
            before, reported = self.before.checked.get(name, Checked()), self.streams[one.step]
            mark = "" if target is None else str(target.storage_id)
            now = Checked(mark, results_text(final), self.now_ms)
            if is_due(before, now, reported, seen):
                self.checked[name] = now
                yield from (_evaluation(check, final[check.name], target) for check in checks)


def _observation(
    spec: dg.AssetSpec, change: StreamChange, now_ms: int, page: str | None
) -> dg.AssetObservation:
    known = {} if change.info is None else asset_metadata(spec, change.info, now_ms, page)
    metadata = ordered({**known, JOB: str(change.job), STATE: change.state})
    return dg.AssetObservation(asset_key=spec.key, description=change.text, metadata=metadata)


def _evaluation(
    check: dg.AssetCheckSpec, verdict: CheckVerdict, target: Target | None
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=check.asset_key,
        check_name=check.name,
        passed=verdict.passed,
        target_materialization_data=target,
        severity=verdict.severity,
        description=verdict.text,
        metadata=dict(verdict.metadata),
        blocking=check.blocking,
    )


def _checks(
    repository: dg.RepositoryDefinition | None, keys: set[dg.AssetKey]
) -> dict[dg.AssetKey, list[dg.AssetCheckSpec]]:
    """The checks of streams among those of the assets, by asset."""
    found: dict[dg.AssetKey, list[dg.AssetCheckSpec]] = {}
    if repository is not None:
        graph = repository.asset_graph
        for key in sorted(graph.get_check_keys_for_assets(keys)):
            spec = graph.get_check_spec(key)
            if CHECK in spec.metadata:
                found.setdefault(key.asset_key, []).append(spec)
    return found


def last_reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> int:
    """Number of the last commit of an asset in the event log; 0: none. Runs report events of their own, any
    number of them between two of this sensor."""
    page = instance.fetch_materializations(key, limit=LOOK_BACK)
    while True:
        for record in page.records:
            event = record.asset_materialization
            value = None if event is None else event.metadata.get(SEQ)
            if value is not None and str(value.value).isdigit():  # a number, in events of earlier versions
                return int(str(value.value))
        if not page.has_more:
            return 0
        page = instance.fetch_materializations(key, limit=LOOK_BACK, cursor=page.cursor)


def impatient(config: Configuration) -> Configuration:
    """A tick that waits for a cluster for a minute is ended by Dagster."""
    if config.get(CLIENT_TIMEOUT) <= 1_000 * CALL_S:
        return config
    return Configuration({**config.to_dict(), CLIENT_TIMEOUT.key: f"{CALL_S:.0f} s"})


def _specs(given: Iterable[dg.AssetSpec | dg.AssetsDefinition]) -> Iterable[dg.AssetSpec]:
    for one in given:
        yield from [one] if isinstance(one, dg.AssetSpec) else one.specs


def _known(instance: dg.DagsterInstance, asset: Partitioned) -> Callable[[], Iterable[str]]:
    return lambda: instance.get_materialized_partitions(asset.key)


def _closed(key: dg.AssetKey, partitions: Iterable[str], seq: int) -> Iterable[dg.AssetMaterialization]:
    for partition in partitions:
        text = f"the watermark has passed the end of {partition}"
        yield dg.AssetMaterialization(key, description=text, partition=partition, metadata={SEQ: str(seq)})


def _keys(assets: Sequence[dg.AssetsDefinition], names: Mapping[str, str]) -> dict[Written, dg.AssetKey]:
    keys: dict[Written, dg.AssetKey] = {}
    seen: dict[tuple[str, str], dg.AssetKey] = {}
    for definition in assets:
        step = definition.op.name
        for spec in definition.specs:
            uid = spec.metadata.get(SINK_METADATA)
            if uid is None:
                raise ConfigError(
                    f"asset {spec.key.to_user_string()} is of no sink: build_commit_sensor takes what "
                    "unistream_assets has made"
                )
            written = Written.of(spec, names.get(step, step))
            other = seen.setdefault(written.identity, spec.key)
            if other != spec.key:
                raise ConfigError(
                    f"assets {other.to_user_string()} and {spec.key.to_user_string()} are both of sink "
                    f"{uid!r} of {written.uri or f'job {written.job!r}'}: "
                    f"{'one table is one asset' if written.uri else 'give their jobs different names'}"
                )
            keys[written] = spec.key
    return keys
