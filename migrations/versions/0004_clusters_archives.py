"""Clusters and who leads them; a job's cluster and its kind; archives of ended jobs.

Rows of jobs from before belong to no cluster that is known ("") until their cluster has them again. The last
epoch of all leaders, which no master asks for any more, goes.

Revision ID: 0004
Revises: 0003
"""

import json
import time

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JOBS = sa.table(
    "unistream_jobs", *(sa.column(name) for name in ("job", "graph_json", "job_type", "scheduler"))
)
READ_TOGETHER = 100


def upgrade() -> None:
    for name, length, default in (
        ("cluster", 64, ""),
        ("job_type", 32, "STREAMING"),
        ("scheduler", 32, "Default"),
    ):
        op.add_column(
            "unistream_jobs",
            sa.Column(name, sa.String(length=length), server_default=default, nullable=False),
        )
    op.drop_index(op.f("ix_unistream_jobs_ended_ms"), table_name="unistream_jobs")
    _index("jobs", "ended_ms", "changed_ms")
    _index("jobs", "cluster")
    _describe_jobs()
    _create_tables()
    _set_aside_epochs()
    op.create_table(
        "unistream_leader_epochs",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("process", sa.String(length=255), server_default="", nullable=False),
        sa.Column("granted_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "epoch", name=op.f("pk_unistream_leader_epochs")),
    )
    op.execute(
        "INSERT INTO unistream_leader_epochs (cluster, epoch, process, granted_ms, ended_ms, reason) "
        "SELECT cluster, epoch, cluster, granted_ms, ended_ms, reason FROM unistream_epochs_aside"
    )
    op.drop_table("unistream_epochs_aside")
    _index("leader_epochs", "granted_ms")
    op.drop_table("unistream_leaders")


def _set_aside_epochs() -> None:
    """SQLite cannot change a primary key, and names of constraints are unique in PostgreSQL."""
    op.execute("CREATE TABLE unistream_epochs_aside AS SELECT * FROM unistream_leader_epochs")
    op.drop_table("unistream_leader_epochs")


def _describe_jobs() -> None:
    """What kind of job each one is was only in its graph."""
    connection, last = op.get_bind(), ""
    while True:
        page = sa.select(JOBS.c.job, JOBS.c.graph_json).where(JOBS.c.job > last).order_by(JOBS.c.job)
        found = connection.execute(page.limit(READ_TOGETHER)).all()
        if not found:
            return
        last = found[-1].job
        for row in found:
            kind = _kind(row.graph_json)
            if kind != ("STREAMING", "Default"):
                changed = sa.update(JOBS).where(JOBS.c.job == row.job)
                connection.execute(changed.values(job_type=kind[0], scheduler=kind[1]))


def _kind(graph_json: str) -> tuple[str, str]:
    try:
        graph = json.loads(graph_json) if graph_json else {}
        job_type, config = graph.get("job_type", "STREAMING"), graph.get("config", {})
        scheduler = "Adaptive" if config.get("jobmanager.scheduler") == "adaptive" else "Default"
    except (ValueError, AttributeError):
        return "STREAMING", "Default"
    return str(job_type)[:32], scheduler


def _create_tables() -> None:
    op.create_table(
        "unistream_clusters",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("goes_on", sa.Text(), nullable=False),
        sa.Column("process", sa.String(length=255), nullable=False),
        sa.Column("mark", sa.String(length=255), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_unistream_clusters")),
    )
    _index("clusters", "heartbeat_ms")
    # whose jobs those of before are is not known: they are not old from now on, but in due time
    op.get_bind().execute(
        sa.text(
            "INSERT INTO unistream_clusters "
            "(cluster, target, goes_on, process, mark, started_ms, heartbeat_ms) "
            "SELECT '', '', '', '', '', CAST(:now AS BIGINT), CAST(:now AS BIGINT) "
            "WHERE EXISTS (SELECT 1 FROM unistream_jobs WHERE ended_ms IS NULL)"
        ),
        {"now": time.time_ns() // 1_000_000},
    )
    op.create_table(
        "unistream_archives",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("format", sa.Integer(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=False),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("leader_epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"],
            ["unistream_jobs.job"],
            name=op.f("fk_unistream_archives_job_unistream_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_unistream_archives")),
    )


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f(f"ix_unistream_{table}_{'_'.join(columns)}"), f"unistream_{table}", list(columns))


def downgrade() -> None:
    op.create_table(
        "unistream_leaders",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_unistream_leaders")),
    )
    op.execute(
        "INSERT INTO unistream_leaders (name, epoch) "
        "SELECT 'jobmanager', newest FROM (SELECT MAX(epoch) AS newest FROM unistream_leader_epochs) AS e "
        "WHERE newest IS NOT NULL"
    )
    op.drop_index(op.f("ix_unistream_leader_epochs_granted_ms"), table_name="unistream_leader_epochs")
    _set_aside_epochs()
    op.create_table(
        "unistream_leader_epochs",
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("granted_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("epoch", "cluster", name=op.f("pk_unistream_leader_epochs")),
    )
    op.execute(
        "INSERT INTO unistream_leader_epochs (epoch, cluster, granted_ms, ended_ms, reason) "
        "SELECT epoch, process, MIN(granted_ms), MAX(ended_ms), MAX(reason) FROM unistream_epochs_aside "
        "GROUP BY epoch, process"
    )
    op.drop_table("unistream_epochs_aside")
    op.drop_table("unistream_archives")
    op.drop_index(op.f("ix_unistream_clusters_heartbeat_ms"), table_name="unistream_clusters")
    op.drop_table("unistream_clusters")
    for columns in ("cluster", "ended_ms_changed_ms"):
        op.drop_index(op.f(f"ix_unistream_jobs_{columns}"), table_name="unistream_jobs")
    _index("jobs", "ended_ms")
    for name in ("scheduler", "job_type", "cluster"):
        op.drop_column("unistream_jobs", name)
