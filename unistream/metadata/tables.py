"""Tables of the job metadata. Times are UTC milliseconds since 1970, sizes bytes, durations ms.

History and catalogue: recovery of a job needs none of it. All names start with ``unistream_``, so that the
tables can share a database with others; constraints are named by convention, so that migrations can refer to
them on every database.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text

TABLE_PREFIX: Final = "unistream_"
VERSION_TABLE: Final = "unistream_alembic_version"
OUTBOX: Final = "outbox"
EVENTS: Final = "events"
COUNTERS: Final = (OUTBOX, EVENTS)
"""Rows of `counters`."""

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_JOB: Final = String(64)
_NAME: Final = Text()  # text of users: without a limit
_STATE: Final = String(32)
_SERIAL: Final = BigInteger().with_variant(Integer, "sqlite")  # SQLite increments only INTEGER
_KEY: Final = String(255)  # of an orchestrator: `port.run_links` refuses longer ones


def _of_job() -> Column[str]:
    return Column(
        "job", _JOB, ForeignKey("unistream_jobs.job", ondelete="CASCADE"), primary_key=True, nullable=False
    )


def _changed_by() -> tuple[Column[int], Column[int]]:
    """Columns of every row that changes: how often it did, and the newest leader that changed it."""
    return (
        Column("version", BigInteger, nullable=False, server_default="0"),
        Column("leader_epoch", BigInteger, nullable=False, server_default="0"),
    )


clusters: Final = Table(
    "unistream_clusters",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("target", _NAME, nullable=False),
    Column("goes_on", Text, nullable=False),
    Column("process", String(255), nullable=False),
    Column("mark", String(255), nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("heartbeat_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Index(None, "heartbeat_ms"),
)
"""One row for each cluster, written by the process that leads it: who that is, and when it was last alive."""

leader_epochs: Final = Table(
    "unistream_leader_epochs",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("process", String(255), nullable=False, server_default=""),
    Column("granted_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("reason", Text),
    Index(None, "granted_ms"),
)
"""Which process led a cluster with which epoch, and from when to when; the epochs of two clusters have
nothing to do with each other."""

counters: Final = Table(
    "unistream_counters",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""The last number given out. A transaction that takes the next one locks the row until its end, so that
numbers become visible in their order (a sequence of PostgreSQL would not promise that). Starts at the
milliseconds since 1970 at which the table was made, so that numbers grow also when a database was lost and
made again."""

