"""Schema migrations: there and back, equal to the tables, and alone among others."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, inspect
from typer.testing import CliRunner

from tests.eventually import WAIT_S
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import ClusterId, LeaderEpoch
from unistream.cli.db import app
from unistream.metadata import migrate, schema
from unistream.metadata.engine import MISSING, OUTDATED, open_engine
from unistream.metadata.store import SqlMetadataStore
from unistream.metadata.tables import metadata
from unistream.port.metadata import EpochRecord

EPOCH = EpochRecord(epoch=LeaderEpoch(1), cluster=ClusterId("c"), process="p", granted_ms=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


def tables(path: Path) -> set[str]:
    engine = create_engine(f"sqlite:///{path}")
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_upgrade_downgrade_and_upgrade_again(url: str, path: Path) -> None:
    ours = set(metadata.tables)
    migrate.upgrade(url)
    assert tables(path) == ours | {migrate.VERSION_TABLE}
    migrate.downgrade(url, "base")
    assert tables(path) == {migrate.VERSION_TABLE}
    migrate.upgrade(url)
    migrate.upgrade(url)
    assert tables(path) == ours | {migrate.VERSION_TABLE}
    migrate.check(url)


def test_the_migrated_schema_is_that_of_the_tables(url: str) -> None:
    migrate.upgrade(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=migrate.configure_options())
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_new_database_gets_the_schema_that_the_migrations_make(url: str, path: Path) -> None:
    schema.ensure(url)
    migrate.check(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=migrate.configure_options())
        assert compare_metadata(context, metadata) == []
    engine.dispose()
    migrate.downgrade(url, "base")
    assert tables(path) == {migrate.VERSION_TABLE}


def test_ensuring_again_or_after_a_migration_changes_nothing(url: str) -> None:
    migrate.upgrade(url)
    schema.ensure(url)
    schema.ensure(url)
    migrate.check(url)


def test_ensuring_brings_an_older_schema_up_to_date(url: str) -> None:
    migrate.upgrade(url)
    migrate.downgrade(url, "base")
    schema.ensure(url)
    migrate.check(url)


def test_many_clusters_may_ensure_one_new_database_at_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(schema.ensure, [url] * 4))
    migrate.check(url)


def test_there_is_one_newest_revision_and_no_revision_imports_the_models() -> None:
    assert migrate.known_revisions()[0] == schema.NEWEST_REVISION
    for revision in (migrate.script_location() / "versions").glob("*.py"):
        assert "unistream." not in revision.read_text(encoding="utf-8").replace('"unistream_', "")


def test_foreign_tables_and_their_alembic_version_stay_untouched(url: str, path: Path) -> None:
    foreign = sqlite3.connect(path)
    foreign.executescript(
        "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('of dagster');"
        "CREATE TABLE runs (id INTEGER);"
    )
    foreign.close()
    migrate.upgrade(url)
    migrate.check(url)
    migrate.downgrade(url, "base")
    after = sqlite3.connect(path)
    assert after.execute("SELECT version_num FROM alembic_version").fetchall() == [("of dagster",)]
    after.close()
    assert tables(path) == {"alembic_version", "runs", migrate.VERSION_TABLE}


def test_upgrades_at_the_same_time_do_not_meet(url: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(migrate.upgrade, url) for _ in range(3)]:
            done.result()
    migrate.check(url)


def test_a_new_file_is_opened_by_many_at_the_same_moment(tmp_path: Path) -> None:
    """Without waiting one of 400 or so fails because the database is locked."""
    together = threading.Barrier(4)

    def journal_mode(url: str) -> str:
        engine = open_engine(url)
        together.wait(WAIT_S)
        with contextlib.closing(engine.raw_connection()) as connection:
            [mode] = connection.cursor().execute("PRAGMA journal_mode").fetchone()
        engine.dispose()
        return mode

    with ThreadPoolExecutor(4) as pool:
        for number in range(200):
            url = f"sqlite:///{tmp_path / str(number)}.db"
            modes = [pool.submit(journal_mode, url) for _ in range(4)]
            assert [mode.result() for mode in modes] == ["wal"] * 4


def test_a_file_that_is_not_there_is_missing_and_is_not_made_by_the_check(url: str, path: Path) -> None:
    for look in (migrate.check, migrate.current_revision):
        with pytest.raises(ConfigError, match=r"there is no metadata database: `unistream db upgrade` makes"):
            look(url)
    assert not path.exists()


def test_an_empty_database_is_outdated(url: str) -> None:
    migrate.upgrade(url)
    migrate.downgrade(url, "base")
    with pytest.raises(ConfigError, match=r"outdated: run `unistream db upgrade`.*at no revision"):
        migrate.check(url)


def test_a_database_of_a_newer_version_is_refused(url: str, path: Path) -> None:
    migrate.upgrade(url)
    database = sqlite3.connect(path)
    database.execute(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'")
    database.commit()
    database.close()
    with pytest.raises(ConfigError, match="'9999', made by a newer unistream"):
        migrate.check(url)
    with pytest.raises(ConfigError, match="9999"):
        migrate.upgrade(url)


def test_a_store_without_a_schema_says_what_to_do(url: str, path: Path) -> None:
    store = SqlMetadataStore(url)
    with pytest.raises(ConfigError, match=MISSING):
        store.jobs()
    sqlite3.connect(path).close()
    with contextlib.closing(sqlite3.connect(path)) as empty:
        empty.execute("PRAGMA user_version=1")
    with pytest.raises(ConfigError, match=OUTDATED):
        store.jobs()
    with pytest.raises(ConfigError, match=OUTDATED):
        store.record_epoch(EPOCH)
    store.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        pytest.param("", "not a SQLAlchemy URL", id="empty"),
        pytest.param("metadata.db", "not a SQLAlchemy URL", id="a path"),
        pytest.param("mysql://u:secret@h/d", "'mysql' is not one of", id="another database"),
        pytest.param(
            "postgresql://u@h/d?password=secret", "a password behind the .* would be shown", id="a password"
        ),
        pytest.param("sqlite://", "needs a file", id="in memory"),
        pytest.param("sqlite:////no/such/folder/m.db", "does not exist", id="no folder"),
        pytest.param("postgresql+nodriver://u:secret@h/d", "not installed", id="no driver"),
    ],
)
def test_a_url_that_cannot_work_is_explained_without_its_password(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        SqlMetadataStore(url)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_no_database_is_refused(url: str, path: Path) -> None:
    path.write_bytes(b"this is not a database, it is a text of some length" * 100)
    with pytest.raises(ConfigError, match="is not a SQLite database"):
        migrate.upgrade(url)


def test_a_database_that_stays_locked_is_unreachable(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.metadata.engine.BUSY_TIMEOUT_MS", 20)
    migrate.upgrade(url)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    store = SqlMetadataStore(url)
    with pytest.raises(Unreachable, match="did not answer: database is locked"):
        store.record_epoch(EPOCH)
    assert store.jobs() == []  # readers are not held up by a writer
    blocker.execute("ROLLBACK")
    store.record_epoch(EPOCH)
    assert store.epochs() == [EPOCH]
    store.close()
    blocker.close()


def test_the_command_upgrades_and_checks(url: str) -> None:
    run = CliRunner()
    before = run.invoke(app, ["check", "--url", url])
    assert isinstance(before.exception, ConfigError)
    assert "`unistream db upgrade` makes it" in str(before.exception)
    assert run.invoke(app, ["upgrade", "--url", url]).stdout.endswith("metadata.db is at revision 0007\n")
    after = run.invoke(app, ["check"], env={"UNISTREAM_METADATA_URL": url})
    assert (after.exit_code, after.stdout) == (0, f"{url} is up to date\n")


def test_the_command_explains_a_wrong_url() -> None:
    result = CliRunner().invoke(app, ["upgrade", "--url", "mysql://u:secret@h/d"])
    assert isinstance(result.exception, ConfigError)
    assert "'mysql' is not one of" in str(result.exception)
    assert "secret" not in str(result.exception)
