"""The file source's own rules; what all sources have in common is in tests/contract."""

from __future__ import annotations

import datetime as dt
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from tests.eventually import WAIT_S
from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import RowChunk, decoded_split
from unistream.connector.common.read_ahead import READ_AHEAD_CHUNKS, ReadAhead
from unistream.connector.file import FileSource
from unistream.connector.file.decode import decode
from unistream.connector.file.format import FileSpec, widens
from unistream.connector.file.listing import list_files
from unistream.connector.file.split import FileSplit, open_file
from unistream.port.projection import Selection
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows, Source, SplitFinished
from unistream.testing.harness.operators import CountingMetrics

COMPILES_WITHIN_S = 60.0  # who reads JSON first may have to compile its loops


def splits(source: Source) -> list[FileSplit]:
    return [decoded_split(split, FileSplit, "file") for split in create_discovery(source.info()).discover()]


def read(source: Source) -> pa.Table:
    """All rows, in the order of the splits."""
    with SourceDriver(source, create_discovery(source.info()).discover(), COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema)


def file_spec(source: Source) -> FileSpec:
    return FileSpec(format="parquet", schema=source.schema, block_bytes=1, options={})


def file(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content)
    return str(folder / name)


# --- listing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
@pytest.mark.parametrize("name", ["none.parquet", "none/*.parquet", "none"])
def test_a_path_that_is_not_there_is_named(tmp_path: Path, format: Any, name: str) -> None:
    path = str(tmp_path / name)
    source = FileSource(path, format=format)
    with pytest.raises(ConfigError, match=name.replace("*", r"\*")):
        create_discovery(source.info()).discover()
    with pytest.raises(ConfigError, match=name.replace("*", r"\*")):
        _ = source.schema


def test_an_empty_folder_holds_no_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no files match"):
        create_discovery(FileSource(str(tmp_path)).info()).discover()


def test_a_folder_is_read_by_name_without_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "_tmp").mkdir()
    for name in ("c.csv", "a.csv", "b/x.csv", ".hidden.csv", "_SUCCESS", "_tmp/x.csv"):
        file(tmp_path, name, f"name\n{name}\n")
    assert read(FileSource(str(tmp_path), format="csv")).column("name").to_pylist() == [
        "a.csv",
        "b/x.csv",
        "c.csv",
    ]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "n\n1\n")
    assert len(splits(FileSource([path, str(tmp_path / "*.csv")], format="csv"))) == 1


@pytest.mark.parametrize(
    "path",
    ["http://x.org/a.csv", "https://x.org/a", "zip://a::http://x", "simplecache::s3://b/a", "ftp://h/a"],
)
def test_only_storage_systems_are_read(path: str) -> None:
    with pytest.raises(ConfigError, match="files are read from"):
        create_discovery(FileSource(path, format="csv").info()).discover()


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_local_paths_and_urls_read_the_same(tmp_path: Path, prefix: str) -> None:
    path = file(tmp_path, "a.jsonl", '{"n": 1}\n{"n": 2}\n')
    assert read(FileSource(prefix + path, format="json")).column("n").to_pylist() == [1, 2]


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_any_fsspec_file_system_is_read(format: Any) -> None:
    folder = f"memory://{uuid.uuid4().hex}"
    with fsspec.open(f"{folder}/a", "wb") as target:
        match format:
            case "parquet":
                pq.write_table(pa.table({"n": [1, 2]}), target)
            case "csv":
                target.write(b"n\n1\n2\n")
            case "json":
                target.write(b'{"n": 1}\n{"n": 2}\n')
    assert read(FileSource(folder, format=format)).to_pylist() == [{"n": 1}, {"n": 2}]


# --- splits ---------------------------------------------------------------------------------------


