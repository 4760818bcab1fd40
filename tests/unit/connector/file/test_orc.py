"""ORC files as a source: the same rows as those of Parquet."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pytest

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import decoded_split
from unistream.connector.file import FileSource
from unistream.connector.file.decode import decode
from unistream.connector.file.split import FileSplit
from unistream.port.source import Rows

ROWS = 3_000
TABLE = pa.table(
    {
        "n": range(ROWS),
        "t": [None if n % 7 == 0 else f"é{n}" for n in range(ROWS)],
        "at": pa.array(range(ROWS), pa.timestamp("ns")),
        "s": [{"a": n, "l": [n, None]} for n in range(ROWS)],
        "a.b": [n % 2 == 0 for n in range(ROWS)],
    }
)


def read(source: FileSource) -> pa.Table:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of several stripes."""
    folder = tmp_path / "day=2026-01-01"
    folder.mkdir()
    pa_orc.write_table(TABLE, folder / "a.orc", stripe_size=4_096, compression="uncompressed")
    assert pa_orc.ORCFile(folder / "a.orc").nstripes > 2
    return folder / "a.orc"


@pytest.mark.parametrize("split_bytes", [1, 20_000, None])
@pytest.mark.parametrize(
    "columns", [None, ["at", "n"], ["a.b"], ["s", "t"]], ids=["all", "two", "a dot", "nested"]
)
def test_rows_are_those_that_were_written(path: Path, split_bytes: int | None, columns: Any) -> None:
    source = FileSource(str(path), format="orc", columns=columns, split_bytes=split_bytes)
    assert read(source).equals(TABLE if columns is None else TABLE.select(columns))
    splits = create_discovery(source.info()).discover()
    parts = [decoded_split(split, FileSplit, "file") for split in splits]
    stripes = pa_orc.ORCFile(path).nstripes
    assert [number for part in parts for number in range(part.start, part.stop)] == list(range(stripes))
    assert len(parts) == (stripes if split_bytes == 1 else 1 if split_bytes is None else len(parts))


def test_folders_are_columns_and_a_split_continues_at_its_position(path: Path) -> None:
    source = FileSource(str(path.parents[1]), format="orc", columns=["n", "day"])
    assert read(source)["day"].unique().to_pylist() == [dt.date(2026, 1, 1)]
    [split] = create_discovery(source.info()).discover()
    chunks = list(decode(decoded_split(split, FileSplit, "file"), source._spec()))
    rest = [chunk.records["n"].to_pylist() for chunk in decode(chunks[1].next, source._spec())]
    assert rest == [chunk.records["n"].to_pylist() for chunk in chunks[2:]]


def test_a_coarser_unit_can_be_declared_if_it_holds_all_times(tmp_path: Path) -> None:
    times = pa.array([dt.datetime(2026, 1, 1, 0, 0, 0, 5), None], pa.timestamp("us"))  # noqa: DTZ001
    pa_orc.write_table(pa.table({"at": times}), tmp_path / "a.orc")
    for unit in ("us", "ns"):
        schema = pa.schema([("at", pa.timestamp(unit))])
        assert read(FileSource(str(tmp_path), format="orc", schema=schema))["at"].to_pylist() == [
            value if unit == "us" or value is None else pa.scalar(value, pa.timestamp("ns")).as_py()
            for value in times.to_pylist()
        ]
    with pytest.raises(UserCodeError, match=r"unreadable ORC: column 'at'.*would lose data"):
        read(FileSource(str(tmp_path), format="orc", schema=pa.schema([("at", pa.timestamp("ms"))])))


def test_a_time_that_nanoseconds_cannot_hold_is_refused(tmp_path: Path) -> None:
    far = pa.array([253_402_214_400], pa.timestamp("s"))
    pa_orc.write_table(pa.table({"at": far.cast(pa.timestamp("us"))}), tmp_path / "a.orc")
    with pytest.raises(UserCodeError, match=r"a\.orc, stripes 0 to 0: unreadable ORC: .*out of range"):
        read(FileSource(str(tmp_path), format="orc"))


def test_a_file_that_is_damaged_or_no_orc_file_is_named(path: Path) -> None:
    source = FileSource(str(path), format="orc", schema=TABLE.schema)
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * 2_000 + content[2_100:])
    with pytest.raises(UserCodeError, match=r"a\.orc, stripes .*: unreadable ORC"):
        read(source)
    path.write_bytes(content[:-9])
    with pytest.raises(ConfigError, match=r"a\.orc is no ORC file"):
        read(source)
    with pytest.raises(ConfigError, match="no schema can be inferred as orc"):
        _ = FileSource(str(path), format="orc").schema
    with pytest.raises(ConfigError, match="a Parquet, ORC or Avro file is read, or is damaged"):
        FileSource(str(path), format="orc", on_bad_record="skip")


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    pa_orc.write_table(TABLE.slice(0, 0), tmp_path / "a.orc")
    assert read(FileSource(str(tmp_path), format="orc")).num_rows == 0
