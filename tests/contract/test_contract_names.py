"""Names of columns at every door through which rows leave or come: read back by somebody else, or refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.contract.sinks.run import SinkRun
from tests.names import ALL, BY_CASE
from unistream.base.errors import ConfigError
from unistream.connector.delta import DeltaSink
from unistream.connector.file import FileSink
from unistream.connector.iceberg import IcebergSink
from unistream.connector.sql import SqlSink
from unistream.model.columns.column_names import refused_names
from unistream.port.sink import Sink

TABLE: Final = "lake.rows"
Read = Callable[[Path], pa.Table]


def catalogue(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/warehouse"}


def iceberg(folder: Path, **options: Any) -> IcebergSink:
    return IcebergSink(TABLE, catalog="c", catalog_properties=catalogue(folder), **options)


def in_parquet(folder: Path) -> pa.Table:
    """As pyarrow has it, and DuckDB too, but for names that its tables cannot have."""
    [file] = (folder / "out").glob("part-*.parquet")
    found = pq.read_table(file)
    theirs = duckdb.sql(f"SELECT * FROM read_parquet('{file}')").to_arrow_table()
    assert theirs.columns == found.columns
    if not {"", *BY_CASE} & set(found.schema.names):
        assert theirs.schema.names == found.schema.names
    return found


def in_folders(folder: Path) -> pa.Table:
    """As DuckDB has it, and pyarrow too."""
    files = f"'{folder}/out/**/part-*.parquet', hive_partitioning=true, hive_types_autocast=false"
    found = duckdb.sql(f"SELECT * FROM read_parquet({files})").to_arrow_table()
    theirs = ds.dataset(str(folder / "out"), partitioning="hive").to_table()
    assert rows_of(theirs) == rows_of(found)
    return found


def in_json(folder: Path) -> pa.Table:
    lines = [line for path in (folder / "out").glob("part-*") for line in path.read_text().splitlines()]
    return pa.Table.from_pylist([json.loads(line) for line in lines])


def in_delta(folder: Path) -> pa.Table:
    return DeltaTable(str(folder / "out")).to_pyarrow_table()


def in_iceberg(folder: Path) -> pa.Table:
    with load_catalog("c", **catalogue(folder)) as catalog:
        return catalog.load_table(TABLE).scan().to_arrow()


def in_sqlite(folder: Path) -> pa.Table:
    connection = sqlite3.connect(folder / "rows.db")
    connection.row_factory = sqlite3.Row
    found = [dict(row) for row in connection.execute("SELECT * FROM rows")]
    connection.close()
    return pa.Table.from_pylist(found)


@dataclass(frozen=True)
class Door:
    """`make`: a sink for which these columns are special. `refused`: those of `COLUMNS` that it does not
    take. `two`: it takes two that differ by case."""

    make: Callable[[Path, list[str]], Sink]
    read: Read
    refused: tuple[str, ...]
    two: bool = False


COLUMNS: Final = [name for name in ALL if refused_names([name]) is None]
"""Others are refused wherever a stream has them."""
NOT_IN_DELTA: Final = (
    *("%(a)s", " a b ", "{a}", "${a}", "a=b", "a;b,c--", "a#b?c=d&e:f@g+h", "a\nb", "a\tb", "", " "),
)
NOT_IN_FOLDERS: Final = (
    *(
        "50%",
        "%(a)s",
        "a%2Fb",
        "a'b\"c`d",
        ".a",
        "..",
        "a/b",
        "../a",
        "/tmp/a",
        "a\\b",
        "{a}",
        "a[0]",
        "${a}",
    ),
    *("a=b", "a#b?c=d&e:f@g+h", "*", "a\nb", "a\tb", "", "n" * 300),
    *(name for name in COLUMNS if name.startswith("_")),
)
NOT_IN_SQL: Final = ("", "__row", "__label", "__attempt", "__subtask", "__deleted", "__unistream_place")
DOORS: Final = {
    "files": Door(lambda at, _: FileSink(str(at / "out")), in_parquet, (), two=True),
    "files of JSON": Door(lambda at, _: FileSink(str(at / "out"), format="json"), in_json, (), two=True),
    "folders": Door(
        lambda at, names: FileSink(str(at / "out"), partition_by=names), in_folders, NOT_IN_FOLDERS
    ),
    "Delta": Door(lambda at, _: DeltaSink(str(at / "out")), in_delta, NOT_IN_DELTA),
    "partitions of Delta": Door(
        lambda at, names: DeltaSink(str(at / "out"), partition_by=names), in_delta, NOT_IN_DELTA
    ),
    "keys in Delta": Door(
        lambda at, names: DeltaSink(str(at / "out"), mode="upsert", key=names),
        in_delta,
        (*NOT_IN_DELTA, "_unistream_deleted"),
    ),
    "Iceberg": Door(lambda at, _: iceberg(at), in_iceberg, ("",), two=True),
    "partitions of Iceberg": Door(
        lambda at, names: iceberg(at, partition_by=names), in_iceberg, ("",), two=True
    ),
    "keys in Iceberg": Door(
        lambda at, names: iceberg(at, mode="upsert", key=names),
        in_iceberg,
        ("", "_unistream_deleted"),
        two=True,
    ),
    "SQL": Door(lambda at, _: SqlSink(f"sqlite:///{at / 'rows.db'}", "rows"), in_sqlite, NOT_IN_SQL),
    "keys in SQL": Door(
        lambda at, names: SqlSink(f"sqlite:///{at / 'rows.db'}", "rows", mode="upsert", key=names),
        in_sqlite,
        NOT_IN_SQL,
    ),
}


def table_of(names: Iterable[str]) -> pa.Table:
    """Two rows, with another value in each place; and a column that is nothing special."""
    columns = [*names, "plain"]
    return pa.table({name: [f"x{n}", f"y{n}"] for n, name in enumerate(columns)})


def rows_of(table: pa.Table) -> list[Mapping[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["plain"])


def refusal(door: Door, folder: Path, names: list[str]) -> str | None:
    try:
        door.make(folder, names).check(table_of(names).schema)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_sink_gives_the_names_of_columns_back_or_refuses_them(tmp_path: Path, door: Door) -> None:
    (tmp_path / "empty").mkdir()
    refused = {name: why for name in COLUMNS if (why := refusal(door, tmp_path / "empty", [name]))}
    for name, why in refused.items():
        assert not name or repr(name)[1:10] in why
    assert set(refused) == set(door.refused)
    table = table_of(name for name in COLUMNS if name not in refused)
    with SinkRun(door.make(tmp_path, table.schema.names[:-1])) as run:
        run.commit(1, *table.to_batches())
    assert rows_of(door.read(tmp_path)) == rows_of(table)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_sink_takes_no_two_names_for_one(tmp_path: Path, door: Door) -> None:
    for special in ([BY_CASE[0]], list(BY_CASE)):
        table = table_of(BY_CASE)
        sink = door.make(tmp_path, special)
        if not door.two:
            with pytest.raises(ConfigError, match="Name"):
                sink.check(table.schema)
            continue
        sink.check(table.schema)
    if door.two:
        with SinkRun(sink) as run:
            run.commit(1, *table.to_batches())
        assert rows_of(door.read(tmp_path)) == rows_of(table)
