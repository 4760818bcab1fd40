"""Rows that tables and files cannot hold: a check finds exactly those at which a writer would fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.contract.sinks.case import context
from tests.iceberg_lake import TABLE, Lake
from unistream.base.errors import UserCodeError
from unistream.connector.common import uncastable
from unistream.model.elements import Batch
from unistream.port.sink import ChecksRows, Sink

NS, US, S = pa.timestamp("ns"), pa.timestamp("us"), pa.timestamp("s")
ODD = [1_000, 1_001, None, -1, 0]  # nanoseconds
NULL = "__HIVE_DEFAULT_PARTITION__"
FAR = [0, 10**18, None, -(10**18), 253_402_300_799_999_999]  # microseconds: the last one is of the year 9999
DAYS = [0, 2**30, None, -800_000, 2_932_896]


def delta(folder: Path, **options: Any) -> Sink:
    return us.DeltaSink(str(folder / "table"), **options)


def iceberg(folder: Path, **options: Any) -> Sink:
    return us.IcebergSink(TABLE, catalog_properties=Lake(folder).properties, **options)


def files(folder: Path, **options: Any) -> Sink:
    return us.FileSink(str(folder / "out"), **options)


def column(values: list[Any], kind: pa.DataType, *, nullable: bool = True) -> pa.RecordBatch:
    """With a second one, as all columns cannot be partitions."""
    schema = pa.schema([pa.field("v", kind, nullable=nullable), ("id", pa.int64())])
    arrays = [pa.array(values, kind), pa.array(range(len(values)), pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


CASES = [
    pytest.param(delta, {}, column(ODD, NS), {1: "that table", 3: "as timestamp"}, id="Delta: nanoseconds"),
    pytest.param(
        *(delta, {}, column(ODD, pa.timestamp("ns", "Europe/Berlin")), {1: "cannot hold", 3: "cannot hold"}),
        id="Delta: nanoseconds of a zone",
    ),
    pytest.param(
        *(delta, {}, column([[1_000], [1_000, 1_001], None, []], pa.list_(NS)), {1: "cannot hold as list"}),
        id="Delta: nanoseconds in lists",
    ),
    pytest.param(delta, {}, column([0, 2**60, -(2**60)], S), {1: "hold", 2: "hold"}, id="Delta: far seconds"),
    pytest.param(
        delta, {}, column(["a", None], pa.string(), nullable=False), {1: "without nulls"}, id="Delta: null"
    ),
    pytest.param(
        *(delta, {"mode": "upsert", "key": "v"}, column(["a", None], pa.string())),
        {1: "null in 'v', which is in the key of table"},
        id="Delta: no key",
    ),
    pytest.param(
        delta, {"partition_by": "v"}, column(FAR, US), {1: "years", 3: "years"}, id="Delta: far partitions"
    ),
    pytest.param(delta, {}, column(FAR, US), {}, id="Delta: far times are values"),
    pytest.param(
        *(delta, {"partition_by": "v"}, column(["", "a", None, NULL, ""], pa.string())),
        {0: "come back as null", 4: "come back as null"},
        id="Delta: empty partitions",
    ),
    pytest.param(
        *(delta, {"partition_by": "v"}, column(["a", ""], pa.dictionary(pa.int8(), pa.large_string()))),
        {1: "come back as null"},
        id="Delta: empty partitions of a dictionary",
    ),
    pytest.param(
        *(delta, {"partition_by": "v", "mode": "upsert", "key": "id"}, column(["a", NULL], pa.string())),
        {1: "come back as null"},
        id="Delta: partitions that a merge takes for null",
    ),
    pytest.param(delta, {}, column(["", NULL], pa.string()), {}, id="Delta: empty texts are values"),
    pytest.param(
        iceberg, {}, column(ODD, NS), {1: "cannot hold", 3: "cannot hold"}, id="Iceberg: nanoseconds"
    ),
    pytest.param(iceberg, {}, column(FAR, US), {1: "1 to 9999", 3: "1 to 9999"}, id="Iceberg: far times"),
    pytest.param(iceberg, {}, column(DAYS, pa.date32()), {1: "1 to 9999", 3: "9999"}, id="Iceberg: far days"),
    pytest.param(
        *(iceberg, {"partition_by": "day(v)"}, column(FAR, US), {1: "1 to 9999", 3: "1 to 9999"}),
        id="Iceberg: far partitions",
    ),
    pytest.param(
        *(iceberg, {}, column(["a", None], pa.string(), nullable=False), {1: "required in table lake.rows"}),
        id="Iceberg: null",
    ),
    pytest.param(
        *(iceberg, {"mode": "upsert", "key": "v"}, column(["a", None], pa.string())),
        {1: "null in 'v', which is in the key of table lake.rows"},
        id="Iceberg: no key",
    ),
    pytest.param(
        *(files, {"bucket_by_time": "%Y", "time_column": "v"}, column([0, None, 1], US)),
        {1: "no time, so it has no bucket"},
        id="files: no bucket",
    ),
    pytest.param(
        *(files, {"partition_by": "v"}, column(DAYS, pa.date32()), {1: "no folder", 3: "no folder"}),
        id="files: far partitions",
    ),
    pytest.param(
        *(files, {"partition_by": "v"}, column(["a" * 253, "a" * 254, "ü" * 43, None], pa.string())),
        {1: "text in 'v' that readers would not get back", 2: "not get back"},
        id="files: long partitions",
    ),
    pytest.param(
        *(files, {"partition_by": "v"}, column(["", "__HIVE_DEFAULT_PARTITION__", ".", "a/.."], pa.string())),
        {0: "not get back", 1: "not get back"},
        id="files: partitions that readers take for null",
    ),
    pytest.param(files, {}, column([0, 2**60, None], S), {1: "milliseconds"}, id="files: far seconds"),
    pytest.param(files, {"format": "json"}, column([0, None], S), {}, id="files: JSON has them"),
    pytest.param(files, {}, column(ODD, NS), {}, id="files: Parquet has nanoseconds"),
]


@pytest.mark.parametrize(("make", "options", "rows", "reasons"), CASES)
def test_each_rule_is_that_of_the_writer(
    tmp_path: Path,
    make: Callable[..., Sink],
    options: dict[str, Any],
    rows: pa.RecordBatch,
    reasons: dict[int, str],
) -> None:
    sink = make(tmp_path, **options)
    assert isinstance(sink, ChecksRows)
    sink.check(rows.schema)
    check = sink.create_row_check()
    check.open()
    found = check.refused(Batch(rows))
    assert sorted(found) == sorted(reasons)
    assert [reason for row, reason in reasons.items() if reason not in found[row]] == []
    for row in range(rows.num_rows):
        assert written(sink, rows.take([row])) is (row not in reasons), rows.take([row])
    kept = rows.take([row for row in range(rows.num_rows) if row not in reasons])
    assert written(sink, kept)
    assert check.refused(Batch(kept)) == {}


def written(sink: Sink, rows: pa.RecordBatch) -> bool:
    writer = sink.create_writer()
    writer.open(context(), [])
    try:
        writer.write(Batch(rows))
        writer.flush(end_of_input=False)
    except (UserCodeError, OverflowError, ValueError):
        return False
    finally:
        writer.close()
    return True


def test_a_table_of_iceberg_that_takes_nulls_takes_them(tmp_path: Path) -> None:
    Lake(tmp_path).create(pa.schema([("v", pa.string()), ("id", pa.int64())]))
    rows = column(["a", None], pa.string(), nullable=False)
    check = iceberg(tmp_path).create_row_check()  # type: ignore[attr-defined]
    check.open()
    assert check.refused(Batch(rows)) == {}
    assert written(iceberg(tmp_path), rows)


def test_a_stream_without_event_time_is_no_matter_of_rows(tmp_path: Path) -> None:
    check = us.FileSink(str(tmp_path), bucket_by_time="%Y").create_row_check()
    rows = column([1, 2], pa.int64())
    assert check.refused(Batch(rows, pa.array([0, 1], pa.int64()))) == {}
    with pytest.raises(UserCodeError, match="needs rows with event time, or a time_column"):
        check.refused(Batch(rows))


def test_values_of_other_kinds_are_found_by_halves() -> None:
    digits = pa.array([*["1"] * 70, "x", *["2"] * 70, "y"])
    found = uncastable(digits, pa.int64())
    assert found is not None
    assert [row for row, is_bad in enumerate(found.to_pylist()) if is_bad] == [70, 141]
    assert uncastable(digits.slice(0, 70), pa.int64()) is None
