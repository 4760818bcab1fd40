"""A table as a sink, in PostgreSQL and SQLite: kills at named places, a server that stops, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

import unistream as us
from tests.contract.sinks.case import batch, context, permit, request
from tests.eventually import eventually
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import (
    OF_SQL_SINK,
    RECOVERING,
    WAIT_S,
    Crashes,
    in_the_gate,
    points_in_code,
    run_to_end,
    submit,
)
from tests.postgres import PostgresServer
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.connector.catalogue import committer_of
from unistream.connector.sql import SqlSink
from unistream.connector.sql.committer import ENVIRONMENT
from unistream.model.elements import Batch
from unistream.port.sink import Committer, SinkWriter, StatefulCommitter

BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}
OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}


def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        found = connection.execute(text(sql))
        return [tuple(row) for row in found] if found.returns_rows else []


def ids(url: str, table: str = "rows") -> list[int]:
    return [row[0] for row in query(url, f"SELECT id FROM {table} ORDER BY id")]


def tables(url: str) -> list[str]:
    return inspect(create_engine(url, poolclass=NullPool)).get_table_names()


def stages(url: str) -> list[str]:
    return [name for name in tables(url) if name.startswith("unistream_stage_")]


def staged(url: str) -> int:
    return sum(query(url, f"SELECT COUNT(*) FROM {name}")[0][0] for name in stages(url))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}"
    return str(request.getfixturevalue("postgres").new_database())


def to_table(url: str, **options: Any) -> Callable[[us.Environment, Path], None]:
    """40,000 rows in some 3 s."""

    def build(env: us.Environment, lake: Path) -> None:
        rows_of(env, 16_000).sink_to(us.SqlSink(url, "rows", **options)).uid("table")

    return build


KILLS = {
    "with all rows staged": ("sql.staged:2",),
    "in the transaction": ("sql.before_commit:2",),
    "behind the transaction": ("sql.committed:2",),
    "after the state was written, before it was acknowledged": ("snapshot.uploaded:6",),
    "between checkpoint and commit": ("committer.before_commit:2",),
    "while the commit is repeated": (
        *("committer.before_commit:2", "restore.before_commit", "restore.committed"),
    ),
    "after the commit, before anyone heard of it": ("committer.committed:2",),
}


def test_every_named_place_of_the_sink_has_a_row_here() -> None:
    killed = {point.partition(":")[0] for points in KILLS.values() for point in points}
    own = {point for point in killed if point.startswith(OF_SQL_SINK)}
    assert own == set(points_in_code(OF_SQL_SINK))


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 2))
def test_a_table_loses_and_doubles_nothing(tmp_path: Path, crashes: Crashes, url: str, what: str) -> None:
    crashes.arm(*KILLS[what])
    result = run_to_end(tmp_path, crashes, to_table(url), OFTEN)
    assert ids(url) == list(range(ROWS))
    assert staged(url) == 0, "what the dead one has left was removed"
    assert result.sinks["table"].rows == ROWS


def test_in_batch_all_rows_come_at_the_end_and_the_table_takes_no_second_line(
    tmp_path: Path, url: str
) -> None:
    env = us.Environment(BATCH, target="local")
    to_table(url)(env, tmp_path)
    assert env.execute("batch").state == "FINISHED"
    assert (ids(url), staged(url)) == (list(range(ROWS)), 0)
    again = us.Environment(BATCH, target="local")
    to_table(url)(again, tmp_path)
    with pytest.raises(ConfigError, match=r"another line of jobs.*on_foreign='append'"):
        again.execute("batch")
    assert ids(url) == list(range(ROWS))
    appending = us.Environment(BATCH, target="local")
    to_table(url, on_foreign="append")(appending, tmp_path)
    assert appending.execute("batch").state == "FINISHED"
    assert len(ids(url)) == 2 * ROWS


def test_a_server_that_stops_and_comes_back(tmp_path: Path) -> None:
    """The job restarts, and nothing is lost or doubled. A server of its own: others use the shared one."""
    server = PostgresServer()
    try:
        url = server.new_database()
        values = Configuration({"heartbeat.interval": "200 ms"})
        with EmbeddedCluster("local", values, workdir=tmp_path / "cluster", rest=False) as cluster:
            env = us.Environment({"parallelism.default": "2"})
            source = us.DatagenSource(
                {"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=2_000
            )
            rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
            rows.rebalance().sink_to(us.SqlSink(url, "rows")).uid("table")
            job = submit(cluster, env, OFTEN, None)
            has_rows = "SELECT COUNT(*) FROM pg_tables WHERE tablename = 'rows'"
            eventually(lambda: query(url, has_rows) == [(1,)], "the first commit", WAIT_S, 0.3)
            server.stop()
            server.start()
            before = len(ids(url))
            eventually(lambda: len(ids(url)) > before + 500, "more rows", WAIT_S, 0.3)
            job.stop()
            found = ids(url)
            assert found == list(range(len(found)))
            assert staged(url) == 0
    finally:
        server.close()


# --- one writer, one committer --------------------------------------------------------------------------


class Parts:
    """Writers and committers of sinks to one database, without a job."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.made: list[SinkWriter | Committer] = []

    def sink(self, **options: Any) -> SqlSink:
        return us.SqlSink(self.url, "rows", **options)

    def writer(self, sink: SqlSink | None = None, **where: Any) -> SinkWriter:
        made = (sink or self.sink()).create_writer()
        self.made.append(made)
        made.open(context(**where), [])
        return made

    def committer(self, sink: SqlSink | None = None, state: Any = (), **where: Any) -> Committer:
        made = (sink or self.sink()).create_committer()
        assert isinstance(made, StatefulCommitter)
        self.made.append(made)
        made.restore_state(state)
        made.open(context(**where))
        return made

    def prepared(self, writer: SinkWriter, checkpoint: int, rows: Batch) -> list[bytes]:
        writer.write(rows)
        writer.flush(end_of_input=False)
        return list(writer.prepare_commit(CheckpointId(checkpoint)))


