"""Names of tables, and what is asked of a database."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import MetaData, create_engine
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table
from sqlalchemy.dialects import postgresql

from unistream.base.errors import ConfigError
from unistream.base.secrets import Secret
from unistream.connector.sql import SqlSink
from unistream.connector.sql.key_forms import KeyForm
from unistream.connector.sql.stage import SqlTable
from unistream.connector.sql.statements import (
    OURS,
    SqlStagedRows,
    SqlTableName,
    attempt_of,
    move,
    remove_former,
    remove_left,
    stage_name,
    stage_table,
)

URL = "sqlite:////tmp/never-made.db"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "replace"}, "mode must be one of append, upsert, not 'replace'"),
        ({"mode": "upsert"}, "mode='upsert' needs a key"),
        ({"key": "id"}, "a SQL sink with mode='upsert' needs a key, and with any other mode has none"),
        ({"on_rewind": "ask"}, "on_rewind must be 'refuse' or 'allow_duplicates', not 'ask'"),
        ({"on_foreign": "ask"}, "on_foreign"),
        ({"batch_rows": 0}, "batch_rows must be at least 1, not 0"),
        ({"table": ""}, "'' is not the name of a table of yours"),
        ({"table": "unistream_sink_commits"}, "is not the name of a table of yours"),
        (
            {"url": "mysql+pymysql://host/db"},
            "it is for PostgreSQL and SQLite; with MySQL its promise was not",
        ),
        ({"url": "mssql+pyodbc://host/db"}, "it is for PostgreSQL and SQLite; with SQL Server its promise"),
        ({"url": "host/db:hunter2"}, "url is not a SQLAlchemy URL"),
        ({"url": "sqlite://"}, "SQLite needs a file"),
    ],
)
def test_arguments_that_are_wrong(options: dict[str, Any], says: str) -> None:
    values = {"url": URL, "table": "rows", **options}
    with pytest.raises(ConfigError, match=says) as refused:
        SqlSink(values.pop("url"), values.pop("table"), **values)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("postgresql+psycopg://me:hunter2@db/lake", "postgresql+psycopg://me@db/lake"),
        (Secret("postgresql+psycopg://me:hunter2@db/lake"), "postgresql+psycopg://me@db/lake"),
        ("${env:LAKE}", "${env:LAKE}"),
    ],
)
def test_what_is_stored_of_a_url(url: str | Secret, stored: str) -> None:
    assert SqlTable(url=url, target=SqlTableName("rows")).without_password().url == stored


def test_a_staging_table_is_of_a_sink_and_of_its_columns() -> None:
    names = {
        stage_name(line, sink, columns)
        for line in ("a", "b")
        for sink in ("x", "y")
        for columns in ([("id", "int64")], [("id", "int32")], [("id", "int64"), ("n", "int64")])
    }
    assert len(names) == 12
    assert stage_name("a", "x", [("id", "int64")]) in names


JOB, OTHER = "a" * 32, "b" * 32
STAGED = [  # subtask, label, attempt
    (0, 3, attempt_of(JOB, 0)),
    (0, 4, attempt_of(JOB, 0)),
    (0, 4, attempt_of(JOB, 1)),
    (1, 4, attempt_of(JOB, 0)),
    (2, 4, attempt_of(JOB, 0)),
    (3, 4, attempt_of(JOB, 0)),
    (0, 4, attempt_of(OTHER, 0)),
]


def left(removal: Any) -> list[tuple[Any, ...]]:
    """Of the rows STAGED, those that the statement leaves."""
    engine = create_engine("sqlite://")
    stage = _stage()
    with engine.begin() as connection:
        stage.create(connection)
        for subtask, label, attempt in STAGED:
            row = {"__subtask": subtask, "__label": label, "__attempt": attempt, "__row": 0, "id": 1}
            connection.execute(stage.insert().values(row))
        connection.execute(removal(stage))
        return [tuple(row)[:3] for row in connection.execute(stage.select())]


def _stage() -> Any:
    made = stage_table("unistream_stage_test", "", pa.schema([("id", pa.int64())]))
    assert isinstance(made.metadata, MetaData)
    return made


def test_an_attempt_removes_what_former_ones_of_its_subtask_have_staged_behind_the_checkpoint() -> None:
    """Subtasks that there are no more (2 and 3, of 2) are divided: 2 to 0, and 3 to 1."""

    def removal(stage: Any) -> Any:
        return remove_left(stage, job=JOB, index=0, parallelism=2, restored=3, attempt=attempt_of(JOB, 1))

    assert [row for row in STAGED if row not in left(removal)] == [
        (0, 4, attempt_of(JOB, 0)),
        (2, 4, attempt_of(JOB, 0)),
    ]


def test_a_job_that_has_committed_removes_what_others_have_staged() -> None:
    found = left(lambda stage: remove_former(stage, JOB))
    assert [row for row in STAGED if row not in found] == [(0, 4, attempt_of(OTHER, 0))]


@pytest.mark.parametrize(
    ("url", "namespace", "name"),
    [
        ("postgresql+psycopg://me:hunter2@db/lake", "postgres://db:5432", "lake.sales.rows"),
        ("postgresql+psycopg://db:6543/lake", "postgres://db:6543", "lake.sales.rows"),
        ("sqlite:////data/orders.db", "file", "/data/orders.db/sales.rows"),
    ],
)
def test_its_dataset_is_named_as_openlineage_does(url: str, namespace: str, name: str) -> None:
    [found] = SqlSink(url, "sales.rows").lineage_datasets()
    assert (found.namespace, found.name) == (namespace, name)
    assert "hunter2" not in repr(SqlSink(url, "sales.rows"))


def test_a_reference_is_read_where_the_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKE", raising=False)
    sink = SqlSink("${env:LAKE}", "rows")
    assert sink.lineage_datasets() == []
    with pytest.raises(ConfigError, match="LAKE"):
        sink.check(None)


@pytest.mark.parametrize(
    ("form", "compared"),
    [
        (KeyForm(), "stage.k"),
        (KeyForm("numeric(10,2)"), "stage.k :: numeric(10,2)"),
        (KeyForm("", '"public"."c%i"'), 'stage.k COLLATE "public"."c%i"'),
        (KeyForm("citext", "pg_catalog.de"), "stage.k :: citext COLLATE pg_catalog.de"),
    ],
    ids=["as it is staged", "of another type", "of another collation", "of both"],
)
def test_rows_of_a_key_are_found_as_the_table_compares_it(form, compared):
    stage = sql_table("stage", *map(sql_column, (*OURS, "k", "v")))
    statement = move(
        "postgresql",
        stage=stage,
        target=sql_table("t", sql_column("k"), sql_column("v")),
        columns=["k", "v"],
        key=["k"],
        parts=[SqlStagedRows(0, 1, "a")],
        forms={"k": form},
    )
    found = str(statement.compile(dialect=postgresql.dialect(paramstyle="qmark")))
    assert f"PARTITION BY {compared} ORDER BY" in found
