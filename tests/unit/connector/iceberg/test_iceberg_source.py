"""One snapshot of an Iceberg table: which rows it has, as pyiceberg and iceberg-rust have them, and which
files are opened for them."""

from __future__ import annotations

import datetime as dt
import json
import uuid
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from pyroaring import BitMap64

import unistream as us
from tests.iceberg_lake import TABLE, Lake
from tests.unit.connector.iceberg.source_tables import (
    append,
    commit_files,
    compact,
    data_file,
    delete_equal,
    delete_positions,
    find,
    head,
    numbers,
    parts,
    paths,
    read,
    source,
    values,
    write_parquet,
)
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.iceberg.source_deletes import VECTOR_MAGIC, vector_positions
from unistream.connector.iceberg.source_split import DeleteFile, DeleteIndex, LakeFile
from unistream.model.time_range import TimeRange
from unistream.port.projection import Selection
from unistream.port.source import WithEventTimeSpan, WithTimeRange

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def table(lake: Lake) -> Lake:
    """Three files, of three snapshots: 0; 1, 2; 3, 4, 5."""
    lake.create(numbers().schema)
    for rows in ([0], [1, 2], [3, 4, 5]):
        append(lake, numbers(*rows))
    return lake


def snapshots(lake: Lake) -> list[int]:
    with lake.table() as table:
        return [one.snapshot_id for one in table.snapshots()]


# --- which snapshot -------------------------------------------------------------------------------


def test_a_snapshot_is_named_by_its_id_a_time_a_branch_or_a_tag(table: Lake) -> None:
    first, second, third = snapshots(table)
    with table.table() as now:
        at_ms = {entry.snapshot_id: entry.timestamp_ms for entry in now.history()}
        now.manage_snapshots().create_tag(second, "t").create_branch(first, "b").commit()
    at = dt.datetime.fromtimestamp(at_ms[second] / 1000, dt.UTC)
    assert values(source(table)) == [0, 1, 2, 3, 4, 5]
    assert values(source(table, snapshot_id=first)) == [0]
    assert values(source(table, timestamp=at)) == [0, 1, 2]
    assert values(source(table, ref="t")) == [0, 1, 2]
    assert values(source(table, ref="b")) == [0]
    assert values(source(table, after_snapshot=first)) == [1, 2, 3, 4, 5]
    assert values(source(table, after_snapshot=first, snapshot_id=second)) == [1, 2]
    assert values(source(table, after_snapshot=third)) == []


NOT_THERE: list[tuple[dict[str, Any], str]] = [
    ({"snapshot_id": 7}, "has no snapshot 7: it has expired"),
    ({"ref": "x"}, "has no branch and no tag 'x'; there are main"),
    ({"timestamp": "2020-01-01"}, "is not known as of 2020-01-01"),
    ({"columns": ["j"]}, "has no column 'j'; there are i"),
    ({"filter": [("i", "=", "x")]}, "compares column 'i', which is int64"),
]


