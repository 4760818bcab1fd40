"""What a SQL sink refuses before a job starts, and what its statements make of names and keys, in both
databases: a writer and a committer without a job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import MetaData, Table, create_engine, select
from sqlalchemy.pool import NullPool

import unistream as us
from tests.contract.sinks.case import context, permit, request
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.connector.sql import SqlSink
from unistream.connector.sql.row_check import SqlRowCheck
from unistream.model.elements import Batch


@pytest.fixture(scope="module")
def database(postgres: Any) -> str:
    return str(postgres.new_database())


@pytest.fixture
def postgres_url(database: str) -> Iterator[str]:
    """Of a database without tables."""
    yield database
    run(database, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}"
    return str(request.getfixturevalue("postgres_url"))


def run(url: str, statement: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement.replace("%", "%%") if url.startswith("postgres") else statement)


def rows_in(url: str, table: str, schema: str | None = None) -> list[dict[str, Any]]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        found = Table(table, MetaData(), autoload_with=connection, schema=schema)
        return sorted((dict(row) for row in connection.execute(select(found)).mappings()), key=str)


def put(url: str, table: str, *checkpoints: pa.RecordBatch, check: bool = False, **options: Any) -> None:
    """The rows of each checkpoint, staged and committed."""
    sink = SqlSink(url, table, **options)
    sink.check(checkpoints[0].schema)
    writer, committer = sink.create_writer(), sink.create_committer()
    assert committer is not None
    place = replace(context(), sink_uid=OperatorUid(table))
    try:
        writer.open(place, [])
        committer.open(place)
        for number, records in enumerate(checkpoints, 1):
            if check:
                assert refused(url, table, records, **options) == {}
            writer.write(Batch(records))
            writer.flush(end_of_input=False)
            committer.commit(permit(number), request(number, *writer.prepare_commit(CheckpointId(number))))
    finally:
        writer.close()
        committer.close()


def refused(url: str, table: str, records: pa.RecordBatch, **options: Any) -> dict[int, str]:
    """Rows that `on_error` finds."""
    check = SqlSink(url, table, **options).create_row_check()
    assert isinstance(check, SqlRowCheck)
    check.open()
    try:
        return dict(check.refused(Batch(records)))
    finally:
        check.close()


def ints(**columns: list[int]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, pa.int64()) for name, values in columns.items()})


# --- names --------------------------------------------------------------------------------------------

NAMES = (
    *("discount%", "a%s %(b)s ?", "50%%", "a\"b'c", " a  b ", "a/b\\c", "a:b", "a[0](1)", "select"),
    *("größe 日本", "$unistream$", "places", "texts", "r", "n", "t", "s", "x" * 63),
)
"""With what drivers read as parameters, quotes, words of SQL and of our own statements, and a long one."""
VALUES = {name: [1, 2] for name in NAMES}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_odd_names_of_columns_are_as_they_are(url: str) -> None:
    put(url, "rows", ints(**VALUES), check=True)
    assert rows_in(url, "rows") == [dict.fromkeys(NAMES, 1), dict.fromkeys(NAMES, 2)]


@pytest.mark.parametrize("more", ["", ", CHECK (v > 0)", ", UNIQUE (v)"], ids=["alone", "checked", "unique"])
def test_odd_names_of_a_key_are_as_they_are(url: str, more: str) -> None:
    columns = ", ".join(f"{quoted(name)} BIGINT" for name in NAMES)
    key = ", ".join(map(quoted, NAMES))
    name = quoted(NAMES[0]) if more else '"key of rows"'
    run(url, f"CREATE TABLE rows ({columns}, v BIGINT, CONSTRAINT {name} PRIMARY KEY ({key}){more})")
    first, second = ints(**VALUES, v=[1, 2]), ints(**VALUES, v=[3, 4])
    put(url, "rows", first, second, check=True, mode="upsert", key=NAMES)
    assert [row["v"] for row in rows_in(url, "rows")] == [3, 4]


def test_odd_names_of_unique_columns_are_named_when_they_refuse(url: str) -> None:
    columns = ", ".join(f"{quoted(name)} BIGINT UNIQUE" for name in NAMES)
    run(url, f"CREATE TABLE rows (id BIGINT, {columns})")
    put(url, "rows", ints(id=[1, 2], **VALUES), check=True)
    reasons = refused(url, "rows", ints(id=[3], **{name: [1] for name in NAMES}))
    assert any(f"another row of table rows has its {name} (" in reasons[0] for name in NAMES)


def test_odd_names_of_tables_are_as_they_are(url: str) -> None:
    for number, name in enumerate(NAMES):
        if number % 2:
            run(url, f"CREATE TABLE {quoted(name)} (id BIGINT PRIMARY KEY, v BIGINT CHECK (v > 0))")
        put(url, name, ints(id=[1], v=[1]), ints(id=[2], v=[2]), check=True)
        assert rows_in(url, name) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]


def test_odd_names_of_schemas_and_of_tables_that_are_referred_to(postgres_url: str) -> None:
    for name in NAMES[:8]:
        named = quoted(name)
        run(
            postgres_url,
            f"CREATE SCHEMA {named}; CREATE TABLE {named}.{named} (id BIGINT PRIMARY KEY); "
            f"INSERT INTO {named}.{named} VALUES (1); "
            f"CREATE TABLE {named}.rows ({named} BIGINT REFERENCES {named}.{named})",
        )
        put(postgres_url, f"{name}.rows", ints(**{name: [1]}), check=True)
        assert rows_in(postgres_url, "rows", name) == [{name: 1}]
        assert list(refused(postgres_url, f"{name}.rows", ints(**{name: [1, 7]}))) == [1]
        run(postgres_url, f"DROP SCHEMA {named} CASCADE")


def test_names_that_differ_by_case_are_two_in_postgresql_and_one_in_sqlite(url: str) -> None:
    if url.startswith("sqlite"):
        with pytest.raises(ConfigError, match="columns 'a' and 'A' are one for SQLite"):
            put(url, "rows", ints(a=[1], A=[2]))
        return
    put(url, "rows", ints(a=[1], A=[2]))
    put(url, "Rows", ints(a=[3], A=[4]))
    assert (rows_in(url, "rows"), rows_in(url, "Rows")) == ([{"a": 1, "A": 2}], [{"a": 3, "A": 4}])


@pytest.mark.parametrize(
    ("table", "column", "refusal"),
    [
        pytest.param("rows", "x" * 300, "of column 'x+' has 300 bytes, and PostgreSQL would", id="a column"),
        pytest.param("x" * 300, "id", "of table 'x+' has 300 bytes", id="a table"),
        pytest.param("é" * 40 + ".rows", "id", "of schema 'é+' has 80 bytes", id="a schema, in bytes"),
        pytest.param("rows", "", "'' cannot be the name of a column", id="none"),
        pytest.param("rows", "__unistream_place", "cannot be called '__unistream_place'", id="one of ours"),
    ],
)  # fmt: skip
def test_a_name_that_would_be_another_one_is_refused(postgres_url, table, column, refusal) -> None:
    with pytest.raises(ConfigError, match=refusal):
        SqlSink(postgres_url, table).check(pa.schema([(column, pa.int64())]))


def test_tables_of_ours_are_refused() -> None:
    for name in ("unistream_rows", "unistream_groups", "unistream_stage_1", "unistream_sink_commits"):
        with pytest.raises(ConfigError, match="is not the name of a table of yours"):
            SqlSink("sqlite:////tmp/x.db", name)


# --- keys ---------------------------------------------------------------------------------------------


def of_keys(keys: list[Any], values: list[int], **more: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"k": keys, "v": values, **more})


@pytest.mark.parametrize("check", [False, True], ids=["unchecked", "with on_error"])
@pytest.mark.parametrize(
    ("ddl", "keys"),
    [
        pytest.param("sqlite: k TEXT COLLATE NOCASE PRIMARY KEY", ["a", "A"], id="NOCASE"),
        pytest.param("sqlite: k TEXT PRIMARY KEY COLLATE RTRIM", ["a", "a  "], id="RTRIM"),
        pytest.param("k CHAR(3) PRIMARY KEY", ["a", "a "], id="CHAR, without blanks at the end"),
        pytest.param("k CHAR(3) UNIQUE CHECK (k <> '')", ["é", "é "], id="CHAR with a check"),
        pytest.param("k NUMERIC(10, 1) PRIMARY KEY", [1.01, 1.04], id="rounded numbers"),
    ],
)
def test_of_keys_that_the_table_takes_for_one_the_last_row_stays(request, tmp_path, ddl, keys, check) -> None:
    sqlite = ddl.startswith("sqlite: ")
    url = f"sqlite:///{tmp_path / 'x.db'}" if sqlite else request.getfixturevalue("postgres_url")
    run(url, f"CREATE TABLE t ({ddl.removeprefix('sqlite: ')}, v BIGINT, gone BOOLEAN)")
    options = {"mode": "upsert", "key": "k", "delete_when": us.col("gone")}
    kept = [False] * 2
    put(
        url,
        "t",
        of_keys(keys, [1, 2], gone=kept),
        of_keys(keys[::-1], [3, 4], gone=kept),
        check=check,
        **options,
    )
    assert [row["v"] for row in rows_in(url, "t")] == [4]
    put(url, "t", of_keys(keys[1:], [5], gone=[True]), check=check, on_rewind="allow_duplicates", **options)
    assert rows_in(url, "t") == []


# --- types --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("UUID", pa.string()),
        ("JSONB", pa.string()),
        ("TIMESTAMPTZ", pa.string()),
        ("DATE", pa.string()),
        ("mood", pa.string()),
        ("INET", pa.string()),
        ("BIGINT", pa.string()),
        ("BOOLEAN", pa.int64()),
        ("BYTEA", pa.string()),
        ("BIGINT", pa.timestamp("us")),
        ("TEXT[]", pa.list_(pa.string())),
    ],
    ids=lambda one: str(one).lower(),
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_type_that_the_table_refuses_is_refused_before_the_start(postgres_url, kind, written, mode) -> None:
    run(postgres_url, "CREATE TYPE mood AS ENUM ('sad', 'ok')")
    run(postgres_url, f"CREATE TABLE t (id BIGINT PRIMARY KEY, v {kind})")
    sink = SqlSink(postgres_url, "t", **({"mode": "upsert", "key": "id"} if mode == "upsert" else {}))
    with pytest.raises(
        ConfigError, match=r'rows for table t: column "v" is of type .* but .*Cast that column'
    ):
        sink.check(pa.schema([("id", pa.int64()), ("v", written)]))


@pytest.mark.parametrize(
    ("kind", "written", "why"),
    [
        ("BIGINT", pa.float64(), "rounded to whole ones"),
        ("SMALLINT", pa.decimal128(4, 1), "rounded to 0 decimal places"),
        ("NUMERIC(10, 2)", pa.decimal128(10, 3), "rounded to 2 decimal places"),
        ("NUMERIC(10)", pa.decimal128(10, 3), "rounded to 0 decimal places"),
        ("DOUBLE PRECISION", pa.decimal128(20, 3), "rounded to those of floating point"),
        ("DATE", pa.timestamp("us"), "the time of the day"),
        ("TIME", pa.timestamp("us"), "the day would"),
        ("TIMESTAMP(3)", pa.timestamp("us"), "rounded to 3 digits of a second"),
        ("TIME(0)", pa.time64("us"), "rounded to 0 digits of a second"),
        ("sqlite: NUMERIC", pa.decimal128(20, 2), "more than 15 digits"),
        ("sqlite: INTEGER", pa.uint64(), "more than 15 digits"),
        ("sqlite: INTEGER", pa.string(), "'007' would become"),
        ("sqlite: STRICT TEXT", pa.int64(), "takes no INTEGER there"),
        ("sqlite: STRICT INTEGER", pa.float64(), "takes no REAL there"),
        ("sqlite: STRICT TEXT", pa.binary(), "takes no BLOB there"),
    ],
    ids=lambda one: str(one).lower(),
)
def test_a_type_that_would_change_values_is_refused_before_the_start(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, written: pa.DataType, why: str
) -> None:
    url, kind, end = of_kind(request, tmp_path, kind)
    run(url, f"CREATE TABLE t (id INTEGER, v {kind}){end}")
    with pytest.raises(ConfigError, match=f"column 'v' is .*, and in table t .*{why}.*cast it before"):
        SqlSink(url, "t").check(pa.schema([("id", pa.int32()), ("v", written)]))


def of_kind(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> tuple[str, str, str]:
    """URL of a database, the type of a column there, and the end of the table's definition."""
    if not kind.startswith("sqlite: "):
        return str(request.getfixturevalue("postgres_url")), kind, ""
    kind = kind.removeprefix("sqlite: ")
    return f"sqlite:///{tmp_path / 'x.db'}", kind.removeprefix("STRICT "), " STRICT" * ("STRICT" in kind)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("NUMERIC(10, 2)", pa.array([Decimal("1.10")]), Decimal("1.10")),
        ("NUMERIC", pa.array([Decimal("1.123")]), Decimal("1.123")),
        ("NUMERIC(10, 2)", pa.array([2.345]), Decimal("2.35")),
        ("TIMESTAMP(3)", pa.array([1], pa.timestamp("ms")), "1970-01-01 00:00:00.001000"),
        ("TIMESTAMP", pa.array([1], pa.timestamp("s", "Asia/Tokyo")), "1970-01-01 00:00:01"),
        ("TIMESTAMPTZ", pa.array([1], pa.timestamp("s")), "1970-01-01 00:00:01+00:00"),
        ("sqlite: STRICT INTEGER", pa.array([True]), 1),
        ("sqlite: STRICT REAL", pa.array([7]), 7.0),
        ("sqlite: STRICT TEXT", pa.array(["007"]), "007"),
    ],
    ids=str,
)
def test_a_value_that_the_table_takes_is_there(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, values: pa.Array, expected: Any
) -> None:
    url, kind, end = of_kind(request, tmp_path, kind)
    if not end:
        run(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET timezone TO 'Asia/Tokyo'")
    run(url, f"CREATE TABLE t (v {kind}){end}")
    put(url, "t", pa.record_batch({"v": values}))
    [row] = rows_in(url, "t")
    if isinstance(row["v"], dt.datetime) and row["v"].tzinfo is not None:
        row["v"] = row["v"].astimezone(dt.UTC)
    assert str(row["v"]) == str(expected)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("NUMERIC", pa.int64()),
        ("TEXT", pa.int64()),
        ("VARCHAR(3)", pa.string()),
        ("TIMESTAMPTZ", pa.timestamp("us", tz="UTC")),
        ("JSON", pa.struct([("a", pa.int64())])),
        ("REAL", pa.float64()),
    ],
    ids=lambda one: str(one).lower(),
)
def test_a_type_that_the_table_takes_is_taken(postgres_url, kind, written) -> None:
    run(postgres_url, f"CREATE TABLE t (id BIGINT, v {kind})")
    SqlSink(postgres_url, "t").check(pa.schema([("id", pa.int64()), ("v", written)]))


