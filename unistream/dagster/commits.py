"""Commits as materialisations: a sensor follows the outbox of commits, also of jobs for which no run waits.

    outbox  ──►  coalesced: one event for each asset and tick  ──►  Dagster's event log
       ▲                                                               │
       └── cursor: the last commit that was read        what was reported already, after a tick that died

Dagster's event log is never trimmed, and its queries slow down with the events of an asset, so what became
visible since the last tick is one event. The daemon may die after it has stored the events and before it has
stored the cursor: each event names the last commit in it, and what an asset has reported is left out.

The watermark of each commit closes time partitions of assets below (`closing_partitions`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from unistream.base.config import CLIENT_TIMEOUT, RETENTION_OUTBOX, RETENTION_OUTBOX_AGE, Configuration
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import CheckpointId, JobId, OperatorUid
from unistream.client.commits import commits_after
from unistream.client.resume import known_job
from unistream.dagster.closing_partitions import Cursor, Partitioned, newly_closed, partitioned
from unistream.dagster.report import (
    SINK_METADATA,
    job_metadata,
    positions_metadata,
    table_rows_metadata,
)
from unistream.dagster.resource import UnistreamResource
from unistream.dagster.stream import Committed, Written
from unistream.master.job_info import JobInfo
from unistream.model.positions import SourcePositions
from unistream.port.metadata import CommitRecord, OutboxRecord

SEQ_METADATA: Final = "unistream/outbox_seq"
"""Metadata of an event: the last commit in it."""

EVERY_S: Final = 30
LOOK_BACK: Final = 100  # events of an asset that are read at once to find the last one with SEQ_METADATA
READ_S: Final = 15.0  # of a tick, which Dagster ends after 60 s; what is left is read by the next one
ASK_S: Final = 30.0  # since the begin of a tick: later the jobs are not asked for what they are at now
CALL_S: Final = 10.0  # longest wait for an answer of the cluster

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What became visible in one asset by several commits.

    Attributes:
        rows: Of all of them.
        commits: How many.
        sink_uid: Which sink made them.
        job: Of the last one, as `checkpoint_id` and `table_version`.
        seq: Its number in the outbox.
        lag_ms: The time of its commit minus its watermark; None: it has none.
        positions: See `CommitRecord.positions`.
    """

    rows: int
    commits: int
    sink_uid: OperatorUid
    job: JobId
    checkpoint_id: CheckpointId
    table_version: int | None
    seq: int
    lag_ms: int | None
    positions: tuple[SourcePositions, ...]


def coalesced(
    records: Iterable[OutboxRecord],
    assets: Committed,
    reported: Callable[[dg.AssetKey], int],
) -> dict[dg.AssetKey, Visible]:
    """What is to be reported of each asset.

    Args:
        records: In the order of the outbox.
        assets: Of which one a commit is; those of others are left out.
        reported: The last commit of an asset that was reported, 0: none.
    """
    reading = Reading(assets, reported)
    reading.add(list(records))
    return reading.visible()


