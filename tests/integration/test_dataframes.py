"""Spark's DataFrames as sources and as results, with a real Spark in local mode."""

from __future__ import annotations

import datetime as dt
import math
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from unistream.base.errors import ConfigError, UserCodeError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.embedded.hosts import host_traits
from unistream.host.spark_application import SparkApplication
from unistream.host.spark_frames import FrameFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

UTC = dt.UTC
ENGINES = {
    "streaming on local": ("local", {"execution.runtime-mode": "STREAMING"}),
    "batch on local": ("local", {}),
    "batch on spark": ("spark", {"spark.master": "local[2]"}),
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from unistream.host.spark_application import end_jvm

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    yield session
    session.stop()
    end_jvm()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def staged(home: Path) -> list[Path]:
    return sorted((home / "frames").glob("*"))


def environment(engine: str = "batch on local") -> us.Environment:
    target, config = ENGINES[engine]
    return us.Environment({"parallelism.default": "2", **config}, target=target)


def local(*parts: int) -> dt.datetime:
    """Without a zone."""
    return dt.datetime(*parts, tzinfo=UTC).replace(tzinfo=None)  # type: ignore[misc, arg-type]


VALUES: dict[str, list[Any]] = {
    "flag BOOLEAN": [True, False, None],
    "tiny TINYINT": [-128, 127, None],
    "small SMALLINT": [-32768, 32767, None],
    "whole INT": [-(2**31), 2**31 - 1, None],
    "big BIGINT": [-(2**63), 2**63 - 1, None],
    "single FLOAT": [0.5, -0.0, None],
    "double DOUBLE": [math.nan, -0.0, None],
    "money DECIMAL(9, 2)": [Decimal("-1234567.89"), Decimal("0.01"), None],
    "large DECIMAL(38, 10)": [Decimal("1234567890123456789012345678.0123456789"), Decimal(0), None],
    "text STRING": ["", "ä€😀", None],
    "bytes BINARY": [b"", b"\x00\xff", None],
    "day DATE": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "instant TIMESTAMP": [
        dt.datetime(2013, 3, 31, 1, 30, 0, 1, UTC),
        dt.datetime(1899, 12, 31, 23, 59, 59, 999999, UTC),
        None,
    ],
    "local TIMESTAMP_NTZ": [local(1, 1, 1), local(9999, 12, 31, 23, 59, 59, 999999), None],
    "span INTERVAL DAY TO SECOND": [dt.timedelta(microseconds=-1), dt.timedelta(days=400), None],
    "nothing VOID": [None, None, None],
    "items ARRAY<INT>": [[1, None], [], None],
    "map MAP<STRING, TIMESTAMP_NTZ>": [{"a": local(1582, 10, 4)}, {}, None],
    "nested STRUCT<x: ARRAY<STRUCT<y: DECIMAL(4, 1)>>, z: BINARY>": [
        {"x": [{"y": Decimal("1.5")}, None], "z": b"z"},
        {"x": None, "z": None},
        None,
    ],
}


def frame_of_all(spark: SparkSession) -> DataFrame:
    rows = [(n, *(values[n] for values in VALUES.values())) for n in range(3)]
    return spark.createDataFrame(rows, ", ".join(["n BIGINT", *VALUES]))


def bits(value: Any) -> Any:
    """For comparison: of a float its bits."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def test_every_type_is_the_same_in_arrow_and_back(spark: SparkSession) -> None:
    before = frame_of_all(spark)
    stream = environment().from_dataframe(before)
    table = stream.execute_and_collect().sort_by("n")
    assert table.schema == stream.schema
    for declared, values in VALUES.items():
        found = table[declared.split()[0]].to_pylist()
        if declared.startswith("map"):
            found = [None if entries is None else dict(entries) for entries in found]
        assert list(map(bits, found)) == list(map(bits, values)), declared
    after = environment().from_dataframe(before).to_dataframe()
    assert after.schema.simpleString() == before.schema.simpleString()
    rows = [[list(map(bits, row)) for row in frame.orderBy("n").collect()] for frame in (before, after)]
    assert rows[0] == rows[1]


def test_what_spark_has_declared_as_never_null_can_be_read(spark: SparkSession) -> None:
    from pyspark.sql import types as t

    inner = t.StructType([t.StructField("x", t.TimestampType(), False)])
    schema = t.StructType(
        [
            t.StructField("a", t.ArrayType(t.IntegerType(), False), False),
            t.StructField("m", t.MapType(t.StringType(), t.LongType(), False)),
            t.StructField("s", inner, False),
        ]
    )
    at = dt.datetime(2020, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame([([1], {"k": 2}, (at,))], schema)
    rows = environment().from_dataframe(frame).execute_and_collect().to_pylist()
    assert rows == [{"a": [1], "m": [("k", 2)], "s": {"x": at}}]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_over_a_dataframe(engine: str, spark: SparkSession, home: Path) -> None:
    frame = spark.range(10_000, numPartitions=4).selectExpr(
        "id % 7 AS key", "id AS value", "TIMESTAMP_MILLIS(id * 1000) AS at"
    )
    kept = frame.where("key < 3").repartition(3)
    strategy = us.WatermarkStrategy.for_bounded_out_of_orderness("1 h").with_timestamp_column("at")
    env = environment(engine)
    rows = env.from_dataframe(kept, strategy, "numbers")
    sums = (
        rows.key_by("key")
        .window(us.TumblingEventTimeWindows.of("1 d"))
        .aggregate(total=us.sum("value"), rows=us.count())
    )
    found = sums.execute_and_collect("sums").to_pylist()
    expected = [(key, sum(range(key, 10_000, 7)), len(range(key, 10_000, 7))) for key in range(3)]
    assert sorted((row["key"], row["total"], row["rows"]) for row in found) == expected
    assert staged(home) == [], "the rows are removed with the end of the job"
    assert not spark.sparkContext._jsc.sc().isStopped()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dataframe_of_a_stream(engine: str, spark: SparkSession, home: Path) -> None:
    env = environment(engine)
    stream = env.from_collection([{"n": n, "even": n % 2 == 0} for n in range(100)])
    frame = stream.filter(us.col("n") > 9).to_dataframe("rows")
    assert frame.schema.simpleString() == "struct<n:bigint,even:boolean>"
    again = stream.to_dataframe()
    assert (frame.count(), frame.where("even").count(), again.count()) == (90, 45, 100)
    assert len(staged(home)) == 2, "as long as the program may use them"
    assert [node.name for node in env.stream_graph().nodes] == ["collection", "filter"]


def test_no_rows_have_their_columns(spark: SparkSession) -> None:
    empty = frame_of_all(spark).where("n > 5")
    stream = environment().from_dataframe(empty)
    assert stream.execute_and_collect().schema == stream.schema
    result = environment().from_dataframe(empty).to_dataframe()
    assert (result.count(), result.schema.simpleString()) == (0, empty.schema.simpleString())


def test_columns_that_are_not_declared_are_those_of_the_rows(spark: SparkSession) -> None:
    env = environment().set_parallelism(1)
    numbers = env.from_collection([{"n": n} for n in range(3)])
    assert (
        numbers.map(lambda row: {"half": row["n"] / 2}).to_dataframe().agg({"half": "sum"}).first()[0] == 1.5
    )
    none = numbers.filter(us.col("n") > 5).map(lambda row: row)
    with pytest.raises(ConfigError, match="no rows, and their columns are not declared: pass returns="):
        none.to_dataframe()


def test_each_job_has_rows_of_its_own_and_removes_them(spark: SparkSession, home: Path) -> None:
    env = environment()
    rows = env.from_dataframe(spark.range(10), name="numbers")
    assert rows.execute_and_collect().num_rows == 10
    assert env.explain().count("source dataframe, bounded") == 1
    rows.filter(us.col("id") >= 5).sink_to(us.BlackholeSink())
    assert env.execute().is_success
    job = env.execute_async()
    assert len(staged(home)) == 1
    with job:
        job.result()
    eventually(lambda: staged(home) == [], "the rows are removed")


def test_a_client_that_is_closed_early_leaves_no_rows(spark: SparkSession, home: Path) -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(60)
        return row

    env = environment()
    env.from_dataframe(spark.range(100)).map(slow).print()
    job = env.execute_async("slow")
    assert len(staged(home)) == 1
    watchers = [thread for thread in threading.enumerate() if thread.name.startswith("frames-")]
    assert len(watchers) == 1
    job.close()
    watchers[0].join(WAIT_S)
    assert (watchers[0].is_alive(), staged(home)) == (False, [])


def test_a_failed_job_is_an_error_and_leaves_nothing(spark: SparkSession, home: Path) -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no such carrier")

    env = us.Environment({"restart-strategy.type": "none"}, target="local")
    with pytest.raises(UserCodeError, match="no such carrier"):
        env.from_dataframe(spark.range(3)).map(fail, returns={"n": pa.int64()}).to_dataframe()
    assert staged(home) == []


def test_a_dataframe_that_spark_cannot_evaluate_is_refused_before_the_job(
    spark: SparkSession, home: Path
) -> None:
    env = environment()
    env.from_dataframe(spark.range(3).selectExpr("raise_error('bad row') AS x"), name="broken").print()
    with pytest.raises(
        UserCodeError, match=r"(?s)source 'broken': Spark could not evaluate the DataFrame: .*bad row"
    ):
        env.execute()
    assert staged(home) == []
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_rows_in_a_folder_of_the_user(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    staging = tmp_path / "shared"
    staging.mkdir()
    env = environment()
    rows = env.from_dataframe(spark.range(1000), staging=f"file://{staging}")
    result = rows.to_dataframe(staging=str(staging))
    assert result.agg({"id": "sum"}).first()[0] == sum(range(1000))
    assert len(list(staging.iterdir())) == 1, "of the result alone"


def test_a_folder_that_loses_rows_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if executors on other machines had written to folders of their own."""
    whole = FrameFolder.files
    monkeypatch.setattr(FrameFolder, "files", lambda folder: whole(folder)[1:])
    env = environment()
    env.from_dataframe(spark.range(10, numPartitions=2)).print()
    with pytest.raises(ConfigError, match=r"10 rows were written, and 5 are in .* Pass staging="):
        env.execute()


def test_a_job_of_a_session_cluster(spark: SparkSession, home: Path) -> None:
    with EmbeddedCluster("local", us.Configuration()) as cluster:
        port = (cluster.rest_url or "").rpartition(":")[2]
        env = us.Environment({"rest.port": port}, target="remote")
        result = env.from_dataframe(spark.range(100)).to_dataframe()
        assert result.count() == 100
    assert len(staged(home)) == 1, "of the result alone"


def test_a_type_without_an_arrow_form_is_refused_where_the_pipeline_is_written(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS n, parse_json('{}') AS v")
    with pytest.raises(ConfigError, match="column 'v' is VARIANT, which Arrow cannot represent"):
        us.Environment().from_dataframe(frame)
    twice = spark.sql("SELECT 1 AS n, 2 AS n")
    with pytest.raises(ConfigError, match="more than one column is called 'n'"):
        us.Environment().from_dataframe(twice)
    with pytest.raises(ConfigError, match="a streaming DataFrame is unbounded"):
        us.Environment().from_dataframe(spark.readStream.format("rate").load())


def test_the_session_of_the_program_has_its_own_settings_and_what_is_ignored_is_named(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "spark.master": "spark://127.0.0.1:1",
        "spark.task.maxFailures": "9",
        "spark.ui.enabled": "false",
    }
    application = SparkApplication("spark://127.0.0.1:1", 4, config)
    assert (application.is_local, application.cores) == (True, 2)
    assert host_traits("spark", us.Configuration(config)) == host_traits("local", us.Configuration({}))
    (warning,) = [line for line in caplog.messages if "event=spark_options_ignored" in line]
    assert "master=local[2]" in warning
    assert "where spark.master, spark.task.maxFailures of its configuration have no effect" in warning
    application.close()
    assert spark.range(3).count() == 3, "the session is the program's"
