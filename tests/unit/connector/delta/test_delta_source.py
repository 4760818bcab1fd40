"""One version of a Delta table: which rows it has, which files are read, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.unit.connector.delta.delta_tables import (
    actions_of,
    after,
    append,
    commit,
    find,
    numbers,
    of_row_groups,
    parts,
    read,
    rewrite,
    values,
)
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.delta import DeltaSource
from unistream.port.projection import Selection

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


# --- versions -----------------------------------------------------------------------------------------


@pytest.fixture
def grown(table: Path) -> Path:
    """Version n has the rows up to n; it was written at noon plus n minutes."""
    for n in range(4):
        append(table, numbers(n))
        at_s = (NOON + dt.timedelta(minutes=n)).timestamp()
        os.utime(table / "_delta_log" / f"{n:020d}.json", (at_s, at_s))
    return table


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, [0, 1, 2, 3], id="the newest"),
        pytest.param({"version": 1}, [0, 1], id="by number"),
        pytest.param({"version": 0}, [0], id="the first"),
        pytest.param({"timestamp": "2026-01-01T12:01:00Z"}, [0, 1], id="at the moment of a commit"),
        pytest.param({"timestamp": "2026-01-01T12:01:59.999"}, [0, 1], id="before the next; UTC is meant"),
        pytest.param({"timestamp": NOON + dt.timedelta(minutes=2)}, [0, 1, 2], id="a datetime"),
        pytest.param({"timestamp": "2026-01-01T14:01:00+01:00"}, [0, 1, 2, 3], id="after the last commit"),
    ],
)
def test_the_rows_of_a_version(grown: Path, given: dict[str, Any], expected: list[int]) -> None:
    assert values(DeltaSource(str(grown), **given)) == expected


def test_splits_know_their_rows_by_the_log_or_the_footer(grown: Path) -> None:
    for split_bytes in (1, 1_000_000):
        source = DeltaSource(str(grown), split_bytes=split_bytes)
        assert [split.rows for split in create_discovery(source.info()).discover()] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"version": 4}, r"has no version 4; its newest is 3", id="a version to come"),
        pytest.param(
            {"timestamp": "2026-01-01T11:59:59Z"},
            r"not known as of 2026-01-01T11:59:59.000\+00:00: the first version in its log is 0 of "
            r"2026-01-01T12:00:00.000\+00:00",
            id="before the table",
        ),
        pytest.param({"columns": ["i", "j"]}, r"version 3 has no column 'j'; there are i$", id="a column"),
        pytest.param({"filter": [("j", "=", 1)]}, r"filter names column 'j'; there are i$", id="a filter"),
    ],
)
def test_what_a_table_does_not_have_is_named_on_the_client(
    grown: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"table {grown}.*{message}"):
        _ = DeltaSource(str(grown), **given).schema


def test_times_of_commits_that_are_written_in_them_win_over_those_of_their_files(grown: Path) -> None:
    """Files of a table that was copied are all of the same time."""
    for n in range(4):
        at_ms = int((NOON + dt.timedelta(hours=n)).timestamp() * 1000)
        rewrite(grown, n, {"commitInfo": {"inCommitTimestamp": at_ms}})
    rewrite(
        grown,
        0,
        {"metaData": {"configuration": {"delta.enableInCommitTimestamps": "true"}}}
        | {"protocol": {"minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}},
    )
    assert values(DeltaSource(str(grown), timestamp="2026-01-01T13:30:00Z")) == [0, 1]


def test_a_version_whose_log_was_cleaned_up_is_named(grown: Path) -> None:
    DeltaTable(str(grown)).create_checkpoint()
    for n in range(3):
        (grown / "_delta_log" / f"{n:020d}.json").unlink()
    assert values(DeltaSource(str(grown), version=3)) == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match=rf"table {grown}: version 1 cannot be read any more: its log was"):
        _ = DeltaSource(str(grown), version=1).schema


def test_what_is_written_after_the_splits_were_found_is_not_read(table: Path) -> None:
    append(table, numbers(1, 2))
    source = DeltaSource(str(table))
    splits = find(source).splits
    append(table, numbers(3))
    DeltaTable(str(table)).optimize.compact()
    assert values(source, splits) == [1, 2]
    assert {part.version for part in parts(splits)} == {0}


def test_a_removed_file_is_not_read(table: Path) -> None:
    for n in range(3):
        append(table, numbers(n))
    DeltaTable(str(table)).delete("i = 1")
    assert values(DeltaSource(str(table))) == [0, 2]
    assert values(DeltaSource(str(table), version=2)) == [0, 1, 2]


# --- columns ------------------------------------------------------------------------------------------


MANY = pa.table(
    {
        "text": pa.array(["a", None, "c"]),
        "flag": pa.array([True, False, None]),
        "small": pa.array([1, None, 3], pa.int16()),
        "number": pa.array([1.5, None, -2.5]),
        "money": pa.array([Decimal("1.10"), None, Decimal("-3.30")], pa.decimal128(12, 2)),
        "day": pa.array([dt.date(2026, 1, 1), None, dt.date(1969, 12, 31)]),
        "at": pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
        "bytes": pa.array([b"a", None, b""]),
        "list": pa.array([[1, None], None, []]),
        "pair": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)


def test_every_type_comes_as_it_is_in_the_table(table: Path) -> None:
    append(table, MANY)
    source = DeltaSource(str(table))
    assert source.schema.names == MANY.schema.names
    assert read(source) == MANY.to_pylist()


@pytest.mark.parametrize(
    "columns", [["at", "text"], ["small"], ["pair", "list"]], ids=["another order", "one", "nested"]
)
def test_columns_are_those_that_were_asked_for(table: Path, columns: list[str]) -> None:
    append(table, MANY)
    source = DeltaSource(str(table), columns=columns)
    assert source.schema.names == columns
    assert read(source) == MANY.select(columns).to_pylist()


PARTITIONED = pa.table(
    {
        "text": pa.array(["x y", "z%/é=", None, "1"]),
        "day": pa.array([dt.date(2026, 1, 1), dt.date(2026, 1, 2), None, dt.date(2026, 1, 2)]),
        "at": pa.array([NOON + dt.timedelta(microseconds=8), None, NOON, NOON], pa.timestamp("us", "UTC")),
        "flag": pa.array([True, False, None, True]),
        "small": pa.array([1, None, -3, 1], pa.int32()),
        "number": pa.array([1.5, 2.25, None, -1e30]),
        "money": pa.array([Decimal("1.10"), None, Decimal("3.30"), Decimal("0")], pa.decimal128(12, 2)),
        "i": pa.array([1, 2, 3, 4]),
    }
)


@pytest.mark.parametrize(
    "columns", [None, ["day", "i"], ["text"]], ids=["all", "one of the partition", "none of the file"]
)
def test_values_of_partition_columns_come_from_the_log(table: Path, columns: list[str] | None) -> None:
    append(table, PARTITIONED, partition_by=PARTITIONED.schema.names[:-1])
    expected = PARTITIONED.select(columns or PARTITIONED.schema.names).to_pylist()
    found = read(DeltaSource(str(table), columns=columns))
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_columns_that_a_file_does_not_have_are_null(table: Path) -> None:
    append(table, numbers(1))
    append(table, pa.table({"i": [2], "j": ["new"], "s": [{"a": 1}]}), schema_mode="merge")
    append(table, pa.table({"i": [3], "s": [{"a": 2, "b": "nested"}]}), schema_mode="merge")
    assert sorted(read(DeltaSource(str(table))), key=lambda row: row["i"]) == [
        {"i": 1, "j": None, "s": None},
        {"i": 2, "j": "new", "s": {"a": 1, "b": None}},
        {"i": 3, "j": None, "s": {"a": 2, "b": "nested"}},
    ]
    assert read(DeltaSource(str(table), columns=["j"], filter=[("j", "is", None)])) == [{"j": None}] * 2
    assert read(DeltaSource(str(table), version=0)) == [{"i": 1}]


def test_narrower_types_and_times_of_old_writers_are_converted(table: Path) -> None:
    """INT96 has neither a unit nor a zone, and holds times that nanoseconds do not."""
    append(
        table, pa.table({"i": pa.array([1], pa.int64()), "at": pa.array([NOON], pa.timestamp("us", "UTC"))})
    )
    far = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
    old = pa.table({"i": pa.array([2, 3], pa.int32()), "at": pa.array([NOON, far], pa.timestamp("us"))})
    pq.write_table(old, table / "old.parquet", use_deprecated_int96_timestamps=True)
    add = {"path": "old.parquet", "size": (table / "old.parquet").stat().st_size, "partitionValues": {}}
    commit(table, 1, [{"add": {**add, "modificationTime": 1, "dataChange": True}}])
    rows = sorted(read(DeltaSource(str(table))), key=lambda row: row["i"])
    assert rows == [{"i": 1, "at": NOON}, {"i": 2, "at": NOON}, {"i": 3, "at": far}]
    [first, second] = find(DeltaSource(str(table)), column="at").splits
    noon_ms = int(NOON.timestamp() * 1000)
    assert {first.min_timestamp, second.min_timestamp} == {noon_ms, None}


def test_a_file_of_another_type_is_named(table: Path) -> None:
    append(table, numbers(1))
    pq.write_table(pa.table({"i": ["many"]}), table / "bad.parquet")
    add = {"path": "bad.parquet", "size": (table / "bad.parquet").stat().st_size, "partitionValues": {}}
    commit(table, 1, [{"add": {**add, "modificationTime": 1, "dataChange": True}}])
    with pytest.raises(
        UserCodeError, match=r"file bad.parquet: column 'i' is string and cannot be read as int64"
    ):
        read(DeltaSource(str(table)))


# --- filters ------------------------------------------------------------------------------------------


def paths(source: DeltaSource) -> int:
    return len({part.path for part in parts(find(source).splits)})


@pytest.mark.parametrize(
    ("given", "expected", "files"),
    [
        pytest.param([("i", ">=", 15)], list(range(15, 30)), 2, id="by the statistics of files"),
        pytest.param([("part", "=", "b")], list(range(10, 20)), 1, id="by the partition"),
        pytest.param([("part", "is", None)], list(range(20, 30)), 1, id="by a null partition"),
        pytest.param([("part", "!=", "b")], list(range(10)), 1, id="null is not unequal"),
        pytest.param(
            [[("i", "<", 2)], [("part", "is", None), ("i", ">", 27)]], [0, 1, 28, 29], 2, id="either"
        ),
        pytest.param([("i", "=", 99)], [], 0, id="nothing"),
        pytest.param([("at", ">", NOON + dt.timedelta(seconds=18, milliseconds=1))], [], 1, id="cut times"),
        pytest.param([("at", ">=", NOON + dt.timedelta(seconds=18))], [18, 19], 1, id="times"),
        pytest.param([("name", "=", "45" * 30)], [], 1, id="long texts"),
        pytest.param([("i", "in", [3, 14]), ("name", "!=", "3" * 30)], [14], 2, id="both"),
    ],
)
def test_a_filter_selects_rows_and_rules_out_files(
    table: Path, given: Any, expected: list[int], files: int
) -> None:
    for start, part in ((0, "a"), (10, "b"), (20, None)):
        rows = range(start, start + 10)
        at = [NOON + dt.timedelta(seconds=i) for i in rows] if part == "b" else [None] * 10
        append(
            table,
            pa.table(
                {
                    "i": pa.array(rows),
                    "part": pa.array([part] * 10, pa.string()),
                    "at": pa.array(at, pa.timestamp("us", "UTC")),
                    "name": [str(i) * 30 for i in rows],
                }
            ),
            partition_by=["part"],
        )
    source = DeltaSource(str(table), columns=["i"], filter=given)
    if any(isinstance(one, tuple) and one[0] == "at" and not expected for one in given):
        assert values(source) == [19]
        return
    assert values(source) == expected
    assert paths(source) == files


def test_times_that_python_does_not_have_are_read_and_rule_nothing_out(table: Path) -> None:
    far = 500_000_000_000_000_000  # of the year 17,814
    at = pa.array([far, -far, 5_000], pa.timestamp("us", "UTC"))
    append(table, pa.table({"i": [1, 2, 3], "at": at}))
    pq.write_table(pa.table({"i": [4], "at": at[:1]}), table / "far.parquet")
    add = {"path": "far.parquet", "size": (table / "far.parquet").stat().st_size, "partitionValues": {}}
    commit(table, 1, [{"add": {**add, "modificationTime": 1, "dataChange": True}}])
    for options in ({}, {"bounded": False, "starting_version": 0}):
        source = DeltaSource(str(table), columns=["i"], filter=[("at", ">=", "1970-01-01")], **options)
        assert values(source) == [1, 3, 4]


def test_row_groups_without_selected_rows_are_not_decoded(table: Path) -> None:
    """The pages of the others are damaged."""
    append(table, numbers(*range(300)), **of_row_groups(100))
    [file] = table.glob("*.parquet")
    first = pq.read_metadata(file).row_group(0).column(0)
    with open(file, "r+b") as content:
        content.seek(first.dictionary_page_offset or first.data_page_offset)
        content.write(b"\0" * first.total_compressed_size)
    selected = [("i", ">=", 250)]
    assert values(DeltaSource(str(table), filter=selected)) == list(range(250, 300))
    with pytest.raises(UserCodeError, match=f"table {table}: file {file.name}: unreadable Parquet"):
        read(DeltaSource(str(table)))


def test_row_groups_and_partitions_of_which_all_rows_are_dropped_are_not_decoded(table: Path) -> None:
    """The pages of the others are damaged."""
    rows = pa.table({"i": range(300), "part": ["a"] * 200 + ["b"] * 100})
    append(table, rows, partition_by=["part"], **of_row_groups(100))
    for file, group in ((next((table / "part=a").iterdir()), 0), (next((table / "part=b").iterdir()), 0)):
        first = pq.read_metadata(file).row_group(group).column(0)
        with open(file, "r+b") as content:
            content.seek(first.dictionary_page_offset or first.data_page_offset)
            content.write(b"\0" * first.total_compressed_size)
    selected = Selection((pc.field("i") >= 150) & (pc.field("part") == "a"), ("i", "part"))
    source = DeltaSource(str(table))
    assert values(source.reading_rows(selected)) == list(range(100, 200))
    with pytest.raises(UserCodeError, match="unreadable Parquet"):
        values(source.reading_rows(Selection(pc.field("part") == "a", ("part",))))


def test_statistics_of_decimals_in_the_log_are_not_trusted(table: Path) -> None:
    """Some writers round them to floating-point numbers."""
    exact = Decimal("12345678901234567.89")
    append(table, pa.table({"i": [1], "m": pa.array([exact], pa.decimal128(20, 2))}))
    assert values(DeltaSource(str(table), filter=[("m", "=", exact)])) == [1]


# --- splits -------------------------------------------------------------------------------------------


def test_a_small_file_is_one_split_and_a_large_one_is_divided_by_row_groups(table: Path) -> None:
    append(table, numbers(*range(10)))
    append(table, numbers(*range(10_000)), **of_row_groups(1_000))
    small, *large = sorted(
        parts(find(DeltaSource(str(table), split_bytes=5_000)).splits), key=lambda p: p.size
    )
    assert (small.start, small.stop) == (0, None)
    assert len(large) > 2
    assert [part.start for part in large] == [0, *(part.stop for part in large[:-1])]
    assert large[-1].stop == 10
    assert small.length == small.size
    assert 0.8 * large[0].size < sum(part.length for part in large) <= large[0].size
    assert values(DeltaSource(str(table), split_bytes=5_000)) == sorted([*range(10), *range(10_000)])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        pytest.param("ms", [1_000, 2_000], id="int64 is milliseconds"),
        pytest.param("at", [1_000, 2_000], id="a time, cut to milliseconds"),
        pytest.param("local", [1_000, 2_000], id="a local time"),
        pytest.param("day", [86_400_000, 172_800_000], id="a date"),
        pytest.param("part", [86_400_000, 172_800_000], id="a partition"),
    ],
)
@pytest.mark.parametrize("logged", [True, False], ids=["in the log", "in the footer"])
def test_the_least_event_time_of_a_file(table: Path, column: str, expected: list[int], logged: bool) -> None:
    for n in (1, 2):
        at = dt.datetime(1970, 1, 1, 0, 0, n, 999, tzinfo=dt.UTC)
        day = dt.date(1970, 1, 1 + n)
        append(
            table,
            pa.table(
                {
                    "ms": pa.array([n * 1_000, n * 1_000 + 5]),
                    "at": pa.array([at, at], pa.timestamp("us", "UTC")),
                    "local": pa.array([at.replace(tzinfo=None)] * 2, pa.timestamp("us")),
                    "day": [day, day],
                    "part": [day, day],
                }
            ),
            partition_by=["part"],
        )
        if not logged:
            rewrite(table, n - 1, {"add": {"stats": None}})
    found = find(DeltaSource(str(table)), column=column).splits
    assert sorted(split.min_timestamp for split in found) == expected
    assert all(part.min_timestamp is not None for part in parts(found)), "it is in the snapshots of readers"


def test_without_statistics_nothing_is_known_of_event_times(table: Path) -> None:
    append(table, numbers(5, 6), writer_properties=of_row_groups(10)["writer_properties"])
    pq.write_table(numbers(5, 6), table / "bare.parquet", write_statistics=False)
    add = {"path": "bare.parquet", "size": (table / "bare.parquet").stat().st_size, "partitionValues": {}}
    commit(table, 1, [{"add": {**add, "modificationTime": 1, "dataChange": True}}])
    assert {split.min_timestamp for split in find(DeltaSource(str(table)), column="i").splits} == {5, None}


def test_row_groups_of_a_large_file_that_overlap_in_time_are_apart(table: Path) -> None:
    append(table, numbers(0, 9, 10, 19, 15, 29, 5, 6), **of_row_groups(2))
    found = parts(find(DeltaSource(str(table), split_bytes=1), column="i").splits)
    assert [(part.start, part.stop, part.min_timestamp) for part in found] == [
        (0, 1, 0),
        (1, 2, 10),
        (2, 3, 15),
        (3, 4, 5),
    ]


# --- what is refused ----------------------------------------------------------------------------------


def add_feature(table: Path, feature: str) -> None:
    rewrite(
        table,
        0,
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [feature],
                "writerFeatures": [feature],
            }
        },
    )


def schema_of(table: Path) -> dict[str, Any]:
    return next(
        json.loads(action["metaData"]["schemaString"])
        for action in actions_of(table, 0)
        if "metaData" in action
    )


def test_a_feature_that_is_not_known_is_refused(table: Path) -> None:
    append(table, numbers(1))
    add_feature(table, "rowsInTheMoon")
    with pytest.raises(ConfigError, match=rf"table {table} .*rowsInTheMoon"):
        _ = DeltaSource(str(table)).schema


def test_a_variant_is_refused_and_the_other_columns_are_read(table: Path) -> None:
    append(table, numbers(1))
    add_feature(table, "variantType")
    schema = schema_of(table)
    schema["fields"].append({"name": "v", "type": "variant", "nullable": True, "metadata": {}})
    rewrite(table, 0, {"metaData": {"schemaString": json.dumps(schema)}})
    with pytest.raises(ConfigError, match=r"column 'v' is a variant, which has no form in Arrow"):
        _ = DeltaSource(str(table)).schema
    assert values(DeltaSource(str(table), columns=["i"])) == [1]


def test_a_type_that_nobody_knows_is_refused(table: Path) -> None:
    append(table, numbers(1))
    schema = schema_of(table)
    schema["fields"].append({"name": "v", "type": "interval", "nullable": True, "metadata": {}})
    rewrite(table, 0, {"metaData": {"schemaString": json.dumps(schema)}})
    with pytest.raises(ConfigError, match=rf"table {table} cannot be read: .*'interval'"):
        _ = DeltaSource(str(table)).schema


def test_a_damaged_footer_is_named_when_it_is_needed(table: Path) -> None:
    append(table, numbers(1))
    [file] = table.glob("*.parquet")
    content = file.read_bytes()
    for damaged in (content[:-40] + b"\0" * 40, content[:-60] + b"\xff" * 30 + content[-30:]):
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match=f"file {file.name} is no Parquet file"):
            find(DeltaSource(str(table), split_bytes=1))
        with pytest.raises(UserCodeError, match=f"file {file.name}: unreadable Parquet"):
            read(DeltaSource(str(table)))


def test_a_partition_value_that_is_none_of_its_type_is_named(table: Path) -> None:
    append(table, pa.table({"i": [1], "part": [5]}), partition_by=["part"])
    source = DeltaSource(str(table), bounded=False)
    found = find(source)
    assert read(source, found.splits) == [{"i": 1, "part": 5}]
    [add] = [action for action in actions_of(table, 0) if "add" in action]
    add["add"]["partitionValues"] = {"part": "five"}
    commit(table, 1, [add])
    with pytest.raises(ConfigError, match=r"partition column 'part' is 'five' in the log, which is no int64"):
        read(source, find(source, after(found)).splits)
    with pytest.raises(ConfigError, match=r"cannot be read: .*Failed to parse value 'five'"):
        _ = DeltaSource(str(table)).schema


def test_a_timestamp_column_that_is_no_time_is_the_readers_to_refuse(table: Path) -> None:
    append(table, pa.table({"at": ["noon"]}))
    assert [split.min_timestamp for split in find(DeltaSource(str(table)), column="at").splits] == [None]


def test_a_file_outside_of_the_table_is_refused(table: Path, tmp_path: Path) -> None:
    append(table, numbers(1))
    pq.write_table(numbers(2), tmp_path / "other.parquet")
    size = (tmp_path / "other.parquet").stat().st_size
    for n, path in enumerate(
        (f"file://{tmp_path}/other.parquet", f"{tmp_path}/other.parquet", "../other.parquet")
    ):
        add = {"path": path, "size": size, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
        commit(table, 1, [{"add": add}])
        with pytest.raises(
            ConfigError, match=rf"table {table} has files outside of its folder \(.*other.parq"
        ):
            find(DeltaSource(str(table), bounded=bool(n % 2)))
        with pytest.raises(ConfigError, match=r"has files outside of its folder"):
            find(DeltaSource(str(table), bounded=False, starting_version=1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda _: None, "there is no Delta table at", id="nothing"),
        pytest.param(Path.mkdir, "there is no Delta table at", id="an empty folder"),
        pytest.param(
            lambda path: (path / "_delta_log").mkdir(parents=True), "no Delta table", id="an empty log"
        ),
        pytest.param(lambda path: path.write_text("x"), "cannot be read", id="a file"),
    ],
)
def test_a_path_without_a_table_is_named(table: Path, make: Any, message: str) -> None:
    make(table)
    with pytest.raises(ConfigError, match=rf"{message}.*") as raised:
        _ = DeltaSource(str(table)).schema
    assert str(table) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_was_vacuumed_is_named_with_what_to_do(table: Path) -> None:
    append(table, numbers(1))
    source = DeltaSource(str(table))
    splits = find(source).splits
    DeltaTable(str(table)).delete()
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(
        ConfigError, match=r"of version 0 does not exist: VACUUM.*deletedFileRetentionDuration"
    ):
        read(source, splits)


def test_a_file_of_another_size_is_named(table: Path) -> None:
    append(table, numbers(1))
    [file] = table.glob("*.parquet")
    size = file.stat().st_size
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(
        ConfigError, match=rf"file {file.name} of version 0 has {size + 1} B, and {size} B in"
    ):
        read(DeltaSource(str(table)))


def test_a_table_that_changed_its_columns_between_client_and_master_is_refused(table: Path) -> None:
    append(table, numbers(1))
    source = DeltaSource(str(table))
    assert source.schema.names == ["i"]
    append(table, pa.table({"i": [2], "j": [1]}), schema_mode="merge")
    assert values(source) == [1, 2], "a column more is no matter"
    shutil.rmtree(table)
    append(table, pa.table({"i": ["text"]}))
    with pytest.raises(ConfigError, match=r"version 0: column 'i' is string now, and was int64 when the job"):
        find(source)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"table_uri": ""}, "needs the path or URL", id="no path"),
        pytest.param(
            {"table_uri": "https://host/t"}, "Delta tables are stored on .*not on 'https'", id="scheme"
        ),
        pytest.param(
            {"version": 1, "timestamp": NOON}, "one place, not at version and timestamp", id="two versions"
        ),
        pytest.param({"version": -1}, "version must be the number of a version, not -1", id="negative"),
        pytest.param(
            {"version": "latest"}, "version must be the number of a version, not 'latest'", id="text"
        ),
        pytest.param({"timestamp": "noon"}, "timestamp must be a time such as .*not 'noon'", id="no time"),
        pytest.param({"timestamp": 5}, "timestamp must be a time such as .*not 5", id="a number"),
        pytest.param(
            {"starting_version": 0}, "starting_version: only for .*bounded=False", id="start, bounded"
        ),
        pytest.param({"starting_timestamp": NOON}, "starting_timestamp: only for", id="start time, bounded"),
        pytest.param({"ignore_deletes": True}, "ignore_deletes: only for", id="deletes, bounded"),
        pytest.param({"ignore_changes": True}, "ignore_changes: only for", id="changes, bounded"),
        pytest.param(
            {"bounded": False, "starting_version": 0, "version": 0},
            "at one place, not at",
            id="a version and a start",
        ),
        pytest.param(
            {"bounded": False, "starting_version": 1, "starting_timestamp": NOON},
            "at one place, not at",
            id="two starts",
        ),
        pytest.param(
            {"bounded": False, "starting_version": "first"},
            "starting_version must be the number of a version or \"latest\", not 'first'",
            id="an unknown start",
        ),
        pytest.param({"columns": []}, "columns of a Delta source must be at least one", id="no columns"),
        pytest.param({"columns": ["i", "i"]}, "each once", id="a column twice"),
        pytest.param({"filter": "i > 3"}, "DeltaSource: a filter is a list", id="a filter in SQL"),
        pytest.param({"split_bytes": 0}, "must be above 0", id="split_bytes"),
        pytest.param({"bounded": False, "discovery_interval_ms": 0}, "must be above 0", id="interval"),
    ],
)
def test_bad_arguments_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeltaSource(**({"table_uri": "/lake/t"} | given))


def test_secrets_are_not_shown(table: Path) -> None:
    source = DeltaSource(
        str(table), storage_options={"AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "here"}
    )
    assert "hunter2" not in repr(source)
    assert "here" in repr(source)


def test_a_source_is_its_configuration(table: Path) -> None:
    append(table, numbers(1, 2))
    source = DeltaSource(str(table), columns=["i"], filter=[("i", ">", 1)])
    arrived = cloudpickle.loads(cloudpickle.dumps(source))
    assert arrived.info() == source.info()
    assert values(arrived) == [2]
    assert source.table_uri == str(table)
