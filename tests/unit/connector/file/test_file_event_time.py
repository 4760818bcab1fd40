"""What a file source says of the event times of its splits before they are read."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unistream.connector.catalogue import create_discovery
from unistream.connector.common import decoded_split
from unistream.connector.file import FileSource
from unistream.connector.file.split import FileSplit, encode_split
from unistream.model.messages import Split


def discovered(source: FileSource, column: str) -> list[Split]:
    schema = source.schema
    info = msgspec.structs.replace(
        source.info(), timestamp_column=column, timestamp_type=str(schema.field(column).type)
    )
    return list(create_discovery(info).discover())


def parts(splits: list[Split]) -> list[tuple[int, int, int | None]]:
    found = [(decoded_split(split, FileSplit, "file"), split.min_timestamp) for split in splits]
    return [(split.start, split.stop, least) for split, least in found]


def write(path: Path, values: pa.Array, rows: int) -> str:
    """A file with row groups of so many rows."""
    pq.write_table(pa.table({"at": values}), path, row_group_size=rows)
    return str(path)


@pytest.mark.parametrize(
    ("values", "least"),
    [
        pytest.param(pa.array([7, -3], pa.int64()), -3, id="int64 is milliseconds"),
        pytest.param(pa.array([2, 1], pa.timestamp("s")), 1_000, id="seconds, which Parquet does not have"),
        pytest.param(pa.array([7, 5], pa.timestamp("ms", "UTC")), 5, id="milliseconds with a zone"),
        pytest.param(pa.array([7_999, -1], pa.timestamp("us")), -1, id="microseconds are rounded down"),
        pytest.param(pa.array([7_999_999, 1_999_999], pa.timestamp("ns")), 1, id="nanoseconds"),
        pytest.param(pa.array([dt.date(1970, 1, 3), dt.date(1970, 1, 2)]), 86_400_000, id="date32"),
        pytest.param(pa.array([dt.date(1970, 1, 2)], pa.date64()), 86_400_000, id="date64"),
        pytest.param(pa.array([None, 5], pa.int64()), 5, id="nulls, which the reader refuses"),
        pytest.param(pa.array([None, None], pa.int64()), None, id="only nulls"),
        pytest.param(pa.array([2**62, 5], pa.timestamp("ns")), 0, id="far away"),
    ],
)
def test_the_least_event_time_is_in_the_statistics(
    tmp_path: Path, values: pa.Array, least: int | None
) -> None:
    source = FileSource(write(tmp_path / "a.parquet", values, 10))
    assert [split.min_timestamp for split in discovered(source, "at")] == [least]


@pytest.mark.parametrize(
    ("in_order", "expected"),
    [
        pytest.param(False, [(0, 2, 0), (2, 3, 15), (3, 4, 5)], id="groups that overlap are apart"),
        pytest.param(True, [(0, 4, None)], id="declared to be in order"),
    ],
)
def test_row_groups_that_follow_each_other_in_time_are_one_split(
    tmp_path: Path, in_order: bool, expected: list[tuple[int, int, int | None]]
) -> None:
    values = pa.array([0, 9, 10, 19, 15, 29, 5, 6], pa.int64())
    path = write(tmp_path / "a.parquet", values, 2)
    assert parts(discovered(FileSource(path, in_order=in_order), "at")) == expected


def test_without_event_times_row_groups_are_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.array([5, 4, 3, 2], pa.int64()), 1)
    assert parts(list(create_discovery(FileSource(path).info()).discover())) == [(0, 4, None)]


def test_without_statistics_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"at": pa.array([1, 2, 3], pa.int64())})
    pq.write_table(table, path, row_group_size=2, write_statistics=False)
    assert parts(discovered(FileSource(str(path)), "at")) == [(0, 1, None), (1, 2, None)]


def test_values_that_are_converted_when_they_are_read_have_no_bound(tmp_path: Path) -> None:
    """Seconds in the file would be taken for milliseconds."""
    path = write(tmp_path / "a.parquet", pa.array([5, 6], pa.int64()), 10)
    schema = pa.schema([("at", pa.timestamp("s"))])
    assert parts(discovered(FileSource(path, schema=schema), "at")) == [(0, 1, None)]


def test_a_nested_column_is_another_one(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([5], pa.int64()), "a": pa.array([{"at": 1}])})
    pq.write_table(table, tmp_path / "a.parquet")
    assert parts(discovered(FileSource(str(tmp_path / "a.parquet")), "at")) == [(0, 1, 5)]


def test_text_has_no_statistics(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"at": 5}\n{"at": 6}\n')
    source = FileSource(str(tmp_path / "a.json"), format="json", split_bytes=10)
    assert [split.min_timestamp for split in discovered(source, "at")] == [None, None]


def test_the_bound_is_in_the_snapshot_of_a_reader() -> None:
    split = FileSplit(path="/a", size=9, start=0, stop=1, unit=0, min_timestamp=5)
    assert encode_split(split).min_timestamp == 5
    assert decoded_split(encode_split(split), FileSplit, "file") == split
