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
from tests.unit.connector.iceberg import source_tables

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


# --- tables that Spark has made -------------------------------------------------------------------

MADE_BY_SPARK: Final = {
    "deletion vectors": "'delta.enableDeletionVectors'='true'",
    "changes": "'delta.enableChangeDataFeed'='true'",
    "V2 checkpoints": "'delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='2'",
    "rows only": "'delta.appendOnly'='true'",
}


@pytest.mark.parametrize("feature", MADE_BY_SPARK)
def test_spark_reads_what_its_own_table_was_given(spark: SparkTables, feature: str) -> None:
    name = feature.replace(" ", "_")
    table, path = f"delta.`{spark.deltas / name}`", str(spark.deltas / name)
    appends_only = feature == "rows only"
    spark.run(
        f"CREATE TABLE {table} (id bigint NOT NULL, k string) USING delta "
        f"TBLPROPERTIES({MADE_BY_SPARK[feature]})",
        f"INSERT INTO {table} SELECT id, concat('k', id) FROM range(0, 6, 1, 1)",
        *([] if appends_only else [f"DELETE FROM {table} WHERE id = 3"]),
    )
    wanted = {one: f"k{one}" for one in range(6) if appends_only or one != 3}
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("k", pa.string())])
    for ids in ([10, 11], [12], [13]):  # the log is as long as a checkpoint needs
        new = pa.table({"id": ids, "k": ["new"] * len(ids)}, columns)
        run(new, lambda stream: stream.sink_to(us.DeltaSink(path, on_foreign="append")).uid("add"))
        wanted |= dict.fromkeys(ids, "new")
    replaced = pa.table({"id": [2, 10, 20], "k": ["u", "u", "u"]}, columns)
    sink: Any = lambda: us.DeltaSink(path, on_foreign="append", mode="upsert", key="id")  # noqa: E731
    if appends_only:
        with pytest.raises(us.ConfigError, match="takes rows only"):
            run(replaced, lambda stream: stream.key_by("id").sink_to(sink()).uid("replace"))
    else:
        run(replaced, lambda stream: stream.key_by("id").sink_to(sink()).uid("replace"))
        wanted |= dict.fromkeys([2, 10, 20], "u")
    assert same_rows(spark.rows(f"SELECT * FROM {table}")) == same_rows(
        {"id": one, "k": k} for one, k in wanted.items()
    )
    if feature == "changes":
        changes = spark.rows(f"SELECT id, k, _change_type AS c FROM table_changes_by_path('{path}', 6)")
        assert same_rows(changes) == same_rows(
            {"id": one, "k": k, "c": c}
            for one, k, c in (
                (2, "k2", "update_preimage"),
                (2, "u", "update_postimage"),
                (10, "new", "update_preimage"),
                (10, "u", "update_postimage"),
                (20, "u", "insert"),
            )
        )


def test_spark_finds_zero_next_to_minus_zero(spark: SparkTables) -> None:
    """In partitions of floats, where Iceberg passes one of -0.0 when it looks for 0.0."""
    given = pa.table({"id": [1, 2, 3, 4], "f": pa.array([-0.0, 0.0, -0.0, 1.5], pa.float32())})
    sink = us.IcebergSink("db.zeros", catalog="lake", catalog_properties=spark.properties, partition_by="f")
    run(given, lambda stream: stream.sink_to(sink).uid("zeros"))
    assert same_rows(spark.rows("SELECT * FROM lake.db.zeros")) == same_rows(given.to_pylist())
    assert spark.rows("SELECT id FROM lake.db.zeros WHERE f = float(0.0)") == [{"id": 2}]
    read = us.IcebergSource(
        "db.zeros", catalog="lake", catalog_properties=spark.properties, filter=[("f", "=", 0.0)]
    )
    found = source_tables.read(read, source_tables.find(read).splits)
    assert sorted(row["id"] for row in found) == [1, 2, 3]


# --- tables that grow -----------------------------------------------------------------------------


def narrow(*ids: int) -> pa.Table:
    inner = pa.struct([("x", pa.int32())])
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "f": pa.array([0.5] * len(ids), pa.float32()),
            "d": pa.array([Decimal("1.25")] * len(ids), pa.decimal128(6, 2)),
            "st": pa.array([{"x": one} for one in ids], inner),
            "a": pa.array([[{"x": one}] for one in ids], pa.list_(inner)),
            "m": pa.array([[("k", {"x": one})] for one in ids], pa.map_(pa.string(), inner)),
        }
    )


