"""A CSV file of the file sink has the same rows for the file source, for DuckDB and for pyarrow."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.harness.source_driver import SourceDriver
from tests.written_files import write_files
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.file import FileSink, FileSource
from unistream.model.elements import Batch
from unistream.port.source import Rows

COMPILES_WITHIN_S: Final = 120.0
SCHEMA: Final = pa.schema(
    [
        ("t", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("clock", pa.time64("us")),
        ("amount", pa.decimal128(20, 4)),
    ]
)
TYPES: Final = {
    "t": "VARCHAR",
    "n": "BIGINT",
    "f": "DOUBLE",
    "b": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP",
    "zoned": "TIMESTAMP",  # DuckDB without extensions has no zones
    "clock": "TIME",
    "amount": "DECIMAL(20,4)",
}
TEXTS: Final = ["", "a", '"', ",", "\n", "\r", "\r\n", "NULL", "NA", " ", "é", "\ufeff", "x,y\n", '""', "1"]
TIMES: Final = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "t": st.lists(st.sampled_from(TEXTS), max_size=3).map("".join),
    "n": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(allow_nan=False),
    "b": st.booleans(),
    "day": st.dates(),
    "at": TIMES,
    "zoned": TIMES.map(lambda at: at.replace(tzinfo=dt.UTC)),
    "clock": st.times(),
    "amount": st.decimals(-(10**15), 10**15, places=4),
}
ROWS: Final = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    min_size=1,
    max_size=6,
)
NOTHING: Final = dict.fromkeys(VALUES)


def rows_of(source: FileSource) -> list[dict[str, Any]]:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


@given(rows=ROWS, block_bytes=st.sampled_from([1, 40, 1 << 20]))
@example(rows=[NOTHING, NOTHING | {"t": ""}], block_bytes=1)
@example(rows=[NOTHING | {"t": '"\r\n,"', "f": float("inf"), "amount": Decimal("-0.0001")}], block_bytes=40)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_reader_finds_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], block_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    written = pa.Table.from_pylist(rows, SCHEMA)
    write_files(FileSink(str(folder), format="csv"), written)
    expected = written.to_pylist()
    source = FileSource(str(folder), format="csv", schema=SCHEMA, text_nulls=True, block_bytes=block_bytes)
    assert rows_of(source) == expected
    [path] = folder.glob("part-*.csv")
    options = pa_csv.ConvertOptions(
        column_types=SCHEMA, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    assert pa_csv.read_csv(path, parse_options=parse, convert_options=options).to_pylist() == expected
    with duckdb.connect() as database:
        found = database.sql(
            f"SELECT * FROM read_csv('{path}', columns = {TYPES}, header = true, allow_quoted_nulls = false)"
        ).to_arrow_table()
    assert found.cast(SCHEMA).to_pylist() == expected


def test_folders_and_names_of_columns_that_need_quotes(tmp_path: Path) -> None:
    rows = pa.table(
        {'a "b", c': ["x", None], "k": ["/", ""[:0] or "="], "d": pa.array(["u", None]).dictionary_encode()}
    )
    write_files(FileSink(str(tmp_path), format="csv", partition_by=["k"]), rows)
    source = FileSource(str(tmp_path), format="csv", text_nulls=True)
    assert source.schema.names == ['a "b", c', "d", "k"]
    found = sorted(rows_of(source), key=lambda row: str(row["d"]))
    assert found == [{'a "b", c': None, "d": None, "k": "="}, {'a "b", c': "x", "d": "u", "k": "/"}]


def test_a_null_in_the_only_column_is_refused_and_can_be_a_dead_letter(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, None], "k": ["a", "a"]})
    sink = FileSink(str(tmp_path), format="csv", partition_by=["k"])
    with pytest.raises(UserCodeError, match="'n' has a null in the only column of a CSV file"):
        write_files(sink, rows)
    [records] = rows.to_batches()
    assert list(sink.create_row_check().refused(Batch(records))) == [1]
    far = pa.record_batch({"day": pa.array([0, 3_000_000], pa.date32()), "n": [1, 2]})
    assert list(FileSink(str(tmp_path), format="csv").create_row_check().refused(Batch(far))) == [1]


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])], ids=str)
def test_what_csv_cannot_hold_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"which CSV cannot hold: .*; cast it before the sink or use"):
        FileSink(str(tmp_path), format="csv").check(pa.schema([("c", kind), ("n", pa.int64())]))


@pytest.mark.parametrize(
    "options", [{"format": "json"}, {"format": "csv", "quoted_newlines": False}], ids=str
)
def test_text_nulls_are_those_of_whole_csv_files(options: Any) -> None:
    with pytest.raises(ConfigError, match="text_nulls=True is for CSV, and not with quoted_newlines=False"):
        FileSource("/in", text_nulls=True, **options)
