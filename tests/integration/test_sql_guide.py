"""The guide to tables of a database says what is true: its code is run."""

from __future__ import annotations

import re
from pathlib import Path

import unistream as us
from tests.contract.sinks.case import batch, permit, request
from tests.integration.test_sql_sink import Parts, query, stages
from tests.postgres import PostgresServer

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "sql.md"


def test_the_statement_that_drops_staging_tables_spares_those_with_rows(postgres: PostgresServer) -> None:
    [statement] = re.findall(r"    DO \$\$.*?END \$\$;", GUIDE.read_text(), re.DOTALL)
    parts = Parts(postgres.new_database())
    committed = parts.prepared(parts.writer(), 1, batch(1))
    parts.committer().commit(permit(1), request(1, *committed))
    [empty] = stages(parts.url)
    waiting = parts.writer(parts.sink(), attempt=1, restored=1)
    columns = batch(1).records.rename_columns(["id", "title"])
    parts.prepared(waiting, 2, type(batch(1))(columns))
    assert len(stages(parts.url)) == 2
    query(parts.url, statement)
    left = stages(parts.url)
    assert len(left) == 1
    assert empty not in left
    for one in parts.made:
        one.close()


def test_the_rights_that_the_guide_lists_suffice(postgres: PostgresServer) -> None:
    admin = postgres.new_database()
    query(admin, "CREATE TABLE rows (id BIGINT PRIMARY KEY, name TEXT)")
    url = postgres.new_role(admin)
    role = url.partition("//")[2].partition(":")[0]
    query(admin, f"GRANT CREATE ON SCHEMA public TO {role}")
    query(admin, f"GRANT SELECT, INSERT, UPDATE, DELETE ON rows TO {role}")
    parts = Parts(url)
    sink = parts.sink(mode="upsert", key="id", delete_when=us.col("id") == 2)
    prepared = parts.prepared(parts.writer(sink), 1, batch(1, 2))
    assert parts.committer(sink).commit(permit(1), request(1, *prepared)).rows == 2
    assert query(admin, "SELECT id FROM rows") == [(1,)]
    for one in parts.made:
        one.close()