def test_row_groups_are_joined_until_a_split_is_large_enough(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"n": range(1000)}), tmp_path / "a.parquet", row_group_size=100, compression="none"
    )
    whole = splits(FileSource(str(tmp_path)))
    single = splits(FileSource(str(tmp_path), split_bytes=1))
    pairs = splits(FileSource(str(tmp_path), split_bytes=1200))
    assert [(one.start, one.stop) for one in whole] == [(0, 10)]
    assert [(one.start, one.stop) for one in single] == [(i, i + 1) for i in range(10)]
    assert all(one.stop - one.start >= 2 for one in pairs[:-1])
    assert [one.stop for one in pairs[:-1]] == [one.start for one in pairs[1:]]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_split_says_how_many_bytes_it_has(tmp_path: Path, format: Any) -> None:
    """By which a BATCH job deals out splits; rows of the second half are much longer."""
    rows = pa.table({"n": [str(i) * (1 if i < 500 else 50) for i in range(1000)]})
    path = tmp_path / f"a.{format}"
    if format == "parquet":
        pq.write_table(rows, path, row_group_size=500, compression="none", use_dictionary=False)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
    source = FileSource(str(tmp_path), format=format, split_bytes=1000)
    found = create_discovery(source.info()).discover()
    total = sum(split.size for split in found)
    assert path.stat().st_size * 0.95 < total <= path.stat().st_size
    if format == "parquet":
        assert found[1].size > 10 * found[0].size


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("last", ["\n", ""], ids=["closed", "open"])
@pytest.mark.parametrize("split_bytes", [1, 7, 16, 17, 18, 1000])
def test_every_line_lies_in_one_split(tmp_path: Path, ending: str, last: str, split_bytes: int) -> None:
    lines = [f'{{"n": {i}, "t": "{"x" * (i % 5)}"}}' for i in range(12)]
    path = tmp_path / "a.jsonl"
    path.write_bytes((ending.join(lines) + last).encode())
    source = FileSource(str(path), format="json", split_bytes=split_bytes, block_bytes=20)
    assert read(source).column("n").to_pylist() == list(range(12))


@pytest.mark.parametrize("split_bytes", [1, 5, 1000])
def test_the_header_of_a_divided_csv_file_is_no_row(tmp_path: Path, split_bytes: int) -> None:
    path = file(tmp_path, "a.csv", "number,text\n" + "".join(f"{i},t{i}\n" for i in range(10)))
    source = FileSource(path, format="csv", quoted_newlines=False, split_bytes=split_bytes, block_bytes=8)
    assert read(source).to_pylist() == [{"number": i, "text": f"t{i}"} for i in range(10)]


@pytest.mark.parametrize("quoted", [True, False], ids=["whole", "divided"])
@pytest.mark.parametrize("given", [True, False], ids=["schema", "inferred"])
def test_in_csv_nan_is_a_number_and_no_text_is_null(tmp_path: Path, given: bool, quoted: bool) -> None:
    lines = ["1.5,a", "NaN,NA", "-nan,nan", ",", "NULL,null", "inf,b"]
    path = file(tmp_path, "a.csv", "f,t\n" + "".join(f"{line}\n" for line in lines))
    schema = pa.schema([("f", pa.float64()), ("t", pa.string())])
    source = FileSource(path, format="csv", schema=schema if given else None, quoted_newlines=quoted)
    rows = read(source)
    assert rows.schema.equals(schema)
    assert [str(value) for value in rows["f"].to_pylist()] == ["1.5", "nan", "nan", "None", "None", "inf"]
    assert rows["t"].to_pylist() == ["a", "NA", "nan", "", "null", "b"]


def test_csv_values_may_hold_line_breaks(tmp_path: Path) -> None:
    rows = [(i, f"a\n{i}" if i % 2 else "b") for i in range(50)]
    path = file(tmp_path, "a.csv", "n,t\n" + "".join(f'{n},"{t}"\n' for n, t in rows))
    source = FileSource(path, format="csv", split_bytes=10, block_bytes=40)
    assert [tuple(row.values()) for row in read(source).to_pylist()] == rows


