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


def _of_job() -> Column[str]:
    return Column(
        "job", _JOB, ForeignKey("unistream_jobs.job", ondelete="CASCADE"), primary_key=True, nullable=False
    )


leaders: Final = Table(
    "unistream_leaders",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)
"""One row; `epoch` is the last one in use."""

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
    Index(None, "submitted_ms"),
)
"""Each write names the `version` it has read, and needs a leader epoch that is not older."""

vertices: Final = Table(
    "unistream_vertices",
    metadata,
    _of_job(),
    Column("vertex", String(64), primary_key=True),
    Column("name", _NAME, nullable=False),
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
    Index(None, "job", "checkpoint_id", unique=True),
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
)
