"""Which streams a Delta table can hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.schema import TableShape, check_fits, stored_schema


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.int64(), pa.int64()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.binary(4), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC")),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.decimal128(38, 10), pa.decimal128(38, 10)),
        (pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int16()))),
        (pa.struct([("a", pa.date64())]), pa.struct([("a", pa.date32())])),
        (pa.map_(pa.large_string(), pa.uint16()), pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_types_are_stored_as(kind: pa.DataType, stored: pa.DataType) -> None:
    assert stored_schema(pa.schema([("c", kind)]), ()) == pa.schema([("c", stored)])


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.float16(),
        pa.null(),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("ms"),
        pa.decimal256(40),
        pa.list_(pa.uint64()),
        pa.struct([("a", pa.null())]),
    ],
    ids=str,
)
def test_types_that_delta_does_not_know_are_refused_by_column(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"column 'c' is .*, which a Delta table cannot hold"):
        stored_schema(pa.schema([("ok", pa.int64()), ("c", kind)]), ())


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "a\tb", "a(b"])
def test_names_that_delta_does_not_know_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the name of a Delta column"):
        stored_schema(pa.schema([(name, pa.int64())]), ())


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(ConfigError, match="'id' occurs twice"):
        stored_schema(pa.schema([("id", pa.int64()), ("ID", pa.int64())]), ())


@pytest.mark.parametrize(
    ("partition_by", "message"),
    [
        (("none",), "partition column 'none' is no column of the stream, which has a, x, l"),
        (("a", "a"), "named twice"),
        (("x",), "cannot be partitioned by column 'x', which is double"),
        (("l",), "cannot be partitioned by column 'l'"),
    ],
    ids=str,
)
def test_bad_partition_columns_are_refused(partition_by: tuple[str, ...], message: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("x", pa.float64()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(ConfigError, match=message):
        stored_schema(schema, partition_by)


def test_a_table_of_partition_columns_only_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one column"):
        stored_schema(pa.schema([("a", pa.int64())]), ("a",))


def test_column_mapping_is_refused() -> None:
    shape = TableShape(
        table="t",
        schema=pa.schema([("a", pa.int64())]),
        partition_by=(),
        configuration={"delta.columnMapping.mode": "name"},
        features=(),
        rules={},
    )
    with pytest.raises(ConfigError, match="column mapping"):
        check_fits(shape, shape.schema, (), replaces_rows=False)


def test_the_inside_of_a_list_may_have_any_name() -> None:
    found = pa.schema(
        [("l", pa.list_(pa.field("item", pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))))]
    )
    wanted = pa.schema(
        [("l", pa.list_(pa.field("element", pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))))]
    )
    shape = TableShape(table="t", schema=found, partition_by=(), configuration={}, features=(), rules={})
    check_fits(shape, wanted, (), replaces_rows=False)
    other = pa.schema([("l", pa.list_(pa.field("element", pa.struct([("other", pa.int64())]))))])
    with pytest.raises(ConfigError, match="column 'l'"):
        check_fits(shape, other, (), replaces_rows=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table_uri": ""}, "needs the path"),
        ({"table_uri": "http://x/t"}, "Delta tables are stored on"),
        (
            {"table_uri": "t", "mode": "overwrite"},
            "must be one of append, upsert, overwrite-partitions, not 'overwrite'",
        ),
        ({"table_uri": "t", "mode": "upsert"}, "mode='upsert' needs a key"),
        ({"table_uri": "t", "key": "id"}, "with any other mode has none"),
        ({"table_uri": "t", "delete_when": "x"}, "delete_when needs mode='upsert'"),
        ({"table_uri": "t", "mode": "upsert", "key": "id", "delete_when": "x"}, "is an expression such as"),
        ({"table_uri": "t", "on_rewind": "ignore"}, "on_rewind must be"),
        ({"table_uri": "t", "target_file_bytes": 0}, "above 0"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeltaSink(**arguments)
