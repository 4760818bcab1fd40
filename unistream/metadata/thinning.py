"""Which rows of a job's snapshots are removed: pure, and the same for every order in which they are asked
for.

All of the newest are kept. Of older completed checkpoints one each minute is kept for a day, one each hour
for 30 days and one each day until the end of the retention: at most 1,440 + 720 + 90 rows with the defaults,
however many there were. Savepoints and failures are kept by number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.retention import DAY_MS

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
HOURLY_MS: Final = 30 * DAY_MS


class SnapshotRow(NamedTuple):
    """What decides over a row. `kind` and `state` as they are stored."""

    checkpoint_id: int
    kind: str
    state: str
    triggered_ms: int


class TimeBucket(NamedTuple):
    """A time of which one checkpoint is kept."""

    width_ms: int
    number: int


class Cuts(NamedTuple):
    """Ids below which rows may be removed: of any kind, of savepoints, of failures."""

    all: int
    savepoints: int
    failed: int


class Thinning:
    """Goes through the rows of one job, oldest first."""

    def __init__(self, now_ms: int, age_ms: int, cuts: Cuts) -> None:
        self._now_ms = now_ms
        self._age_ms = age_ms
        self._cuts = cuts
        self._last: TimeBucket | None = None  # the newest bucket that has its row

    def removed(self, rows: Iterable[SnapshotRow]) -> list[SnapshotRow]:
        """Goes through the next rows, and returns those that are not kept."""
        return [row for row in rows if not self._is_kept(row)]

    def _is_kept(self, row: SnapshotRow) -> bool:
        if row.checkpoint_id >= self._cuts.all:
            return True
        if row.state == SnapshotStatus.FAILED.recorded:
            return row.checkpoint_id >= self._cuts.failed
        if row.state != SnapshotStatus.COMPLETED.recorded:
            return False  # its end was never recorded
        if SnapshotKind(row.kind).is_savepoint:
            return row.checkpoint_id >= self._cuts.savepoints
        bucket = self._bucket(row.triggered_ms)
        if bucket is None or bucket == self._last:
            return False
        self._last = bucket
        return True

    def _bucket(self, triggered_ms: int) -> TimeBucket | None:
        """None: too old."""
        age_ms = self._now_ms - triggered_ms
        if age_ms >= self._age_ms:
            return None
        width_ms = MINUTE_MS if age_ms < DAY_MS else HOUR_MS if age_ms < HOURLY_MS else DAY_MS
        return TimeBucket(width_ms, triggered_ms // width_ms)
