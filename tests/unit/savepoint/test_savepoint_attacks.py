"""A query reads its savepoint and nothing else, whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.savepoint.query import CLOSED, connected, query, tables_read
from unistream.savepoint.statement import TABLE_FUNCTIONS

SECRET = "a-secret-beside-the-savepoint"


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a savepoint, and with files that are not part of it."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "secret.csv").write_text(f"value\n{SECRET}\n")
    (folder / "secret.json").write_text(f'{{"value": "{SECRET}"}}\n')
    duckdb.from_arrow(pa.table({"value": [SECRET]})).write_parquet(str(folder / "secret.parquet"))
    with duckdb.connect(str(folder / "secret.db")) as other:
        other.execute(f"CREATE TABLE t AS SELECT '{SECRET}' AS value")
    rows = pa.table({"k": [1, 2, 3], "value": ["a", "b", "c"]})
    us.SavepointWriter().with_state("op", "s", rows, keys=["k"]).write(folder / "sp")
    return folder


@pytest.fixture(scope="module")
def savepoint(beside: Path) -> us.Savepoint:
    return us.read_savepoint(beside / "sp")


FILES = [
    "SELECT * FROM read_csv('{at}/secret.csv')",
    "SELECT * FROM read_csv_auto('{at}/secret.csv')",
    "SELECT * FROM sniff_csv('{at}/secret.csv')",
    "SELECT * FROM read_json('{at}/secret.json')",
    "SELECT * FROM read_ndjson_objects('{at}/secret.json')",
    "SELECT * FROM read_parquet('{at}/secret.parquet')",
    "SELECT * FROM parquet_scan('{at}/secret.parquet')",
    "SELECT * FROM parquet_kv_metadata('{at}/secret.parquet')",
    "SELECT content FROM read_text('{at}/secret.csv')",
    "SELECT content FROM read_blob('{at}/secret.csv')",
    "SELECT * FROM glob('{at}/*')",
    "FROM '{at}/secret.csv'",
    "FROM '{at}/sp/../secret.csv'",
    'FROM "{at}/secret.parquet"',
    "FROM 'file://{at}/secret.csv'",
    "FROM 'http://127.0.0.1:9/secret.csv'",
    "FROM 's3://bucket/secret.parquet'",
    "SELECT (SELECT content FROM read_text('{at}/secret.csv')) FROM op_s",
    "SELECT * FROM op_s WHERE value IN (SELECT content FROM read_text('{at}/secret.csv'))",
    "SELECT * FROM op_s, LATERAL (SELECT * FROM read_text('{at}/secret.csv')) x",
    "SELECT * FROM op_s ORDER BY (SELECT content FROM read_text('{at}/secret.csv'))",
    "SELECT * FROM op_s LIMIT (SELECT count(*) FROM glob('{at}/*'))",
    "SELECT list_transform([1], x -> (SELECT content FROM read_text('{at}/secret.csv')))",
    "WITH x AS (FROM read_text('{at}/secret.csv')) FROM x",
    "WITH RECURSIVE x(n) AS (SELECT 'a' UNION ALL SELECT content FROM read_text('{at}/secret.csv')) FROM x",
    "SELECT * FROM op_s UNION ALL SELECT 0, 0, content FROM read_text('{at}/secret.csv')",
    "SUMMARIZE FROM read_text('{at}/secret.csv')",
    "DESCRIBE FROM '{at}/secret.csv'",
    "SELECT * FROM (SELECT 1) x JOIN '{at}/secret.csv' ON true",
    "SELECT * FROM query('FROM ''{at}/secret.csv''')",
    "SELECT * FROM query_table('{at}/secret.csv')",
    "SELECT * FROM query_table(['{at}/secret.csv', 'op_s'])",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM ''{at}/secret.csv'''))",
    "SELECT json_serialize_sql('FROM ''{at}/secret.csv''')",
    "SELECT * FROM (WITH \"{at}/secret.csv\" AS (SELECT 1) SELECT 1), '{at}/secret.csv'",
    "WITH a AS (FROM '{at}/secret.csv'), \"{at}/secret.csv\" AS (SELECT 1) FROM a",
    'WITH "{at}/secret.csv" AS (FROM \'{at}/secret.csv\') FROM "{at}/secret.csv"',
    "FROM t.main.read_text",
    "SELECT * FROM read_duckdb('{at}/secret.db', table_name => 't')",
    "FROM '{at}/secret.db'",
]
STATEMENTS = [
    "COPY op_s TO '{at}/written'",
    "COPY (SELECT 1) TO '{at}/written' (FORMAT parquet)",
    "EXPORT DATABASE '{at}/written'",
    "IMPORT DATABASE '{at}/sp'",
    "ATTACH '{at}/secret.db' AS other",
    "ATTACH '{at}/written' AS other; SELECT 1",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "PRAGMA table_info('op_s')",
    "CALL pragma_version()",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO '{at}/written'",
    "CREATE TABLE t AS SELECT 1",
    "CREATE MACRO f() AS TABLE FROM '{at}/secret.csv'",
    "CREATE SECRET x (TYPE s3)",
    "INSERT INTO op_s VALUES (1, 1, 'x')",
    "WITH x AS (INSERT INTO op_s VALUES (1, 1, 'x') RETURNING *) FROM x",
    "WITH x AS (DELETE FROM op_s RETURNING *) FROM x",
    "PREPARE p AS FROM '{at}/secret.csv'",
    "EXPLAIN ANALYZE FROM '{at}/secret.csv'",
    "VACUUM",
    "USE memory",
    "",
    ";",
    "-- nothing",
]
PROCESS = [
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT system.main.current_setting('home_directory')",
    "SELECT 'home_directory'.current_setting()",
    "SELECT getvariable('x')",
    "SELECT current_query()",
    "SELECT nextval('x')",
    "SELECT write_log('x')",
    "SELECT sleep_ms(1000000)",
    "SELECT __internal_decompress_string(1)",
    "SELECT \"<\"('a text', 1)",
    "SELECT \"IS DISTINCT FROM\"('a text', 1)",
    "FROM duckdb_settings",
    "FROM duckdb_settings()",
    "FROM duckdb_extensions()",
    "FROM duckdb_secrets()",
    "FROM duckdb_views()",
    "FROM pg_catalog.pg_settings",
    "FROM information_schema.tables",
    "FROM sqlite_master",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "FROM (SHOW TABLES)",
    "WITH a AS (FROM duckdb_settings), duckdb_settings AS (SELECT 1) FROM a",
    "SELECT * FROM (WITH duckdb_settings AS (SELECT 1) SELECT 1), duckdb_settings",
    "FROM arrow_scan(1::POINTER, 2::POINTER, 3::POINTER)",
    "FROM pandas_scan(1::POINTER)",
    "FROM python_arrow_scan(1::POINTER)",
    "FROM savepoint",
    "FROM connection",
    "FROM names",
    "FROM memory.main.op_s",
    "SELECT $1",
    "SELECT ?",
]


@pytest.fixture(scope="module")
def parser() -> Iterator[duckdb.DuckDBPyConnection]:
    with connected() as connection:
        yield connection


@pytest.mark.parametrize("sql", [*FILES, *STATEMENTS, *PROCESS])
def test_it_is_refused_before_it_runs(
    beside: Path, savepoint: us.Savepoint, parser: duckdb.DuckDBPyConnection, sql: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        tables_read(parser, savepoint, sql.replace("{at}", str(beside)))
    assert SECRET not in str(refusal.value)
    assert 'the tables are "op/s"' in str(refusal.value)


@pytest.mark.parametrize("sql", [FILES[0], FILES[11], STATEMENTS[0], STATEMENTS[13], PROCESS[1]])
def test_a_query_does_nothing_else(beside: Path, savepoint: us.Savepoint, sql: str) -> None:
    before = sorted(beside.rglob("*"))
    with pytest.raises(ConfigError) as refusal:
        query(savepoint, sql.replace("{at}", str(beside)))
    assert SECRET not in str(refusal.value)
    assert sorted(beside.rglob("*")) == before


def test_no_table_function_is_allowed_that_does_not_stand_in_the_list(
    savepoint: us.Savepoint, parser: duckdb.DuckDBPyConnection
) -> None:
    """Also those that a later DuckDB brings."""
    rows = parser.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type LIKE '%table%'"
    ).fetchall()
    others = {name for (name,) in rows} - TABLE_FUNCTIONS
    assert len(others) > 50
    for name in others:
        with pytest.raises(ConfigError, match="is not allowed here"):
            tables_read(parser, savepoint, f'FROM "{name}"()')


@pytest.mark.parametrize(
    "sql",
    ["FROM '{at}/secret.csv'", "FROM read_text('{at}/secret.csv')", "LOAD httpfs", "FROM rows_of_python"],
)
def test_duckdb_alone_would_refuse_it_too(beside: Path, sql: str) -> None:
    """What the list of allowed nodes might overlook."""
    rows_of_python = pa.table({"value": [SECRET]})
    with duckdb.connect(config=CLOSED) as connection, pytest.raises(duckdb.Error) as refusal:
        connection.sql(sql.replace("{at}", str(beside))).fetchall()
    assert SECRET not in str(refusal.value), rows_of_python


GOOD = [
    ("SELECT count(*) AS n FROM op_s", 3),
    ("select max(value) as n from OP_S;  \n", "c"),
    ('FROM "op/s" SELECT count(*)', 3),
    ("WITH x AS (FROM op_s WHERE k > 1), y AS (FROM x) SELECT count(*) FROM y", 2),
    ("WITH OP_S AS (SELECT 7 AS n) SELECT n FROM op_s", 7),
    ("WITH x AS MATERIALIZED (SELECT 7 AS n) SELECT x.n FROM x JOIN x y USING (n)", 7),
    ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT max(n) FROM t", 5),
    ("SELECT value FROM op_s QUALIFY row_number() OVER (ORDER BY k DESC) = 1", "c"),
    ("SELECT DISTINCT ON (k % 1) k FROM op_s ORDER BY k % 1, k", 1),
    ("SELECT sum(range) FROM range(4)", 6),
    ("SELECT u FROM unnest([9]) AS t(u)", 9),
    ("SELECT value->>'a' FROM (SELECT '{\"a\": \"x\"}'::JSON AS value)", "x"),
    ("SELECT count(*) FROM op_s WHERE k <> 2 AND k >= 1 AND value IS DISTINCT FROM 'c' AND k + 1 = 2", 1),
    ("SELECT [x * 2 FOR x IN [1, 2]][2]", 4),
    ("SELECT list_sum(list_transform([1, 2], lambda x: x + 1))", 5),
    ("SELECT CASE WHEN EXISTS (FROM op_s) THEN (SELECT min(k) FROM op_s) ELSE 0 END", 1),
    ("SELECT count(*) FILTER (WHERE value LIKE 'a%' AND k BETWEEN 1 AND 2 AND k IN (1, 2)) FROM op_s", 1),
    ("SELECT count(*) FROM (SELECT value FROM op_s GROUP BY ROLLUP (value))", 4),
    ("SELECT count(*) FROM (SELECT 1 EXCEPT SELECT 2 UNION SELECT 3)", 2),
    ("SELECT try_cast('x' AS DECIMAL(10, 2)) IS NULL", True),
    ("SELECT {'a': 1}.a + MAP {'x': 2}['x']", 3),
    ("SELECT count(*) FROM (UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b)", 2),
    ("SELECT a.k FROM op_s a ASOF JOIN op_s b ON a.k >= b.k ORDER BY #1 LIMIT 1", 1),
    ("SELECT column_name FROM (DESCRIBE op_s) WHERE column_name = 'value'", "value"),
    ("SELECT max FROM (SUMMARIZE op_s) WHERE column_name = 'value'", "c"),
    ("VALUES (1)", 1),
    ("SELECT date_trunc('day', TIMESTAMPTZ '2026-01-02 03:00:00+00')::VARCHAR", "2026-01-02 00:00:00+00"),
]


@pytest.mark.parametrize(("sql", "first"), GOOD)
def test_what_is_asked_of_the_states_alone_is_answered(
    savepoint: us.Savepoint, sql: str, first: object
) -> None:
    assert query(savepoint, sql).column(0)[0].as_py() == first


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("SELECT * FRM op_s", "line 1, column 14: "),
        ("SELECT 'ü',\n  nothing FROM op_s", "line 2, column 3: "),
        ("SELECT *\nFROM nothing", "line 2, column 6: "),
        ("SELECT '日本', value + nothing(1)\nFROM op_s", "line 1, column 22: "),
        ("SELECT k\nFROM op_s WHERE current_setting('x')", "line 2, column 17: "),
    ],
)
def test_an_error_says_where_it_is(savepoint: us.Savepoint, sql: str, where: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        query(savepoint, sql)
    assert str(refusal.value).startswith(where), refusal.value


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "NOT " * 5_000 + "true",
        "SELECT " + "[" * 3_000 + "]" * 3_000,
        "SELECT * FROM " + "(SELECT * FROM " * 500 + "op_s" + ")" * 500,
    ],
    ids=["expressions", "lists", "subqueries"],
)
def test_what_is_nested_too_deeply_is_refused(
    savepoint: us.Savepoint, parser: duckdb.DuckDBPyConnection, sql: str
) -> None:
    with pytest.raises(ConfigError, match=r"depth|deeply"):
        tables_read(parser, savepoint, sql)
