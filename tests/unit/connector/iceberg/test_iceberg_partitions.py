"""Partitions of a table: where rows go, and which are replaced. Read by iceberg-rust."""

from __future__ import annotations

import datetime as dt
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from tests.contract.sinks.case import batch, permit, request
from tests.eventually import WAIT_S
from tests.iceberg_lake import Lake
from tests.unit.connector.iceberg.parts import Parts, between, rows
from unistream.base.errors import ConfigError
from unistream.connector.iceberg import IcebergSink
from unistream.connector.iceberg.partition import reads_doubles
from unistream.model.elements import Batch
from unistream.port.sink import CommitOutcome

# --- partitions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "partition_by",
    ["id", "name", "day", "truncate(3, name)", "truncate(10, id)", "bucket(4, id)", "bucket(4, name)",
     "year(at)", "months(at)", "day(at)", "hours(at)", "day(day)", "price", "bucket(3, price)", "at",
     "zoned"],
)  # fmt: skip
def test_every_transform_puts_rows_where_readers_look_for_them(
    lake: Lake, parts: Parts, partition_by: str
) -> None:
    zoned = [dt.datetime(*one, tzinfo=dt.UTC) for one in ((1969, 12, 31, 23), (2026, 1, 1), (2026, 1, 1, 1))]
    given = rows(
        id=[-7, 3, 13, None],
        name=["Jürgen", "Jür", "", None],
        day=[dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(2026, 2, 1), None],
        at=pa.array([*(one.replace(tzinfo=None) for one in zoned), None], pa.timestamp("us")),
        zoned=pa.array([*zoned, None], pa.timestamp("us", "UTC")),
        price=pa.array([Decimal("-1.50"), Decimal("2.00"), Decimal("3.25"), None], pa.decimal128(6, 2)),
        n=[0, 1, 2, 3],
    )
    parts.add(1, given, parts.sink(partition_by=partition_by))
    assert [row[0] for row in lake.rows("SELECT n FROM t ORDER BY n")] == [0, 1, 2, 3]
    with lake.table() as table:
        [field] = table.spec().fields
        source = table.schema().find_field(field.source_id)
        transform = field.transform.transform(source.field_type)
        given_values = given.records.column(source.name).to_pylist()
        by_file = {task.file.file_path: task.file.partition[0] for task in table.scan().plan_files()}
        # what another implementation of the transform says of each row, by the file that has it
        for value, n in zip(given_values, range(4), strict=True):
            [task] = [
                one for one in table.scan().plan_files() if n in _read(one.file.file_path)["n"].to_pylist()
            ]
            expected = transform(value)
            if isinstance(field.transform, IdentityTransform):
                expected = _plain(value)
            assert by_file[task.file.file_path] == expected
    if partition_by in ("id", "truncate(10, id)", "bucket(4, id)"):
        assert lake.rows("SELECT n FROM t WHERE id = 13") == [(2,)]


@pytest.mark.parametrize("partition_by", ["bucket(3, price)", "truncate(10, price)"])
@pytest.mark.parametrize("ahead_bytes", [0, 4, 8])
def test_values_are_partitioned_wherever_they_lie_in_memory(
    lake: Lake, parts: Parts, partition_by: str, ahead_bytes: int
) -> None:
    """Rows of another process lie at a multiple of 8 bytes; a decimal has 16."""
    prices = pa.array([Decimal("-1.50"), None, Decimal("23.25")], pa.decimal128(6, 2))
    valid, values = prices.buffers()
    moved = pa.py_buffer(bytes(ahead_bytes) + values.to_pybytes()).slice(ahead_bytes)
    price = pa.Array.from_buffers(prices.type, len(prices), [valid, moved])
    parts.add(1, rows(id=[1, 2, 3], price=price), parts.sink(partition_by=partition_by))
    assert lake.rows("SELECT id, price FROM t ORDER BY id") == list(
        zip([1, 2, 3], prices.to_pylist(), strict=True)
    )


def _read(path: str) -> pa.Table:
    return pq.ParquetFile(path.removeprefix("file://")).read()