def test_what_is_not_there_is_named_on_the_client(table: Lake) -> None:
    for given, message in NOT_THERE:
        with pytest.raises(ConfigError, match=rf"table {TABLE} in catalog.* {message}"):
            _ = source(table, **given).info()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"snapshot_id": 1, "ref": "b"}, "begins at one place, not at", id="two snapshots"),
        pytest.param({"snapshot_id": "1"}, "snapshot_id must be the id of a snapshot", id="no id"),
        pytest.param({"starting_snapshot": "first", "bounded": False}, 'or "earliest"', id="no start"),
        pytest.param(
            {"starting_snapshot": 1}, "starting_snapshot: only for a source with bounded=F", id="bounded"
        ),
        pytest.param({"ignore_deletes": True}, "ignore_deletes: only for", id="a snapshot has no deletes"),
        pytest.param({"ref": ""}, "ref must be the name", id="no name"),
        pytest.param({"columns": []}, "columns of an Iceberg source must be", id="no column"),
        pytest.param({"timestamp": "noon"}, "timestamp must be a time such as", id="no time"),
        pytest.param({"split_bytes": 0}, "must be above 0", id="no size"),
        pytest.param(
            {"bounded": False, "after_snapshot": 1, "snapshot_id": 2}, "from then on, so", id="no end"
        ),
        pytest.param(
            {"bounded": False, "after_snapshot": 1, "starting_snapshot": 2},
            "one place, not at",
            id="two starts",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        us.IcebergSource(TABLE, **given)


def test_a_table_that_is_not_there_is_named(lake: Lake) -> None:
    with pytest.raises(ConfigError, match=rf"table {TABLE} in catalog 'default' at .* does not exist"):
        _ = source(lake).schema


def test_an_empty_table_has_no_rows(lake: Lake) -> None:
    lake.create(numbers().schema)
    assert read(source(lake)) == []


# --- rows that were deleted -----------------------------------------------------------------------


def two_files(table: Table) -> None:
    delete_positions(table, paths(table)[0], 0)
    delete_positions(table, paths(table)[1], 1)


def one_that_names_no_file(table: Table) -> None:
    delete_positions(table, paths(table)[-1], 0, named=False)
    delete_positions(table, paths(table)[0], 2, named=False)


def equal_ones(table: Table) -> None:
    delete_equal(table, numbers(1, 4, 99), 1)


def older_ones_only(table: Table) -> None:
    delete_equal(table, numbers(1, 4), 1)
    table.append(numbers(1))


def all_kinds(table: Table) -> None:
    first = paths(table)[0]
    equal_ones(table)
    delete_positions(table, first, 0)


@pytest.mark.parametrize(
    "change", [two_files, one_that_names_no_file, equal_ones, older_ones_only, all_kinds]
)
def test_deleted_rows_are_not_read(table: Lake, change: Callable[[Table], None]) -> None:
    """As iceberg-rust has it; row groups of one row each, in splits of one row group."""
    table.change(change)
    expected = [row[0] for row in table.rows("SELECT i FROM t ORDER BY i")]
    assert len(expected) < 7
    assert values(source(table)) == expected
    assert values(source(table, split_bytes=1)) == expected
    assert values(source(table, filter=[("i", ">", 1)])) == [i for i in expected if i > 1]


def test_a_command_that_looks_at_a_table_sees_the_rows_of_a_job(table: Lake) -> None:
    table.change(all_kinds)
    rows = us.IcebergSink(TABLE, catalog_properties=table.properties).letters()
    assert sorted(rows.column("i").to_pylist()) == values(source(table))


def test_rows_are_deleted_by_columns_that_are_not_selected_or_were_renamed_or_dropped(lake: Lake) -> None:
    lake.create(pa.schema([("i", pa.int64()), ("a", pa.string()), ("b", pa.int32())]))
    rows = [(1, "x", 1), (2, "x", None), (3, None, None), (4, "y", 1), (5, None, 1)]
    append(lake, pa.Table.from_pylist([{"i": i, "a": a, "b": b} for i, a, b in rows]).cast(_schema(lake)))
    gone = pa.table({"a": ["x", None], "b": pa.array([None, None], pa.int32())})
    lake.change(lambda table: delete_equal(table, gone, 2, 3))
    assert values(source(lake, columns=["i"])) == [1, 4, 5], "null is equal to null"

    def evolve(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.rename_column("a", "renamed")
            update.delete_column("b")

    lake.change(evolve)
    assert values(source(lake)) == [1, 4, 5]
    assert source(lake).schema.names == ["i", "renamed"]


def _schema(lake: Lake) -> pa.Schema:
    with lake.table() as table:
        return table.schema().as_arrow()


def vector(*positions: int) -> bytes:
    """A blob as the specification has it."""
    body = VECTOR_MAGIC + BitMap64(positions).serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


@pytest.mark.parametrize(
    "positions",
    [
        pytest.param([], id="none"),
        pytest.param([0, 5, 1 << 40], id="a few"),
        pytest.param(range(10_000), id="a run"),
        pytest.param(range(0, 200_000, 3), id="a third"),
    ],
)
def test_a_deletion_vector_has_positions(positions: Any) -> None:
    assert vector_positions(vector(*positions)).tolist() == list(positions)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda data: data[:-1], "it is no deletion vector", id="cut off"),
        pytest.param(lambda data: data[:9] + b"\7" + data[10:], "its checksum is wrong", id="changed"),
        pytest.param(lambda _: b"", "it is no deletion vector", id="empty"),
    ],
)
def test_a_damaged_deletion_vector_is_no_vector_without_rows(
    damage: Callable[[bytes], bytes], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        vector_positions(damage(vector(1, 2)))


def lake_file(path: str, sequence: int, partition: Any = (1, ("a",))) -> LakeFile:
    return LakeFile(
        path=path,
        size=1,
        rows=1,
        format="PARQUET",
        encrypted=False,
        sequence=sequence,
        partition=partition,
        constants={},
        unreadable=(),
        manifest="m.avro",
        least={},
        greatest={},
        nulls={},
    )


def deletes(path: str, sequence: int, **fields: Any) -> DeleteFile:
    given = {"partition": (1, ("a",)), "equality_ids": (), "is_equality": False, "referenced": None}
    return DeleteFile(
        path=path,
        size=1,
        sequence=sequence,
        **{"format": "PARQUET", "encrypted": False, "offset": None, "length": None, **given, **fields},
    )


EQUAL = {"is_equality": True, "equality_ids": (1,)}
VECTOR = {"format": "PUFFIN", "offset": 4, "length": 9, "referenced": "f"}


@pytest.mark.parametrize(
    ("made", "is_about"),
    [
        pytest.param(deletes("d", 5), True, id="positions of the same commit"),
        pytest.param(deletes("d", 4), False, id="positions of an earlier commit"),
        pytest.param(deletes("d", 9, partition=(1, ("b",))), False, id="positions of another partition"),
        pytest.param(deletes("d", 9, partition=(2, ("a",))), False, id="positions of another spec"),
        pytest.param(deletes("d", 9, referenced="f", partition=None), True, id="positions in this file"),
        pytest.param(deletes("d", 9, referenced="g"), False, id="positions in another file"),
        pytest.param(deletes("d", 6, **EQUAL), True, id="equality of a later commit"),
        pytest.param(deletes("d", 5, **EQUAL), False, id="equality of the same commit"),
        pytest.param(deletes("d", 6, partition=(1, ("b",)), **EQUAL), False, id="equality, elsewhere"),
        pytest.param(deletes("d", 6, partition=None, **EQUAL), True, id="equality of all partitions"),
        pytest.param(deletes("d", 5, **VECTOR), True, id="a vector"),
        pytest.param(deletes("d", 4, **VECTOR), False, id="an older vector"),
        pytest.param(deletes("d", 5, **{**VECTOR, "referenced": "g"}), False, id="a vector of another file"),
    ],
)
def test_which_deletes_are_about_a_file(made: DeleteFile, is_about: bool) -> None:
    found = DeleteIndex("t", [made]).about(lake_file("f", 5))
    assert [one.path for one in found] == ["d"] * is_about


def test_a_deletion_vector_takes_the_place_of_older_positions() -> None:
    index = DeleteIndex("t", [deletes("p", 5), deletes("v", 6, **VECTOR), deletes("e", 7, **EQUAL)])
    assert [one.path for one in index.about(lake_file("f", 5))] == ["e", "v"]
    assert [one.path for one in index.about(lake_file("g", 5))] == ["e", "p"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"format": "AVRO"}, "has deletes in AVRO, and unistream reads Parquet", id="Avro"),
        pytest.param({"format": "PUFFIN"}, "has deletes in PUFFIN", id="no place in it"),
        pytest.param({"encrypted": True}, "is encrypted", id="encrypted"),
    ],
)
def test_deletes_that_cannot_be_read_are_never_ignored(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"t: file d {message}"):
        DeleteIndex("t", [deletes("d", 5, **fields)])


