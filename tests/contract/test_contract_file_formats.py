"""The file source by dimensions: format × parser × schema declared or inferred × projection × odd file.

A text is the same rows, or is refused, whatever parses it and wherever its blocks and splits end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common import JsonReader, line_spans, padded
from unistream.connector.file import FileSource
from unistream.connector.file.discovery import create_discovery
from unistream.port.projection import Selection
from unistream.port.source import Rows

COMPILES_WITHIN_S: Final = 120.0  # who reads quotes or JSON first may have to compile its loops
Found = list[dict[str, Any]] | str
REFUSED: Final = "refused"
PARSERS: Final = {
    "csv, whole": {"format": "csv"},
    "csv, whole, small blocks": {"format": "csv", "block_bytes": 3},
    "csv, divided": {"format": "csv", "quoted_newlines": False},
    "csv, divided, small blocks": {"format": "csv", "quoted_newlines": False, "block_bytes": 1},
    "csv, divided, small splits": {"format": "csv", "quoted_newlines": False, "split_bytes": 3},
}


def rows_of(source: FileSource) -> list[dict[str, Any]]:
    """In the order of the splits. Raises what the source raises."""
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def read(path: Path, schema: pa.Schema | None, options: dict[str, Any]) -> Found:
    try:
        return rows_of(FileSource(str(path), schema=schema, **options))
    except (ConfigError, UserCodeError):
        return REFUSED


TEXTS: Final = pa.schema([("a", pa.string()), ("b", pa.string())])
NUMBERS: Final = pa.schema([("a", pa.string()), ("b", pa.int64())])
FRAGMENTS: Final = [
    "a",
    "1",
    ",",
    '"',
    '""',
    "\n",
    "\r",
    "\r\n",
    " ",
    "é",
    "\ufeff",
    "NULL",
    "a,1\n",
    '"x",2\n',
]


@given(
    text=st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    header=st.sampled_from(["a,b\n", "a,b\r\n", "a,b\r", "\ufeffa,b\n", '\n"a",b\n', '"a","b"']),
    schema=st.sampled_from([TEXTS, NUMBERS, NUMBERS.set(0, pa.field("a", pa.string(), nullable=False))]),
)
@example(text='a,"1\n2,3\n', header="a,b\n", schema=TEXTS)
@example(text='"x\ny",1\n', header="a,b\n", schema=NUMBERS)
@example(text="\ufeffa,1\n\ufeffa,1\n", header="a,b\n", schema=NUMBERS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_parsers_of_csv_give_the_same_rows_or_refuse(
    tmp_path: Path, text: str, header: str, schema: pa.Schema
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes((header + text).encode())
    found = {name: read(path, schema, options) for name, options in PARSERS.items()}
    whole = found["csv, whole"]
    broken = whole != REFUSED and any(
        "\n" in str(value) or "\r" in str(value) for row in whole for value in row.values()
    )
    for name, rows in found.items():
        expected = REFUSED if broken and "divided" in name else whole
        assert rows == expected, name


# --- odd files ------------------------------------------------------------------------------------

AB: Final = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "inferred"])
@pytest.mark.parametrize(
    ("content", "rows", "inferred"),
    [
        pytest.param(b"", [], REFUSED, id="nothing"),
        pytest.param(b"\xef\xbb\xbf", [], REFUSED, id="a mark of the byte order only"),
        pytest.param(b"\n\r\n\n", [], REFUSED, id="empty lines only"),
        pytest.param(b"a,b\n", [], [], id="a header only"),
        pytest.param(b"a,b", [], [], id="a header without line end"),
        pytest.param(b"a,b\rx,1\ry,2\r", AB, AB, id="CR"),
        pytest.param(b"a,b\rx,1\ny,2\n", AB, AB, id="CR behind the header, LF behind the rows"),
        pytest.param(b"a,b\r\nx,1\r\ny,2", AB, AB, id="CRLF, and no last one"),
        pytest.param(b"\xef\xbb\xbfa,b\nx,1\ny,2\n", AB, AB, id="a mark of the byte order"),
        pytest.param(b"\n\na,b\n\nx,1\n\ny,2\n\n", AB, AB, id="empty lines"),
        pytest.param(b'"a","b"\n"x","1"\n"y","2"\n', AB, AB, id="quotes"),
        pytest.param(b"a,b,a\nx,1,z\n", REFUSED, REFUSED, id="a column twice"),
        pytest.param(b"a,b\nx,1\ny\n", REFUSED, REFUSED, id="a value too few"),
        pytest.param(b'a,b\n"x,1\ny,2\n', REFUSED, REFUSED, id="a quote that does not end"),
        pytest.param(b"a,b\nx,1\n\xff,2\n", REFUSED, None, id="not UTF-8"),
    ],
)
def test_odd_files_of_csv(  # noqa: PLR0917
    tmp_path: Path, parser: str, declared: bool, content: bytes, rows: Found, inferred: Found | None
) -> None:
    """`inferred`: None: as bytes, which are no text."""
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    found = read(path, NUMBERS if declared else None, PARSERS[parser])
    if declared or inferred is not None:
        assert found == (rows if declared else inferred)


def test_an_empty_file_beside_others_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"")
    (tmp_path / "b.csv").write_bytes(b"a,b\nx,1\ny,2\n")
    for options in PARSERS.values():
        assert read(tmp_path, NUMBERS, options) == AB


@pytest.mark.parametrize("parser", PARSERS)
def test_a_row_of_delimiters_is_a_row_of_empty_values(tmp_path: Path, parser: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\tb\nx\t1\n\t\n \t \n")
    expected = [{"a": "x", "b": "1"}, {"a": "", "b": ""}, {"a": " ", "b": " "}]
    assert read(path, TEXTS, {"delimiter": "\t", **PARSERS[parser]}) == expected


def test_bad_lines_that_end_with_cr_cost_no_good_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\rx,1\rbad\ry,2\rz,worse\r")
    for block_bytes in (1, 1000):
        options = {**PARSERS["csv, divided"], "block_bytes": block_bytes}
        assert read(path, NUMBERS, {**options, "on_bad_record": "skip"}) == AB
        with pytest.raises(UserCodeError, match=r"line 3 \(byte 8\).*'bad'"):
            rows_of(FileSource(str(path), schema=NUMBERS, **options))


# --- times ----------------------------------------------------------------------------------------

DATES: Final = ["2026-06-25", "0001-01-01", "9999-12-31", "2262-04-12", "2026-02-29"]
CLOCKS: Final = [
    "",
    "T09:15",
    " 09:15:00",
    "T09:15:00.123",
    "T24:00:00",
    "T09:15:00.123456789",
    "T23:59:60",
    "T09",
]
ZONES: Final = ["", "Z", "+02:00", "-0500", "+02", "z", "+99:99", "-00:00", " "]


@given(
    texts=st.lists(
        st.tuples(*map(st.sampled_from, (DATES, CLOCKS, ZONES))).map("".join), min_size=1, max_size=4
    ),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin"]),
)
@example(texts=["2026-06-25T09:15:00Z", "2026-06-25", "2026-06-25T09:15:00+02:00"], unit="ms", zone=None)
@example(texts=["2026-06-25T09:15:00"], unit="us", zone="UTC")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_text_is_the_same_time_in_each_format(
    tmp_path: Path, texts: list[str], unit: str, zone: str | None
) -> None:
    """Kafka's JSON is read by `JsonReader`."""
    schema = pa.schema([("at", pa.timestamp(unit, zone))])
    lines = "".join(json.dumps({"at": text}) + "\n" for text in texts)
    (tmp_path / "a.json").write_text(lines)
    (tmp_path / "a.csv").write_text("at\n" + "".join(f"{text}\n" for text in texts))
    data = padded(lines.encode())
    kafka = JsonReader(schema).read(data, *line_spans(data, len(lines)))
    expected = REFUSED if len(kafka.bad) else kafka.records["at"].cast(pa.int64()).to_pylist()
    ways = [{"format": "json"}, *(options for name, options in PARSERS.items() if "small" not in name)]
    for options in ways:
        path = tmp_path / f"a.{options['format']}"
        try:
            found: Any = numbers_of(FileSource(str(path), schema=schema, **options))
        except UserCodeError:
            found = REFUSED
        assert found == expected, options


