"""Versions of the schema with rows in them, and the commands of an operator, on each database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text

from tests.contract.given_metadata import ONE, commit, job, job_id, snapshot
from unistream.base.errors import ConfigError
from unistream.base.ids import LeaderEpoch, OperatorUid
from unistream.cli.main import main
from unistream.metadata import migrate
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.metadata.tables import metadata as our_tables
from unistream.model.positions import SourcePositions
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.retention import DAY_MS, MetadataRetention
from unistream.port.run_links import Watcher

NEWEST_MS = 100 * DAY_MS
OLD_JOB = job_id(1)
LEADER = LeaderEpoch(3)
WATCHER = Watcher(root_run="r", run="r", step="s")


def execute(url: str, *statements: str) -> list[Sequence[Any]]:
    """The rows of the last one."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            for statement in statements:
                done = connection.execute(text(statement))
            return [tuple(row) for row in done] if done.returns_rows else []
    finally:
        engine.dispose()


def fill_as_revision_0002(url: str) -> None:
    """What that version had written: a running job with 20 days of commits."""
    days = [f"('{OLD_JOB}', 'out', {n}, {NEWEST_MS - (20 - n) * DAY_MS}, {n}, {n})" for n in range(1, 21)]
    execute(
        url,
        "INSERT INTO unistream_jobs VALUES "
        f"('{OLD_JOB}', 'delays', 'lin', 'RUNNING', 'local', 5, NULL, 2, '', 7, 3)",
        f"INSERT INTO unistream_vertices VALUES ('{OLD_JOB}', 'v', 'count')",
        f"INSERT INTO unistream_attempts VALUES ('{OLD_JOB}', 'v', 0, 0, 'RUNNING', 'tm', 1, 2)",
        "INSERT INTO unistream_checkpoints VALUES "
        f"('{OLD_JOB}', 1, 'savepoint', 'completed', 9, 5, 77, '/sp', NULL)",
        f"INSERT INTO unistream_savepoints VALUES (1, '{OLD_JOB}', 'delays', 1, 'savepoint', '/sp', 9)",
        "INSERT INTO unistream_leaders VALUES ('jobmanager', 3)",
        "INSERT INTO unistream_exceptions (id, job, at_ms, kind, message, traceback) "
        f"VALUES (1, '{OLD_JOB}', 1, 'K', 'm', '')",
        f"INSERT INTO unistream_commits VALUES {', '.join(days)}",
    )


def check_nothing_is_lost(store: SqlMetadataStore) -> None:
    found = store.job(OLD_JOB)
    assert found is not None
    assert (found.name, found.version, found.restarts, found.submitted_ms) == ("delays", 7, 2, 5)
    assert store.sinks(OLD_JOB)["out"].rows == 210
    savepoint = store.checkpoint_totals(OLD_JOB).latest_savepoint
    assert savepoint is not None
    assert (savepoint.path, savepoint.state_bytes) == ("/sp", 77)
    assert [failure.message for failure in store.exceptions(OLD_JOB)] == ["m"]


def test_up_down_and_up_again_with_rows_in_them(database_url: str) -> None:
    migrate.upgrade(database_url, "0002")
    fill_as_revision_0002(database_url)
    migrate.upgrade(database_url)
    store = SqlMetadataStore(database_url)
    check_nothing_is_lost(store)
    outbox = store.outbox()
    assert [row.commit.checkpoint_id for row in outbox] == list(range(13, 21)), "those of the last seven days"
    assert outbox[0].job_name == "delays"
    assert outbox[0].commit.watermark_ms is None, "not known of commits from before"
    assert outbox[0].commit.positions == ()
    read = SourcePositions(uid=OperatorUid("in"), connector="kafka", name="t", offsets={"0": 7, "10": 1})
    new = commit(21, rows=0, at_ms=NEWEST_MS, watermark_ms=5, positions=(read,))
    assert store.record_commit(new, LEADER) == outbox[-1].seq + 1
    assert store.outbox()[-1].commit == new
    list(store.prune(MetadataRetention(commits=5), NEWEST_MS, LEADER))
    last = store.outbox()[-1].seq
    check_nothing_is_lost(store)
    store.links.attach("key", OLD_JOB, WATCHER, 1)
    store.close()

    migrate.downgrade(database_url, "0002")
    columns = "job, sink_uid, checkpoint_id, at_ms, rows, table_version"
    left = execute(database_url, f"SELECT SUM(rows) FROM (SELECT {columns} FROM unistream_commits) AS c")
    assert int(left[0][0]) == 210, "the older version adds up rows: what was pruned is one of them"
    execute(database_url, f"UPDATE unistream_jobs SET restarts = 2, version = 7 WHERE job = '{OLD_JOB}'")

    migrate.upgrade(database_url)
    store = SqlMetadataStore(database_url)
    check_nothing_is_lost(store)
    assert store.outbox()[0].seq > last, "numbers of the outbox never go back"
    assert store.outbox()[-1].commit.checkpoint_id == 21
    store.close()