def test_files_in_other_formats_are_refused(table: Lake) -> None:
    def add(now: Table) -> None:
        path = write_parquet(now, "x", numbers(1))
        file = data_file(now, path, file_format=FileFormat.ORC)
        commit_files(now, adds=[file], operation=Operation.APPEND)

    table.change(add)
    with pytest.raises(ConfigError, match=r"x.parquet has rows in ORC, and unistream reads Parquet"):
        find(source(table))


def test_deletes_by_a_field_that_is_no_plain_column_are_refused(table: Lake) -> None:
    table.change(lambda now: delete_equal(now, numbers(1), 77))
    with pytest.raises(ConfigError, match="deletes rows by the field with id 77, which is no plain column"):
        find(source(table))


def test_a_damaged_file_with_deletes_fails_the_job(table: Lake) -> None:
    def add(now: Table) -> None:
        path = write_parquet(now, "bad", pa.table({"file_path": ["x"]}))
        file = data_file(now, path, content=DataFileContent.POSITION_DELETES)
        commit_files(now, deletes=[file], operation=Operation.DELETE)

    table.change(add)
    with pytest.raises(UserCodeError, match=r"file with deletes .*bad.parquet is damaged"):
        values(source(table))


# --- columns and partitions -----------------------------------------------------------------------


