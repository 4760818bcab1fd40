"""Rows that a table would refuse become dead letters before they are written; the others are in it, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

import unistream as us
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end
from unistream.base.errors import ConfigError
from unistream.connector.sql import SqlSink
from unistream.model.elements import Batch
from unistream.operator.common import decoded_row

ROWS = 4_000
OFTEN = {"execution.checkpointing.interval": "300 ms", "parallelism.default": "1", **RECOVERING}
TABLE = "CREATE TABLE fares (id BIGINT PRIMARY KEY, carrier VARCHAR(2) NOT NULL, fare SMALLINT)"
CARRIERS = "CREATE TABLE carriers (name VARCHAR(2) PRIMARY KEY)"
CONSTRAINED = (
    "CREATE TABLE fares (id BIGINT PRIMARY KEY, carrier VARCHAR(2) NOT NULL REFERENCES carriers, "
    "fare SMALLINT, seat BIGINT UNIQUE, CONSTRAINT free CHECK (fare <> 42))"
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}"
    return str(request.getfixturevalue("postgres").new_database())


def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        found = connection.execute(text(sql))
        return [tuple(row) for row in found] if found.returns_rows else []


def row(i: int) -> dict[str, Any]:
    carrier = {3: None, 5: "DELTA", 7: "A\0", 13: "XX"}.get(i % 20, "AA")
    seat = {11: i - 1, 15: -1}.get(i % 20, i)
    return {"id": i, "carrier": carrier, "fare": 70_000 if i % 20 == 9 else i % 100, "seat": seat}


def refused(url: str, i: int) -> bool:
    """SQLite has no lengths and no ranges, and checks foreign keys only if it is asked to."""
    is_always = i % 20 in (3, 11, 15) or i % 100 == 42
    return is_always or (not url.startswith("sqlite") and i % 20 in (5, 7, 9, 13))


def made(batch: pa.RecordBatch) -> pa.RecordBatch:
    kinds = {"id": pa.int64(), "carrier": pa.string(), "fare": pa.int64(), "seat": pa.int64()}
    schema = pa.schema(kinds.items())
    return pa.RecordBatch.from_pylist([row(i) for i in batch.column("id").to_pylist()], schema=schema)


def pipeline(env: us.Environment, url: str) -> None:
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=ROWS, rows_per_second=500)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "ids").uid("ids")
    sink = rows.map_batches(made).sink_to(SqlSink(url, "fares"), on_error="dead-letter").uid("table")
    sink.dead_letters_to(SqlSink(url, "refused"))


@pytest.mark.parametrize("point", in_the_gate(["sql.staged:2", "sql.before_commit:2", "sql.committed:2"], 2))
def test_a_table_has_what_it_takes_and_letters_the_rest(
    url: str, point: str, tmp_path: Path, crashes: Crashes
) -> None:
    for one in (CARRIERS, "INSERT INTO carriers VALUES ('AA')", CONSTRAINED):
        query(url, one)
    query(url, "INSERT INTO fares (id, carrier, seat) VALUES (-1, 'AA', -1)")
    crashes.arm(point)
    result = run_to_end(tmp_path, crashes, lambda env, _: pipeline(env, url), OFTEN)
    bad = [i for i in range(ROWS) if refused(url, i)]
    assert [i for (i,) in query(url, "SELECT id FROM fares WHERE id >= 0 ORDER BY id")] == sorted(
        {*range(ROWS)} - {*bad}
    )
    letters = query(url, "SELECT row_ipc, error_type, error, operator_uid FROM refused")
    assert sorted(decoded_row(bytes(ipc)).column("id")[0].as_py() for ipc, *_ in letters) == bad
    assert {(kind, uid) for _, kind, _, uid in letters} == {("RowRefused", "table-rows")}
    reasons = " ".join(error for *_, error, _ in letters)
    for one in (
        "null in 'carrier', which is NOT NULL in table fares",
        "of table fares has its seat (",
        "free",
    ):
        assert one in reasons
    assert result.dead_letters.keys() == {"SQL: fares rows"}


def test_each_rule_of_a_column(url: str) -> None:
    query(url, TABLE)
    check = SqlSink(url, "fares", mode="upsert", key="id").create_row_check()
    check.open()
    schema = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("fare", pa.int64())])
    bad = [
        {"id": 1, "carrier": "AA", "fare": None},
        {"id": None, "carrier": "AA", "fare": 1},
        {"id": 2, "carrier": None, "fare": 1},
        {"id": 3, "carrier": "äö", "fare": 32_767},
        {"id": 4, "carrier": "AAA", "fare": -32_768},
        {"id": 5, "carrier": "A\0", "fare": 1},
        {"id": 6, "carrier": "", "fare": 32_768},
        {"id": 7, "carrier": "", "fare": -32_769},
    ]
    found = check.refused(Batch(pa.RecordBatch.from_pylist(bad, schema=schema)))
    assert sorted(found) == ([1, 2] if url.startswith("sqlite") else [1, 2, 4, 5, 6, 7])
    assert found[1] == "null in 'id', which is in the key of table fares"


def test_a_sink_that_cannot_say_it() -> None:
    rows = us.Environment().from_collection([{"id": 1}])
    with pytest.raises(ConfigError, match="sink 'print' cannot say which rows its target would refuse"):
        rows.sink_to(us.PrintSink(), on_error="skip")
    with pytest.raises(ConfigError, match=r"use sink_to\(…, on_error=\"dead-letter\"\)"):
        rows.sink_to(us.BlackholeSink()).dead_letters_to(us.BlackholeSink())
