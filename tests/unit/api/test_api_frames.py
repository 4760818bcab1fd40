"""DataFrames as sources and results: types both ways, what is refused at once, and the staged folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.client.machine.frames import frame_folder
from unistream.host.spark_frames import check_sees_folders
from unistream.host.spark_types import arrow_schema, spark_schema

pyspark_types = pytest.importorskip("pyspark.sql.types")
T = pyspark_types


def struct(**columns: Any) -> Any:
    return T.StructType([T.StructField(name, type_) for name, type_ in columns.items()])


@pytest.mark.parametrize(
    ("spark", "arrow"),
    [
        pytest.param(spark, arrow, id=str(arrow))
        for spark, arrow in [
            (T.BooleanType(), pa.bool_()),
            (T.ByteType(), pa.int8()),
            (T.ShortType(), pa.int16()),
            (T.IntegerType(), pa.int32()),
            (T.LongType(), pa.int64()),
            (T.FloatType(), pa.float32()),
            (T.DoubleType(), pa.float64()),
            (T.DecimalType(38, 10), pa.decimal128(38, 10)),
            (T.StringType(), pa.string()),
            (T.BinaryType(), pa.binary()),
            (T.DateType(), pa.date32()),
            (T.TimestampType(), pa.timestamp("us", "UTC")),
            (T.TimestampNTZType(), pa.timestamp("us")),
            (T.DayTimeIntervalType(), pa.duration("us")),
            (T.NullType(), pa.null()),
            (T.ArrayType(T.LongType()), pa.list_(pa.int64())),
            (T.MapType(T.StringType(), T.DateType()), pa.map_(pa.string(), pa.date32())),
            (
                struct(x=T.ArrayType(struct(y=T.ByteType()))),
                pa.struct({"x": pa.list_(pa.struct({"y": pa.int8()}))}),
            ),
        ]
    ],
)
def test_types_that_both_know_are_the_same_there_and_back(spark: Any, arrow: pa.DataType) -> None:
    found = arrow_schema(struct(c=spark), "here")
    assert found == pa.schema([("c", arrow)])
    assert spark_schema(found, "there") == struct(c=spark)


@pytest.mark.parametrize(
    ("arrow", "spark"),
    [
        (pa.large_string(), T.StringType()),
        (pa.large_binary(), T.BinaryType()),
        (pa.binary(3), T.BinaryType()),
        (pa.dictionary(pa.int32(), pa.string()), T.StringType()),
        (pa.timestamp("s"), T.TimestampNTZType()),
        (pa.timestamp("ms", "Europe/Berlin"), T.TimestampType()),
        (pa.large_list(pa.int8()), T.ArrayType(T.ByteType())),
    ],
    ids=str,
)
def test_other_forms_in_arrow_have_the_type_of_their_values(arrow: pa.DataType, spark: Any) -> None:
    assert spark_schema(pa.schema([("c", arrow)]), "there") == struct(c=spark)


class Celsius(T.UserDefinedType):  # type: ignore[misc, name-defined]
    @classmethod
    def sqlType(cls) -> Any:
        return T.DoubleType()


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        pytest.param(struct(a=T.LongType(), v=T.VariantType()), "v", id="variant"),
        pytest.param(struct(i=T.CalendarIntervalType()), "i", id="calendar interval"),
        pytest.param(struct(y=T.YearMonthIntervalType()), "y", id="months"),
        pytest.param(struct(u=Celsius()), "u", id="user-defined"),
        pytest.param(struct(s=T.StringType("UNICODE_CI")), "s", id="collation"),
        pytest.param(struct(a=T.ArrayType(T.DayTimeIntervalType())), "a.element", id="duration in a list"),
        pytest.param(struct(m=T.MapType(T.StringType(), struct(x=T.VariantType()))), "m.value.x", id="deep"),
    ],
)
def test_a_type_without_an_arrow_form_is_refused_by_its_column(schema: Any, column: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^here: column '{column}' is .* Arrow cannot represent: cast it to "
    ):
        arrow_schema(schema, "here")


@pytest.mark.parametrize(
    "type_",
    [
        pa.uint8(),
        pa.float16(),
        pa.timestamp("ns"),
        pa.time64("us"),
        pa.duration("ms"),
        pa.decimal256(50, 2),
        pa.decimal128(3, -2),
        pa.struct({"x": pa.list_(pa.uint64())}),
    ],
    ids=str,
)
def test_a_type_that_spark_does_not_have_is_refused_by_its_column(type_: pa.DataType) -> None:
    with pytest.raises(
        ConfigError, match=r"^there: column 'c.*' is .*, which Spark has no type for: cast it to "
    ):
        spark_schema(pa.schema([("c", type_)]), "there")


@pytest.mark.parametrize(
    ("names", "case_sensitive", "why"),
    [
        pytest.param(["a", "b", "a"], True, "more than one column is called 'a'", id="the same"),
        pytest.param(["a", "A"], False, "is called 'a' .Spark ignores case", id="in another case"),
        pytest.param([], False, "there are no columns", id="none"),
    ],
)
def test_names_of_columns_are_unique(names: list[str], case_sensitive: bool, why: str) -> None:
    spark = T.StructType([T.StructField(name, T.LongType()) for name in names])
    arrow = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(ConfigError, match=why):
        arrow_schema(spark, "here", case_sensitive=case_sensitive)
    with pytest.raises(ConfigError, match=why):
        spark_schema(arrow, "there", case_sensitive=case_sensitive)


def test_names_in_another_case_are_two_columns_where_spark_says_so() -> None:
    found = arrow_schema(struct(a=T.LongType(), A=T.LongType()), "here", case_sensitive=True)
    assert found.names == ["a", "A"]


@pytest.mark.parametrize("no_frame", [[{"a": 1}], pa.table({"a": [1]}), None], ids=["rows", "table", "none"])
def test_what_is_no_dataframe_is_refused(no_frame: Any) -> None:
    with pytest.raises(ConfigError, match="takes a Spark DataFrame, not"):
        us.Environment().from_dataframe(no_frame)


def test_an_unbounded_pipeline_has_no_dataframe() -> None:
    env = us.Environment()
    endless = us.KafkaSource(
        bootstrap_servers="127.0.0.1:9", topic="t", schema=pa.schema([("n", pa.int64())])
    )
    stream = env.from_source(endless, us.WatermarkStrategy.no_watermarks(), "endless")
    with pytest.raises(ConfigError, match="source 'endless' is unbounded"):
        stream.to_dataframe()


def test_a_look_is_what_leads_to_it_and_leaves_nothing() -> None:
    env = us.Environment()
    rows = env.from_collection([{"n": 1}])
    other = env.from_collection([{"n": 2}], name="other")
    other.print()
    rows.map(dict).print("rows")
    doubled = rows.with_columns(n=us.col("n") * 2)

    def running() -> list[str]:
        return [node.name for node in env.stream_graph().nodes]

    everything = ["collection", "other", "print", "map dict", "print", "with_columns"]
    assert running() == everything
    with doubled._builder.looking():
        doubled.print()
        assert running() == ["collection", "with_columns", "print"]
        assert "print-2" in env.explain()
    left = [*everything[:-1]]
    assert running() == left, "what only a look has read is no part of the job"
    doubled.print("later")
    assert running() == [*everything, "print"], "until something else reads it"
    assert {node.id for node in env.stream_graph().nodes} == set(range(7))


def test_a_pipeline_that_was_only_looked_at_is_still_there() -> None:
    env = us.Environment()
    rows = env.from_collection([{"n": 1}])
    before = env.explain()
    with rows._builder.looking():
        rows.print()
    assert env.explain() == before


class Session:
    """What is asked of a session: its settings."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_spark_on_other_machines_needs_a_folder_of_all(master: str) -> None:
    with pytest.raises(ConfigError, match=f'^here: the session runs on {master}, .* staging="URL"'):
        check_sees_folders(Session(master), None, "here")  # type: ignore[arg-type]
    check_sees_folders(Session(master), "s3a://bucket/rows", "here")  # type: ignore[arg-type]
    check_sees_folders(Session("local[2]"), None, "here")  # type: ignore[arg-type]