def _plain(value: Any) -> Any:
    """As Iceberg keeps it in a partition."""
    match value:
        case dt.datetime():
            return int(
                (value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds()
                * 1_000_000
            )
        case dt.date():
            return (value - dt.date(1970, 1, 1)).days
    return value


@pytest.mark.parametrize(
    ("partition_by", "says"),
    [
        ("nothing", "'nothing' is no column of the stream, which has id, name"),
        ("bucket(id)", "write bucket(16, id)"),
        ("day(3, id)", "day takes a column only"),
        ("day(name)", "column 'name' is string"),
        (["id", "id"], "names 'id' twice"),
    ],
)
def test_partitions_that_cannot_be_are_refused(parts: Parts, partition_by: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parts.sink(partition_by=partition_by).check(batch(1).records.schema)
    assert says in str(refused.value)


def test_partitions_of_fields_in_structs_of_columns_with_dots_and_of_columns_that_the_stream_lacks(
    lake: Lake, parts: Parts
) -> None:
    inner = pa.array([{"b": "x", "c": 1}, {"b": "y", "c": 2}])
    given = rows(id=[1, 2], **{"a.b": ["p", "q"], "in": inner})
    parts.add(1, given, parts.sink(partition_by=["in.b", "a.b"]))
    lacking = rows(id=[3], **{"in": pa.array([{"c": 3}])})
    parts.add(2, lacking, restored=1)
    with lake.table() as table:
        found = {tuple(task.file.partition[i] for i in (0, 1)) for task in table.scan().plan_files()}
    assert found == {("x", "p"), ("y", "q"), (None, None)}


def test_a_table_of_format_version_1_is_written_and_one_of_version_3_refused(
    lake: Lake, parts: Parts
) -> None:
    old = parts.sink(partition_by="name", table_properties={"format-version": "1"})
    for checkpoint in (1, 2, 3):
        parts.add(checkpoint, batch(checkpoint, 10 + checkpoint), old, restored=checkpoint - 1 or None)
    assert lake.ids() == [1, 2, 3, 11, 12, 13]
    with lake.table() as table:
        assert table.metadata.format_version == 1
    with lake.table() as table:
        metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    newer = lake.warehouse / "newer.metadata.json"
    metadata |= {"format-version": 3, "next-row-id": 0, "last-sequence-number": 0}
    newer.write_text(json.dumps(metadata))
    with lake.catalog() as catalog:
        catalog.register_table("lake.new", newer.as_uri())
    with pytest.raises(ConfigError, match="has format version 3; this version writes tables"):
        parts.sink("lake.new").check(None)


def test_properties_of_the_table_say_where_files_are_and_how_they_are_compressed(
    lake: Lake, parts: Parts
) -> None:
    said = {
        "write.object-storage.enabled": "true",
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "1",
        "write.metadata.path": (lake.warehouse / "elsewhere").as_uri(),
        "write.metadata.metrics.column.name": "none",
    }
    parts.add(1, batch(1, 2), parts.sink(partition_by="name", table_properties=said))
    assert lake.ids() == [1, 2]
    for path in lake.files():
        column = pq.ParquetFile(path).metadata.row_group(0).column(0)
        assert column.compression == "GZIP"
        assert path.parent.name.startswith("name=")
        assert path.parents[1].name.isdecimal(), "folders that spread over an object store"
    assert list((lake.warehouse / "elsewhere").glob("*.avro"))
    with lake.table() as table:
        [bounds] = {tuple(task.file.lower_bounds) for task in table.scan().plan_files()}
    assert bounds == (1,), "of id alone"


def test_writers_that_create_one_table_at_once_write_to_one(lake: Lake, parts: Parts) -> None:
    start = threading.Barrier(4)

    def stage(index: int) -> list[bytes]:
        writer = parts.writer(index=index)
        start.wait(WAIT_S)
        return parts.staged(1, batch(index), writer)

    with ThreadPoolExecutor(4) as pool:
        staged = [one for made in pool.map(stage, range(4)) for one in made]
    parts.committer().commit(permit(1), request(1, *staged))
    assert lake.ids() == [0, 1, 2, 3]


def test_long_partition_values_have_short_folders(lake: Lake, parts: Parts) -> None:
    parts.add(1, rows(id=[1, 2], name=["x" * 300 + "a", "x" * 300 + "b"]), parts.sink(partition_by="name"))
    assert lake.ids() == [1, 2]
    assert max(len(path.parent.name) for path in lake.files()) < 160


def test_the_largest_file_is_written_when_many_partitions_are_open(lake: Lake, parts: Parts) -> None:
    sink = parts.sink(partition_by="name", target_file_bytes=1)
    parts.add(1, batch(1, 2, 3), sink)
    assert len(lake.files()) == 3


# --- partitions that are replaced ---------------------------------------------------------------------


def replacing(parts: Parts, **options: Any) -> IcebergSink:
    return parts.sink(mode="overwrite-partitions", **options)


def at_the_end(
    parts: Parts, sink: IcebergSink, checkpoint: int, given: Batch, **committer: Any
) -> CommitOutcome:
    writer = parts.writer(sink, checkpointing=False)
    committables = parts.staged(checkpoint, given, writer)
    where = {"restored": checkpoint - 1 or None, "checkpointing": False, **committer}
    made = parts.committer(sink, **where)
    outcome = made.commit(permit(checkpoint), request(checkpoint, *committables)).outcome
    again = made.commit(permit(checkpoint), request(checkpoint, *committables))
    assert again.outcome is CommitOutcome.ALREADY_COMMITTED
    return outcome


def test_rows_replace_those_of_their_partitions_and_of_no_others(lake: Lake, parts: Parts) -> None:
    days = ["mon", "tue", None]
    parts.add(1, rows(id=[1, 2, 3], day=days), parts.sink(partition_by="day"))
    at_the_end(parts, replacing(parts), 2, rows(id=[4, 5], day=["tue", "wed"]))
    assert lake.rows("SELECT id, day FROM t ORDER BY id") == [(1, "mon"), (3, None), (4, "tue"), (5, "wed")]
    at_the_end(parts, replacing(parts), 3, rows(id=[6], day=pa.array([None], pa.string())))
    assert lake.rows("SELECT id, day FROM t ORDER BY id") == [(1, "mon"), (4, "tue"), (5, "wed"), (6, None)]
    newest = lake.summaries()[-1]
    assert (newest["deleted-records"], newest["added-records"], newest["total-records"]) == ("1", "1", "4")


def test_the_partition_of_what_is_no_number_is_one(lake: Lake, parts: Parts) -> None:
    def measured(ids: list[int], *values: float) -> Batch:
        return rows(id=ids, v=pa.array(values, pa.float32()))

    parts.add(1, measured([1, 2, 3], float("nan"), 0.1, -1e30), parts.sink(partition_by="v"))
    at_the_end(parts, replacing(parts), 2, measured([4, 5], float("nan"), -1e30))
    assert sorted(lake.ids()) == [2, 4, 5]


@pytest.mark.skipif(reads_doubles(), reason="this pyiceberg reads them as they are")
@pytest.mark.parametrize(
    "held",
    [
        pytest.param(None, id="a new table"),
        pytest.param(pa.float64(), id="a table of others"),
        pytest.param(pa.float32(), id="a table that would be widened"),
    ],
)
def test_partitions_that_would_not_be_found_are_refused(
    lake: Lake, parts: Parts, held: pa.DataType | None
) -> None:
    """Rounded to floats, no old partition equals a new one: nothing would be replaced, and rows be twice."""
    given = rows(id=[1], v=pa.array([0.1]))

    def partition(table: Table) -> None:
        with table.update_spec() as update:
            update.add_identity("v")

    if held is not None:
        lake.create(given.records.schema.set(1, pa.field("v", held)))
        lake.change(partition)
    sink = parts.sink(partition_by=() if held else "v", schema_evolution="add")
    with pytest.raises(ConfigError, match="those of 'v', which is double"):
        sink.check(given.records.schema)
    with pytest.raises(ConfigError, match="those of 'v', which is double"):
        parts.add(1, given, sink)
    with nullcontext() if held else pytest.raises(NoSuchTableError), lake.table() as table:
        assert str(table.schema().find_type("v")) == ("float" if held == pa.float32() else "double")


def test_a_table_without_partitions_is_replaced_as_a_whole(lake: Lake, parts: Parts) -> None:
    parts.add(1, batch(1, 2, 3))
    at_the_end(parts, replacing(parts), 2, batch(4))
    assert lake.ids() == [4]


def test_what_is_there_when_the_commit_is_made_is_replaced(lake: Lake, parts: Parts) -> None:
    parts.add(1, rows(id=[1, 2], day=["mon", "tue"]), parts.sink(partition_by="day"))
    late = pa.table({"id": [8, 9], "day": ["mon", "tue"]})
    tables = between(lambda: lake.change(lambda table: table.append(late)))
    at_the_end(parts, replacing(parts), 2, rows(id=[3], day=["tue"]), tables=tables)
    assert lake.rows("SELECT id, day FROM t ORDER BY id") == [(1, "mon"), (3, "tue"), (8, "mon")]


def test_files_of_another_partition_spec_are_not_guessed_at(lake: Lake, parts: Parts) -> None:
    parts.add(1, rows(id=[1], day=["mon"]), parts.sink(partition_by="day"))

    def evolve(table: Table) -> None:
        with table.update_spec() as update:
            update.add_identity("id")

    lake.change(evolve)
    with pytest.raises(ConfigError, match=r"files of another partition spec \(0\)"):
        at_the_end(parts, replacing(parts), 2, rows(id=[1], day=["mon"]))
    assert lake.ids() == [1]


def test_checkpoints_overwrite_nothing(parts: Parts) -> None:
    with pytest.raises(ConfigError, match="mode='overwrite-partitions' replaces partitions once"):
        parts.writer(replacing(parts))
