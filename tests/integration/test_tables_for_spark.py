"""Tables that our sinks write, read by Spark with Delta's and Iceberg's own jars.

They wait for the night: `tests.support.spark_tables` gets Spark 4.1 from PyPI, its jars from Maven Central.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

import unistream as us
from tests.support.spark_tables import SparkTables, same_rows

pytestmark = pytest.mark.slow

ICEBERG_PARTS: Final = (
    *("", "id", "s", "n", "z", "day", "d9", "b", "bo", "f"),
    *(
        "bucket(4, s)",
        "bucket(3, d9)",
        "bucket(3, z)",
        "truncate(2, s)",
        "truncate(3, id)",
        "truncate(10, d9)",
    ),
    *("truncate(1, b)", "year(n)", "month(z)", "day(n)", "hour(z)"),
)
DELTA_PARTS: Final = ("", "id", "s", "n", "z", "d9", "d38", "day", "bo", "i16")
NOT_REPLACED: Final = ("d9", "d38")  # a partition of decimals takes rows, and does not replace them
LITERALS: Final = {  # values of some rows
    "id": "6",
    "s": "'é'",
    "n": "timestamp_ntz'1969-12-31 23:59:59.999999'",
    "z": "timestamp'1900-01-01 00:00:00'",
    "day": "date'1969-12-31'",
    "d9": "-0.01BD",
    "b": "X''",
    "bo": "false",
    "f": "float(1.5)",  # Iceberg looks for 0.0 in no partition of -0.0
}
PLACES: Final = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkTables]:
    with SparkTables(tmp_path_factory.mktemp("spark")) as engine:
        engine.run("CREATE NAMESPACE lake.db")
        yield engine


def rows(*ids: int) -> pa.Table:
    """Values that are usual, null, and at the edge, by turns."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            **{name: pa.array([(full, None, low)[at % 3] for at in range(len(ids))], kind)
               for name, (kind, full, low) in COLUMNS.items()},
        }
    )  # fmt: skip


COLUMNS: Final[dict[str, tuple[pa.DataType, Any, Any]]] = {
    "n": (
        pa.timestamp("us"),
        dt.datetime.fromisoformat("2026-01-01 10:00:00.123456"),
        dt.datetime.fromisoformat("1969-12-31 23:59:59.999999"),
    ),
    "z": (
        pa.timestamp("us", "Europe/Berlin"),
        dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC),
        dt.datetime(1900, 1, 1, tzinfo=dt.UTC),
    ),
    "d9": (pa.decimal128(9, 2), Decimal("12.34"), Decimal("-0.01")),
    "d38": (pa.decimal128(38, 10), Decimal("-123456789012345678.9"), Decimal(0)),
    "day": (pa.date32(), dt.date(2020, 2, 29), dt.date(1969, 12, 31)),
    "s": (pa.string(), "a b/c%=", "é"),
    "b": (pa.binary(), b"\x00\xff", b""),
    "bo": (pa.bool_(), True, False),
    "f": (pa.float32(), 1.5, -0.0),
    "x": (pa.float64(), float("nan"), float("-inf")),
    "i16": (pa.int16(), -32768, 0),
    "u8": (pa.uint8(), 255, 0),
    "st": (PLACES, {"x": 1, "y": ["p", None]}, {"x": None, "y": []}),
    "a": (pa.list_(pa.struct([("k", pa.int32())])), [{"k": 1}], []),
    "m": (pa.map_(pa.string(), pa.float64()), [("a", 1.5)], []),
}
FIRST, SECOND, CHANGES = rows(1, 2, 3), rows(4, 5, 6), rows(3, 2, 1, 7)


def run(given: pa.Table, write: Callable[[us.DataStream], object]) -> None:
    """One job with all tables."""
    env = us.Environment({"parallelism.default": "1"}, target="local")
    write(env.from_source(us.StaticSource(given), us.WatermarkStrategy.no_watermarks(), "rows").uid("rows"))
    assert env.execute("tables").state == "FINISHED"


def iceberg(spark: SparkTables, part: str, **options: Any) -> us.IcebergSink:
    name = f"db.t{ICEBERG_PARTS.index(part)}"
    return us.IcebergSink(
        name,
        catalog="lake",
        catalog_properties=spark.properties,
        on_foreign="append",
        partition_by=part or (),
        **options,
    )


def delta(spark: SparkTables, part: str, **options: Any) -> us.DeltaSink:
    by = [part] if part else ()
    return us.DeltaSink(str(spark.deltas / f"t_{part}"), on_foreign="append", partition_by=by, **options)


def write_all(spark: SparkTables, stream: us.DataStream) -> None:
    for part in ICEBERG_PARTS:
        stream.sink_to(iceberg(spark, part)).uid(f"iceberg {part}")
    for part in DELTA_PARTS:
        stream.sink_to(delta(spark, part)).uid(f"delta {part}")


def replace_all(spark: SparkTables, stream: us.DataStream) -> None:
    options: dict[str, Any] = {"mode": "upsert", "key": "id", "delete_when": us.col("id") == 2}
    keyed = stream.key_by("id")
    for part in ICEBERG_PARTS:
        keyed.sink_to(iceberg(spark, part, **options)).uid(f"iceberg {part}")
    for part in DELTA_PARTS:
        if part not in NOT_REPLACED:
            keyed.sink_to(delta(spark, part, **options)).uid(f"delta {part}")


def test_spark_reads_what_was_appended_and_what_was_replaced(spark: SparkTables) -> None:
    """With each way to partition a table, by its values and by the filters that leave files out."""
    for given in (FIRST, SECOND):
        run(given, lambda stream: write_all(spark, stream))
    check(spark, [*FIRST.to_pylist(), *SECOND.to_pylist()], DELTA_PARTS)
    run(CHANGES, lambda stream: replace_all(spark, stream))
    left = [row for row in CHANGES.to_pylist() if row["id"] != 2]
    check(spark, [*SECOND.to_pylist(), *left], [one for one in DELTA_PARTS if one not in NOT_REPLACED])


def check(spark: SparkTables, wanted: list[dict[str, Any]], deltas: Any) -> None:
    for part in ICEBERG_PARTS:
        table = f"lake.db.t{ICEBERG_PARTS.index(part)}"
        assert same_rows(spark.rows(f"SELECT * FROM {table}")) == same_rows(wanted), part
        if part:
            column = part.rpartition(",")[2].strip(" )").rpartition("(")[2]
            equal = f"{column} = {LITERALS[column]}"
            [found] = spark.rows(f"SELECT count(*) AS n FROM {table} WHERE {equal}")
            [every] = spark.rows(f"SELECT count_if({equal}) AS n FROM {table}")
            assert found == every, part
            assert found["n"] > 0, part
    for part in deltas:
        table = f"delta.`{spark.deltas / f't_{part}'}`"
        assert same_rows(spark.rows(f"SELECT * FROM {table}")) == same_rows(wanted), part
