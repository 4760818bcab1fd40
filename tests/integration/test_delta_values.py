"""What the Delta sink writes is what other readers of the table get."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake

from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.stage import decode_committable
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, CommitResult, SinkContext
from unistream.testing.harness.operators import CountingMetrics

LINEAGE = LineageId("lineage-1")


def context() -> SinkContext:
    job = JobId("0" * 32)
    return SinkContext(
        job=job,
        lineage=LINEAGE,
        sink_uid=OperatorUid("sink"),
        attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
        index=0,
        parallelism=1,
        restored=None,
        metrics=CountingMetrics(),
    )


def write(table: pa.Table, uri: str, **sink: Any) -> tuple[CommitRequest, CommitResult]:
    """One checkpoint with these rows, committed."""
    made = DeltaSink(uri, **sink)
    made.check(table.schema)
    writer, committer = made.create_writer(), made.create_committer()
    assert committer is not None
    writer.open(context(), ())
    committer.open(context())
    for records in table.to_batches():
        writer.write(Batch(records))
    writer.flush(end_of_input=True)
    request = CommitRequest(CheckpointId(1), tuple(writer.prepare_commit(CheckpointId(1))))
    permit = CommitPermit(lineage=LINEAGE, checkpoint_id=CheckpointId(1), epoch=LeaderEpoch(7))
    result = committer.commit(permit, request)
    writer.close()
    return request, result


def read(uri: str) -> pa.Table:
    return DeltaTable(uri).to_pyarrow_table().sort_by("id")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


UTC = dt.UTC
MOMENT = dt.datetime.fromisoformat("2013-01-01 05:15:00.123456")

VALUES = [
    pytest.param(pa.array([1, None, -5], pa.int8()), pa.int8(), id="int8"),
    pytest.param(pa.array([255, None, 0], pa.uint8()), pa.int16(), id="uint8"),
    pytest.param(pa.array([2**32 - 1, None, 0], pa.uint32()), pa.int64(), id="uint32"),
    pytest.param(pa.array([1.5, None, float("nan")]), pa.float64(), id="double with NaN"),
    pytest.param(pa.array([True, None, False]), pa.bool_(), id="boolean"),
    pytest.param(pa.array(["ä", None, ""]), pa.string(), id="text"),
    pytest.param(pa.array(["x" * 100, None, "y"], pa.large_string()), pa.string(), id="long text"),
    pytest.param(pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), id="dictionary"),
    pytest.param(pa.array([b"\x00\xff", None, b""]), pa.binary(), id="bytes"),
    pytest.param(pa.array([dt.date(1, 1, 1), None, dt.date(2013, 1, 1)]), pa.date32(), id="date"),
    pytest.param(pa.array([Decimal("1.25"), None, Decimal("-3.00")]), pa.decimal128(3, 2), id="decimal"),
    pytest.param(pa.array([MOMENT, None, MOMENT]), pa.timestamp("us"), id="time without zone"),
    pytest.param(
        pa.array([MOMENT, None, MOMENT]).cast(pa.timestamp("ns")),
        pa.timestamp("us"),
        id="nanoseconds that fit",
    ),
    pytest.param(
        pa.array([MOMENT.replace(tzinfo=UTC), None, dt.datetime(1901, 1, 1, tzinfo=UTC)]).cast(
            pa.timestamp("us", tz="Europe/Berlin")
        ),
        pa.timestamp("us", tz="UTC"),
        id="time with zone",
    ),
    pytest.param(pa.array([[1, None], None, []], pa.list_(pa.int32())), pa.list_(pa.int32()), id="list"),
    pytest.param(
        pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        id="struct",
    ),
    pytest.param(
        pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.int64()),
        id="map",
    ),
]


@pytest.mark.parametrize(("values", "stored"), VALUES)
def test_values_come_back(values: pa.Array, stored: pa.DataType, uri: str) -> None:
    _, result = write(pa.table({"id": [0, 1, 2], "v": values}), uri)
    back = read(uri).column("v")
    wanted = pa.chunked_array([values]).cast(stored)
    if pa.types.is_floating(stored):
        assert pc.all(pc.or_(pc.is_nan(wanted), pc.equal(wanted, back)), skip_nulls=True).as_py()
        assert back.null_count == 1
    else:
        assert back.to_pylist() == wanted.to_pylist()
    assert (result.rows, result.table_version) == (3, 1)


PARTITIONS = [
    pytest.param(["a b", "c/d", "ü%:=?#&+\\\"'"], id="special characters"),
    pytest.param(["%2F", "..", "."], id="what looks encoded or like a folder"),
    pytest.param(["x" * 500, "y" * 500, "x" * 499], id="long values"),
    pytest.param(
        ["a\nb", "日本", "__HIVE_DEFAULT_PARTITION__"], id="line break, other scripts, the null folder"
    ),
    pytest.param([None, "a", None], id="null"),
    pytest.param([1, -5, None], id="integers"),
    pytest.param([True, False, None], id="booleans"),
    pytest.param([dt.date(2013, 1, 1), None, dt.date(1, 1, 1)], id="dates"),
    pytest.param([MOMENT, None, dt.datetime.fromisoformat("2013-01-01")], id="times without zone"),
    pytest.param(
        [MOMENT.replace(tzinfo=UTC), None, dt.datetime(2013, 1, 1, tzinfo=UTC)], id="times with zone"
    ),
    pytest.param([Decimal("1.25"), None, Decimal("-3.00")], id="decimals"),
]


@pytest.mark.parametrize("values", PARTITIONS)
def test_partition_values_come_back(values: list[object], uri: str) -> None:
    table = pa.table({"id": pa.array([0, 1, 2], pa.int64()), "p": pa.array(values)})
    write(table, uri, partition_by=["p"])
    assert DeltaTable(uri).metadata().partition_columns == ["p"]
    assert read(uri).select(["id", "p"]).to_pylist() == table.to_pylist()


def test_partition_columns_may_have_any_name_that_delta_allows(uri: str) -> None:
    table = pa.table({"id": [0, 1], "a/b%25ü..": ["x", "y"]})
    write(table, uri, partition_by=["a/b%25ü.."])
    assert read(uri).select(table.schema.names).to_pylist() == table.to_pylist()
    assert {path.name for path in Path(uri).iterdir() if path.is_dir()} == {
        "_delta_log",
        "a%2Fb%2525%C3%BC..=x",
        "a%2Fb%2525%C3%BC..=y",
    }


def test_rows_of_several_partition_columns_come_back(uri: str) -> None:
    rows = 10_000
    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "a": pa.array([None if i % 5 == 0 else f"a{i % 3}" for i in range(rows)]),
            "b": pa.array([i % 4 for i in range(rows)]),
        }
    )
    write(table, uri, partition_by=["b", "a"])
    assert read(uri).select(["id", "a", "b"]).to_pylist() == table.to_pylist()
    assert len(DeltaTable(uri).file_uris()) == 16


def test_duckdb_reads_the_same(uri: str) -> None:
    """Through the files that the log names: DuckDB's own Delta reader has to be downloaded."""
    table = pa.table(
        {"id": pa.array(range(100)), "p": pa.array([f"p {i % 3}" for i in range(100)]), "x": [0.5] * 100}
    )
    write(table, uri, partition_by=["p"])
    rows = DeltaTable(uri).to_pyarrow_dataset()
    assert isinstance(rows, ds.Dataset)
    found = duckdb.sql("select p, count(*), sum(id), sum(x) from rows where id >= 50 group by p order by p")
    assert found.fetchall() == [
        ("p 0", 17, sum(i for i in range(50, 100) if i % 3 == 0), 8.5),
        ("p 1", 16, sum(i for i in range(50, 100) if i % 3 == 1), 8.0),
        ("p 2", 17, sum(i for i in range(50, 100) if i % 3 == 2), 8.5),
    ]
    files = [str(Path(one)) for one in DeltaTable(uri).file_uris()]
    count = duckdb.read_parquet(files).aggregate("count(*), sum(id)").fetchall()
    assert count == [(100, 4950)]


