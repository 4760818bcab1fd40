"""The name of the task that failed: the parallelism in it may be another by the time that it is read.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("unistream_exceptions", sa.Column("task_name", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("unistream_exceptions", "task_name")
