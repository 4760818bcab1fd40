"""First tables: jobs, their attempts, snapshots, exceptions and commits.

Revision ID: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "unistream_jobs",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("lineage", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("submitted_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("graph_json", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_unistream_jobs")),
    )
    op.create_index(op.f("ix_unistream_jobs_submitted_ms"), "unistream_jobs", ["submitted_ms"], unique=False)

    op.create_table(
        "unistream_leaders",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_unistream_leaders")),
    )
    op.create_table(
        "unistream_savepoints",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("job_name", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("triggered_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_unistream_savepoints")),
    )
    op.create_index(
        op.f("ix_unistream_savepoints_job_checkpoint_id"),
        "unistream_savepoints",
        ["job", "checkpoint_id"],
        unique=True,
    )

    op.create_table(
        "unistream_attempts",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("vertex", sa.String(length=64), nullable=False),
        sa.Column("subtask", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("task_manager", sa.Text(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"],
            ["unistream_jobs.job"],
            name=op.f("fk_unistream_attempts_job_unistream_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job", "vertex", "subtask", "attempt", name=op.f("pk_unistream_attempts")),
    )
    op.create_table(
        "unistream_checkpoints",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("triggered_ms", sa.BigInteger(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("state_bytes", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job"],
            ["unistream_jobs.job"],
            name=op.f("fk_unistream_checkpoints_job_unistream_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job", "checkpoint_id", name=op.f("pk_unistream_checkpoints")),
    )
    op.create_table(
        "unistream_commits",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("sink_uid", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("table_version", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job"],
            ["unistream_jobs.job"],
            name=op.f("fk_unistream_commits_job_unistream_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job", "sink_uid", "checkpoint_id", name=op.f("pk_unistream_commits")),
    )
    op.create_table(
        "unistream_exceptions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Text(), nullable=True),
        sa.Column("task_manager", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("traceback", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"],
            ["unistream_jobs.job"],
            name=op.f("fk_unistream_exceptions_job_unistream_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_unistream_exceptions")),
    )
    op.create_index(
        op.f("ix_unistream_exceptions_job_id"), "unistream_exceptions", ["job", "id"], unique=False
    )

    op.create_table(
        "unistream_vertices",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("vertex", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"],
            ["unistream_jobs.job"],
            name=op.f("fk_unistream_vertices_job_unistream_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job", "vertex", name=op.f("pk_unistream_vertices")),
    )


def downgrade() -> None:
    op.drop_table("unistream_vertices")
    op.drop_index(op.f("ix_unistream_exceptions_job_id"), table_name="unistream_exceptions")
    op.drop_table("unistream_exceptions")
    op.drop_table("unistream_commits")
    op.drop_table("unistream_checkpoints")
    op.drop_table("unistream_attempts")
    op.drop_index(op.f("ix_unistream_savepoints_job_checkpoint_id"), table_name="unistream_savepoints")
    op.drop_table("unistream_savepoints")
    op.drop_table("unistream_leaders")
    op.drop_index(op.f("ix_unistream_jobs_submitted_ms"), table_name="unistream_jobs")
    op.drop_table("unistream_jobs")
