"""A commit that takes too long, or waits for a lock, says why and what to do; afterwards it is done, once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

import unistream as us
from tests.contract.sinks.case import batch, permit, request
from tests.eventually import WAIT_S, eventually
from tests.integration.test_sql_sink import Parts, ids, query, staged
from tests.postgres import PostgresServer
from unistream.base.errors import ConfigError, Unreachable

TABLE = "CREATE TABLE rows (id BIGINT, name TEXT)"
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(0.2); RETURN new; END $$;
CREATE TRIGGER slow BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION slow()
"""


@pytest.fixture
def parts(postgres: PostgresServer) -> Iterator[Parts]:
    made = Parts(postgres.new_database())
    query(made.url, TABLE)
    yield made
    for one in made.made:
        one.close()


def test_a_checkpoint_with_more_rows_than_fit_says_which_limit_to_change(parts: Parts) -> None:
    query(parts.url, SLOW)
    prepared = parts.prepared(parts.writer(), 1, batch(*range(10)))
    committer = parts.committer(parts.sink(commit_timeout="300 ms"))
    says = (
        r"took longer than 0.3 s, the commit_timeout of the sink.*nothing was written.*longer commit_timeout"
    )
    with pytest.raises(Unreachable, match=says):
        committer.commit(permit(1), request(1, *prepared))
    assert (ids(parts.url), staged(parts.url)) == ([], 10)
    patient = parts.committer(parts.sink(commit_timeout="60 s"))
    assert patient.commit(permit(1), request(1, *prepared)).rows == 10
    assert (ids(parts.url), staged(parts.url)) == (list(range(10)), 0)


@pytest.mark.parametrize(
    "lock", ["LOCK TABLE rows", "SELECT pg_advisory_xact_lock(hashtext('unistream rows'))"]
)
def test_a_lock_that_somebody_holds_is_named_with_its_holder(parts: Parts, lock: str) -> None:
    prepared = parts.prepared(parts.writer(), 1, batch(1))
    committer = parts.committer(parts.sink(commit_timeout="400 ms"))
    other = create_engine(parts.url, connect_args={"application_name": "long report"})
    with other.connect() as connection:
        connection.execute(text(lock))
        holder = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        says = (
            r"committing to table rows waited 0.3 s for a lock.*nothing was written\. Locks of table rows "
            rf"are held by process {holder} \(long report, user unistream, idle in transaction\)\. pg_locks"
        )
        with pytest.raises(Unreachable, match=says):
            committer.commit(permit(1), request(1, *prepared))
    other.dispose()
    assert committer.commit(permit(1), request(1, *prepared)).rows == 1
    assert ids(parts.url) == [1]


def test_a_table_that_is_replaced_while_the_commit_waits_for_it_gets_nothing(parts: Parts) -> None:
    """Its name is looked up again when the wait ends."""
    committer, writer = parts.committer(), parts.writer()
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, batch(1))))
    prepared = parts.prepared(writer, 2, batch(2))
    failures: list[Exception] = []

    def commit() -> None:
        try:
            committer.commit(permit(2), request(2, *prepared))
        except ConfigError as error:
            failures.append(error)

    waiting = threading.Thread(target=commit, daemon=True)
    other = create_engine(parts.url)
    with other.begin() as connection:
        connection.execute(text("DROP TABLE rows"))
        connection.execute(text(TABLE))
        waiting.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
        eventually(lambda: query(parts.url, waits) == [(1,)], "the commit waits", WAIT_S, 0.05)
    other.dispose()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    [found] = failures
    assert "was committing checkpoint 2, but it was dropped and made again" in str(found)
    assert (ids(parts.url), staged(parts.url)) == ([], 1)


def test_a_file_that_another_program_writes_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.connector.sql.database.LOCK_TIMEOUT_MS", 200)
    made = Parts(f"sqlite:///{tmp_path / 'rows.db'}")
    prepared = made.prepared(made.writer(), 1, batch(1))
    committer = made.committer()
    other = sqlite3.connect(tmp_path / "rows.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unreachable, match=r"waited .* for another program that writes to the file"):
        committer.commit(permit(1), request(1, *prepared))
    other.close()
    assert committer.commit(permit(1), request(1, *prepared)).rows == 1
    for one in made.made:
        one.close()


@pytest.mark.parametrize("given", ["0 s", "30 d", "soon"])
def test_a_limit_that_cannot_be(given: str) -> None:
    with pytest.raises(ConfigError, match=given):
        us.SqlSink("sqlite:////tmp/never-made.db", "rows", commit_timeout=given)
