"""Columns of files by their ids: pure."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from unistream.base.errors import ConfigError
from unistream.connector.common.columns_by_id import (
    conformed,
    identified,
    name_mapping,
    plain_schema,
    stored_columns,
    with_id,
)
from unistream.connector.common.single_values import arrow_value, bound_value
from unistream.connector.iceberg.source_schema import key_columns, table_columns


def field(name: str, id_: int, kind: pa.DataType, **options: Any) -> pa.Field:
    return with_id(pa.field(name, kind, **options), id_)


def column(kind: IcebergType, **options: Any) -> pa.Schema:
    """A table of one column `x` with the id 1."""
    return table_columns("t", Schema(NestedField(1, "x", kind, **options))).schema


def conform(wanted: pa.Schema, file: pa.Schema, *rows: Any, mapping: str | None = None) -> list[Any]:
    """The column `x` of rows of a file, whose only column has these values."""
    table = pa.table([pa.array(rows, file.field(0).type)], schema=file)
    found = identified("file f", file, name_mapping("t", mapping))
    result = conformed("file f", table, stored_columns("file f", found, wanted), wanted, {})
    result.validate(full=True)
    assert result.schema.equals(plain_schema(wanted))
    sliced = conformed("file f", table.slice(1), stored_columns("file f", found, wanted), wanted, {})
    assert sliced.equals(result.slice(1))
    return result.column("x").to_pylist()


STRUCT = StructType(NestedField(2, "a", LongType()), NestedField(3, "b", StringType(), initial_default="-"))
OLD_STRUCT = pa.struct([field("z", 9, pa.string()), field("was_a", 2, pa.int32())])
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("wanted", "file", "rows", "expected"),
    [
        pytest.param(column(LongType()), field("x", 1, pa.int64()), [1, None], [1, None], id="as it is"),
        pytest.param(column(LongType()), field("old", 1, pa.int64()), [1], [1], id="renamed"),
        pytest.param(
            column(LongType()), field("x", 7, pa.int64()), [1], [None], id="of that name, not that id"
        ),
        pytest.param(column(LongType()), field("x", 1, pa.int32()), [1, None], [1, None], id="int to long"),
        pytest.param(column(DoubleType()), field("x", 1, pa.float32()), [0.5], [0.5], id="float to double"),
        pytest.param(
            column(DecimalType(9, 2)),
            field("x", 1, pa.decimal128(5, 2)),
            [Decimal("1.25")],
            [Decimal("1.25")],
            id="more digits",
        ),
        pytest.param(
            column(TimestampType()),
            field("x", 1, pa.date32()),
            [NOON.date()],
            [NOON.replace(hour=0)],
            id="date",
        ),
        pytest.param(
            column(TimestampType()), field("x", 1, pa.timestamp("ms")), [NOON], [NOON], id="milliseconds"
        ),
        pytest.param(
            column(UUIDType()),
            field("x", 1, pa.binary(16)),
            [b"\0" * 15 + b"\5"],
            [uuid.UUID(int=5)],
            id="uuid",
        ),
        pytest.param(column(StringType()), field("x", 1, pa.large_string()), ["a"], ["a"], id="large text"),
        pytest.param(
            column(STRUCT),
            field("x", 1, OLD_STRUCT),
            [{"z": "gone", "was_a": 1}, None, {"z": None, "was_a": None}],
            [{"a": 1, "b": "-"}, None, {"a": None, "b": "-"}],
            id="fields of a struct",
        ),
        pytest.param(
            column(ListType(4, STRUCT, element_required=False)),
            field("x", 1, pa.list_(field("array", 4, OLD_STRUCT))),
            [[{"was_a": 1}, None], None, []],
            [[{"a": 1, "b": "-"}, None], None, []],
            id="a list of structs",
        ),
        pytest.param(
            column(MapType(4, StringType(), 5, STRUCT, value_required=False)),
            field(
                "x", 1, pa.map_(field("key", 4, pa.string(), nullable=False), field("value", 5, OLD_STRUCT))
            ),
            [[("k", {"was_a": 1})], None, []],
            [[("k", {"a": 1, "b": "-"})], None, []],
            id="a map of structs",
        ),
    ],
)
def test_columns_of_older_files(
    wanted: pa.Schema, file: pa.Field, rows: list[Any], expected: list[Any]
) -> None:
    assert conform(wanted, pa.schema([file]), *rows) == expected


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        pytest.param(BooleanType(), True, id="boolean"),
        pytest.param(IntegerType(), -5, id="int"),
        pytest.param(LongType(), 1 << 40, id="long"),
        pytest.param(FloatType(), 0.5, id="float"),
        pytest.param(DoubleType(), 0.1, id="double"),
        pytest.param(DecimalType(9, 2), Decimal("-1.25"), id="decimal"),
        pytest.param(StringType(), "ü", id="string"),
        pytest.param(BinaryType(), b"\0\1", id="binary"),
        pytest.param(FixedType(2), b"\0\1", id="fixed"),
        pytest.param(UUIDType(), uuid.UUID(int=7), id="uuid"),
    ],
)
def test_a_column_that_is_not_in_the_file_has_its_default(kind: IcebergType, default: Any) -> None:
    other = pa.schema([field("y", 8, pa.int64())])
    assert conform(column(kind, initial_default=default), other, 1, 2) == [default, default]
    assert conform(column(kind, initial_default=default, required=True), other, 1) == [default]
    assert conform(column(kind), other, 1) == [None]
    with pytest.raises(ConfigError, match="file f has no column 'x', which may not be null"):
        conform(column(kind, required=True), other, 1)


MAPPING = '[{"field-id": 1, "names": ["old", "x"], "fields": [{"field-id": 2, "names": ["was_a"]}]}]'


def test_a_file_without_ids_is_read_by_the_name_mapping_of_the_table_or_refused() -> None:
    plain = pa.schema([pa.field("old", pa.struct([pa.field("was_a", pa.int64())]))])
    assert conform(column(STRUCT), plain, {"was_a": 3}, mapping=MAPPING) == [{"a": 3, "b": "-"}]
    with pytest.raises(ConfigError, match="file f has no field ids, and the table has no name mapping"):
        conform(column(STRUCT), plain, {"was_a": 3})
    with pytest.raises(ConfigError, match="t: its name mapping is unreadable"):
        name_mapping("t", "{}")


def test_a_file_with_two_columns_of_an_id_or_name_is_refused() -> None:
    twice = pa.schema([field("x", 1, pa.int64()), field("y", 1, pa.int64())])
    with pytest.raises(ConfigError, match="two columns with the field id 1"):
        stored_columns("file f", twice, column(LongType()))
    named = pa.schema([field("x", 1, pa.int64()), field("x", 2, pa.int64())])
    with pytest.raises(ConfigError, match="more than one column 'x'"):
        stored_columns("file f", named, column(LongType()))


# --- schemas --------------------------------------------------------------------------------------


def test_columns_without_a_form_are_refused_where_they_are_selected() -> None:
    columns = table_columns(
        "table t",
        Schema(
            NestedField(1, "x", LongType()),
            NestedField(2, "u", UnknownType()),
            NestedField(3, "g", ListType(4, GeometryType(), element_required=False)),
        ),
    )
    assert columns.selected(["x"]).names == ["x"]
    with pytest.raises(ConfigError, match=r"table t: column 'u' is unknown, which .*columns="):
        columns.selected(None)
    with pytest.raises(ConfigError, match="column 'g' is geometry"):
        columns.selected(["g"])
    with pytest.raises(ConfigError, match="table t has no column 'y'; there are x"):
        columns.selected(["y"])


def test_columns_of_a_running_job_are_found_by_their_ids() -> None:
    given = column(LongType())
    table_columns("t", Schema(NestedField(1, "renamed", LongType()))).check_same(given)
    with pytest.raises(ConfigError, match="t has no column 'x' any more; there are x"):
        table_columns("t", Schema(NestedField(2, "x", LongType()))).check_same(given)
    with pytest.raises(ConfigError, match="t: column 'x' is int64 now, and was int32"):
        table_columns("t", Schema(NestedField(1, "x", LongType()))).check_same(column(IntegerType()))


def test_rows_may_be_deleted_by_a_column_that_was_dropped() -> None:
    now = Schema(NestedField(1, "x", LongType(), required=True), NestedField(3, "s", STRUCT))
    before = Schema(NestedField(1, "x", IntegerType()), NestedField(2, "y", StringType()))
    keys = key_columns([now, before])
    assert [(one.name, one.type, one.nullable) for one in keys] == [
        ("#1", pa.int64(), True),
        ("#2", pa.string(), True),
    ]


# --- single values --------------------------------------------------------------------------------

US = 1_767_268_800_000_000


@pytest.mark.parametrize(
    ("written", "value", "kind", "expected"),
    [
        pytest.param(BooleanType(), False, pa.bool_(), False, id="boolean"),
        pytest.param(IntegerType(), -7, pa.int32(), -7, id="int"),
        pytest.param(IntegerType(), -7, pa.int64(), -7, id="an int that became a long"),
        pytest.param(LongType(), 1 << 40, pa.int64(), 1 << 40, id="long"),
        pytest.param(FloatType(), 0.5, pa.float64(), 0.5, id="a float that became a double"),
        pytest.param(DoubleType(), float("nan"), pa.float64(), None, id="no number is no bound"),
        pytest.param(
            DecimalType(5, 2), Decimal("-1.25"), pa.decimal128(9, 2), Decimal("-1.25"), id="decimal"
        ),
        pytest.param(StringType(), "ü", pa.string(), "ü", id="string"),
        pytest.param(DateType(), 20454, pa.date32(), NOON.date(), id="date"),
        pytest.param(DateType(), 20454, pa.timestamp("us"), NOON.replace(hour=0), id="date to timestamp"),
        pytest.param(TimestampType(), US, pa.timestamp("us"), NOON, id="timestamp"),
        pytest.param(TimestamptzType(), US, pa.timestamp("us", "UTC"), NOON, id="timestamptz"),
        pytest.param(TimestampNanoType(), US * 1000, pa.timestamp("ns"), NOON, id="timestamp_ns"),
        pytest.param(TimestamptzNanoType(), US * 1000, pa.timestamp("ns", "UTC"), NOON, id="timestamptz_ns"),
        pytest.param(TimeType(), 5, pa.time64("us"), None, id="times of a day are not compared"),
        pytest.param(TimestampType(), 1 << 62, pa.timestamp("us"), None, id="beyond the years of Python"),
        pytest.param(StringType(), "abc", pa.int64(), None, id="of another type"),
    ],
)
def test_bounds_of_manifests(written: IcebergType, value: Any, kind: pa.DataType, expected: Any) -> None:
    """As pyiceberg writes them."""
    assert bound_value(to_bytes(written, value), kind) == expected
    assert bound_value(None, kind) is None


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        pytest.param(TimeType(), 5, dt.time(0, 0, 0, 5), id="time"),
        pytest.param(UUIDType(), uuid.UUID(int=5), uuid.UUID(int=5), id="uuid"),
        pytest.param(FixedType(2), b"ab", b"ab", id="fixed"),
        pytest.param(BinaryType(), b"ab", b"ab", id="binary"),
    ],
)
def test_values_of_partitions_that_are_not_compared(kind: IcebergType, value: Any, expected: Any) -> None:
    arrow = column(kind).field("x").type
    assert arrow_value(to_bytes(kind, value), arrow).as_py() == expected
    assert not arrow_value(None, arrow).is_valid