def numbers_of(source: FileSource) -> list[int]:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    column = pa.Table.from_batches(batches, source.schema)["at"]
    return column.cast(pa.int64()).to_pylist()


def test_a_null_where_none_may_be_is_refused_in_each_format(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    (tmp_path / "a.csv").write_text("n\n1\nNULL\n")
    (tmp_path / "a.json").write_text('{"n": 1}\n{}\n')
    pq.write_table(pa.table({"n": [1, None]}), tmp_path / "a.parquet")
    for format in ("csv", "json", "parquet"):
        assert read(tmp_path / f"a.{format}", schema, {"format": format}) == REFUSED
    assert read(tmp_path / "a.csv", schema, PARSERS["csv, divided"]) == REFUSED


# --- the same rows in each format -----------------------------------------------------------------

TABLE: Final = pa.table(
    {
        "n": pa.array([1, None, 3, 4], pa.int64()),
        "t": ["x", "", "ü", "NULL"],
        "c": pa.array(["k", "l", "k", "m"]).dictionary_encode(),
        "at": pa.array([0, 1, None, 253_402_214_400_000], pa.timestamp("ms")),
        "d": pa.array([0, -1, 2_932_896, 5], pa.date32()),
    }
)
CELLS: Final = [
    ["1", "x", "k", "1970-01-01", "1970-01-01"],
    ["", "", "l", "1970-01-01T00:00:00.001", "1969-12-31"],
    ["3", "ü", "k", "", "9999-12-31"],
    ["4", "NULL", "m", "9999-12-31T00:00:00Z", "1970-01-06"],
]


def write_avro(path: Path) -> None:
    kinds = {
        "n": "long",
        "t": "string",
        "c": "string",
        "at": {"type": "long", "logicalType": "local-timestamp-millis"},
        "d": {"type": "int", "logicalType": "date"},
    }
    fields = [{"name": name, "type": ["null", kind]} for name, kind in kinds.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
    with path.open("wb") as file:
        fastavro.writer(file, schema, TABLE.to_pylist(), sync_interval=1)


def written(folder: Path, format: str) -> Path:
    path = folder / f"a.{format}"
    if format == "parquet":
        pq.write_table(TABLE, path, row_group_size=2)
    elif format == "avro":
        write_avro(path)
    elif format == "csv":
        path.write_text("n,t,c,at,d\n" + "".join(",".join(cells) + "\n" for cells in CELLS))
    else:
        rows = [
            {name: cell for name, cell in zip(TABLE.column_names, cells, strict=True) if cell or name == "t"}
            for cells in CELLS
        ]
        lines = [json.dumps(row | ({"n": int(row["n"])} if "n" in row else {})) for row in rows]
        path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("columns", "used"),
    [(None, None), (["d", "t"], None), (None, {"c"}), (["at", "n", "c"], {"n", "at"})],
    ids=["all", "columns", "used", "both"],
)
@pytest.mark.parametrize("way", ["parquet", "avro", "json", *PARSERS])
def test_formats_agree_on_rows_with_any_projection_and_filter(
    tmp_path: Path, way: str, columns: list[str] | None, used: set[str] | None
) -> None:
    options = PARSERS.get(way, {"format": way})
    path = written(tmp_path, options["format"])
    source = FileSource(str(path), schema=TABLE.schema, columns=columns, **options)
    if used is not None:
        source = source.reading(frozenset(used))
    expected = TABLE.select([name for name in columns or TABLE.column_names if used is None or name in used])
    assert rows_of(source) == expected.to_pylist()
    selected = source.reading_rows(Selection(pc.field("n") > 3, ("n",)))
    rows = rows_of(selected)
    assert rows in (expected.to_pylist(), expected.slice(2).to_pylist()), "whole row groups are left out"


def test_a_parquet_column_twice_is_refused(tmp_path: Path) -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"])
    pq.write_table(rows, tmp_path / "a.parquet")
    for schema in (None, pa.schema([("a", pa.int64())])):
        assert read(tmp_path, schema, {}) == REFUSED
    assert rows_of(FileSource(str(tmp_path), columns=["b"])) == [{"b": 2}]


def test_nested_nulls_are_those_of_parquet(tmp_path: Path) -> None:
    kind = pa.struct([("l", pa.list_(pa.struct([("x", pa.int32())]))), ("t", pa.string())])
    values = [
        None,
        {"l": None, "t": None},
        {"l": [], "t": ""},
        {"l": [None, {"x": None}, {"x": 1}], "t": "u"},
    ]
    pq.write_table(pa.table({"s": pa.array(values, kind)}), tmp_path / "a.parquet", row_group_size=1)
    (tmp_path / "b.json").write_text("\n".join(json.dumps({"s": value}) for value in values))
    schema = pa.schema([("s", kind)])
    expected = [{"s": value} for value in values]
    assert read(tmp_path / "a.parquet", schema, {}) == expected
    assert read(tmp_path / "b.json", schema, {"format": "json"}) == expected
