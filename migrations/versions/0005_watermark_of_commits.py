"""The watermark of each commit; that of commits from before is not known.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ("unistream_commits", "unistream_outbox")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("watermark_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "watermark_ms")