def test_the_migrated_schema_is_that_of_the_tables(database_url: str) -> None:
    migrate.upgrade(database_url)
    engine = create_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=migrate.configure_options())
        assert compare_metadata(context, our_tables) == []
    engine.dispose()
    migrate.downgrade(database_url, "base")
    engine = create_engine(database_url)
    assert set(inspect(engine).get_table_names()) == {migrate.VERSION_TABLE}
    engine.dispose()


def test_an_older_schema_on_postgresql_is_refused_and_left_as_it_is(database_url: str) -> None:
    """Other clusters may be using it. A SQLite file belongs to its cluster, which upgrades it."""
    migrate.upgrade(database_url, "0002")
    fill_as_revision_0002(database_url)
    if database_url.startswith("sqlite"):
        ensure(database_url)
        migrate.check(database_url)
        return
    before = execute(
        database_url, "SELECT table_name, column_name FROM information_schema.columns ORDER BY 1, 2"
    )
    with pytest.raises(ConfigError, match=r"run `unistream db upgrade` \(.*is at 0002, wanted is 0007\)$"):
        ensure(database_url)
    after = execute(
        database_url, "SELECT table_name, column_name FROM information_schema.columns ORDER BY 1, 2"
    )
    assert after == before
    assert migrate.current_revision(database_url) == "0002"


def test_a_newer_schema_is_refused_and_left_as_it_is(database_url: str) -> None:
    migrate.upgrade(database_url)
    execute(database_url, f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(ConfigError, match="9999"):
        ensure(database_url)
    with pytest.raises(ConfigError, match="'9999', made by a newer unistream: upgrade unistream"):
        migrate.check(database_url)
    assert migrate.current_revision(database_url) == "9999"


# --- commands -------------------------------------------------------------------------------------


def db(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and the complaint."""
    capsys.readouterr()
    code = main(["db", *words, "--url", url])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_commands_of_an_operator(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = db(capsys, database_url, "check")
    missing = "there is no metadata database: `unistream db upgrade` makes it"
    assert code == 2
    assert (missing if database_url.startswith("sqlite") else "it is at no revision") in error
    assert db(capsys, database_url, "upgrade")[1].endswith(" is at revision 0007\n")
    store = SqlMetadataStore(database_url)
    store.add_job(job(ended_ms=5), ONE)
    store.record_checkpoint(OLD_JOB, snapshot(1, kind=SnapshotKind.SAVEPOINT), ONE)
    store.close()

    assert json.loads(db(capsys, database_url, "check", "--json")[1])["rows"]["unistream_jobs"] == 1
    _, printed, _ = db(capsys, database_url, "prune", "--dry-run")
    assert printed.endswith(f"would be removed from {database_url}\n")
    assert "1  unistream_jobs" in printed
    few = ("-D", "metadata.retention.age=100000 d")
    assert json.loads(db(capsys, database_url, "prune", "--json", *few)[1])["rows"] == {}
    removed = json.loads(db(capsys, database_url, "prune", "--json")[1])["rows"]
    assert removed == {"unistream_checkpoints": 1, "unistream_events": 1, "unistream_jobs": 1}
    assert db(capsys, database_url, "vacuum")[0] == 0
    sizes = json.loads(db(capsys, database_url, "vacuum", "--json")[1])
    assert sizes["bytes_before"] >= sizes["bytes_after"] > 0

    code, _, error = db(capsys, database_url, "downgrade", "--to", "base")
    assert (code, "say --yes" in error) == (2, True)
    code, _, error = db(capsys, database_url, "downgrade", "--to", "7777")
    assert (code, "7777" in error) == (2, True)
    assert (
        json.loads(db(capsys, database_url, "downgrade", "--to", "0002", "--json")[1])["revision"] == "0002"
    )
    code, _, error = db(capsys, database_url, "prune")
    assert (code, "run `unistream db upgrade`" in error) == (2, True)
    assert db(capsys, database_url, "downgrade", "--to", "base", "--yes")[1].endswith(" has no tables\n")
    code, _, error = db(capsys, database_url, "prune", "-D", "metadata.retention.jobs=-1")
    assert (code, "metadata.retention.jobs" in error) == (2, True)
