"""History of jobs: how much of the metadata is kept, and for how long."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, Duration, WholeNumber

_ROWS: Final = WholeNumber(0, 10_000_000)

RETENTION_AGE: Final = ConfigOption(
    "metadata.retention.age",
    Duration(60_000),
    "90 d",
    "Ended jobs with all their rows, events, and links that nobody watches are removed after this.",
)
RETENTION_JOBS: Final = ConfigOption(
    "metadata.retention.jobs", _ROWS, "1000", "Ended jobs that are kept at most; the newest."
)
RETENTION_CHECKPOINTS: Final = ConfigOption(
    "metadata.retention.checkpoints",
    _ROWS,
    "1000",
    "The newest snapshots of a job, which are all kept. Of older checkpoints one each minute is kept for a "
    "day, one each hour for 30 days, then one each day.",
)
RETENTION_SNAPSHOTS: Final = ConfigOption(
    "metadata.retention.snapshots",
    _ROWS,
    "1000",
    "Savepoints of a job, and failed snapshots of a job, that are kept besides; the newest.",
)
RETENTION_EXCEPTIONS: Final = ConfigOption(
    "metadata.retention.exceptions", _ROWS, "1000", "Failures of a job that are kept; the newest."
)
RETENTION_ATTEMPTS: Final = ConfigOption(
    "metadata.retention.attempts", _ROWS, "16", "Ended attempts of a subtask that are kept; the newest."
)
RETENTION_EVENTS: Final = ConfigOption(
    "metadata.retention.events", _ROWS, "1000", "Events of a job that are kept; the newest."
)
RETENTION_COMMITS: Final = ConfigOption(
    "metadata.retention.commits",
    _ROWS,
    "1000",
    "Commits of a sink of a job that are kept; the newest. Totals count all.",
)
RETENTION_OUTBOX: Final = ConfigOption(
    "metadata.retention.outbox", _ROWS, "500000", "Commits of all jobs that wait in the outbox at most."
)
RETENTION_OUTBOX_AGE: Final = ConfigOption(
    "metadata.retention.outbox-age",
    Duration(60_000),
    "7 d",
    "Commits leave the outbox after this. A reader that was away for longer has missed some.",
)
RETENTION_INTERVAL: Final = ConfigOption(
    "metadata.retention.interval", Duration(1_000), "5 min", "How often a cluster removes what is not kept."
)