def test_statistics_let_a_reader_skip_files_and_never_rows(uri: str) -> None:
    table = pa.table(
        {
            "id": pa.array([3, 1, 2], pa.int64()),
            "at": pa.array([MOMENT.replace(tzinfo=UTC)] * 3),
            "x": [1.0, float("nan"), 2.0],
            "long": ["x" * 40, "a", None],
        }
    )
    request, _ = write(table, uri)
    stats = json.loads(decode_committable(request.committables[0]).files[0].stats)
    assert stats["numRecords"] == 3
    assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (1, 3)
    assert "x" not in stats["maxValues"]
    assert "long" not in stats["maxValues"]
    assert stats["nullCount"] == {"id": 0, "at": 0, "x": 0, "long": 1}
    rows = DeltaTable(uri).to_pyarrow_dataset()
    moment = pa.scalar(MOMENT.replace(tzinfo=UTC), pa.timestamp("us", tz="UTC"))
    assert rows.to_table(filter=(ds.field("at") == moment) & (ds.field("id") == 2)).num_rows == 1
    assert rows.to_table(filter=ds.field("id") > 3).num_rows == 0


def test_commits_carry_who_made_them(uri: str) -> None:
    write(pa.table({"id": [1]}), uri)
    newest = DeltaTable(uri).history(1)[0]
    assert {key: value for key, value in newest.items() if key.startswith("unistream.")} == {
        "unistream.job-id": "0" * 32,
        "unistream.lineage": "lineage-1",
        "unistream.sink-uid": "sink",
        "unistream.checkpoint-id": "1",
        "unistream.leader-epoch": "7",
    }
    assert DeltaTable(uri).transaction_version("unistream/lineage-1/sink") == 1


