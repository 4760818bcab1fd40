"""Which columns a file sink takes: each type in each format, and as the name of a folder."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.old_duckdb import MISREADS_FOLDERS
from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import AttemptId, JobId, LineageId, OperatorUid, VertexId
from unistream.connector.common import sample, value_text
from unistream.connector.file import FileSink
from unistream.connector.file.sink_format import Format, misfit, write_table
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext
from unistream.testing.harness.operators import CountingMetrics

HELD_BY_ALL = [
    *(pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(3), pa.binary_view()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
    *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    *(pa.duration("s"), pa.duration("ms"), pa.duration("us")),
    *(pa.decimal32(5, 2), pa.decimal128(5, 2), pa.decimal256(50, 2)),
    *(pa.list_(pa.int64()), pa.large_list(pa.string()), pa.list_view(pa.int64()), pa.list_(pa.int64(), 2)),
    *(pa.large_list_view(pa.int64()), pa.map_(pa.string(), pa.list_(pa.date32()))),
    *(pa.struct([("a", pa.int8()), ("b", pa.string())]), pa.dictionary(pa.int32(), pa.string()), pa.uuid()),
]
PARQUET_ALONE = [
    *(pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")),
    *(pa.list_(pa.timestamp("ns")), pa.struct([("at", pa.time64("ns"))])),
    pa.map_(pa.string(), pa.duration("ns")),
]
JSON_ALONE = [
    *(pa.month_day_nano_interval(), pa.struct([]), pa.run_end_encoded(pa.int32(), pa.int64()), pa.binary(0)),
    *(pa.list_(pa.int64(), 0), pa.decimal128(2, -3), pa.list_(pa.month_day_nano_interval())),
]
HELD: list[tuple[Format, pa.DataType, bool]] = [
    *[(format_, type_, True) for type_ in HELD_BY_ALL for format_ in ("parquet", "json")],
    *[(format_, type_, format_ == "parquet") for type_ in PARQUET_ALONE for format_ in ("parquet", "json")],
    *[(format_, type_, format_ == "json") for type_ in JSON_ALONE for format_ in ("parquet", "json")],
]


@pytest.mark.parametrize(("format_", "type_", "held"), HELD, ids=str)
def test_what_a_format_holds(format_: Format, type_: pa.DataType, held: bool) -> None:
    assert (misfit(type_, format_) is None) is held


@pytest.mark.parametrize("type_", [*HELD_BY_ALL, *PARQUET_ALONE, *JSON_ALONE], ids=str)
def test_the_value_that_is_tried_is_a_value(type_: pa.DataType) -> None:
    tried = [sample(type_, number) for number in (0, 1)]
    for values in tried:
        values.validate(full=True)
        assert values.type == type_
        assert len(values) == 1
        assert values.null_count == (1 if type_ == pa.null() else 0)
    only = type_ in (pa.null(), pa.struct([]), pa.binary(0), pa.list_(pa.int64(), 0))
    assert (tried[0] == tried[1]) is only


@pytest.mark.parametrize("type_", [*HELD_BY_ALL, *PARQUET_ALONE], ids=str)
def test_what_parquet_holds_comes_back(type_: pa.DataType) -> None:
    values = sample(type_)
    file = io.BytesIO()
    write_table(pa.table({"c": values}), file, "parquet")
    found = pq.read_table(file)["c"].combine_chunks()
    assert found.cast(type_) == values  # as Arrow has them: Python has no nanoseconds


@pytest.mark.parametrize(
    ("options", "type_", "text"),
    [
        pytest.param(
            {"format": "json"},
            pa.timestamp("ns"),
            r"column 'c' is timestamp\[ns\], which JSON cannot hold: .*; cast it before the sink or use "
            "format='parquet'$",
            id="nanoseconds in JSON",
        ),
        pytest.param(
            {"format": "json"},
            pa.struct([("at", pa.time64("ns"))]),
            # which is said by Arrow itself where pandas, which has nanoseconds, is not installed
            "column 'c' is struct.*JSON cannot hold: (values that differ by its smallest unit|Nanosecond)",
            id="nanoseconds that JSON would cut off",
        ),
        pytest.param(
            {},
            pa.month_day_nano_interval(),
            "column 'c' is month_day_nano_interval, which Parquet cannot hold: .*format='json'",
            id="an interval in Parquet",
        ),
        pytest.param(
            {"format": "json", "partition_by": ["n"]},
            pa.timestamp("ns"),
            "'c' is .*JSON cannot hold",
            id="next to the column of the folders",
        ),
        pytest.param(
            {"bucket_by_time": "%Y", "time_column": "c"},
            pa.duration("s"),
            r"column 'c' is duration\[s\], whose values bucket_by_time='%Y' cannot format",
            id="folders by a duration",
        ),
        pytest.param(
            {"bucket_by_time": "%Y", "time_column": "c"},
            pa.timestamp("s", "Mars/Olympus"),
            "whose values bucket_by_time='%Y' cannot format: .*Mars/Olympus",
            id="folders by the time of no zone",
        ),
        pytest.param(
            {"partition_by": ["c"]},
            pa.list_(pa.int64()),
            "column 'c' is list.*, whose values cannot name folders",
            id="folders by lists",
        ),
        pytest.param(
            {"partition_by": ["c"]}, pa.binary(), "column 'c' is binary, whose values", id="folders by bytes"
        ),
        pytest.param(
            {"partition_by": ["n"]},
            pa.sparse_union([pa.field("a", pa.int64())]),
            "column 'c' is sparse_union.*cannot",
            id="a union",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_named(
    tmp_path: Any, options: dict[str, Any], type_: pa.DataType, text: str
) -> None:
    schema = pa.schema([("n", pa.int64()), ("c", type_)])
    sink = FileSink(str(tmp_path / "out"), **options)
    with pytest.raises(ConfigError, match=text):
        sink.check(schema)
    assert not (tmp_path / "out").exists()


def context() -> SinkContext:
    job = JobId("a" * 32)
    return SinkContext(
        job=job,
        lineage=LineageId("lineage"),
        sink_uid=OperatorUid("sink"),
        attempt=AttemptId(job, VertexId("v"), 0, 0),
        index=0,
        parallelism=1,
        restored=None,
        metrics=CountingMetrics(),
    )


@pytest.mark.parametrize("bucket", ["%Y-%m-%d/%H", None])
def test_a_schema_that_nobody_knew_is_refused_at_its_first_row(tmp_path: Any, bucket: str | None) -> None:
    sink = FileSink(str(tmp_path), format="json", bucket_by_time=bucket)
    sink.check(None)
    writer = sink.create_writer()
    writer.open(context(), ())
    writer.write(Batch(pa.record_batch({"n": [1]}), pa.array([0])))
    with pytest.raises(ConfigError, match=re.escape("column 'n' is timestamp[ns], which JSON cannot hold")):
        writer.write(Batch(pa.record_batch({"n": pa.array([1], pa.timestamp("ns"))}), pa.array([0])))
    writer.close()


SPECIAL = [
    "a",
    "A",
    ".",
    "..",
    "a/b",
    "a%2Fb",
    "a=b",
    "ü",
    " ",
    "~",
    "null",
    "_x",
    ".x",
    "x" * 250,
    "'\"",
    "\n\0",
]
BERLIN = pa.timestamp("us", "Europe/Berlin")


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(pa.array([*SPECIAL, None]), id="texts"),
        pytest.param(pa.array(SPECIAL).dictionary_encode(), id="a dictionary"),
        pytest.param(pa.array([1, -1, None]), id="integers"),
        pytest.param(pa.array([True, False, None]), id="booleans"),
        pytest.param(pa.array(["0.0000000000", "-1.5000000000"]).cast(pa.decimal128(20, 10)), id="decimals"),
        pytest.param(pa.array([0, -1], pa.date32()), id="dates"),
        pytest.param(pa.array([0, 1], pa.timestamp("us")), id="times"),
        pytest.param(
            pa.array([1_382_833_800_000_000, 1_382_837_400_000_000], BERLIN), id="an hour that comes twice"
        ),
    ],
)
def test_readers_get_partition_values_back(tmp_path: Path, values: pa.Array) -> None:
    """Each value from the names of the folders alone, by pyarrow and DuckDB: this one if it is new enough."""
    sink = FileSink(str(tmp_path), partition_by=["p"])
    rows = pa.record_batch({"p": values, "n": range(len(values))})
    sink.check(rows.schema)
    for folder, part in sink._buckets().split(Batch(rows)):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.Table.from_batches([part]), tmp_path / folder / "part-0.parquet")
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    utc = pa.timestamp("us", "UTC") if pa.types.is_timestamp(plain.type) and plain.type.tz else plain.type
    expected = dict(enumerate(plain.cast(utc).to_pylist()))
    naive = {n: v.replace(tzinfo=None) if utc != plain.type else v for n, v in expected.items()}
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    dataset = ds.dataset(
        tmp_path, partitioning=ds.partitioning(schema.remove(1), flavor="hive"), schema=schema
    )
    texts = dataset.to_table().to_pylist()
    assert {row["n"]: row["p"] for row in texts} == {n: value_text(value) for n, value in expected.items()}
    kinds = {
        "decimal128(20, 10)": "DECIMAL(20, 10)",
        "bool": "BOOLEAN",
        "int64": "BIGINT",
        "string": "VARCHAR",
    }
    kind = kinds.get(str(plain.type), "DATE" if pa.types.is_date(plain.type) else "TIMESTAMP")
    query = f"from read_parquet('{tmp_path}/*/*.parquet', hive_partitioning=true, hive_types_autocast=false)"
    found = dict(duckdb.sql(f"select n, try_cast(p as {kind}) {query}").fetchall())
    odd = {
        n for n, value in naive.items() if kind == "VARCHAR" and MISREADS_FOLDERS and value in {"null", None}
    }
    assert {n: found[n] for n in naive.keys() - odd} == {n: naive[n] for n in naive.keys() - odd}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * 254, r"'x{60}…' in 'p' names no folder: that would have 256 of at most 255 bytes"),
        ("", "'' in 'p' names no folder: readers would take it for a null"),
        ("__HIVE_DEFAULT_PARTITION__", "in 'p' names no folder: readers would take it for a null"),
    ],
)
def test_a_value_that_readers_would_not_get_back_is_refused(tmp_path: Path, value: str, why: str) -> None:
    writer = FileSink(str(tmp_path), partition_by=["p"]).create_writer()
    writer.open(context(), ())
    with pytest.raises(UserCodeError, match=why):
        writer.write(Batch(pa.record_batch({"p": ["a", value], "n": [1, 2]})))
    writer.close()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([".p"], "readers pass over folders of the column '.p'"),
        (["p", "P"], "'p' of partition_by is there twice, but for its case"),
        (["N"], "'N' of partition_by is there twice, but for its case"),
        (["_p"], "readers pass over folders of the column '_p'"),
        (["a/b"], "'a/b' of partition_by has a name that folders spell otherwise"),
    ],
)
def test_columns_whose_folders_readers_pass_over_or_mix_up(
    tmp_path: Path, names: list[str], why: str
) -> None:
    schema = pa.schema([(name, pa.string()) for name in [*names, "n"]])
    with pytest.raises(ConfigError, match=why):
        FileSink(str(tmp_path), partition_by=names).check(schema)