@pytest.mark.parametrize(
    ("format", "content"), [("csv", "n,t\n"), ("json", ""), ("json", "\n\n"), ("csv", "")], ids=repr
)
@pytest.mark.parametrize("quoted", [True, False])
def test_a_file_without_rows_has_none(tmp_path: Path, format: Any, content: str, quoted: bool) -> None:
    schema = pa.schema([("n", pa.int64())])
    path = file(tmp_path, "a", content)
    assert read(FileSource(path, format=format, schema=schema, quoted_newlines=quoted)).num_rows == 0


def test_a_parquet_file_without_rows_has_no_splits(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    assert read(FileSource(str(tmp_path))).num_rows == 0


def test_a_row_group_that_is_too_large_to_decode_at_once_is_read_in_pieces(tmp_path: Path) -> None:
    rows = 150_000
    text = pa.array(["x" * 1000]).take(pa.array([0] * rows))
    table = pa.table({"n": range(rows), "t": text, "at": pa.array(range(rows), pa.timestamp("ns"))})
    pq.write_table(
        table,
        tmp_path / "a.parquet",
        row_group_size=rows,
        use_dictionary=False,
        use_deprecated_int96_timestamps=True,
    )
    assert pq.read_metadata(tmp_path / "a.parquet").row_group(0).total_byte_size > 128 * 2**20
    source = FileSource(str(tmp_path / "a.parquet"), schema=table.schema, columns=["n", "at"])
    spec = file_spec(source)
    [split] = splits(source)
    chunks = list(decode(split, spec))
    assert [chunk.next.skip for chunk in chunks] == [65_536, 131_072, rows]
    rest = [chunk.records.column("n")[0].as_py() for chunk in decode(chunks[0].next, spec)]
    assert rest == [65_536, 131_072]
    digits = [chunk.records.column("at")[0].value for chunk in decode(chunks[0].next, spec)]
    assert digits == rest, "of nanoseconds that are stored as INT96"


def test_row_groups_of_which_all_rows_are_dropped_are_not_decoded(tmp_path: Path) -> None:
    """The pages of the others are damaged. The one that has the position stays: that counts its rows."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(40)}), path, row_group_size=10)
    first = pq.read_metadata(path).row_group(0).column(0)
    source = FileSource(str(path)).reading_rows(Selection(pc.field("n") >= 25, ("n",)))
    [split] = splits(source)
    spec = replace(file_spec(source), selection=Selection(pc.field("n") >= 25, ("n",)))
    begun = structs.replace(split, skip=7)
    assert [row["n"] for chunk in decode(begun, spec) for row in chunk.records.to_pylist()] == [
        *range(7, 10),
        *range(20, 40),
    ]
    with path.open("r+b") as content:
        content.seek(first.dictionary_page_offset or first.data_page_offset)
        content.write(b"\0" * first.total_compressed_size)
    assert read(source).column("n").to_pylist() == list(range(20, 40))
    with pytest.raises(UserCodeError, match="unreadable Parquet"):
        read(FileSource(str(path)))


# --- schema ---------------------------------------------------------------------------------------


def test_the_schema_is_that_of_the_first_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int32()), "t": ["x"]}), tmp_path / "a.parquet")
    source = FileSource(str(tmp_path), columns=["t", "n"])
    assert source.schema == pa.schema([("t", pa.string()), ("n", pa.int32())])
    assert read(source).to_pylist() == [{"t": "x", "n": 1}]


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "n,t\n1,x\n")
    with pytest.raises(ConfigError, match="no column 'other'; there are n, t"):
        _ = FileSource(path, format="csv", columns=["other"]).schema


@pytest.mark.parametrize("quoted", [True, False])
def test_a_csv_file_without_a_column_is_named(tmp_path: Path, quoted: bool) -> None:
    file(tmp_path, "a.csv", "n,t\n1,x\n")
    file(tmp_path, "b.csv", "n\n1\n")
    source = FileSource(str(tmp_path), format="csv", quoted_newlines=quoted)
    with pytest.raises(ConfigError, match=r"b\.csv has no column 't'; its columns are n"):
        read(source)


def test_a_parquet_file_of_another_schema_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": ["one"]}), tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match=r"b\.parquet: column 'n' is string, expected int64"):
        read(FileSource(str(tmp_path)))


def test_a_json_field_that_is_missing_is_null_and_an_unknown_one_is_left_out(tmp_path: Path) -> None:
    path = file(tmp_path, "a.jsonl", '{"n": 1}\n{"t": "x", "other": [1, {"a": 2}]}\n')
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    assert read(FileSource(path, format="json", schema=schema)).to_pylist() == [
        {"n": 1, "t": None},
        {"n": None, "t": "x"},
    ]


def test_times_in_json_are_parsed(tmp_path: Path) -> None:
    path = file(tmp_path, "a.jsonl", '{"at": "2013-01-01T05:15:00Z"}\n')
    schema = pa.schema([("at", pa.timestamp("ms", tz="UTC"))])
    [row] = read(FileSource(path, format="json", schema=schema)).to_pylist()
    assert row["at"] == dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.uint32(), pa.int64(), True),
        (pa.uint64(), pa.int64(), False),
        (pa.int32(), pa.uint64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.int32(), pa.float64(), False),
        (pa.timestamp("ms"), pa.timestamp("us"), True),
        (pa.timestamp("us"), pa.timestamp("ms"), False),
        (pa.timestamp("ms"), pa.timestamp("ms", tz="UTC"), False),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
        (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string()), True),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), True),
        (pa.dictionary(pa.int32(), pa.int64()), pa.dictionary(pa.int32(), pa.int32()), False),
        (pa.large_string(), pa.string(), True),
        (pa.string(), pa.binary(), False),
        (pa.null(), pa.string(), True),
        (pa.int64(), pa.duration("us"), True),
        (pa.int32(), pa.duration("us"), False),
        (pa.duration("us"), pa.int64(), False),
    ],
    ids=str,
)
def test_what_a_column_can_be_read_as(found: pa.DataType, wanted: pa.DataType, fits: bool) -> None:
    assert widens(found, wanted) == fits


def test_narrower_columns_are_widened(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    schema = pa.schema([("n", pa.int64())])
    assert read(FileSource(str(tmp_path), schema=schema)).schema == schema


FAR = pa.array([253_402_214_400_000_000, -62_135_596_800_000_000, None], pa.timestamp("us"))  # 9999, 1
FINE = pa.array([1_577_836_800_000_000_123, -1], pa.timestamp("ns"))


@pytest.mark.parametrize("declared", [None, pa.timestamp("us")], ids=str)
def test_times_that_are_stored_as_int96_are_those_that_were_written(tmp_path: Path, declared: Any) -> None:
    """Spark's default, also nested; in nanoseconds they would silently become others."""
    rows = pa.table({"at": FAR, "s": pa.StructArray.from_arrays([FAR], names=["at"])})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    schema = None if declared is None else pa.schema([("at", declared)])
    found = read(FileSource(str(tmp_path), schema=schema, columns=["at"]))
    assert found.equals(rows.select(["at"]))
    assert read(FileSource(str(tmp_path))).equals(rows)


def test_nanoseconds_of_int96_are_kept_if_they_are_declared(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2], "at": FINE})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read(FileSource(str(tmp_path), schema=rows.schema)).equals(rows)