jobs: Final = Table(
    "unistream_jobs",
    metadata,
    Column("job", _JOB, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("lineage", String(64), nullable=False),
    Column("state", _STATE, nullable=False),
    Column("target", _NAME, nullable=False),
    Column("submitted_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("restarts", Integer, nullable=False),
    Column("graph_json", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("leader_epoch", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False, server_default="0"),
    Column("cluster", String(64), nullable=False, server_default=""),
    Column("job_type", _STATE, nullable=False, server_default="STREAMING"),
    Column("scheduler", _STATE, nullable=False, server_default="Default"),
    Index(None, "submitted_ms", "job"),
    Index(None, "ended_ms", "changed_ms"),
    Index(None, "cluster"),
    Index(None, "lineage"),
    Index(None, "name", postgresql_using="hash"),  # a B-tree refuses names above 2.7 kB
)
"""Each write names the `version` it has read, and needs a leader epoch of the same `cluster` that is not
older ("": of a version before 0004)."""

archives: Final = Table(
    "unistream_archives",
    metadata,
    _of_job(),
    Column("format", Integer, nullable=False),
    Column("ended_ms", BigInteger, nullable=False),
    Column("tasks", Text, nullable=False),
    *_changed_by(),
    Column("content", Text, nullable=False),  # last: a list reads what is before it only
)
"""What the pages of a job showed when it ended, as one JSON document; `tasks`: subtasks by state, for lists.
It counts while the job's row has the same `ended_ms`."""

vertices: Final = Table(
    "unistream_vertices",
    metadata,
    _of_job(),
    Column("vertex", String(64), primary_key=True),
    Column("name", _NAME, nullable=False),
    *_changed_by(),
)

attempts: Final = Table(
    "unistream_attempts",
    metadata,
    _of_job(),
    Column("vertex", String(64), primary_key=True),
    Column("subtask", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("state", _STATE, nullable=False),
    Column("task_manager", _NAME),
    Column("started_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    *_changed_by(),
)

checkpoints: Final = Table(
    "unistream_checkpoints",
    metadata,
    _of_job(),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", _STATE, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("triggered_ms", BigInteger, nullable=False),
    Column("duration_ms", BigInteger),
    Column("state_bytes", BigInteger, nullable=False),
    Column("path", Text),
    Column("reason", Text),
    *_changed_by(),
    Index(None, "job", "state", "checkpoint_id"),
)

savepoints: Final = Table(
    "unistream_savepoints",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("job", _JOB, nullable=False),
    Column("job_name", _NAME, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("kind", _STATE, nullable=False),
    Column("path", Text, nullable=False),
    Column("triggered_ms", BigInteger, nullable=False),
    *_changed_by(),
    Index(None, "job", "checkpoint_id", unique=True),
    Index(None, "job_name", postgresql_using="hash"),
)
"""Completed savepoints. They are the user's and outlive their job, hence no foreign key."""

exceptions: Final = Table(
    "unistream_exceptions",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("job", _JOB, ForeignKey("unistream_jobs.job", ondelete="CASCADE"), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("attempt", _NAME),
    Column("task_manager", _NAME),
    Column("kind", _NAME, nullable=False),
    Column("message", Text, nullable=False),
    Column("traceback", Text, nullable=False),
    Column("task_name", Text),
    Index(None, "job", "id"),
)

commits: Final = Table(
    "unistream_commits",
    metadata,
    _of_job(),
    Column("sink_uid", _NAME, primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("table_version", BigInteger),
    Column("watermark_ms", BigInteger),
    Column("positions", Text),
    *_changed_by(),
    Index(None, "job", "checkpoint_id"),
)

outbox: Final = Table(
    "unistream_outbox",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("job", _JOB, nullable=False),
    Column("job_name", _NAME, nullable=False),
    Column("lineage", String(64), nullable=False),
    Column("sink_uid", _NAME, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("table_version", BigInteger),
    Column("watermark_ms", BigInteger),
    Column("positions", Text),
    Column("leader_epoch", BigInteger, nullable=False),
)
"""Commits in the order in which readers may rely on them; rows outlive their job."""

events: Final = Table(
    "unistream_events",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("job", _JOB, ForeignKey("unistream_jobs.job", ondelete="CASCADE"), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", _STATE, nullable=False),
    Column("detail", Text, nullable=False),
    Column("leader_epoch", BigInteger, nullable=False),
    Index(None, "job", "id"),
)

pruned_checkpoints: Final = Table(
    "unistream_pruned_checkpoints",
    metadata,
    _of_job(),
    Column("completed", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    *_changed_by(),
)
"""How many rows of `checkpoints` were removed."""

pruned_commits: Final = Table(
    "unistream_pruned_commits",
    metadata,
    _of_job(),
    Column("sink_uid", _NAME, primary_key=True),
    Column("rows", BigInteger, nullable=False),
    Column("commits", BigInteger, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("table_version", BigInteger),
    *_changed_by(),
)
"""Totals of removed rows of `commits`; none of a checkpoint up to `checkpoint_id` is recorded again."""

artifacts: Final = Table(
    "unistream_artifacts",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger, nullable=False),
    *_changed_by(),
    Index(None, "used_ms"),
)

artifact_uses: Final = Table(
    "unistream_artifact_uses",
    metadata,
    Column(
        "sha256", String(64), ForeignKey("unistream_artifacts.sha256", ondelete="CASCADE"), primary_key=True
    ),
    Column("job", _JOB, ForeignKey("unistream_jobs.job", ondelete="CASCADE"), primary_key=True),
    Index(None, "job"),
)

run_links: Final = Table(
    "unistream_run_links",
    metadata,
    Column("key", _KEY, primary_key=True),
    Column("job", _JOB, nullable=False),
    Column("root_run", _KEY, nullable=False),
    Column("run", _KEY, nullable=False),
    Column("step", _KEY, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("attached_ms", BigInteger, nullable=False),
    Column("heartbeat_ms", BigInteger, nullable=False),
    Column("released_ms", BigInteger),
    Column("version", BigInteger, nullable=False),
    Index(None, "job"),
    Index(None, "heartbeat_ms"),
)
"""One row for each key. Written by orchestrators, which have no leader epoch: `version` alone fences."""

run_attachments: Final = Table(
    "unistream_run_attachments",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("key", _KEY, nullable=False),
    Column("job", _JOB, nullable=False),
    Column("root_run", _KEY, nullable=False),
    Column("run", _KEY, nullable=False),
    Column("step", _KEY, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Index(None, "key", "id"),
)
"""The history of `run_links`: which jobs a key had, and who watched them."""

procedures: Final = Table(
    "unistream_procedures",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("job", _JOB),
    Column("report", Text, nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
    Column("reported_ms", BigInteger, nullable=False),
    Index(None, "job"),
    Index(None, "reported_ms"),
)
"""The newest report of each backfill and upgrade, as JSON. Of commands, which have no leader epoch."""
