"""Tables that Spark writes by Delta's and Iceberg's own jars, read by our sources: whole, and as they grow.

They wait for the night: `tests.support.spark_tables` gets Spark 4.1 from PyPI, its jars from Maven Central.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

import unistream as us
from tests.support.spark_tables import SparkTables, same_rows
from tests.unit.connector.delta import delta_tables
from tests.unit.connector.iceberg import source_tables

pytestmark = pytest.mark.slow

COLUMNS: Final = (
    "id bigint, n timestamp_ntz, z timestamp, d9 decimal(9,2), d38 decimal(38,10), day date, s string, "
    "b binary, bo boolean, f float, x double, st struct<x:int,y:array<string>>, a array<struct<k:int>>, "
    "m map<string,double>"
)
FULL: Final = (
    "timestamp_ntz'2026-01-01 10:00:00.123456', timestamp'2026-01-01 10:00:00.5', 12.34BD, "
    "-123456789012345678.90BD, date'2020-02-29', 'a b/c%=', X'00FF', true, float(1.5), double('NaN'), "
    "named_struct('x',1,'y',array('p',null)), array(named_struct('k',1)), map('a',1.5D)"
)
LOW: Final = (
    "timestamp_ntz'1969-12-31 23:59:59.999999', timestamp'1900-01-01 00:00:00', -0.01BD, 0BD, "
    "date'1969-12-31', 'é', X'', false, float(-0.0), double('-Infinity'), "
    "named_struct('x',null,'y',array()), array(), map()"
)
NULLS: Final = ", ".join(["null"] * 13)
ICEBERG_PARTS: Final = (
    *("", "id", "s", "n", "z", "day", "d9", "b", "bo"),
    *(
        "bucket(4, s)",
        "bucket(3, d9)",
        "bucket(3, day)",
        "truncate(2, s)",
        "truncate(3, id)",
        "truncate(10, d9)",
    ),
    *("years(n)", "months(z)", "days(n)", "hours(z)"),
)
DELTA_PARTS: Final = ("", "id", "s", "n", "z", "d9", "d38", "day", "bo", "f", "x")
ON_READ: Final = ", ".join(f"'write.{one}.mode'='merge-on-read'" for one in ("delete", "update", "merge"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkTables]:
    with SparkTables(tmp_path_factory.mktemp("spark")) as engine:
        engine.run("CREATE NAMESPACE lake.db")
        yield engine


def values(first: int) -> str:
    """Three rows, of which the second one is null."""
    rows = [f"({first + number}, {rest})" for number, rest in enumerate((FULL, NULLS, LOW))]
    return ", ".join(rows)


def iceberg(spark: SparkTables, name: str, **options: Any) -> us.IcebergSource:
    return us.IcebergSource(f"db.{name}", catalog="lake", catalog_properties=spark.properties, **options)


def delta(spark: SparkTables, name: str, **options: Any) -> us.DeltaSource:
    return us.DeltaSource(str(spark.deltas / name), **options)


def check_iceberg(spark: SparkTables, name: str, where: str = "true", **options: Any) -> None:
    ours = source_tables.read(iceberg(spark, name, **options))
    assert same_rows(ours) == same_rows(spark.rows(f"SELECT * FROM lake.db.{name} WHERE {where}"))


def check_delta(spark: SparkTables, name: str, where: str = "true", **options: Any) -> None:
    ours = delta_tables.read(delta(spark, name, **options))
    assert same_rows(ours) == same_rows(
        spark.rows(f"SELECT * FROM delta.`{spark.deltas / name}` WHERE {where}")
    )


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("part", ICEBERG_PARTS)
def test_an_iceberg_table_of_every_type_is_read(spark: SparkTables, part: str, version: int) -> None:
    """With rows that were deleted by positions (version 2) or by deletion vectors (3), and other columns."""
    name = f"types_{ICEBERG_PARTS.index(part)}_{version}"
    table, by = f"lake.db.{name}", f"PARTITIONED BY ({part})" if part else ""
    spark.run(
        f"CREATE TABLE {table} ({COLUMNS}) USING iceberg {by} "
        f"TBLPROPERTIES('format-version'='{version}', {ON_READ})",
        f"INSERT INTO {table} VALUES {values(1)}, {values(11)}",
    )
    check_iceberg(spark, name)
    spark.run(f"DELETE FROM {table} WHERE id IN (3, 12)", f"UPDATE {table} SET s='zz', f=9.5 WHERE id=1")
    check_iceberg(spark, name)
    spark.run(
        f"ALTER TABLE {table} ADD COLUMN late int",
        f"ALTER TABLE {table} RENAME COLUMN s TO txt",
        f"ALTER TABLE {table} DROP COLUMN x",
        f"ALTER TABLE {table} ADD COLUMN x double",
        f"ALTER TABLE {table} ADD COLUMN st.w string",
    )
    check_iceberg(spark, name)


FILTERS: Final = {
    "k = 'k1'": ("k", "=", "k1"),
    "happened >= timestamp_ntz'2026-01-01 03:00:00'": ("happened", ">=", "2026-01-01T03:00:00"),
    "happened < timestamp_ntz'2026-01-01 03:30:00'": ("happened", "<", "2026-01-01T03:30:00"),
    "k IS NULL": ("k", "is", None),
    "id IN (1, 101, 1000)": ("id", "in", [1, 101, 1000]),
}


def test_an_iceberg_table_is_read_whose_partitions_were_changed(spark: SparkTables) -> None:
    table = "lake.db.parts"
    row = "timestamp_ntz'2026-01-01 00:00:00' + make_dt_interval(0, id), concat('k', id % 5)"
    spark.run(
        f"CREATE TABLE {table} (id bigint, at timestamp_ntz, k string) USING iceberg "
        f"PARTITIONED BY (days(at)) TBLPROPERTIES('format-version'='2', {ON_READ})",
        f"INSERT INTO {table} SELECT id, {row} FROM range(100)",
        f"ALTER TABLE {table} REPLACE PARTITION FIELD days(at) WITH hours(at)",
        f"ALTER TABLE {table} ADD PARTITION FIELD bucket(3, k)",
        f"INSERT INTO {table} SELECT id + 100, {row} FROM range(100)",
        f"DELETE FROM {table} WHERE id % 7 = 0",
        f"ALTER TABLE {table} DROP PARTITION FIELD bucket(3, k)",
        f"ALTER TABLE {table} RENAME COLUMN at TO happened",
        f"INSERT INTO {table} VALUES (1000, null, null)",
    )
    check_iceberg(spark, "parts")
    for where, condition in FILTERS.items():
        check_iceberg(spark, "parts", where, filter=[condition])


def test_an_iceberg_table_is_followed(spark: SparkTables) -> None:
    table = "lake.db.grows"
    spark.run(
        f"CREATE TABLE {table} (id bigint, k string) USING iceberg PARTITIONED BY (k) "
        f"TBLPROPERTIES('format-version'='2', {ON_READ})",
        f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')",
    )
    source = iceberg(spark, "grows", bounded=False, ignore_changes=True, ignore_deletes=True)
    found = source_tables.find(source)
    assert same_rows(source_tables.read(source, found.splits)) == same_rows(
        [{"id": 1, "k": "a"}, {"id": 2, "k": "b"}]
    )
    steps: dict[str, list[tuple[int, str | None]]] = {
        f"INSERT INTO {table} VALUES (3, 'c'), (4, null)": [(3, "c"), (4, None)],
        f"DELETE FROM {table} WHERE id = 1": [],
        f"INSERT INTO {table} VALUES (5, 'a')": [(5, "a")],
        "CALL lake.system.rewrite_data_files(table => 'db.grows', options => map('rewrite-all', 'true'))": [],
        f"ALTER TABLE {table} ADD COLUMN v int": [],
        f"ALTER TABLE {table} REPLACE PARTITION FIELD k WITH bucket(2, k)": [],
        f"INSERT INTO {table} VALUES (6, 'z', 7)": [(6, "z")],
        f"UPDATE {table} SET k = 'u' WHERE id = 2": [(2, "u")],
    }
    for statement, rows in steps.items():
        spark.run(statement)
        found = source_tables.find(source, source_tables.after(found))
        new = source_tables.read(source, found.splits)
        assert same_rows(new) == same_rows({"id": one, "k": k} for one, k in rows), statement


@pytest.mark.parametrize("part", DELTA_PARTS)
@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_a_delta_table_of_every_type_is_read(spark: SparkTables, mapping: str, part: str) -> None:
    """With deletion vectors, checkpoints, and columns that have other names in the files."""
    name = f"{mapping}_{part}"
    table = f"delta.`{spark.deltas / name}`"
    properties = (
        f"'delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='{mapping}', "
        "'delta.checkpointInterval'='3'"
    )
    by = f"PARTITIONED BY ({part})" if part else ""
    spark.run(
        f"CREATE TABLE {table} ({COLUMNS}) USING delta {by} TBLPROPERTIES({properties})",
        f"INSERT INTO {table} VALUES {values(1)}",
        f"INSERT INTO {table} VALUES {values(11)}",
        f"DELETE FROM {table} WHERE id IN (3, 12)",
        f"UPDATE {table} SET bo = true WHERE id IN (1, 13)",
    )
    check_delta(spark, name)
    if mapping != "none":
        spark.run(f"ALTER TABLE {table} ADD COLUMN late int", f"ALTER TABLE {table} ADD COLUMN st.w string")
        if part != "s":
            spark.run(f"ALTER TABLE {table} RENAME COLUMN s TO `t,x t`")
        if part != "x":
            spark.run(f"ALTER TABLE {table} DROP COLUMN x", f"ALTER TABLE {table} ADD COLUMN x double")
        check_delta(spark, name)
    spark.run(f"OPTIMIZE {table}")
    check_delta(spark, name)


@pytest.mark.parametrize(
    "given",
    [
        "'delta.checkpointPolicy'='v2'",
        "'delta.enableInCommitTimestamps'='true'",
        "'delta.enableRowTracking'='true'",
        "'delta.enableChangeDataFeed'='true'",
    ],
)
def test_a_delta_table_with_a_newer_feature_is_read(spark: SparkTables, given: str) -> None:
    name = given.split("'")[1].rpartition(".")[2]
    table = f"delta.`{spark.deltas / name}`"
    properties = f"{given}, 'delta.checkpointInterval'='2', 'delta.enableDeletionVectors'='true'"
    spark.run(
        f"CREATE TABLE {table} (id bigint, k string) USING delta PARTITIONED BY (k) "
        f"TBLPROPERTIES({properties})",
        *(
            f"INSERT INTO {table} SELECT id + {ten}, concat('k', id % 3) FROM range(10)"
            for ten in range(0, 50, 10)
        ),
        f"DELETE FROM {table} WHERE id % 4 = 0",
        f"UPDATE {table} SET k = 'k9' WHERE id % 5 = 1",
    )
    check_delta(spark, name)
    check_delta(spark, name, "k = 'k9'", filter=[("k", "=", "k9")])
    check_delta(spark, name, "id > 33", filter=[("id", ">", 33)])


def test_a_delta_table_with_wider_types_is_read(spark: SparkTables) -> None:
    table = f"delta.`{spark.deltas / 'wide'}`"
    spark.run(
        f"CREATE TABLE {table} (id int, f float, d decimal(6,2), day date) USING delta "
        "TBLPROPERTIES('delta.enableTypeWidening'='true', 'delta.feature.timestampNtz'='supported')",
        f"INSERT INTO {table} VALUES (1, 1.5, 1.25, date'2020-01-01')",
        f"ALTER TABLE {table} ALTER COLUMN id TYPE bigint",
        f"ALTER TABLE {table} ALTER COLUMN f TYPE double",
        f"ALTER TABLE {table} ALTER COLUMN d TYPE decimal(10,3)",
        f"ALTER TABLE {table} ALTER COLUMN day TYPE timestamp_ntz",
        f"INSERT INTO {table} VALUES (5000000000, 2.5, 1.255, timestamp_ntz'2020-01-01 01:00:00')",
    )
    check_delta(spark, "wide")


def test_a_delta_table_is_followed(spark: SparkTables) -> None:
    table = f"delta.`{spark.deltas / 'grows'}`"
    spark.run(
        f"CREATE TABLE {table} (id bigint, k string) USING delta PARTITIONED BY (k) "
        "TBLPROPERTIES('delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name')",
        f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (7, 'b')",
    )
    source = delta(spark, "grows", bounded=False, ignore_changes=True, ignore_deletes=True)
    found = delta_tables.find(source)
    assert sorted(row["id"] for row in delta_tables.read(source, found.splits)) == [1, 2, 7]
    steps: dict[str, list[tuple[int, str | None]]] = {
        f"INSERT INTO {table} VALUES (3, 'c'), (4, null), (8, 'a'), (9, 'a')": [
            (3, "c"),
            (4, None),
            (8, "a"),
            (9, "a"),
        ],
        f"DELETE FROM {table} WHERE id = 8": [],
        f"INSERT INTO {table} VALUES (5, 'a')": [(5, "a")],
        f"OPTIMIZE {table}": [],
        f"ALTER TABLE {table} ADD COLUMN v int": [],
        f"ALTER TABLE {table} RENAME COLUMN k TO kk": [],
        f"INSERT INTO {table} VALUES (6, 'z', 7)": [(6, "z")],
        f"UPDATE {table} SET v = 1 WHERE id = 2": [(2, "b")],
    }
    for statement, rows in steps.items():
        spark.run(statement)
        found = delta_tables.find(source, delta_tables.after(found))
        new = delta_tables.read(source, found.splits)
        assert same_rows(new) == same_rows({"id": one, "k": k} for one, k in rows), statement