def test_a_time_of_int96_that_nanoseconds_cannot_hold_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": FAR}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    source = FileSource(str(tmp_path), schema=pa.schema([("at", pa.timestamp("ns"))]))
    with pytest.raises(UserCodeError, match=r"a\.parquet.*column 'at'.*out of bounds"):
        read(source)


def test_a_null_in_a_column_that_is_declared_as_never_null_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, None]}), tmp_path / "a.parquet")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(UserCodeError, match="column 'n' is null, and is declared as never null"):
        read(FileSource(str(tmp_path), schema=schema))


@pytest.mark.parametrize("values", [pa.string(), pa.large_string(), pa.int64(), pa.timestamp("us")], ids=str)
def test_dictionaries_are_read_inferred_or_declared(tmp_path: Path, values: Any) -> None:
    """As pandas writes its categories; each file has indices of its own type."""
    plain = pa.array([1, 2, 1, None]).cast(values)
    for name, index in (("a", pa.int8()), ("b", pa.int32())):
        rows = pa.table({"c": plain.dictionary_encode().cast(pa.dictionary(index, values))})
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    pq.write_table(pa.table({"c": plain}), tmp_path / "c.parquet")
    for declared in (None, pa.dictionary(pa.int32(), values), values):
        schema = None if declared is None else pa.schema([("c", declared)])
        found = read(FileSource(str(tmp_path), schema=schema))
        assert found["c"].to_pylist() == plain.to_pylist() * 3
        assert schema is None or found.schema == schema