def wide(*ids: int) -> pa.Table:
    inner = pa.struct([("y", pa.string()), ("x", pa.int64())])
    return pa.table(
        {
            "late": pa.array([f"l{one}" for one in ids], pa.string()),
            "id": pa.array(ids, pa.int64()),
            "f": pa.array([1e300] * len(ids), pa.float64()),
            "d": pa.array([Decimal("12345678.25")] * len(ids), pa.decimal128(10, 2)),
            "st": pa.array([{"y": "y", "x": one} for one in ids], inner),
            "a": pa.array([[{"y": "y", "x": one}] for one in ids], pa.list_(inner)),
            "m": pa.array([[("k", {"y": "y", "x": one})] for one in ids], pa.map_(pa.string(), inner)),
        }
    )


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of `wide` with the fields inside of them as the table has them, the older ones first."""

    def inner(found: dict[str, Any]) -> dict[str, Any]:
        return {"x": found["x"], "y": found["y"]}

    return [
        {**row, "st": inner(row["st"]), "a": [inner(row["a"][0])], "m": [("k", inner(row["m"][0][1]))]}
        for row in rows.to_pylist()
    ]


def widened(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of `narrow` as they are in a table that has grown."""
    return [
        {**row, "late": None, "st": {**row["st"], "y": None}, "a": [{**row["a"][0], "y": None}],
         "m": [("k", {**row["m"][0][1], "y": None})]}
        for row in rows.to_pylist()
    ]  # fmt: skip


@pytest.mark.parametrize("part", ["", "id", "bucket(3, id)", "d"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_spark_reads_an_iceberg_table_whose_columns_our_sink_has_changed(
    spark: SparkTables, part: str, mode: str
) -> None:
    """Wider types, also of the partition, a new column, new fields inside of structs, lists and maps; then
    rows of the old columns once more."""
    name = f"db.grown_{mode}_{['', 'id', 'bucket(3, id)', 'd'].index(part)}"
    options: dict[str, Any] = {"mode": "upsert", "key": "id"} if mode == "upsert" else {}

    def write(stream: us.DataStream) -> None:
        sink = us.IcebergSink(
            name,
            catalog="lake",
            catalog_properties=spark.properties,
            on_foreign="append",
            partition_by=part or (),
            schema_evolution="add",
            **options,
        )
        (stream.key_by("id") if options else stream).sink_to(sink).uid("grown")

    for given in (narrow(1, 2, 3), wide(4, 2**40, 2), narrow(5, 1)):
        run(given, write)
    wanted = [*widened(narrow(1, 2, 3)), *ordered(wide(4, 2**40, 2)), *widened(narrow(5, 1))]
    if options:
        wanted = list({row["id"]: row for row in wanted}.values())
    table = f"lake.{name}"
    assert same_rows(spark.rows(f"SELECT * FROM {table}")) == same_rows(wanted)
    for where, holds in (
        ("id = 2", lambda row: row["id"] == 2),
        ("id > 4", lambda row: row["id"] > 4),
        ("d = 1.25", lambda row: row["d"] == Decimal("1.25")),
        ("late IS NULL", lambda row: row["late"] is None),
        ("st.y = 'y'", lambda row: row["st"]["y"] == "y"),
    ):
        found = spark.rows(f"SELECT * FROM {table} WHERE {where}")
        assert same_rows(found) == same_rows(filter(holds, wanted)), where


@pytest.mark.parametrize("part", ["", "k"])
def test_spark_reads_a_delta_table_whose_columns_it_has_added(spark: SparkTables, part: str) -> None:
    """Our sink goes on with the columns that it has, and with the new ones; inside of structs a row has them
    all, or is refused where the sink is written."""
    path = str(spark.deltas / f"grown_{part}")
    table, inner = f"delta.`{path}`", pa.struct([("x", pa.int32())])

    def write(rows: pa.Table, **options: Any) -> None:
        by = [part] if part else ()
        run(
            rows,
            lambda stream: (
                stream.key_by("id")
                .sink_to(us.DeltaSink(path, on_foreign="append", partition_by=by, **options))
                .uid("grown")
            ),
        )

    old = pa.table({"id": [1, 2], "k": ["a", "b"], "st": pa.array([{"x": 1}, None], inner)})
    write(old)
    spark.run(f"ALTER TABLE {table} ADD COLUMNS (first int FIRST, late string AFTER id)")
    write(old)
    new = pa.table(
        {
            "late": ["l"],
            "id": [3],
            "k": ["a"],
            "st": pa.array([{"x": 3}], inner),
            "first": pa.array([7], pa.int32()),
        }
    )
    write(new)
    write(new.set_column(0, "late", [["changed"]]), mode="upsert", key="id")
    wanted = [{**row, "late": None, "first": None} for row in [*old.to_pylist(), *old.to_pylist()]]
    wanted.append({**new.to_pylist()[0], "late": "changed"})
    assert same_rows(spark.rows(f"SELECT * FROM {table}")) == same_rows(wanted)
    spark.run(f"ALTER TABLE {table} ADD COLUMN st.y string")
    with pytest.raises(us.ConfigError, match="column 'st' is struct"):
        write(old)
    both = pa.struct([("x", pa.int32()), ("y", pa.string())])
    write(pa.table({"id": [4], "k": ["b"], "st": pa.array([{"x": 4, "y": "y"}], both)}))
    found = spark.rows(f"SELECT id, st.x AS x, st.y AS y FROM {table} WHERE id > 2")
    assert same_rows(found) == same_rows([{"id": 3, "x": 3, "y": None}, {"id": 4, "x": 4, "y": "y"}])