def test_columns_that_were_renamed_added_widened_and_reordered_are_those_of_the_table(lake: Lake) -> None:
    """By pyiceberg's own reading, too."""
    old = pa.schema([("i", pa.int32()), ("a", pa.string()), ("gone", pa.int64())])
    lake.create(old)
    before = append(lake, pa.table([[1], ["x"], [7]], schema=old))

    def evolve(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.rename_column("a", "b").update_column("i", field_type=LongType())
            update.delete_column("gone")
        with table.update_schema() as update:
            update.add_column("a", StringType()).add_column("gone", StringType()).move_first("b")

    lake.change(evolve)
    now = pa.schema([("b", pa.string()), ("i", pa.int64()), ("a", pa.string()), ("gone", pa.string())])
    append(lake, pa.table([["y"], [1 << 40], ["new"], ["back"]], schema=now))
    assert source(lake).schema.equals(now)
    rows = sorted(read(source(lake)), key=lambda row: row["i"])
    assert rows == [
        {"b": "x", "i": 1, "a": None, "gone": None},
        {"b": "y", "i": 1 << 40, "a": "new", "gone": "back"},
    ]
    with lake.table() as table:
        assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["i"]) == rows
    assert read(source(lake, snapshot_id=before)) == [{"i": 1, "a": "x", "gone": 7}]
    assert values(source(lake, filter=[("b", "=", "x")])) == [1]
    assert values(source(lake, columns=["i"], filter=[("a", "is", None)])) == [1]


PARTITIONED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "name", StringType()),
)
SPECS = {
    "identity": PartitionField(3, 1000, IdentityTransform(), "p"),
    "bucket": PartitionField(1, 1000, BucketTransform(4), "p"),
    "day": PartitionField(2, 1000, DayTransform(), "p"),
    "truncate": PartitionField(3, 1000, TruncateTransform(1), "p"),
}
NAMES = ["ab", "ac", "b", None]


def events() -> pa.Table:
    days = [NOON + dt.timedelta(days=i % 3) for i in range(12)]
    return pa.table(
        {
            "id": pa.array(range(12), pa.int64()),
            "at": pa.array(days, pa.timestamp("us", "UTC")),
            "name": pa.array([NAMES[i % 4] for i in range(12)]),
        }
    )


@pytest.mark.parametrize(
    ("by", "given", "files"),
    [
        pytest.param("identity", [("name", "=", "b")], 1, id="identity"),
        pytest.param("identity", [("name", "is", None)], 1, id="identity of null"),
        pytest.param("identity", [("name", "in", ["ab", "b"])], 2, id="several values"),
        pytest.param("bucket", [("id", "=", 3)], 1, id="bucket"),
        pytest.param("day", [("at", ">=", "2026-01-03T00:00:00Z")], 1, id="day"),
        pytest.param("day", [("at", "<", NOON + dt.timedelta(days=1))], 1, id="day, by a datetime"),
        pytest.param("truncate", [("name", "=", "ab")], 1, id="truncate"),
        pytest.param("truncate", [("name", ">", "a")], 2, id="a range of texts"),
        pytest.param("day", [[("id", "=", 0)], [("name", "=", "b")]], 3, id="any of two columns"),
    ],
)
def test_files_of_other_partitions_are_not_opened(lake: Lake, by: str, given: Any, files: int) -> None:
    lake.create(PARTITIONED, partition_spec=PartitionSpec(SPECS[by]))
    append(lake, events())
    filtered = source(lake, filter=given)
    assert len(parts(find(filtered).splits)) == files
    groups = given if isinstance(given[0], list) else [given]
    expected = [row["id"] for row in events().to_pylist() if any(_holds(row, one) for one in groups)]
    assert values(filtered, column="id") == expected


def _holds(row: dict[str, Any], conditions: list[tuple[str, str, Any]]) -> bool:
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda a, b: a == b,
        "<": lambda a, b: a is not None and a < b,
        ">": lambda a, b: a is not None and a > b,
        ">=": lambda a, b: a is not None and a >= b,
        "in": lambda a, b: a in b,
        "is": lambda a, _: a is None,
    }
    return all(
        compare[op](
            row[name], dt.datetime.fromisoformat(value) if name == "at" and isinstance(value, str) else value
        )
        for name, op, value in conditions
    )


