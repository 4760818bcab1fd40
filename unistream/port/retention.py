"""How much of the history of jobs is kept. A job that takes a checkpoint each second for years stays
bounded."""

from __future__ import annotations

from typing import Final

import msgspec

from unistream.base import config as options
from unistream.base.config import Configuration

DAY_MS: Final = 86_400_000


class MetadataRetention(msgspec.Struct, frozen=True, kw_only=True):
    """Limits; the options `metadata.retention.*` have the same defaults.

    Attributes:
        age_ms: Ended jobs with all their rows, and events, are removed after this.
        jobs: Ended jobs that are kept at most; the newest.
        checkpoints: All of the newest snapshots of a job. Older completed checkpoints are thinned to one each
            minute for a day, one each hour for 30 days and one each day for `age_ms`.
        snapshots: Savepoints and failed checkpoints of a job that are kept at most, besides `checkpoints`.
        exceptions: Of a job; the newest.
        attempts: Ended attempts of a subtask; the newest.
        events: Of a job; the newest.
        commits: Of a sink of a job; the newest. Its totals stay.
        outbox: Rows of the outbox that are kept at most, and `outbox_age_ms`: for how long at most.
        interval_ms: How often a cluster prunes.
    """

    age_ms: int = 90 * DAY_MS
    jobs: int = 1_000
    checkpoints: int = 1_000
    snapshots: int = 1_000
    exceptions: int = 1_000
    attempts: int = 16
    events: int = 1_000
    commits: int = 1_000
    outbox: int = 500_000
    outbox_age_ms: int = 7 * DAY_MS
    interval_ms: int = 300_000

    @classmethod
    def of(cls, config: Configuration) -> MetadataRetention:
        """The limits of a cluster's configuration."""
        return cls(
            age_ms=config.get(options.RETENTION_AGE),
            jobs=config.get(options.RETENTION_JOBS),
            checkpoints=config.get(options.RETENTION_CHECKPOINTS),
            snapshots=config.get(options.RETENTION_SNAPSHOTS),
            exceptions=config.get(options.RETENTION_EXCEPTIONS),
            attempts=config.get(options.RETENTION_ATTEMPTS),
            events=config.get(options.RETENTION_EVENTS),
            commits=config.get(options.RETENTION_COMMITS),
            outbox=config.get(options.RETENTION_OUTBOX),
            outbox_age_ms=config.get(options.RETENTION_OUTBOX_AGE),
            interval_ms=config.get(options.RETENTION_INTERVAL),
        )


class Pruned(msgspec.Struct, frozen=True):
    """One step of pruning: `rows` of `table` are removed."""

    table: str
    rows: int
