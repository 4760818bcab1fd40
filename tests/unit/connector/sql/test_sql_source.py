"""`SqlSource` over SQLite: what is refused and when, which ranges there are, how a growing column is read."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.base.secrets import Secret, redacted
from unistream.connector.catalogue import create_discovery
from unistream.connector.sql import SqlSink, SqlSource
from unistream.connector.sql.ranges import ColumnPosition
from unistream.connector.sql.source_split import SqlSplit
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import GrowingDiscovery, Idle, ReaderContext, Rows
from unistream.testing.harness.operators import CountingMetrics

POSTGRES = "postgresql+psycopg://me:hunter2@nowhere.invalid/shop"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def url(path: Path) -> str:
    execute(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, price DECIMAL(10, 2), done DATETIME)")
    rows = [(id, f"n{id}", f"{id}.50", f"2026-01-01 00:00:{id:02}") for id in range(10)]
    execute(path, "INSERT INTO t VALUES (?, ?, ?, ?)", *rows)
    return f"sqlite:///{path}"


def execute(path: Path, statement: str, *rows: Sequence[Any]) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(statement, rows) if rows else db.execute(statement)


def find(source: SqlSource, known: FoundSplits | None = None) -> FoundSplits:
    discovery = create_discovery(source.info())
    assert isinstance(discovery, GrowingDiscovery)
    if known is None:
        return discovery.find(None)
    ids = frozenset(split.id for split in known.splits)
    return discovery.find(KnownSplits(ids=ids, origin=known.origin, position=known.position))


def read(source: SqlSource, found: FoundSplits | None = None) -> list[dict[str, Any]]:
    with SourceDriver(source, (found or find(source)).splits, 60.0) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def ids(source: SqlSource, found: FoundSplits | None = None) -> list[int]:
    return sorted(row["id"] for row in read(source, found))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": None}, "reads a table or a query=, one of the two"),
        ({"query": "SELECT 1"}, "reads a table or a query=, one of the two"),
        ({"table": ".t"}, "table is 'name' or 'schema.name', not '.t'"),
        ({"table": None, "query": "DELETE FROM t"}, "query= is a SELECT, not 'DELETE FROM t'"),
        ({"columns": []}, "columns must be at least one, each once"),
        ({"columns": ["a", "a"]}, "columns must be at least one, each once"),
        ({"schema": {"a": pa.int64()}, "columns": ["a"]}, "leave out columns= and types="),
        ({"types": {"a": pa.list_(pa.int64())}}, "column 'a' cannot be read as list"),
        ({"splits": 0}, "splits must be at least 1, not 0"),
        ({"splits": 2, "rows_per_split": 2}, "splits or rows_per_split, one of the two"),
        ({"increasing": "id", "split_by": "id"}, "leave out split_by and splits"),
        ({"margin": "1 s"}, "starting_after and margin are for a source with increasing="),
        ({"bounded": False}, "bounded=False needs increasing="),
        ({"increasing": "id", "interval": "1 s"}, "interval is for a source with bounded=False"),
        ({"increasing": "id", "bounded": False, "interval": 0}, "interval must be above 0"),
        ({"query_timeout": 0}, "query_timeout is from 1 ms to 24 days"),
        ({"url": "mysql+pymysql://me:hunter2@host/db"}, "PostgreSQL and SQLite; with MySQL its promise was"),
        ({"url": "postgresql+psycopg2://me:hunter2@host/db"}, r"write postgresql\+psycopg://… as url"),
        ({"url": "host/db:hunter2"}, "url is not a SQLAlchemy URL"),
        ({"url": "postgresql://me@host/db?password=hunter2"}, r"behind the '\?' of a url would be shown"),
        ({"url": "postgresql://me@host/db?sslpassword=hunter2"}, r"behind the '\?' of a url would be shown"),
        ({"url": "sqlite://"}, "SQLite needs a file"),
    ],
)  # fmt: skip
def test_arguments_that_are_wrong(options: dict[str, Any], says: str) -> None:
    values = {"url": "sqlite:////tmp/never-made.db", "table": "t", **options}
    with pytest.raises(ConfigError, match=says) as refused:
        SqlSource(values.pop("url"), values.pop("table"), **values)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "orders"}, "there is no table orders at sqlite:///.*; there are t"),
        ({"columns": ["id", "nme"]}, "there is no column 'nme'; there are id, name, price, done"),
        ({"types": {"nme": pa.int64()}}, "there is no column 'nme'"),
        ({"split_by": "nme"}, "there is no column 'nme'"),
        ({"increasing": "nme"}, "there is no column 'nme'"),
        ({"table": None, "query": "SELECT nme FROM t"}, "the query at .* was refused: no such column: nme"),
        ({"table": None, "query": "SELECT 1; SELECT 2"}, "the query at .* was refused: near"),
        ({"table": None, "query": "SELECT count(*) AS n FROM t"}, r"column 'n'.*types=\{'n': pa.int64"),
    ],
)  # fmt: skip
def test_what_the_database_does_not_have(url: str, options: dict[str, Any], says: str) -> None:
    values = {"table": "t", **options}
    with pytest.raises(ConfigError, match=says):
        _ = SqlSource(url, values.pop("table"), **values).schema


def test_a_file_that_is_not_there_is_not_made(path: Path) -> None:
    with pytest.raises(ConfigError, match=f"there is no file {path}$"):
        _ = SqlSource(f"sqlite:///{path}", "t").schema
    assert not path.exists()


def test_a_query_writes_nothing(url: str) -> None:
    """`load_extension` and the like are off in Python; what is left is caught by SQLite itself."""
    with pytest.raises(ConfigError, match="was refused"):
        _ = SqlSource(url, query="SELECT 1) AS a; DROP TABLE t; SELECT * FROM (SELECT 1").schema
    assert len(read(SqlSource(url, "t"))) == 10


def test_a_password_is_shown_nowhere() -> None:
    source = SqlSource(POSTGRES, "t", schema={"id": pa.int64()})
    plain = msgspec.to_builtins(source.info())
    assert "hunter2" not in f"{source!r} {source.info()!r} {redacted(plain)!r} {source.name}"
    assert "hunter2" in str(plain), "the master needs it"
    with pytest.raises(Unreachable) as refused:
        find(source)
    assert "hunter2" not in str(refused.value)


def test_a_source_and_a_sink_of_one_table_are_one_data_set() -> None:
    for where in (POSTGRES, Secret(POSTGRES), "sqlite:////data/shop.db"):
        plain = where.reveal() if isinstance(where, Secret) else where
        found = SqlSource(where, "sales.t").lineage_datasets()
        assert found == SqlSink(plain, "sales.t").lineage_datasets()
    assert SqlSource("${env:SHOP}", "t").lineage_datasets() == []
    assert SqlSource(POSTGRES, query="SELECT 1").lineage_datasets() == []


# --- columns --------------------------------------------------------------------------------------


def test_columns_and_types_are_those_of_the_database_or_given(url: str) -> None:
    found = SqlSource(url, "t").schema
    assert found.types == [pa.int64(), pa.string(), pa.decimal128(10, 2), pa.timestamp("us")]
    assert read(SqlSource(url, "t", columns=["price", "id"]))[7] == {"price": 7.5, "id": 7}
    given = SqlSource(url, "t", schema={"id": pa.int16(), "name": pa.large_string()})
    assert read(given)[7] == {"id": 7, "name": "n7"}
    counted = SqlSource(url, query="SELECT count(*) AS n FROM t", types={"n": pa.int64()})
    assert read(counted) == [{"n": 10}]


def test_a_cell_that_does_not_fit_is_named_by_the_key_of_its_row(path: Path, url: str) -> None:
    execute(path, "UPDATE t SET done = 'soon' WHERE id = 7")
    with pytest.raises(UserCodeError, match=r", row id = 7: column 'done': 'soon' is no timestamp") as bad:
        read(SqlSource(url, "t"))
    assert 'CAST("done" AS TEXT) AS "done"' in str(bad.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("ALTER TABLE t RENAME COLUMN name TO label", "has no column 'name' any more; it has id, label"),
        ("DROP TABLE t", "there is no table t"),
        ("ALTER TABLE t DROP COLUMN price", "has no column 'price' any more"),
    ],
)
def test_columns_that_have_changed_are_found_at_a_restart(
    path: Path, url: str, change: str, says: str
) -> None:
    source = SqlSource(url, "t")
    found = find(source)
    execute(path, change)
    for again in (lambda: find(source, found), lambda: read(source, found)):
        with pytest.raises(ConfigError, match=says):
            again()


def test_a_type_that_has_changed_is_found_and_a_new_column_changes_nothing(path: Path, url: str) -> None:
    source = SqlSource(url, "t")
    found = find(source)
    execute(path, "ALTER TABLE t ADD COLUMN more TEXT")
    assert ids(source, found) == list(range(10))
    execute(path, "ALTER TABLE t RENAME TO old")
    execute(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, name BLOB, price DECIMAL(10, 2), done DATETIME)")
    with pytest.raises(ConfigError, match="column 'name' is BLOB now, and was read as string"):
        find(source, found)


# --- ranges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["0 [0, 9]"]),
        ({"rows_per_split": 4}, ["0 [0, 4)", "1 [4, 8)", "2 [8, 9]"]),
        ({"splits": 2}, ["0 [0, 5)", "1 [5, 9]"]),
        ({"split_by": "name", "splits": 2}, ["0 [n0, n5)", "0 null", "1 [n5, n9]"]),
        ({"split_by": "part", "splits": 3}, ["0 null"]),
    ],
)
def test_the_ranges_of_a_table(path: Path, url: str, options: dict[str, Any], names: list[str]) -> None:
    execute(path, "ALTER TABLE t ADD COLUMN part INTEGER")
    source = SqlSource(url, "t", **options)
    assert sorted(split.id for split in find(source).splits) == names
    assert ids(source) == list(range(10))


@pytest.mark.parametrize("options", [{}, {"split_by": "name"}, {"increasing": "id"}], ids=str)
def test_an_empty_table_has_no_rows(path: Path, options: dict[str, Any]) -> None:
    execute(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    assert read(SqlSource(f"sqlite:///{path}", "t", **options)) == []


@pytest.mark.parametrize("key", ["INT PRIMARY KEY", "INTEGER PRIMARY KEY DESC", "BIGINT PRIMARY KEY"])
def test_a_row_without_a_key_comes_too(path: Path, key: str) -> None:
    """SQLite lets the columns of a key be null, all but the number of a row."""
    execute(path, f"CREATE TABLE t (id {key})")
    execute(path, "INSERT INTO t VALUES (?)", (1,), (None,), (2,), (None,))
    found = [row["id"] for row in read(SqlSource(f"sqlite:///{path}", "t"))]
    assert sorted(map(str, found)) == ["1", "2", "None", "None"]


def test_a_text_that_is_none_is_refused(path: Path) -> None:
    execute(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    execute(path, "INSERT INTO t VALUES (1, CAST(x'ff41' AS TEXT))")
    with pytest.raises(ConfigError, match=r"column 'v'.*read such a column as bytes, by a query="):
        read(SqlSource(f"sqlite:///{path}", "t"))
    as_bytes = SqlSource(
        f"sqlite:///{path}", query="SELECT CAST(v AS BLOB) AS v FROM t", types={"v": pa.binary()}
    )
    assert read(as_bytes) == [{"v": b"\xffA"}]


def test_rows_that_come_behind_the_bounds_are_not_read(path: Path, url: str) -> None:
    source = SqlSource(url, "t", rows_per_split=4)
    found = find(source)
    execute(path, "INSERT INTO t (id) VALUES (?)", (-1,), (10,))
    execute(path, "DELETE FROM t WHERE id = 5")
    assert ids(source, found) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("options", [{}, {"split_by": "done"}], ids=["another column", "that column"])
def test_a_split_says_its_least_event_time(url: str, options: dict[str, Any]) -> None:
    info = msgspec.structs.replace(
        SqlSource(url, "t", rows_per_split=4, **options).info(),
        timestamp_column="done",
        timestamp_type="timestamp[us]",
    )
    start = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
    found = {split.min_timestamp for split in create_discovery(info).discover()}
    first = {start, start + 4_000, start + 8_000}
    before = {start, start, start + 4_000}  # rows of a first value may be among those before
    assert found - {None} == (first if options else before)


def test_texts_that_are_one_value_have_one_least_event_time(path: Path) -> None:
    """All rows are in the last range; it may not be taken to begin later than they do."""
    execute(path, "CREATE TABLE t (k TEXT COLLATE NOCASE, at DATETIME)")
    rows = [("A", 3), ("a", 3), ("A", 1)]
    execute(path, "INSERT INTO t VALUES (?, ?)", *[(k, f"1970-01-01 00:00:0{at}") for k, at in rows])
    source = SqlSource(f"sqlite:///{path}", "t", split_by="k", rows_per_split=1)
    info = msgspec.structs.replace(source.info(), timestamp_column="at", timestamp_type="timestamp[us]")
    first, last, _ = create_discovery(info).discover()
    assert (first.min_timestamp, last.min_timestamp) == (1000, 1000)
    assert len(read(source)) == 3


def test_a_statement_has_a_limit(url: str) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n"
    source = SqlSource(url, query=endless, schema={"i": pa.int64()}, query_timeout="50 ms")
    with pytest.raises(Unreachable, match=r"took longer than 0.05 s, and was given up.*query_timeout"):
        read(source)


def test_a_reader_that_is_closed_waits_for_no_statement(url: str) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n"
    source = SqlSource(url, query=endless, schema={"i": pa.int64()})
    before = set(threading.enumerate())
    reader = source.create_reader()
    reader.open(
        ReaderContext(
            index=0, parallelism=1, wake=lambda: None, request_split=lambda: None, metrics=CountingMetrics()
        )
    )
    reader.add_splits(find(source).splits)
    assert isinstance(reader.poll(), Idle)
    [thread] = set(threading.enumerate()) - before
    reader.close()
    assert not thread.is_alive()


# --- a column that grows --------------------------------------------------------------------------


def growing(url: str, **options: Any) -> SqlSource:
    return SqlSource(url, "t", **{"increasing": "id", "bounded": False, "margin": 0, **options})


def test_what_is_new_is_read_once(path: Path, url: str) -> None:
    source = growing(url, rows_per_split=4)
    first = find(source)
    assert ids(source, first) == list(range(10))
    nothing = find(source, first)
    assert nothing.splits == ()
    execute(path, "INSERT INTO t (id) VALUES (?)", (12,), (11,))
    second = find(source, nothing)
    assert ids(source, second) == [11, 12]
    assert not {split.id for split in first.splits} & {split.id for split in second.splits}


def test_an_id_is_read_once_it_was_there_for_the_margin(path: Path, url: str) -> None:
    source = growing(url, margin="1 h")
    first = find(source)
    assert first.splits == (), "a transaction that began before may still bring a smaller one"
    execute(path, "INSERT INTO t (id) VALUES (20)")
    position = msgspec.json.decode(first.position, type=ColumnPosition)
    [mark] = position.marks
    an_hour_ago = (mark._replace(at_ms=mark.at_ms - 3_600_000),)
    waited = msgspec.structs.replace(position, marks=an_hour_ago)
    later = find(source, msgspec.structs.replace(first, position=msgspec.json.encode(waited).decode()))
    assert ids(source, later) == list(range(10))


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f"])
def test_a_time_is_read_once_it_is_older_than_the_margin(path: Path, url: str, form: str) -> None:
    now = dt.datetime.now(dt.UTC)
    ages = [(id, (now - dt.timedelta(minutes=30 * id)).strftime(form)) for id in range(4)]
    execute(path, "DELETE FROM t")
    execute(path, "INSERT INTO t (id, done) VALUES (?, ?)", *ages)
    source = growing(url, increasing="done", margin="45 min")
    first = find(source)
    assert ids(source, first) == [2, 3]
    execute(path, "UPDATE t SET done = ? WHERE id = 0", (ages[2][1],))
    assert find(source, first).splits == (), "it comes where was read already: the margin is too short for it"


@pytest.mark.parametrize(
    ("column", "after"),
    [
        ("id", 7),
        ("done", dt.datetime(2026, 1, 1, 2, 0, 7, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        ("done", "2026-01-01 00:00:07"),
    ],
)
def test_where_it_begins(url: str, column: str, after: Any) -> None:
    assert ids(growing(url, increasing=column, starting_after=after)) == [8, 9]


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.000"])
def test_it_begins_behind_a_time_in_whatever_form(path: Path, url: str, form: str) -> None:
    times = [dt.datetime(2026, 1, 1, 10, 0, second, tzinfo=dt.UTC) for second in range(4)]
    execute(path, "DELETE FROM t")
    execute(
        path, "INSERT INTO t (id, done) VALUES (?, ?)", *[(n, f"{at:{form}}") for n, at in enumerate(times)]
    )
    assert ids(growing(url, increasing="done", starting_after=times[1])) == [2, 3]


def test_a_bounded_one_reads_to_the_greatest_value(url: str) -> None:
    assert ids(SqlSource(url, "t", increasing="id", starting_after=6)) == [7, 8, 9]


@pytest.mark.parametrize(
    ("prepare", "options", "says"),
    [
        pytest.param("INSERT INTO t (name) VALUES ('x')", {"increasing": "done"},
                     r"column 'done' is null in some rows, which would never.*coalesce", id="nulls"),
        pytest.param("SELECT 1", {"increasing": "price2"}, "there is no column 'price2'", id="no column"),
    ],
)  # fmt: skip
def test_a_column_that_cannot_grow(
    path: Path, url: str, prepare: str, options: dict[str, Any], says: str
) -> None:
    execute(path, prepare)
    with pytest.raises(ConfigError, match=says):
        find(growing(url, **options))


def test_flags_do_not_grow(path: Path) -> None:
    execute(path, "CREATE TABLE f (id INTEGER PRIMARY KEY, flag BOOLEAN)")
    with pytest.raises(ConfigError, match="column 'flag' is bool, which does not grow from row to row"):
        _ = SqlSource(f"sqlite:///{path}", "f", increasing="flag", bounded=False).schema


def test_a_position_is_of_one_column(url: str) -> None:
    first = find(growing(url))
    with pytest.raises(ConfigError, match="has read it by column 'id', and is to read on by 'done'"):
        find(growing(url, increasing="done"), first)
    with pytest.raises(ConfigError, match="position of a SQL source is unreadable"):
        find(growing(url), msgspec.structs.replace(first, position="{}"))


def test_rows_that_are_updated_while_they_wait_come_once_each(path: Path, url: str) -> None:
    """By a number that each change increases a row moves to the end."""
    execute(path, "ALTER TABLE t ADD COLUMN change INTEGER")
    execute(path, "UPDATE t SET change = id")
    source = growing(url, increasing="change", rows_per_split=3)
    first = find(source)
    execute(path, "UPDATE t SET change = 10 + id WHERE id IN (0, 9)")
    second = find(source, first)
    assert ids(source, first) == list(range(1, 9))
    assert ids(source, second) == [0, 9]


def test_a_stored_split_is_small(url: str) -> None:
    split = find(SqlSource(url, "t")).splits[0]
    assert len(split.data) < 100
    assert msgspec.msgpack.decode(split.data, type=SqlSplit).column == "id"
