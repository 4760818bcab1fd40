"""Names of columns that a source reads, of files and tables that somebody else has written."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.contract.test_contract_names import COLUMNS, NOT_IN_DELTA, NOT_IN_SQL
from tests.iceberg_lake import TABLE, Lake
from tests.names import BY_CASE
from tests.postgres import PostgresServer
from tests.support.harness.source_driver import SourceDriver
from unistream.connector.catalogue import create_discovery
from unistream.connector.delta import DeltaSource
from unistream.connector.file import FileSource
from unistream.connector.iceberg import IcebergSource
from unistream.connector.sql import SqlSource
from unistream.connector.sql.source_statements import quoted
from unistream.port.source import Rows, Source

COMPILES_WITHIN_S: Final = 600.0  # who reads JSON first may have to compile its loops


def table_of(names: list[str]) -> pa.Table:
    return pa.table({name: [f"x{n}", f"y{n}"] for n, name in enumerate(names)})


def rows_of(source: Source) -> pa.Table:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema)


def as_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


def as_csv(table: pa.Table, path: Path) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([table.schema.names, *(row.values() for row in table.to_pylist())])


WRITERS: Final[dict[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": pq.write_table,
    "json": as_json,
    "csv": as_csv,
}


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "inferred"])
@pytest.mark.parametrize("format", WRITERS)
def test_a_file_has_the_columns_that_were_written(tmp_path: Path, format: str, declared: bool) -> None:
    table = table_of([*COLUMNS, *BY_CASE])
    WRITERS[format](table, tmp_path / f"a.{format}")
    source = FileSource(str(tmp_path), format=format, schema=table.schema if declared else None)  # type: ignore[arg-type]
    assert rows_of(source).to_pylist() == table.to_pylist()


def test_an_iceberg_table_has_the_columns_that_were_written(tmp_path: Path) -> None:
    """pyiceberg writes other names to the files; a name that is empty it does not write."""
    table = table_of([*filter(None, COLUMNS), *BY_CASE])
    lake = Lake(tmp_path)
    lake.create(table.schema)
    lake.change(lambda held: held.append(table))
    assert rows_of(IcebergSource(TABLE, catalog_properties=lake.properties)).to_pylist() == table.to_pylist()
    some = table.schema.names[::2]
    chosen = IcebergSource(TABLE, catalog_properties=lake.properties, columns=some)
    assert rows_of(chosen).to_pylist() == table.select(some).to_pylist()
    for n, name in enumerate(table.schema.names):
        one = IcebergSource(TABLE, catalog_properties=lake.properties, filter=[(name, "=", f"y{n}")])
        assert rows_of(one.reading(frozenset([name]))).to_pylist() == [{name: f"y{n}"}]


def test_a_delta_table_has_the_columns_that_were_written(tmp_path: Path) -> None:
    table = table_of([name for name in COLUMNS if name not in NOT_IN_DELTA])
    write_deltalake(str(tmp_path / "table"), table)
    assert rows_of(DeltaSource(str(tmp_path / "table"))).to_pylist() == table.to_pylist()
    some = table.schema.names[::2]
    chosen = DeltaSource(str(tmp_path / "table"), columns=some)
    assert rows_of(chosen).to_pylist() == table.select(some).to_pylist()


def written_by(table: pa.Table, name: str, execute: Callable[..., object], mark: str) -> None:
    """A table of text columns, by statements."""
    columns = [quoted(column) for column in table.schema.names]
    doubled = (lambda text: text.replace("%", "%%")) if mark == "%s" else str
    execute(f"CREATE TABLE {quoted(name)} ({', '.join(f'{column} TEXT' for column in columns)})")
    for row in table.to_pylist():
        marks = ", ".join([mark] * len(columns))
        execute(
            doubled(f"INSERT INTO {quoted(name)} ({', '.join(columns)}) VALUES ") + f"({marks})",
            list(row.values()),
        )


SQL_TABLE = "50% of :rows \"and\" 'others' %(a)s"


def test_a_table_of_sqlite_has_the_columns_that_were_written(tmp_path: Path) -> None:
    table = table_of([name for name in COLUMNS if name not in NOT_IN_SQL])
    with closing(sqlite3.connect(tmp_path / "rows.db")) as db, db:
        written_by(table, SQL_TABLE, db.execute, "?")
    url = f"sqlite:///{tmp_path / 'rows.db'}"
    for name in (None, *table.schema.names[::4]):
        assert rows_of(SqlSource(url, SQL_TABLE, split_by=name)).sort_by(table.schema.names[0]).equals(table)
    query = f"SELECT * FROM {quoted(SQL_TABLE)} WHERE ':a' <> '%(b)s' -- :c"
    assert rows_of(SqlSource(url, query=query)).sort_by(table.schema.names[0]).equals(table)


def test_a_table_of_postgresql_has_the_columns_that_were_written(postgres: PostgresServer) -> None:
    fitting = [name for name in COLUMNS if name not in NOT_IN_SQL and len(name.encode()) < 64]
    table, url = table_of([*fitting, *BY_CASE]), postgres.new_database()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as db:
        written_by(table, SQL_TABLE, db.execute, "%s")
    some = table.schema.names[::3]
    for name in (None, *some[::2]):
        found = rows_of(SqlSource(url, SQL_TABLE, split_by=name, columns=some))
        assert found.sort_by(some[0]).equals(table.select(some))
    query = f"SELECT * FROM {quoted(SQL_TABLE)} WHERE ':a' <> '%(b)s' -- :c"
    assert rows_of(SqlSource(url, query=query)).sort_by(some[0]).equals(table)
