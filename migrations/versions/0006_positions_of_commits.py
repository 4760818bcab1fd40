"""Up to where sources were read at each commit; that of commits from before is not known.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("unistream_commits", "unistream_outbox")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("positions", sa.Text(), nullable=True))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "positions")
