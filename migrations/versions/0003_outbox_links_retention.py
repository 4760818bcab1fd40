"""The outbox of commits, events, leaders, artifacts and links to runs; totals of rows that are pruned.

Rows that change carry a version and the epoch of the leader that wrote them. Commits of the last seven days
are put into the outbox: a reader that follows it sees each of them at least once.

Revision ID: 0003
Revises: 0002
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CHANGING = ("vertices", "attempts", "checkpoints", "savepoints", "commits")
COUNTERS = ("outbox", "events")
IN_OUTBOX_MS = 7 * 86_400_000


def upgrade() -> None:
    for table in CHANGING:
        for column in ("version", "leader_epoch"):
            op.add_column(
                f"unistream_{table}", sa.Column(column, sa.BigInteger(), server_default="0", nullable=False)
            )
    op.add_column(
        "unistream_jobs", sa.Column("changed_ms", sa.BigInteger(), server_default="0", nullable=False)
    )
    op.execute("UPDATE unistream_jobs SET changed_ms = COALESCE(ended_ms, submitted_ms)")
    _index_old_tables()
    _create_tables()
    _fill()


def _index_old_tables() -> None:
    op.drop_index(op.f("ix_unistream_jobs_submitted_ms"), table_name="unistream_jobs")
    _index("jobs", "submitted_ms", "job")
    _index("jobs", "ended_ms")
    _index("jobs", "lineage")
    _index("jobs", "name", postgresql_using="hash")
    _index("checkpoints", "job", "state", "checkpoint_id")
    _index("savepoints", "job_name", postgresql_using="hash")
    _index("commits", "job", "checkpoint_id")


def _index(table: str, *columns: str, **options: str) -> None:
    name = f"ix_unistream_{table}_{'_'.join(columns)}"
    op.create_index(op.f(name), f"unistream_{table}", list(columns), unique=False, **options)


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_unistream_{table}"))


def _of_job(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_unistream_{table}_job_unistream_jobs")
    return sa.ForeignKeyConstraint(["job"], ["unistream_jobs.job"], name=name, ondelete="CASCADE")


def _number(name: str, **options: object) -> sa.Column:
    return sa.Column(name, sa.BigInteger(), **{"nullable": False, **options})


def _text(name: str, length: int | None = None, **options: object) -> sa.Column:
    kind = sa.Text() if length is None else sa.String(length=length)
    return sa.Column(name, kind, **{"nullable": False, **options})


def _changed_by() -> tuple[sa.Column, sa.Column]:
    return _number("version", server_default="0"), _number("leader_epoch", server_default="0")


def _create_tables() -> None:
    op.create_table(
        "unistream_leader_epochs",
        _number("epoch", autoincrement=False),
        _text("cluster", 255),
        _number("granted_ms"),
        _number("ended_ms", nullable=True),
        _text("reason", nullable=True),
        _key("leader_epochs", "epoch", "cluster"),
    )
    op.create_table("unistream_counters", _text("name", 64), _number("value"), _key("counters", "name"))
    op.create_table(
        "unistream_outbox",
        _number("seq", autoincrement=False),
        _text("job", 64),
        _text("job_name"),
        _text("lineage", 64),
        _text("sink_uid"),
        _number("checkpoint_id"),
        _number("at_ms"),
        _number("rows"),
        _number("table_version", nullable=True),
        _number("leader_epoch"),
        _key("outbox", "seq"),
    )
    op.create_table(
        "unistream_events",
        _number("id", autoincrement=False),
        _text("job", 64),
        _number("at_ms"),
        _text("kind", 32),
        _text("detail"),
        _number("leader_epoch"),
        _of_job("events"),
        _key("events", "id"),
    )
    _index("events", "job", "id")
    _create_pruned_tables()
    _create_artifact_tables()
    _create_link_tables()


def _create_pruned_tables() -> None:
    op.create_table(
        "unistream_pruned_checkpoints",
        _text("job", 64),
        _number("completed"),
        _number("failed"),
        *_changed_by(),
        _of_job("pruned_checkpoints"),
        _key("pruned_checkpoints", "job"),
    )
    op.create_table(
        "unistream_pruned_commits",
        _text("job", 64),
        _text("sink_uid"),
        _number("rows"),
        _number("commits"),
        _number("checkpoint_id"),
        _number("table_version", nullable=True),
        *_changed_by(),
        _of_job("pruned_commits"),
        _key("pruned_commits", "job", "sink_uid"),
    )


def _create_artifact_tables() -> None:
    op.create_table(
        "unistream_artifacts",
        _text("sha256", 64),
        _number("size_bytes"),
        _number("created_ms"),
        _number("used_ms"),
        *_changed_by(),
        _key("artifacts", "sha256"),
    )
    _index("artifacts", "used_ms")
    op.create_table(
        "unistream_artifact_uses",
        _text("sha256", 64),
        _text("job", 64),
        sa.ForeignKeyConstraint(
            ["sha256"],
            ["unistream_artifacts.sha256"],
            name=op.f("fk_unistream_artifact_uses_sha256_unistream_artifacts"),
            ondelete="CASCADE",
        ),
        _of_job("artifact_uses"),
        _key("artifact_uses", "sha256", "job"),
    )
    _index("artifact_uses", "job")


def _watcher() -> list[sa.Column]:
    names = [_text(name, 255) for name in ("root_run", "run", "step")]
    return [*names, sa.Column("attempt", sa.Integer(), nullable=False)]


def _create_link_tables() -> None:
    op.create_table(
        "unistream_run_links",
        _text("key", 255),
        _text("job", 64),
        *_watcher(),
        _number("attached_ms"),
        _number("heartbeat_ms"),
        _number("released_ms", nullable=True),
        _number("version"),
        _key("run_links", "key"),
    )
    _index("run_links", "job")
    _index("run_links", "heartbeat_ms")
    op.create_table(
        "unistream_run_attachments",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        _text("key", 255),
        _text("job", 64),
        *_watcher(),
        _number("at_ms"),
        _key("run_attachments", "id"),
    )
    _index("run_attachments", "key", "id")


def _fill() -> None:
    connection = op.get_bind()
    leaders = connection.execute(sa.text("SELECT name, epoch FROM unistream_leaders"))
    last = {row[0]: row[1] for row in leaders}
    first = {name: max(time.time_ns() // 1_000_000, last.get(name, 0)) for name in COUNTERS}
    connection.execute(
        sa.text("DELETE FROM unistream_leaders WHERE name IN (:outbox, :events)"), {n: n for n in COUNTERS}
    )
    newest = connection.execute(sa.text("SELECT MAX(at_ms) FROM unistream_commits")).scalar()
    connection.execute(
        sa.text(
            """
            INSERT INTO unistream_outbox (seq, job, job_name, lineage, sink_uid, checkpoint_id, at_ms, rows,
                table_version, leader_epoch)
            SELECT :first + ROW_NUMBER() OVER (ORDER BY c.at_ms, c.checkpoint_id, c.job, c.sink_uid),
                c.job, j.name, j.lineage, c.sink_uid, c.checkpoint_id, c.at_ms, c.rows, c.table_version,
                j.leader_epoch
            FROM unistream_commits AS c JOIN unistream_jobs AS j ON j.job = c.job
            WHERE c.at_ms >= :since_ms
            """
        ),
        {"first": first["outbox"], "since_ms": (newest or 0) - IN_OUTBOX_MS},
    )
    filled = connection.execute(sa.text("SELECT MAX(seq) FROM unistream_outbox")).scalar()
    first["outbox"] = max(first["outbox"], filled or 0)
    connection.execute(
        sa.text("INSERT INTO unistream_counters (name, value) VALUES (:name, :value)"),
        [{"name": name, "value": value} for name, value in first.items()],
    )


def downgrade() -> None:
    # numbers must not go back when the schema is upgraded again: they wait among the leaders
    op.execute("INSERT INTO unistream_leaders (name, epoch) SELECT name, value FROM unistream_counters")
    for table in (
        "run_attachments",
        "run_links",
        "artifact_uses",
        "artifacts",
        "events",
        "outbox",
        "counters",
        "leader_epochs",
    ):
        op.drop_table(f"unistream_{table}")
    _restore_pruned()
    for table in ("pruned_commits", "pruned_checkpoints"):
        op.drop_table(f"unistream_{table}")
    for table, name in (
        ("commits", "job_checkpoint_id"),
        ("savepoints", "job_name"),
        ("checkpoints", "job_state_checkpoint_id"),
        ("jobs", "name"),
        ("jobs", "lineage"),
        ("jobs", "ended_ms"),
        ("jobs", "submitted_ms_job"),
    ):
        op.drop_index(op.f(f"ix_unistream_{table}_{name}"), table_name=f"unistream_{table}")
    _index("jobs", "submitted_ms")
    op.drop_column("unistream_jobs", "changed_ms")
    for table in CHANGING:
        for column in ("leader_epoch", "version"):
            op.drop_column(f"unistream_{table}", column)


def _restore_pruned() -> None:
    """The former version sums up rows: the totals of those that were removed become one row of each sink."""
    op.execute(
        """
        INSERT INTO unistream_commits (job, sink_uid, checkpoint_id, at_ms, rows, table_version)
        SELECT p.job, p.sink_uid, p.checkpoint_id, j.submitted_ms, p.rows, p.table_version
        FROM unistream_pruned_commits AS p JOIN unistream_jobs AS j ON j.job = p.job
        WHERE NOT EXISTS (SELECT 1 FROM unistream_commits AS c
            WHERE c.job = p.job AND c.sink_uid = p.sink_uid AND c.checkpoint_id = p.checkpoint_id)
        """
    )