def test_large_partitions_are_written_out_before_the_checkpoint(uri: str) -> None:
    table = pa.table({"id": pa.array(range(50_000))})
    request, result = write(pa.concat_tables([table] * 4), uri, target_file_bytes=500_000)
    files = decode_committable(request.committables[0]).files
    assert [file.rows for file in files] == [100_000, 100_000]
    assert result.rows == 200_000


# --- a table that exists --------------------------------------------------------------------------

EXISTING = pa.schema(
    [pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("n", pa.int64(), nullable=False)]
)


@pytest.mark.parametrize(
    ("schema", "partition_by", "message"),
    [
        pytest.param([("id", pa.string())], [], r"'id' is int64, the stream's is string", id="another type"),
        pytest.param([("new", pa.int64())], [], r"no column 'new' \(int64\)", id="an unknown column"),
        pytest.param([("id", pa.int64())], [], r"'n' must not be null and the stream has none", id="a gap"),
        pytest.param(
            [("id", pa.int64()), ("n", pa.int64())], [], "'n' must not be null, but", id="nulls that may come"
        ),
        pytest.param(
            [("id", pa.int64()), ("name", pa.string()), pa.field("n", pa.int64(), nullable=False)],
            ["name"],
            "partitioned by nothing, the sink by name",
            id="other partition columns",
        ),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_on_the_client(
    uri: str, schema: list[Any], partition_by: list[str], message: str
) -> None:
    DeltaTable.create(uri, EXISTING)
    with pytest.raises(ConfigError, match=message):
        DeltaSink(uri, partition_by=partition_by).check(pa.schema(schema))
    assert DeltaTable(uri).version() == 0


def test_a_stream_with_fewer_nullable_columns_fits(uri: str) -> None:
    write_deltalake(uri, pa.table({"id": pa.array([0], pa.int64()), "extra": ["x"]}))
    write(pa.table({"id": pa.array([1], pa.int64())}), uri)
    assert read(uri).to_pylist() == [{"id": 0, "extra": "x"}, {"id": 1, "extra": None}]


def test_a_table_with_a_constraint_is_refused(uri: str) -> None:
    write_deltalake(uri, pa.table({"id": pa.array([1], pa.int64())}))
    DeltaTable(uri).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(
        ConfigError, match=r"a constraint \(positive\), which this sink does not check; drop it"
    ):
        DeltaSink(uri).check(pa.schema([("id", pa.int64())]))


def test_a_place_where_no_table_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        DeltaSink(str(tmp_path / "file" / "table")).check(None)