@pytest.mark.parametrize(
    ("ddl", "refusal"),
    [
        ("CREATE VIEW t AS SELECT 1 AS id, 2 AS v", "cannot insert into view"),
        ("CREATE TABLE t (id BIGINT, v BIGINT GENERATED ALWAYS AS IDENTITY)", "cannot insert a non-DEFAULT"),
    ],
    ids=["a view", "a generated column"],
)  # fmt: skip
def test_a_table_that_takes_no_rows_is_refused_before_the_start(postgres_url, ddl, refusal) -> None:
    run(postgres_url, ddl)
    with pytest.raises(ConfigError, match=refusal):
        SqlSink(postgres_url, "t").check(pa.schema([("id", pa.int64()), ("v", pa.int64())]))


# --- rows -------------------------------------------------------------------------------------------------

BAD = {
    "NUL in text": pa.array(["a\0b"]),
    "NUL in a dictionary": pa.array(["a\0b"]).dictionary_encode(),
    "NUL in a struct": pa.array([{"a": "a\0b"}]),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_row_that_cannot_be_staged_fails_the_job_or_is_a_letter(postgres_url, bad) -> None:
    records = pa.record_batch({"v": bad})
    with pytest.raises(ConfigError, match=r"refused staging rows for table t: .*; nothing was written"):
        put(postgres_url, "t", records)
    assert list(refused(postgres_url, "t", records)) == [0]
    fine = pa.record_batch({"v": pa.array([{"a": "a\\u0000b"}])})
    assert refused(postgres_url, "t", fine) == {}


@pytest.mark.parametrize(
    ("ddl", "refusal"),
    [
        ("CREATE TABLE t (v TEXT, UNIQUE (v))", "index row requires 10016 bytes"),
        ("CREATE TABLE t (v TEXT); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
         "$$ BEGIN RAISE EXCEPTION 'not today'; END $$; "
         "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()", "not today"),
    ],
    ids=["longer than an index takes", "raised by a trigger"],
)  # fmt: skip
def test_what_a_commit_refuses_is_not_tried_again(postgres_url, ddl, refusal) -> None:
    run(postgres_url, ddl)
    long = Random(1).randbytes(5_000).hex()  # which cannot be compressed much
    with pytest.raises(ConfigError, match=refusal):
        put(postgres_url, "t", pa.record_batch({"v": [long]}))
    assert rows_in(postgres_url, "t") == []
