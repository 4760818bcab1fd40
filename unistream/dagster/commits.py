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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import dagster as dg

from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import CheckpointId, JobId
from unistream.client.commits import commits_after
from unistream.client.resume import known_job
from unistream.dagster.closing_partitions import Cursor, Partitioned, newly_closed, partitioned
from unistream.dagster.report import SINK_METADATA, job_metadata, positions_metadata
from unistream.dagster.resource import UnistreamResource
from unistream.model.positions import SourcePositions
from unistream.port.metadata import CommitRecord, OutboxRecord

SEQ_METADATA: Final = "unistream/outbox_seq"
"""Metadata of an event: the last commit in it."""

EVERY_S: Final = 30
LOOK_BACK: Final = 20  # events of an asset, among which the last one with SEQ_METADATA is looked for

Written: TypeAlias = tuple[str, str]
"""(name of the job, uid of the sink)."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What became visible in one asset by several commits.

    Attributes:
        rows: Of all of them.
        commits: How many.
        job: Of the last one, as `checkpoint_id` and `table_version`.
        seq: Its number in the outbox.
        lag_ms: The time of its commit minus its watermark; None: it has none.
        positions: See `CommitRecord.positions`.
    """

    rows: int
    commits: int
    job: JobId
    checkpoint_id: CheckpointId
    table_version: int | None
    seq: int
    lag_ms: int | None
    positions: tuple[SourcePositions, ...]


def coalesced(
    records: Iterable[OutboxRecord],
    assets: Mapping[Written, dg.AssetKey],
    reported: Callable[[dg.AssetKey], int],
) -> dict[dg.AssetKey, Visible]:
    """What is to be reported of each asset.

    Args:
        records: In the order of the outbox.
        assets: Which one a sink of a job writes; others are left out.
        reported: The last commit of an asset that was reported, 0: none.
    """
    of_asset: dict[dg.AssetKey, dict[tuple[JobId, str, CheckpointId], OutboxRecord]] = {}
    for record in records:
        commit = record.commit
        key = assets.get((record.job_name, commit.sink_uid))
        if key is not None:
            same = (
                commit.job,
                commit.sink_uid,
                commit.checkpoint_id,
            )  # again with other rows: the last counts
            of_asset.setdefault(key, {})[same] = record
    found: dict[dg.AssetKey, Visible] = {}
    for key, of_commits in of_asset.items():
        known = reported(key)
        new = [record for record in of_commits.values() if record.seq > known]
        if new:
            last = max(new, key=lambda record: record.seq)
            found[key] = Visible(
                rows=sum(record.commit.rows for record in new),
                commits=len(new),
                job=last.commit.job,
                checkpoint_id=last.commit.checkpoint_id,
                table_version=last.commit.table_version,
                seq=last.seq,
                lag_ms=_lag_ms(last.commit),
                positions=last.commit.positions,
            )
    return found


def _lag_ms(commit: CommitRecord) -> int | None:
    return None if commit.watermark_ms is None else max(0, commit.at_ms - commit.watermark_ms)


def watermarks_of(
    records: Iterable[OutboxRecord], assets: Mapping[Written, dg.AssetKey]
) -> dict[dg.AssetKey, int]:
    """The highest of each asset, ms; also of commits that were reported before."""
    found: dict[dg.AssetKey, int] = {}
    for record in records:
        key, watermark = assets.get((record.job_name, record.commit.sink_uid)), record.commit.watermark_ms
        if key is not None and watermark is not None:
            found[key] = max(watermark, found.get(key, watermark))
    return found


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
        cursor = Cursor.read(context.cursor)
        try:
            pages = commits_after(cursor.seq, config=unistream.configuration(), target=unistream.target)
            records = [record for page in pages for record in page]
        except UnistreamError as error:  # read again at the next tick
            return dg.SkipReason(f"the commits are not known now: {error}")
        found = coalesced(records, keys, lambda key: last_reported(context.instance, key))
        jobs = {job: _job_metadata(job, unistream) for job in {visible.job for visible in found.values()}}
        events = [_event(key, visible, jobs[visible.job]) for key, visible in found.items()]
        seen = cursor.seen(watermarks_of(records, keys), records[-1].seq if records else cursor.seq)
        steps = {asset.key: newly_closed(asset, seen, _known(context.instance, asset)) for asset in closing}
        events += [event for key, step in steps.items() for event in _closed(key, step.partitions, seen.seq)]
        nothing = None if events else "nothing new is visible in these assets"
        if not records:
            nothing = nothing and f"there is no commit behind number {cursor.seq}"
        return dg.SensorResult(asset_events=events, cursor=seen.after(steps).written(), skip_reason=nothing)

    return commits


def last_reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> int:
    """Number of the last commit of an asset in the event log; 0: none. Runs report events of their own."""
    for record in instance.fetch_materializations(key, limit=LOOK_BACK).records:
        event = record.asset_materialization
        value = None if event is None else event.metadata.get(SEQ_METADATA)
        if value is not None and isinstance(value.value, int):
            return value.value
    return 0


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
    for definition in assets:
        step = definition.op.name
        for spec in definition.specs:
            uid = spec.metadata.get(SINK_METADATA)
            if uid is None:
                raise ConfigError(
                    f"asset {spec.key.to_user_string()} is of no sink: build_commit_sensor takes what "
                    "unistream_assets has made"
                )
            other = found.setdefault((names.get(step, step), uid), spec.key)
            if other != spec.key:
                raise ConfigError(
                    f"assets {other.to_user_string()} and {spec.key.to_user_string()} are both of sink "
                    f"{uid!r} of job {names.get(step, step)!r}: give their jobs different names"
                )
    return found


def _job_metadata(job: JobId, unistream: UnistreamResource) -> dict[str, Any]:
    """Its checkpoints, watermark and so on, as they are now; its id alone if nobody knows."""
    try:
        info = known_job(job, unistream.configuration(), unistream.target)
    except UnistreamError as error:
        logger.warning("event=job_not_asked job=%s reason=%r", job, str(error))
        info = None
    return {"unistream/job_id": str(job)} if info is None else job_metadata(info)


def _event(key: dg.AssetKey, visible: Visible, of_job: Mapping[str, Any]) -> dg.AssetMaterialization:
    metadata = {
        **of_job,
        "unistream/new_rows": visible.rows,
        "unistream/new_commits": visible.commits,
        **positions_metadata(visible.positions),
        "unistream/checkpoint_id": visible.checkpoint_id,
        SEQ_METADATA: visible.seq,
    }
    tags = {}
    if visible.lag_ms is not None:
        metadata["unistream/lag_s"] = visible.lag_ms / 1000
    if visible.table_version is not None:
        metadata["unistream/table_version"] = visible.table_version
        tags["dagster/data_version"] = str(visible.table_version)
    return dg.AssetMaterialization(asset_key=key, metadata=metadata, tags=tags)
