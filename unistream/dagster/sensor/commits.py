"""What has become visible by the commits that a tick has read: one event for each asset, without I/O."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from unistream.base.config import RETENTION_OUTBOX, RETENTION_OUTBOX_AGE
from unistream.base.errors import UnistreamError
from unistream.base.ids import CheckpointId, JobId, OperatorUid
from unistream.dagster.run.metadata import (
    LAG,
    PAGE,
    SEQ,
    TABLE_VERSION,
    job_metadata,
    ordered,
    positions_metadata,
    table_rows_metadata,
)
from unistream.dagster.run.stream import CommittedAssets
from unistream.model.job_info import JobInfo
from unistream.model.positions import SourcePositions
from unistream.port.metadata import CommitRecord, OutboxRecord

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


class OutboxReading:
    """What a tick has read of the outbox, page by page. Of a commit only its number and its rows are kept.

    Args:
        assets: Of which one a commit is; those of others are left out.
        reported: The last commit of an asset that was reported, 0: none.
        after: The last commit that was read before; 0: none.
    """

    def __init__(
        self,
        assets: CommittedAssets,
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
        """Adds a page of the outbox, in its order."""
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
        """What is to be reported of each asset."""
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
    reading: OutboxReading,
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


def lost_text(commits: int) -> str:
    """A sentence for people about commits that were removed unread."""
    return (
        f"{commits:,} commits, of these assets or others, were removed from the outbox before this sensor "
        f"has read them, as {RETENTION_OUTBOX.key} and {RETENTION_OUTBOX_AGE.key} say: their rows are not "
        "reported"
    )


def event_of(
    key: dg.AssetKey,
    visible: Visible,
    now: Mapping[str, Any],
    not_kept: int,
    provenance: Mapping[str, str],
) -> dg.AssetMaterialization:
    """The materialisation of an asset.

    Args:
        key: Of the asset.
        visible: What it shows.
        now: See `now_metadata`.
        not_kept: Commits that were removed before they were read.
        provenance: Tags; see `looking.provenance`.
    """
    metadata = {
        **now,
        "unistream/new_rows": visible.rows,
        "unistream/new_commits": visible.commits,
        **positions_metadata(visible.positions),
        "unistream/checkpoint_id": visible.checkpoint_id,
        SEQ: visible.seq,
    }
    if not_kept:
        metadata["unistream/commits_not_kept"] = not_kept
    tags = dict(provenance)
    if visible.lag_ms is not None:
        metadata[LAG] = visible.lag_ms / 1000
    if visible.table_version is not None:
        metadata[TABLE_VERSION] = visible.table_version
        tags["dagster/data_version"] = str(visible.table_version)
    text = lost_text(not_kept) if not_kept else None
    return dg.AssetMaterialization(asset_key=key, metadata=ordered(metadata), tags=tags, description=text)


def now_metadata(visible: Visible, job: JobInfo | None, now_ms: int, page: str | None) -> dict[str, Any]:
    """Watermark, checkpoints and so on of the job, and the rows of the table; its id, if nobody knows it."""
    if job is None:
        link = {} if page is None else {PAGE: dg.MetadataValue.url(page)}
        return {"unistream/job_id": str(visible.job), **link}
    return job_metadata(job, now_ms, page) | table_rows_metadata(job.sinks.get(visible.sink_uid))