@pytest.fixture
def parts(url: str) -> Iterator[Parts]:
    made = Parts(url)
    yield made
    for one in made.made:
        one.close()


def of_columns(**columns: list[Any]) -> Batch:
    return Batch(pa.RecordBatch.from_pydict(columns))


def test_staged_rows_that_somebody_has_removed_are_named_and_nothing_is_committed(parts: Parts) -> None:
    committables = parts.prepared(parts.writer(), 1, batch(1, 2, 3))
    [stage] = stages(parts.url)
    query(parts.url, f"DELETE FROM {stage} WHERE id = 2")
    with pytest.raises(CorruptSnapshot, match=r"of 3 rows .* 2 are there; some are missing: nothing was"):
        parts.committer().commit(permit(1), request(1, *committables))
    assert "rows" not in tables(parts.url)


def test_upsert_replaces_rows_within_a_checkpoint_and_over_checkpoints(parts: Parts) -> None:
    sink = parts.sink(mode="upsert", key=("a", "b"))
    writer, committer = parts.writer(sink), parts.committer(sink)
    rows = of_columns(a=[1, 1, 2], b=["x", "x", "x"], n=[10, 11, 20])
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, rows)))
    assert query(parts.url, "SELECT a, b, n FROM rows ORDER BY a, b") == [(1, "x", 11), (2, "x", 20)]
    rows = of_columns(a=[2, 1], b=["x", "y"], n=[21, 12])
    committer.commit(permit(2), request(2, *parts.prepared(writer, 2, rows)))
    found = query(parts.url, "SELECT a, b, n FROM rows ORDER BY a, b")
    assert found == [(1, "x", 11), (1, "y", 12), (2, "x", 21)]
    with pytest.raises(UserCodeError, match=r"a row without 'b', which is in the key of rows"):
        parts.prepared(writer, 3, of_columns(a=[1], b=pa.array([None], pa.string()), n=[1]))


def test_values_of_every_type_come_back(parts: Parts) -> None:
    at = datetime(2026, 3, 29, 1, 30, 15, 250_000, tzinfo=UTC)
    rows = of_columns(
        bytes=[b"\x00\xff\n", None],
        text=['a,"b"\\\n', ""],
        flag=[True, None],
        day=pa.array([at.date(), None]),
        at=pa.array([at.replace(tzinfo=None), None], pa.timestamp("us")),
        zoned=pa.array([at, None], pa.timestamp("us", "UTC")),
        price=pa.array([Decimal("12.50"), None], pa.decimal128(6, 2)),
        large=pa.array([2**64 - 1, None], pa.uint64()),
        ratio=[0.1, float("inf")],
        nested=[[1, None], None],
    )
    parts.committer().commit(permit(1), request(1, *parts.prepared(parts.writer(), 1, rows)))
    found = query(parts.url, "SELECT bytes, text, flag, ratio FROM rows")
    assert sorted(found, key=lambda row: row[3]) == [
        (b"\x00\xff\n", 'a,"b"\\\n', True, 0.1),
        (None, "", None, float("inf")),
    ]
    texts = "SELECT CAST(day AS TEXT), CAST(price AS TEXT), CAST(large AS TEXT), nested FROM rows WHERE flag"
    [(day, price, large, nested)] = query(parts.url, texts)
    assert (day, price, large) == ("2026-03-29", "12.50", "18446744073709551615")
    assert (json.loads(nested) if isinstance(nested, str) else nested) == [1, None]
    [(moment, zoned)] = query(parts.url, "SELECT at, zoned FROM rows WHERE flag")
    assert str(moment) == "2026-03-29 01:30:15.250000"
    if isinstance(zoned, str):  # SQLite has no zones: it is UTC
        assert zoned == "2026-03-29 01:30:15.250000"
    else:
        assert zoned == at