# --- the folder -------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def left(home: Path, staging: Path) -> list[str]:
    return sorted(
        path.name for root in (home / "frames", staging) if root.exists() for path in root.iterdir()
    )


@pytest.mark.parametrize("scheme", [None, "", "file://"], ids=["of this machine", "a path", "a URL"])
def test_a_folder_is_removed_when_it_is_closed(scheme: str | None, home: Path, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    folder = frame_folder(None if scheme is None else f"{scheme}{staging}")
    local = Path(folder.path.removeprefix("file://"))
    assert folder.files() == []
    (local / "_temporary").mkdir(parents=True)
    for name in ("part-1.parquet", "_SUCCESS", ".part-2.parquet", "_temporary/part-3.parquet"):
        pq.write_table(pa.table({"n": [1]}), local / name)
    assert folder.files() == [f"{folder.path}/part-1.parquet"]
    assert folder.url == f"file://{local}"
    folder.close()
    folder.close()
    assert left(home, staging) == []


@pytest.mark.parametrize("elsewhere", [False, True], ids=["of this machine", "elsewhere"])
def test_the_folder_of_a_killed_process_is_removed_by_the_next(
    elsewhere: bool, home: Path, tmp_path: Path
) -> None:
    staging = tmp_path / "staging"
    given = f"file://{staging}" if elsewhere else None
    code = f"""
import os
from pathlib import Path
from unistream.client.machine.frames import frame_folder
folder = frame_folder({given!r})
local = Path(folder.path.removeprefix("file://"))
local.mkdir(parents=True)
(local / "part-1.parquet").touch()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    before = left(home, staging)
    assert len(before) == 1 + elsewhere
    folder = frame_folder(given)
    assert not set(before) & set(left(home, staging))
    folder.close()
    assert left(home, staging) == []
