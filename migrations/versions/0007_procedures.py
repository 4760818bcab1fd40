"""What commands report of backfills and upgrades.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "unistream_procedures",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=True),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("begun_ms", sa.BigInteger(), nullable=False),
        sa.Column("reported_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_unistream_procedures")),
    )
    op.create_index(op.f("ix_unistream_procedures_job"), "unistream_procedures", ["job"])
    op.create_index(op.f("ix_unistream_procedures_reported_ms"), "unistream_procedures", ["reported_ms"])


def downgrade() -> None:
    op.drop_table("unistream_procedures")