@pytest.mark.parametrize(
    ("kind", "column"),
    [(pa.timestamp("us", "UTC"), "timestamp"), (pa.timestamp("us"), "timestamptz")],
    ids=["with a zone into a column without", "without a zone into a column with"],
)
def test_the_zone_of_a_server_changes_no_time(
    postgres: PostgresServer, kind: pa.DataType, column: str
) -> None:
    parts = Parts(postgres.new_database())
    query(parts.url, f"ALTER DATABASE {parts.url.rpartition('/')[2]} SET timezone = 'Asia/Tokyo'")
    query(parts.url, f"CREATE TABLE rows (t {column})")
    with closing(parts.writer()) as writer, closing(parts.committer()) as committer:
        prepared = parts.prepared(writer, 1, of_columns(t=pa.array([0], kind)))
        committer.commit(permit(1), request(1, *prepared))
    assert query(parts.url, "SELECT extract(epoch FROM t)::int FROM rows") == [(0,)]


def test_rows_of_other_columns_from_a_later_start_have_a_staging_table_of_their_own(parts: Parts) -> None:
    writer, committer = parts.writer(), parts.committer()
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, of_columns(id=[1]))))
    query(parts.url, "ALTER TABLE rows ADD COLUMN name TEXT")
    wider = parts.writer(attempt=1, restored=1)
    prepared = parts.prepared(wider, 2, of_columns(name=["two"], id=[2]))
    parts.committer(restored=1).commit(permit(2), request(2, *prepared))
    assert query(parts.url, "SELECT id, name FROM rows ORDER BY id") == [(1, None), (2, "two")]


def test_a_savepoint_s_commits_need_no_code_of_the_user(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = parts.prepared(parts.writer(), 1, batch(1, 2))
    monkeypatch.setenv(ENVIRONMENT, parts.url)
    committer = committer_of("sql", prepared)
    parts.made.append(committer)
    committer.open(context(restored=1))
    assert committer.commit(permit(1), request(1, *prepared)).rows == 2
    assert ids(parts.url) == [1, 2]


def test_a_password_is_not_in_what_a_savepoint_stores(postgres: PostgresServer) -> None:
    url = postgres.new_database().replace("@", ":hunter2@", 1)
    parts = Parts(url)
    prepared = parts.prepared(parts.writer(), 1, batch(1))
    assert b"hunter2" not in prepared[0]
    state = parts.committer()
    state.commit(permit(1), request(1, *prepared))
    assert isinstance(state, StatefulCommitter)
    assert b"hunter2" not in b"".join(state.snapshot_state())
    for one in parts.made:
        one.close()


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("DROP TABLE rows", "had committed checkpoint 1, but there is no such table any more"),
        ("DELETE FROM unistream_sink_commits", "unistream_sink_commits does not say so any more"),
        ("UPDATE unistream_sink_commits SET label = 0", "the last one is 0"),
    ],
)
def test_a_table_that_was_removed_or_put_back_is_refused(parts: Parts, what: str, says: str) -> None:
    writer, committer = parts.writer(), parts.committer()
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, batch(1))))
    assert isinstance(committer, StatefulCommitter)
    state = committer.snapshot_state()
    query(parts.url, what)
    with pytest.raises(ConfigError, match=f"{says}; nothing was written"):
        parts.committer(state=state, restored=1)


def test_another_table_gets_what_is_new_and_what_was_staged_for_the_former_is_not_lost(parts: Parts) -> None:
    writer, committer = parts.writer(), parts.committer()
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, batch(1))))
    listed = parts.prepared(writer, 2, batch(2))
    moved = us.SqlSink(parts.url, "others")
    elsewhere = parts.committer(moved, restored=2)
    with pytest.raises(ConfigError, match=r"now writes to table others, but .* output for table rows"):
        elsewhere.commit(permit(2), request(2, *listed))
    committer.commit(permit(2), request(2, *listed))
    again = parts.committer(moved, restored=2)
    assert again.commit(permit(2), request(2, *listed)).rows == 0
    new = parts.prepared(parts.writer(moved, attempt=1, restored=2), 3, batch(3))
    again.commit(permit(3), request(3, *new))
    assert (ids(parts.url), ids(parts.url, "others")) == ([1, 2], [3])