class Reading:
    """What a tick has read of the outbox, page by page. Of a commit only its number and its rows are kept.

    Args:
        assets, reported: See `coalesced`.
        after: The last commit that was read before; 0: none.
    """

    def __init__(
        self,
        assets: Committed,
        reported: Callable[[dg.AssetKey], int],
        after: int = 0,
    ) -> None:
        self._assets = assets
        self._reported = reported
        self._after = after
        self._known: dict[dg.AssetKey, int] = {}
        self._new: dict[dg.AssetKey, dict[tuple[JobId, str, CheckpointId], int]] = {}
        self._last: dict[dg.AssetKey, OutboxRecord] = {}
        self.watermarks: dict[dg.AssetKey, int] = {}
        self.seq = after
        self.records = 0

    def add(self, page: Sequence[OutboxRecord]) -> None:
        """In the order of the outbox."""
        for record in page:
            commit = record.commit
            key = self._assets.asset(record)
            if key is None:
                continue
            if key not in self._known:
                self._known[key] = self._reported(key)
            if commit.watermark_ms is not None:
                known_ms = self.watermarks.get(key, commit.watermark_ms)
                self.watermarks[key] = max(commit.watermark_ms, known_ms)
            if record.seq > self._known[key]:
                same = (commit.job, commit.sink_uid, commit.checkpoint_id)
                self._new.setdefault(key, {})[same] = commit.rows  # again with other rows: the last counts
                self._last[key] = record
        if page:
            self.seq, self.records = page[-1].seq, self.records + len(page)

    @property
    def not_kept(self) -> int:
        """Commits that were removed before they were read: numbers have no gaps by themselves. Of a sensor
        that has read none before nobody knows."""
        return max(0, self.seq - self._after - self.records) if self._after else 0

    def visible(self) -> dict[dg.AssetKey, Visible]:
        """See `coalesced`."""
        return {key: self._visible(self._last[key], rows) for key, rows in self._new.items()}

    def _visible(self, last: OutboxRecord, rows: Mapping[Any, int]) -> Visible:
        return Visible(
            rows=sum(rows.values()),
            commits=len(rows),
            sink_uid=OperatorUid(last.commit.sink_uid),
            job=last.commit.job,
            checkpoint_id=last.commit.checkpoint_id,
            table_version=last.commit.table_version,
            seq=last.seq,
            lag_ms=_lag_ms(last.commit),
            positions=last.commit.positions,
        )