# --- bad content ----------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [1, 50, 10_000])
def test_a_bad_json_line_is_named(tmp_path: Path, block_bytes: int) -> None:
    lines = [f'{{"n": {i}}}' for i in range(100)]
    lines[63] = '{"n": oops}'
    path = file(tmp_path, "a.jsonl", "\n".join(lines))
    schema = pa.schema([("n", pa.int64())])
    source = FileSource(path, format="json", schema=schema, split_bytes=200, block_bytes=block_bytes)
    byte = sum(len(line) + 1 for line in lines[:63])
    with pytest.raises(UserCodeError, match=rf"a\.jsonl, line 64 \(byte {byte}\): .*oops"):
        read(source)


def test_a_json_value_of_another_type_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "a.jsonl", '{"n": 1}\n{"n": "two"}\n')
    schema = pa.schema([("n", pa.int64())])
    with pytest.raises(UserCodeError, match=r"line 2 \(byte 9\): field 'n' is of JSON type string.*two"):
        read(FileSource(path, format="json", schema=schema))


def test_a_bad_csv_line_of_a_divided_file_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "n,t\n1,x\n2,x\nthree,x\n")
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    with pytest.raises(UserCodeError, match=r"a\.csv, line 4 \(byte 12\): .*three"):
        read(FileSource(path, format="csv", schema=schema, quoted_newlines=False))


def test_a_bad_csv_row_of_a_whole_file_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "n,t\n1,x\n2,x,extra\n")
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    with pytest.raises(UserCodeError, match=r"a\.csv, after row 0: .*2,x,extra"):
        read(FileSource(path, format="csv", schema=schema))


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with open(path, "wb") as target:
        target.truncate(65 * 2**20)
    with pytest.raises(UserCodeError, match="the line at byte 0 is longer than"):
        read(FileSource(str(path), format="json", schema=pa.schema([("n", pa.int64())])))


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(10_000)}), path, compression="snappy")
    source = FileSource(str(path))
    assert source.schema.names == ["n"]
    content = bytearray(path.read_bytes())
    content[10:4000] = bytes(3990)
    path.write_bytes(content)
    with pytest.raises(UserCodeError, match=r"a\.parquet, row groups 0 to 0: unreadable Parquet"):
        read(source)


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "a.parquet", "n,t\n1,x\n")
    with pytest.raises(ConfigError, match=r"a\.parquet"):
        splits(FileSource(path))
    with pytest.raises(ConfigError, match=r"a\.parquet"):
        _ = FileSource(path).schema


