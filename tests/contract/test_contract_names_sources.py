"""Names of columns that a source reads, of files and tables that somebody else has written."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.contract.test_contract_names import COLUMNS, NOT_IN_DELTA
from tests.names import BY_CASE
from unistream.connector.delta import DeltaSource
from unistream.connector.file import FileSource
from unistream.connector.registry import create_discovery
from unistream.port.source import Rows, Source
from unistream.testing.harness.source_driver import SourceDriver

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


def test_a_delta_table_has_the_columns_that_were_written(tmp_path: Path) -> None:
    table = table_of([name for name in COLUMNS if name not in NOT_IN_DELTA])
    write_deltalake(str(tmp_path / "table"), table)
    assert rows_of(DeltaSource(str(tmp_path / "table"))).to_pylist() == table.to_pylist()
    some = table.schema.names[::2]
    chosen = DeltaSource(str(tmp_path / "table"), columns=some)
    assert rows_of(chosen).to_pylist() == table.select(some).to_pylist()