def read_within(
    reading: Reading,
    pages: Iterator[Sequence[OutboxRecord]],
    until_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Adds pages until there are no more or `until_s` has passed; at least one. What has been read before the
    cluster is away counts.

    Raises:
        UnistreamError: nothing could be read.
    """
    before = reading.records
    try:
        for page in pages:
            reading.add(page)
            if clock() >= until_s:
                return
    except UnistreamError as error:
        if reading.records == before:
            raise
        logger.warning("event=outbox_read_in_part seq=%d reason=%r", reading.seq, str(error))


def _lag_ms(commit: CommitRecord) -> int | None:
    return None if commit.watermark_ms is None else max(0, commit.at_ms - commit.watermark_ms)


def build_commit_sensor(
    assets: Sequence[dg.AssetsDefinition],
    *,
    partitions: Sequence[dg.AssetSpec | dg.AssetsDefinition] = (),
    name: str = "unistream_commits",
    resource: str = "unistream",
    job_names: Mapping[str, str] | None = None,
    minimum_interval_seconds: int = EVERY_S,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """A sensor that reports the commits of these assets as materialisations without a run.

    Args:
        assets: Made by `unistream_assets`.
        partitions: Assets by hour, day, week or month, without a step, with `deps` on some of `assets`: each
            partition is reported, once, when the watermarks of all those have passed its end.
        name: Of the sensor.
        resource: Key of the `UnistreamResource` that knows the cluster, or the history, to ask.
        job_names: Name of the job by that of the step, where `UnistreamResource.run` was given another one.
        minimum_interval_seconds: Between two ticks; each reports one event for each asset at most.
        default_status: Of a new instance.

    Raises:
        ConfigError: an asset was not made by `unistream_assets`, two are of one sink, or no watermark can
            close one of `partitions`.
    """
    keys = _keys(assets, job_names or {})
    closing = partitioned(_specs(partitions), keys.values())

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource},
    )
    def commits(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        unistream: UnistreamResource = getattr(context.resources, resource)
        began_s, config = time.monotonic(), _impatient(unistream.configuration())
        cursor = Cursor.read(context.cursor)
        committed = Committed(keys, lambda job: known_job(job, config, unistream.target))
        reading = Reading(committed, lambda key: last_reported(context.instance, key), cursor.seq)
        try:
            pages = commits_after(cursor.seq, config=config, target=unistream.target)
            read_within(reading, pages, began_s + READ_S)
        except UnistreamError as error:  # read again at the next tick
            return dg.SkipReason(f"the commits are not known now: {error}")
        found = reading.visible()
        jobs = _jobs(found.values(), config, unistream.target, began_s + ASK_S)
        events = [_event(key, one, jobs[one.job], reading.not_kept) for key, one in found.items()]
        seen = cursor.seen(reading.watermarks, reading.seq)
        steps = {asset.key: newly_closed(asset, seen, _known(context.instance, asset)) for asset in closing}
        events += [event for key, step in steps.items() for event in _closed(key, step.partitions, seen.seq)]
        nothing = None if events else "nothing new is visible in these assets"
        if not reading.records:
            nothing = nothing and f"there is no commit behind number {cursor.seq}"
        if reading.not_kept:
            context.log.warning("%s", lost_text(reading.not_kept))
            nothing = nothing and f"{nothing}; {lost_text(reading.not_kept)}"
        return dg.SensorResult(asset_events=events, cursor=seen.after(steps).written(), skip_reason=nothing)

    return commits


def last_reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> int:
    """Number of the last commit of an asset in the event log; 0: none. Runs report events of their own, any
    number of them between two of this sensor."""
    page = instance.fetch_materializations(key, limit=LOOK_BACK)
    while True:
        for record in page.records:
            event = record.asset_materialization
            value = None if event is None else event.metadata.get(SEQ_METADATA)
            if value is not None and isinstance(value.value, int):
                return value.value
        if not page.has_more:
            return 0
        page = instance.fetch_materializations(key, limit=LOOK_BACK, cursor=page.cursor)


def lost_text(commits: int) -> str:
    """For people."""
    return (
        f"{commits:,} commits, of these assets or others, were removed from the outbox before this sensor "
        f"has read them, as {RETENTION_OUTBOX.key} and {RETENTION_OUTBOX_AGE.key} say: their rows are not "
        "reported"
    )


def _impatient(config: Configuration) -> Configuration:
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
        yield dg.AssetMaterialization(
            key, description=text, partition=partition, metadata={SEQ_METADATA: seq}
        )


def _keys(assets: Sequence[dg.AssetsDefinition], names: Mapping[str, str]) -> dict[Written, dg.AssetKey]:
    found: dict[Written, dg.AssetKey] = {}
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
            found[written] = spec.key
    return found


def _jobs(
    found: Iterable[Visible], config: Configuration, target: str, until_s: float
) -> dict[JobId, JobInfo | None]:
    """Each job as it is now; None: nobody knows it, or `until_s` has passed."""
    jobs: dict[JobId, JobInfo | None] = {}
    for job in {visible.job for visible in found}:
        jobs[job] = None
        if time.monotonic() >= until_s:
            continue
        try:
            jobs[job] = known_job(job, config, target)
        except UnistreamError as error:
            logger.warning("event=job_not_asked job=%s reason=%r", job, str(error))
    return jobs


def _now(visible: Visible, job: JobInfo | None) -> dict[str, Any]:
    """Checkpoints, watermark and so on of a job, and the rows of the table; its id alone if nobody knows."""
    if job is None:
        return {"unistream/job_id": str(visible.job)}
    return job_metadata(job) | table_rows_metadata(job.sinks.get(visible.sink_uid))


def _event(key: dg.AssetKey, visible: Visible, job: JobInfo | None, not_kept: int) -> dg.AssetMaterialization:
    metadata = {
        **_now(visible, job),
        "unistream/new_rows": visible.rows,
        "unistream/new_commits": visible.commits,
        **positions_metadata(visible.positions),
        "unistream/checkpoint_id": visible.checkpoint_id,
        SEQ_METADATA: visible.seq,
    }
    if not_kept:
        metadata["unistream/commits_not_kept"] = not_kept
    tags = {}
    if visible.lag_ms is not None:
        metadata["unistream/lag_s"] = visible.lag_ms / 1000
    if visible.table_version is not None:
        metadata["unistream/table_version"] = visible.table_version
        tags["dagster/data_version"] = str(visible.table_version)
    text = lost_text(not_kept) if not_kept else None
    return dg.AssetMaterialization(asset_key=key, metadata=metadata, tags=tags, description=text)