def test_a_table_whose_partitions_have_changed_is_read_whole(lake: Lake) -> None:
    lake.create(PARTITIONED, partition_spec=PartitionSpec(SPECS["identity"]))
    append(lake, events())

    def respec(table: Table) -> None:
        with table.update_spec() as update:
            update.remove_field("p")
            update.add_field("id", BucketTransform(2), "q")

    lake.change(respec)
    append(lake, events())
    assert values(source(lake), column="id") == sorted([*range(12)] * 2)
    assert values(source(lake, filter=[("name", "=", "b"), ("id", "=", 2)]), column="id") == [2, 2]
    lake.change(lambda table: _drop(table, "name"))
    assert values(source(lake, filter=[("id", "<", 2)]), column="id") == [0, 0, 1, 1]


def _drop(table: Table, column: str) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column)


def test_files_that_other_engines_wrote_are_read_by_names_and_values_of_partitions(
    lake: Lake, tmp_path: Path
) -> None:
    """As a table that was migrated from Hive: no field ids, and no columns of partitions in the files."""
    lake.create(PARTITIONED, partition_spec=PartitionSpec(SPECS["identity"]))

    def add(table: Table) -> None:
        table.transaction().set_properties(
            {"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()}
        ).commit_transaction()
        path = write_parquet(table, "hive", pa.table({"id": [7], "at": [NOON]}))
        commit_files(table, adds=[data_file(table, path, partition=Record("b"))], operation=Operation.APPEND)

    lake.change(add)
    assert read(source(lake)) == [{"id": 7, "at": NOON, "name": "b"}]
    assert values(source(lake, filter=[("name", "=", "c")]), column="id") == []
    assert values(source(lake, filter=[("name", "=", "b")]), column="id") == [7]


def test_event_times_are_in_the_statistics_or_in_the_footers(lake: Lake) -> None:
    lake.create(PARTITIONED, properties={"write.metadata.metrics.column.name": "none"})
    append(lake, events())
    noon_ms = int(NOON.timestamp() * 1000)
    given = source(lake)
    assert [split.min_timestamp for split in find(given, column="at").splits] == [noon_ms]
    assert isinstance(given, WithEventTimeSpan)
    assert given.event_time_span("at") == (noon_ms, noon_ms + 2 * 86_400_000)
    assert given.event_time_span("name") is None
    assert isinstance(given, WithTimeRange)
    within = given.within("at", TimeRange(begin_ms=noon_ms + 1, end_ms=noon_ms + 86_400_001))
    assert values(within, column="id") == [1, 4, 7, 10]
    assert given.within("id", TimeRange(begin_ms=0, end_ms=1)) is given


def test_a_large_file_is_read_by_row_groups(lake: Lake) -> None:
    lake.create(numbers().schema, properties={"write.parquet.row-group-limit": "2"})
    append(lake, numbers(*range(7)))
    given = source(lake, split_bytes=1)
    splits = find(given, column="i").splits
    assert [(one.start, one.stop) for one in parts(splits)] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [split.min_timestamp for split in splits] == [0, 2, 4, 6]
    assert values(given, splits[1:3]) == [2, 3, 4, 5]


def test_row_groups_that_the_pipeline_drops_are_not_decoded_where_names_are_those_of_the_file(
    lake: Lake,
) -> None:
    lake.create(numbers().schema, properties={"write.parquet.row-group-limit": "2"})
    append(lake, numbers(*range(7)))
    selected = source(lake).reading_rows(Selection(pc.field("i") > 4, ("i",)))
    assert values(selected) == [4, 5, 6]
    lake.change(lambda table: _rename(table, "i", "n"))
    renamed = source(lake).reading_rows(Selection(pc.field("n") > 4, ("n",)))
    assert values(renamed, column="n") == list(range(7)), "the operator drops them"


def _rename(table: Table, old: str, new: str) -> None:
    with table.update_schema() as update:
        update.rename_column(old, new)


def test_all_types_are_read_as_they_were_written(lake: Lake) -> None:
    row = {
        "b": True,
        "i": -1,
        "l": 1 << 40,
        "f": 0.5,
        "d": 0.1,
        "dec": Decimal("-1.25"),
        "day": NOON.date(),
        "t": dt.time(1, 2, 3, 4),
        "ts": NOON.replace(tzinfo=None),
        "tz": NOON,
        "s": "ü",
        "u": uuid.UUID(int=5),
        "fix": b"ab",
        "bin": b"\0",
        "st": {"x": 1, "y": [{"z": "deep"}]},
        "ls": [1, None],
        "m": [("k", 1.5)],
    }
    schema = pa.schema(
        {
            "b": pa.bool_(),
            "i": pa.int32(),
            "l": pa.int64(),
            "f": pa.float32(),
            "d": pa.float64(),
            "dec": pa.decimal128(9, 2),
            "day": pa.date32(),
            "t": pa.time64("us"),
            "ts": pa.timestamp("us"),
            "tz": pa.timestamp("us", "UTC"),
            "s": pa.string(),
            "u": pa.uuid(),
            "fix": pa.binary(2),
            "bin": pa.binary(),
            "st": pa.struct({"x": pa.int64(), "y": pa.list_(pa.struct({"z": pa.string()}))}),
            "ls": pa.list_(pa.int64()),
            "m": pa.map_(pa.string(), pa.float64()),
        }
    )
    nothing = dict.fromkeys(row)
    lake.create(schema)
    lake.change(lambda table: table.append(pa.Table.from_pylist([row, nothing], schema)))
    assert source(lake).schema.names == schema.names
    assert read(source(lake)) == [row, nothing]
    for name in ("dec", "day", "ts", "tz", "s", "b", "i"):
        assert read(source(lake, columns=[name], filter=[(name, "=", row[name])])) == [{name: row[name]}]


def with_fields(lake: Lake, *fields: dict[str, Any]) -> None:
    """pyiceberg does not write such a table; its metadata are those of another engine."""
    lake.create(numbers().schema)
    append(lake, numbers(1))
    with lake.table() as table:
        path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata |= {"format-version": 3, "next-row-id": 1, "last-column-id": 1 + len(fields)}
    [held] = [one["fields"] for one in metadata["schemas"]]
    held += [{"id": 2 + n, "required": False, **field} for n, field in enumerate(fields)]
    path.write_text(json.dumps(metadata))


def test_default_values_of_version_3_are_those_of_rows_that_are_older(lake: Lake) -> None:
    with_fields(
        lake,
        {"name": "day", "type": "date", "required": True, "initial-default": "2026-01-01"},
        {"name": "dec", "type": "decimal(5, 2)", "initial-default": "1.25"},
        {"name": "ns", "type": "timestamp_ns"},
    )
    assert read(source(lake)) == [{"i": 1, "day": NOON.date(), "dec": Decimal("1.25"), "ns": None}]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        pytest.param({"type": "geometry"}, "column 'x' is geometry, .* select others", id="without a form"),
        pytest.param(
            {"type": "variant"}, "loading it was refused: Unsupported field type: 'variant'", id="new"
        ),
        pytest.param(
            {"type": "timestamp_ns", "initial-default": "2026-01-01T00:00:00.000000001"},
            "loading it was refused: .*timestamp_ns not supported",
            id="a default that pyiceberg does not know",
        ),
    ],
)
def test_types_of_version_3_that_cannot_be_read_are_named(
    lake: Lake, field: dict[str, Any], message: str
) -> None:
    """And no outage, after which it would be tried again."""
    with_fields(lake, {"name": "x", **field})
    with pytest.raises(ConfigError, match=message):
        _ = source(lake).schema


# --- files that go --------------------------------------------------------------------------------


def test_a_file_that_was_removed_or_changed_before_it_was_read_is_named(table: Lake) -> None:
    splits = find(source(table)).splits
    [*_, last] = [Path(one.path.removeprefix("file://")) for one in parts(splits)]
    last.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"parquet has 0 B, and \d+ B in the manifest: it is damaged"):
        values(source(table), splits)
    last.unlink()
    with pytest.raises(ConfigError, match="parquet does not exist: its snapshot has expired"):
        values(source(table), splits)


def test_a_compacted_table_has_the_same_rows(table: Lake) -> None:
    first = head(table)
    table.change(compact)
    assert len(find(source(table)).splits) == 1
    assert values(source(table)) == values(source(table, snapshot_id=first)) == [0, 1, 2, 3, 4, 5]