@pytest.mark.parametrize(
    ("made", "options", "says"),
    [
        ("", {"create": False}, "table rows does not exist at"),
        ("CREATE TABLE rows (id BIGINT)", {}, "table rows has no column 'name'; it has id"),
        (
            "CREATE TABLE rows (id BIGINT, name TEXT)",
            {"mode": "upsert", "key": "id"},
            "table rows has no primary key or unique constraint of id",
        ),
        ("", {"mode": "upsert", "key": "carrier"}, "there is no column 'carrier' among id, name"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_job_starts(
    parts: Parts, made: str, options: dict[str, Any], says: str
) -> None:
    if made:
        query(parts.url, made)
    with pytest.raises(ConfigError, match=says):
        parts.sink(**options).check(batch(1).records.schema)


@pytest.mark.parametrize(
    "columns",
    [
        "id BIGINT PRIMARY KEY, name TEXT",
        "name TEXT, id BIGINT, UNIQUE (id)",
        "id DECIMAL(10, 2) UNIQUE, name TEXT",
        "id BIGINT DEFAULT (1 + 2) UNIQUE, name TEXT",
        "id BIGINT CHECK (id > 0) UNIQUE, name TEXT DEFAULT 'x y'",
    ],
)
def test_rows_are_found_by_what_is_unique_however_it_was_declared(parts: Parts, columns: str) -> None:
    query(parts.url, f"CREATE TABLE rows ({columns})")
    sink = parts.sink(mode="upsert", key="id")
    sink.check(batch(1).records.schema)
    writer, committer = parts.writer(sink), parts.committer(sink)
    for checkpoint in (1, 2):
        listed = parts.prepared(writer, checkpoint, batch(1, 2))
        committer.commit(permit(checkpoint), request(checkpoint, *listed))
    assert ids(parts.url) == [1, 2]


def test_what_is_unique_in_some_rows_only_finds_none(parts: Parts) -> None:
    query(parts.url, "CREATE TABLE rows (id BIGINT, name TEXT)")
    query(parts.url, "CREATE UNIQUE INDEX of_some ON rows (id) WHERE id > 10")
    with pytest.raises(ConfigError, match="table rows has no primary key or unique constraint of id"):
        parts.sink(mode="upsert", key="id").check(batch(1).records.schema)
    query(parts.url, "CREATE UNIQUE INDEX of_all ON rows (id)")
    parts.sink(mode="upsert", key="id").check(batch(1).records.schema)


def test_rows_that_the_table_refuses_end_the_job_with_its_sentence(parts: Parts) -> None:
    query(parts.url, "CREATE TABLE rows (id BIGINT PRIMARY KEY, name TEXT)")
    writer, committer = parts.writer(), parts.committer()
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, batch(1, 2))))
    prepared = parts.prepared(writer, 2, batch(2, 3))
    with pytest.raises(ConfigError, match=r"refused committing to table rows: (?i:.*unique)"):
        committer.commit(permit(2), request(2, *prepared))
    assert ids(parts.url) == [1, 2]


def test_a_server_that_is_not_there_is_asked_again() -> None:
    parts = Parts("postgresql+psycopg://nobody@127.0.0.1:9/nothing")
    with pytest.raises(Unreachable, match=r"127.0.0.1:9/nothing did not answer while looking at table rows"):
        parts.sink().check(batch(1).records.schema)


def test_what_a_dead_attempt_has_staged_is_removed_by_the_next(parts: Parts) -> None:
    dead = parts.writer()
    [listed] = parts.prepared(dead, 1, batch(1))
    parts.prepared(dead, 2, batch(2))  # checkpoint 2 is never complete
    assert staged(parts.url) == 2
    heir = parts.writer(attempt=1, restored=1)
    prepared = parts.prepared(heir, 3, batch(2, 3))
    assert staged(parts.url) == 3, "without the row behind checkpoint 1"
    committer = parts.committer(restored=1)
    committer.commit(permit(1), request(1, listed))
    committer.commit(permit(3), request(3, *prepared))
    assert (ids(parts.url), staged(parts.url)) == ([1, 2, 3], 0)