def test_a_file_that_changes_after_the_listing_is_an_error(tmp_path: Path) -> None:
    path = file(tmp_path, "a.jsonl", '{"n": 1}\n')
    source = FileSource(path, format="json", schema=pa.schema([("n", pa.int64())]))
    [split] = splits(source)
    file(tmp_path, "a.jsonl", '{"n": 1}\n{"n": 2}\n')
    spec = FileSpec(format="json", schema=source.schema, block_bytes=100, options={})
    with pytest.raises(ConfigError, match="had 9 B when the job listed it and has 18 B now"):
        list(decode(split, spec))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": []}, "at least one path"),
        ({"path": ""}, "at least one path"),
        ({"path": "a", "format": "xml"}, "must be one of parquet, csv, json, orc"),
        ({"path": "a", "split_bytes": 0}, "above 0"),
        ({"path": "a", "block_bytes": 0}, "above 0"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FileSource(**arguments)


# --- reading ahead --------------------------------------------------------------------------------


def _endless(split: FileSplit) -> Iterator[RowChunk]:
    records = pa.RecordBatch.from_pydict({"n": [1]})
    while True:
        yield RowChunk(records, split)


SPLIT = FileSplit(path="a", size=1, start=0, stop=1, unit=0)


def test_reading_ahead_stops_when_enough_is_ready_and_ends_with_close() -> None:
    before = set(threading.enumerate())  # readers of other tests may still be about to end
    produced = threading.Semaphore(0)

    def work(split: FileSplit) -> Iterator[RowChunk]:
        for chunk in _endless(split):
            yield chunk
            produced.release()

    woken = threading.Event()
    ahead = ReadAhead(work, woken.set)
    ahead.submit(SPLIT)
    assert woken.wait(WAIT_S)
    for _ in range(READ_AHEAD_CHUNKS):
        assert produced.acquire(timeout=WAIT_S)
    assert not produced.acquire(blocking=False)
    assert isinstance(ahead.take(), RowChunk)
    assert produced.acquire(timeout=WAIT_S)
    ahead.close()
    mine = set(threading.enumerate()) - before
    assert not any(thread.name == "file-read-ahead" and thread.is_alive() for thread in mine)


def context(wake: Callable[[], None], requests: list[int], *, reads_ahead: bool) -> ReaderContext:
    """Of the only subtask. `requests`: grows with each request for a split."""
    return ReaderContext(
        index=0,
        parallelism=1,
        wake=wake,
        request_split=lambda: requests.append(1),
        metrics=CountingMetrics(),
        reads_ahead=reads_ahead,
    )


@pytest.mark.parametrize("reads_ahead", [True, False])
def test_one_more_split_is_asked_for_when_all_is_decoded_and_not_twice(
    tmp_path: Path, reads_ahead: bool
) -> None:
    for name in "ab":
        file(tmp_path, name, '{"n": 1}\n')
    source = FileSource(str(tmp_path), format="json", schema=pa.schema([("n", pa.int64())]))
    first, second = create_discovery(source.info()).discover()
    awake, requests = threading.Event(), []
    reader = source.create_reader()
    reader.open(context(awake.set, requests, reads_ahead=reads_ahead))

    def next_polled() -> object:
        while isinstance(polled := reader.poll(), Idle):
            assert awake.wait(WAIT_S)
            awake.clear()
        return polled

    try:
        assert isinstance(reader.poll(), Idle)
        assert isinstance(reader.poll(), Idle)
        assert len(requests) == 1
        reader.add_splits([first])
        assert isinstance(next_polled(), Rows)
        assert isinstance(next_polled(), SplitFinished)
        assert isinstance(reader.poll(), Idle)
        assert len(requests) == 2
        reader.add_splits([second])
        reader.no_more_splits()
        assert [type(next_polled()) for _ in range(3)] == [Rows, SplitFinished, Exhausted]
        assert len(requests) == 2
    finally:
        reader.close()


def test_without_a_thread_the_next_split_is_asked_for_while_the_last_one_is_read(tmp_path: Path) -> None:
    """So a reader holds two at a time, as with a thread."""
    table = pa.table({"n": pa.array(range(9), pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    source = FileSource(str(tmp_path), format="parquet", schema=table.schema)
    requests: list[int] = []
    reader = source.create_reader()
    reader.open(context(lambda: None, requests, reads_ahead=False))
    reader.add_splits(create_discovery(source.info()).discover())
    seen = []
    for _ in range(3):
        polled = reader.poll()
        assert isinstance(polled, Rows)
        seen.append((polled.records["n"].to_pylist(), len(requests)))
    reader.close()
    assert seen == [([0, 1, 2], 0), ([3, 4, 5], 1), ([6, 7, 8], 1)]


def test_without_a_thread_a_reader_reads_the_same_and_never_waits(tmp_path: Path) -> None:
    """And its position after each chunk is that with a thread."""
    before = set(threading.enumerate())
    for name, rows in (("a", range(5)), ("b", []), ("c", range(5, 12))):
        pq.write_table(
            pa.table({"n": pa.array(rows, pa.int64())}), tmp_path / f"{name}.parquet", row_group_size=3
        )
    source = FileSource(str(tmp_path), format="parquet", schema=pa.schema([("n", pa.int64())]))
    found = create_discovery(source.info()).discover()
    requests: list[int] = []
    reader = source.create_reader()
    reader.open(context(lambda: None, requests, reads_ahead=False))
    reader.add_splits(found)
    reader.no_more_splits()
    read: list[int] = []
    left: list[list[int]] = []
    while not isinstance(polled := reader.poll(), Exhausted):
        assert isinstance(polled, Rows | SplitFinished)
        if isinstance(polled, Rows):
            read += polled.records["n"].to_pylist()
        with SourceDriver(source, reader.snapshot()) as rest:
            left.append([row["n"] for row in rest.all_rows()])
    reader.close()
    assert read == list(range(12))
    assert all(rest == list(range(12 - len(rest), 12)) for rest in left)
    assert {len(rest) for rest in left} >= {9, 7, 0}
    mine = {thread.name for thread in set(threading.enumerate()) - before}
    assert "file-read-ahead" not in mine


@pytest.mark.parametrize("reads_ahead", [True, False])
def test_a_bad_line_is_reported_with_and_without_a_thread(tmp_path: Path, reads_ahead: bool) -> None:
    file(tmp_path, "a.json", '{"n": 1}\n{"n": \n')
    source = FileSource(str(tmp_path), format="json", schema=pa.schema([("n", pa.int64())]))
    awake = threading.Event()
    reader = source.create_reader()
    reader.open(context(awake.set, [], reads_ahead=reads_ahead))
    reader.add_splits(create_discovery(source.info()).discover())
    reader.no_more_splits()

    def read_all() -> None:
        while not isinstance(polled := reader.poll(), Exhausted):
            if isinstance(polled, Idle):
                assert reads_ahead, "without a thread there is a next item at once"
                assert awake.wait(COMPILES_WITHIN_S)
                awake.clear()

    with pytest.raises(UserCodeError, match="line 2"):
        read_all()
    reader.close()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        pytest.param(b"null\nnull\n", 1, id="nothing but nulls, which pyarrow does not survive"),
        pytest.param(b'{"a": "x"}\nnull\n{"a": "y"}\n', 2, id="one among others"),
        pytest.param(b" null\n\tnull\n", 1, id="nothing but nulls behind blanks"),
        pytest.param(b"\r\n \t null\r\n", 2, id="behind an empty line"),
        pytest.param(b"\xef\xbb\xbfnull\n", 1, id="behind a byte order mark"),
        pytest.param(b'{"a": "x"}\n  null\n{"a": "y"}\n', 2, id="one behind blanks among others"),
    ],
)
def test_a_bare_null_is_a_bad_line(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content)
    source = FileSource(str(path), format="json", schema=pa.schema([("a", pa.string())]))
    driver = SourceDriver(source, create_discovery(source.info()).discover())
    with pytest.raises(UserCodeError, match=f"line {line} .*it is not a JSON object: 'null'"):
        driver.all_rows()


def test_blanks_before_objects_and_the_word_null_in_text_are_no_bare_null(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'  {"a": null}\n\t{"a": "} null"}\r\n {"a": "null"}\n')
    source = FileSource(str(path), format="json", schema=pa.schema([("a", pa.string())]))
    driver = SourceDriver(source, create_discovery(source.info()).discover())
    assert [row["a"] for row in driver.all_rows()] == [None, "} null", "null"]


@pytest.mark.parametrize("look", [lambda path: list_files([path], {}), lambda path: open_file(path, {})])
def test_what_stays_is_no_outage(tmp_path: Path, look: Callable[[str], object]) -> None:
    """A job would be restarted for ever."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (f"{loop}/a.parquet", f"{tmp_path}/{'x' * 300}"):
        with pytest.raises(ConfigError):
            look(path)
