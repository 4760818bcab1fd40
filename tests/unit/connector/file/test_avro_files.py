"""Avro files as a source, against fastavro as their writer and reader."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import AvroRecord, decoded_split
from unistream.connector.file import FileSource
from unistream.connector.file.decode import decode
from unistream.connector.file.split import FileSplit
from unistream.port.projection import Selection
from unistream.port.source import Rows

COMPILES_WITHIN_S: Final = 120.0  # who reads Avro first may have to compile its loops
ROWS: Final = 2_000
Schema = Any


def record(name: str = "Row", /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": key, **(kind if isinstance(kind, dict) and "default" in kind else {"type": kind})}
            for key, kind in fields.items()
        ],
    }


def with_default(kind: Any, default: Any, *aliases: str) -> dict[str, Any]:
    return {"type": kind, "default": default, **({"aliases": list(aliases)} if aliases else {})}


def write(path: Path, schema: Schema, rows: Sequence[Any], **more: Any) -> Path:
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, **more)
    return path


def read(source: FileSource) -> pa.Table:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema)


def rows_of(path: Path, **more: Any) -> list[dict[str, Any]]:
    return read(FileSource(str(path), format="avro", **more)).to_pylist()


FLAT: Final = record(n="long", t=["null", "string"], at={"type": "long", "logicalType": "timestamp-millis"})
NESTED: Final = record(
    n="long", l={"type": "array", "items": ["null", "int"]}, m={"type": "map", "values": "string"}
)


def flat_rows(count: int = ROWS) -> list[dict[str, Any]]:
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return [
        {"n": n, "t": None if n % 7 == 0 else f"é{n}", "at": begin + dt.timedelta(seconds=n)}
        for n in range(count)
    ]


# --- files and their blocks -----------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_blocks_of_each_codec(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.avro"
    if codec in ("snappy", "zstandard"):  # for which fastavro needs other packages
        path.write_bytes(container(FLAT, flat_rows(), codec))
    else:
        write(path, FLAT, flat_rows(), codec=codec, sync_interval=500)
    assert rows_of(path, split_bytes=1_000) == flat_rows()


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_files_that_java_has_written(codec: str) -> None:
    """Avro 1.12.1, with a block for every few records."""
    path = Path(__file__).parents[3] / "golden" / "avro" / f"java_{codec}.avro"
    assert rows_of(path, split_bytes=300) == [
        {"n": n * n, "t": None if n % 7 == 0 else f"é{n}", "l": [n, 2], "e": "AB"[n % 2]} for n in range(40)
    ]


def container(schema: Schema, rows: Sequence[Any], codec: str, per_block: int = 100) -> bytes:
    """As the specification has it."""
    header = io.BytesIO()
    kind = fastavro.parse_schema({"type": "map", "values": "bytes"})
    fastavro.schemaless_writer(
        header, kind, {"avro.codec": codec.encode(), "avro.schema": json.dumps(schema).encode()}
    )
    out = b"Obj\x01" + header.getvalue() + MARK
    parsed = fastavro.parse_schema(schema)
    for at in range(0, len(rows), per_block):
        block = io.BytesIO()
        for row in rows[at : at + per_block]:
            fastavro.schemaless_writer(block, parsed, row)
        content = block.getvalue()
        if codec == "snappy":
            content = pa.Codec("snappy").compress(content, asbytes=True) + zlib.crc32(content).to_bytes(
                4, "big"
            )
        elif codec == "zstandard":
            content = pa.Codec("zstd").compress(content, asbytes=True)
        out += number(len(rows[at : at + per_block])) + number(len(content)) + content + MARK
    return out


MARK: Final = bytes(range(16))


def number(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


@pytest.mark.parametrize(("split_bytes", "block_bytes"), [(7, 4_000), (400, 1), (5_000, 4_000), (None, 1)])
@pytest.mark.parametrize("schema", [FLAT, NESTED], ids=["flat", "nested"])
def test_each_row_is_in_one_split_wherever_these_end(
    tmp_path: Path, split_bytes: int | None, block_bytes: int, schema: Schema
) -> None:
    rows = flat_rows(50) if schema is FLAT else [{"n": n, "l": [n, None], "m": {"k": "v"}} for n in range(50)]
    path = write(tmp_path / "a.avro", schema, rows, sync_interval=200)
    found = rows_of(path, split_bytes=split_bytes, block_bytes=block_bytes)
    expected = rows if schema is FLAT else [{**row, "m": [("k", "v")]} for row in rows]
    assert found == expected


def test_a_split_continues_at_each_of_its_positions(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", FLAT, flat_rows(), sync_interval=200)
    source = FileSource(str(path), format="avro", split_bytes=10_000, block_bytes=1_000)
    splits = [decoded_split(one, FileSplit, "file") for one in create_discovery(source.info()).discover()]
    assert len(splits) > 2
    for split in splits:
        chunks = list(decode(split, source._spec()))
        for at, chunk in enumerate(chunks):
            rest = [one.records for one in decode(chunk.next, source._spec())]
            assert rest == [one.records for one in chunks[at + 1 :]]


def test_folders_are_columns_and_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    for day in (1, 2):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        write(folder / "a.avro", FLAT, flat_rows(3))
    source = FileSource(str(tmp_path), format="avro", columns=["t", "day"])
    assert read(source).to_pylist() == [{"t": t, "day": day} for day in (1, 2) for t in (None, "é1", "é2")]
    chosen = source.reading_rows(Selection(pc.field("day") == 2, ("day",)))
    assert read(chosen)["day"].to_pylist() == [2, 2, 2]
    assert read(FileSource(str(tmp_path), format="avro", columns=["day"]))["day"].to_pylist() == [
        1,
        1,
        1,
        2,
        2,
        2,
    ]


# --- damage ---------------------------------------------------------------------------------------


def cut(content: bytes, codec: str) -> bytes:
    return content[:-20]


def other_mark(content: bytes, codec: str) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def other_bytes(content: bytes, codec: str) -> bytes:
    return content[:-40] + b"\xff\xfe\xfd" + content[-37:]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "block at byte .*: it is cut off"),
        (other_mark, "block at byte .*: the mark behind it is not that of the file"),
        (other_bytes, "block at byte "),
    ],
)
def test_a_damaged_block_is_named_and_never_left_out(
    tmp_path: Path, codec: str, damage: Any, said: str
) -> None:
    path = tmp_path / "a.avro"
    if codec in ("snappy", "zstandard"):
        path.write_bytes(container(NUMBERED, numbered(), codec))
    else:
        write(path, NUMBERED, numbered(), codec=codec, sync_interval=500)
    source = FileSource(str(path), format="avro", schema=pa.schema([("t", pa.string())]))
    path.write_bytes(damage(path.read_bytes(), codec))
    with pytest.raises(UserCodeError, match=rf"a\.avro, {said}"):
        read(source)


NUMBERED: Final = record(n="long", t="string")


def numbered() -> list[dict[str, Any]]:
    return [{"n": n, "t": os.urandom(5).hex() * 2} for n in range(ROWS)]


def header_of(**metadata: bytes) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema({"type": "map", "values": "bytes"}), metadata)
    return b"Obj\x01" + out.getvalue() + MARK


TEXT: Final = json.dumps(record(n="long")).encode()


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", ConfigError, "is no Avro file: it does not begin with Obj and 1"),
        (b"PAR1" * 9, ConfigError, "is no Avro file: it does not begin with Obj and 1"),
        (header_of()[:-16], ConfigError, "is no Avro file: its header is cut off"),
        (b"Obj\x01\x02\x7f", ConfigError, "is no Avro file: a length in its header is below 0"),
        (b"Obj\x01\x02\x7e", ConfigError, "is no Avro file: its header does not end"),
        (b"Obj\x01" + b"\xff" * 99, ConfigError, "is no Avro file: a number in it is longer than 64 bits"),
        (header_of(), ConfigError, "is no Avro file: its header has no schema"),
        (header_of(**{"avro.schema": b'"long"'}), ConfigError, "its schema is not one of a record"),
        (header_of(**{"avro.schema": b"{"}), ConfigError, "its schema cannot be read: "),
        (
            header_of(**{"avro.schema": TEXT, "avro.codec": b"lz4"}),
            ConfigError,
            "its blocks are compressed by 'lz4'; null, deflate, snappy, zstandard, bzip2, xz are read",
        ),
        (
            header_of(**{"avro.schema": TEXT}) + number(3) + number(2) + b"\x02\x04" + MARK,
            UserCodeError,
            "block at byte .*, record 3: it is not one of the schema of the file",
        ),
        (
            header_of(**{"avro.schema": TEXT}) + number(1) + number(2) + b"\x02\x04" + MARK,
            UserCodeError,
            "block at byte .*, record 1: .* or the block ends elsewhere",
        ),
        (
            header_of(**{"avro.schema": TEXT}) + number(2**40) + number(2) + b"\x02\x04" + MARK,
            UserCodeError,
            "block at byte .*: it says that 1099511627776 records are in 2 B",
        ),
        (
            header_of(**{"avro.schema": TEXT}) + number(-1) + number(2) + b"\x02\x04" + MARK,
            UserCodeError,
            "block at byte .*: a number in it is below 0",
        ),
        (header_of(**{"avro.schema": TEXT}) + number(1), UserCodeError, "block at byte .*: it is cut off"),
    ],
)
def test_what_is_no_avro_file_is_named(tmp_path: Path, content: bytes, error: Any, said: str) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(content)
    with pytest.raises(error, match=rf"a\.avro.* {said}"):
        read(FileSource(str(path), format="avro", schema=pa.schema([("n", pa.int64())])))


def test_a_file_without_blocks_has_no_rows_and_one_may_have_blocks_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(header_of(**{"avro.schema": TEXT}))
    assert rows_of(tmp_path / "a.avro") == []
    (tmp_path / "a.avro").write_bytes(
        header_of(**{"avro.schema": TEXT})
        + (number(0) + number(0) + MARK) * 2
        + number(1)
        + number(1)
        + b"\x04"
        + MARK
    )
    assert rows_of(tmp_path / "a.avro") == [{"n": 2}]


# --- types ----------------------------------------------------------------------------------------

MONEY: Final = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FIXED_MONEY: Final = {
    "type": "fixed",
    "name": "Money",
    "size": 9,
    "logicalType": "decimal",
    "precision": 20,
    "scale": 3,
}
LOGICAL: Final = [
    ("int", "date", pa.date32(), -1),
    ("int", "time-millis", pa.time32("ms"), 86_399_999),
    ("long", "time-micros", pa.time64("us"), 1),
    *(
        (kind, f"{name}-{unit}", pa.timestamp(short, zone), 1_700_000_000_123)
        for kind, name, zone in [("long", "timestamp", "UTC"), ("long", "local-timestamp", None)]
        for unit, short in [("millis", "ms"), ("micros", "us"), ("nanos", "ns")]
    ),
    ("string", "uuid", pa.string(), "0f0e"),
    ("long", "date", pa.int64(), 5),
    ("string", "of-our-own", pa.string(), "x"),
    ({"type": "fixed", "name": "D", "size": 12}, "duration", pa.binary(12), bytes(range(12))),
    ({"type": "fixed", "name": "U", "size": 16}, "uuid", pa.binary(16), bytes(16)),
]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("stored", "logical", "kind", "value"), LOGICAL)
def test_logical_types(  # noqa: PLR0917
    tmp_path: Path, stored: Any, logical: str, kind: pa.DataType, value: Any, nested: bool
) -> None:
    """Written as what is stored, with the name of the logical type in the header only."""
    of_it = {**(stored if isinstance(stored, dict) else {"type": stored}), "logicalType": logical}
    more = {"l": {"type": "array", "items": "int"}} if nested else {}
    content = container(record(v=stored, **more), [{"v": value, "l": []}], "null")
    text, declared = json.dumps(record(v=stored, **more)), json.dumps(record(v=of_it, **more))
    old, new = (number(len(one)) + one.encode() for one in (text, declared))
    assert old in content
    (tmp_path / "a.avro").write_bytes(content.replace(old, new))
    found = read(FileSource(str(tmp_path / "a.avro"), format="avro"))["v"]
    assert found.type == kind
    whole = pa.types.is_temporal(kind)
    assert (
        found.cast(pa.int32() if kind.bit_width == 32 else pa.int64()) if whole else found
    ).to_pylist() == [value]


def test_types_of_columns_are_those_of_the_first_file(tmp_path: Path) -> None:
    inner = record("Inner", x="double", tag=["null", "string"])
    schema = record(
        b="boolean",
        i="int",
        f="float",
        y="bytes",
        e={"type": "enum", "name": "E", "symbols": ["A", "B"]},
        x={"type": "fixed", "name": "F", "size": 2},
        m=MONEY,
        fm=FIXED_MONEY,
        r=["null", inner],
        z="null",
        o=["string"],
        l={"type": "array", "items": "Inner"},
        k={"type": "map", "values": ["null", "long"]},
    )
    row = {
        "b": True,
        "i": 1,
        "f": 0.5,
        "y": b"\xff",
        "e": "B",
        "x": b"ab",
        "m": Decimal("-1.23"),
        "fm": Decimal("12345678901234567.125"),
        "r": {"x": 1.5, "tag": None},
        "z": None,
        "o": "o",
        "l": [{"x": 2.5, "tag": "t"}],
        "k": {"a": None, "b": 2},
    }
    path = write(tmp_path / "a.avro", schema, [row, {**row, "r": None}])
    source = FileSource(str(path), format="avro")
    kind = pa.struct([("x", pa.float64()), ("tag", pa.string())])
    assert source.schema == pa.schema(
        {
            "b": pa.bool_(),
            "i": pa.int32(),
            "f": pa.float32(),
            "y": pa.binary(),
            "e": pa.string(),
            "x": pa.binary(2),
            "m": pa.decimal128(12, 2),
            "fm": pa.decimal128(20, 3),
            "r": kind,
            "z": pa.null(),
            "o": pa.string(),
            "l": pa.list_(kind),
            "k": pa.map_(pa.string(), pa.int64()),
        }
    )
    expected = {**row, "k": [("a", None), ("b", 2)]}
    assert read(source).to_pylist() == [expected, {**expected, "r": None}]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["null", "string", "long"], r"field 'u' of its schema has values of several types \(string, long\)"),
        (
            {"type": "array", "items": ["int", "string"]},
            r"field 'u' of its schema has values of several types \(int, string\)",
        ),
        (["null", "Row"], r"field 'u\.u' of its schema has records that hold themselves"),
    ],
)
def test_what_no_column_holds_is_refused_or_left_out(tmp_path: Path, kind: Any, said: str) -> None:
    path = write(
        tmp_path / "a.avro", record(n="long", u=kind), [{"n": 1, "u": [] if "array" in str(kind) else None}]
    )
    with pytest.raises(ConfigError, match=said + r"; leave it out with columns=\[…\], or pass schema="):
        read(FileSource(str(path), format="avro"))
    assert rows_of(path, columns=["n"]) == [{"n": 1}]


def test_a_union_of_several_types_is_read_as_the_type_that_is_declared(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", record(u=["null", "string", "long"]), [{"u": "a"}, {"u": None}])
    assert rows_of(path, schema=pa.schema([("u", pa.string())])) == [{"u": "a"}, {"u": None}]
    write(path, record(u=["null", "string", "long"]), [{"u": "a"}, {"u": 5}])
    with pytest.raises(UserCodeError, match=r"block at byte .*, record 2: field 'u' is not a string"):
        rows_of(path, schema=pa.schema([("u", pa.string())]))


# --- schemas that change --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "value", "kind", "expected"),
    [
        ("int", 7, pa.int64(), 7),
        ("int", 7, pa.float32(), 7.0),
        ("int", 7, pa.float64(), 7.0),
        ("long", 2**53, pa.float64(), 2.0**53),
        ("float", 0.5, pa.float64(), 0.5),
        ("string", "é", pa.binary(), "é".encode()),
        ("bytes", "é".encode(), pa.string(), "é"),
        ("string", "a", pa.dictionary(pa.int32(), pa.string()), "a"),
        (MONEY, Decimal("1.23"), pa.decimal128(20, 4), Decimal("1.2300")),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            pa.timestamp("us", "UTC"),
            dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        ),
        ("long", 5, pa.int32(), "field 'v' of its schema is int64, expected int32"),
        ("double", 5.0, pa.int64(), "field 'v' of its schema is double, expected int64"),
        ("string", "a", pa.int64(), "field 'v' of its schema is string, expected int64"),
        ("int", 5, pa.uint64(), "field 'v' of its schema is int32, expected uint64"),
        (record("Q", x="int"), {"x": 1}, pa.int64(), "field 'v' of its schema is record, expected int64"),
        (
            record("Q", x="string"),
            {"x": "a"},
            pa.struct([("x", pa.int32())]),
            r"field 'v.x' of its schema is string",
        ),
        (
            {"type": "array", "items": "long"},
            [1],
            pa.list_(pa.int32()),
            r"field 'v\[\]' of its schema is int64",
        ),
        ({"type": "array", "items": "int"}, [1], pa.list_(pa.int64()), [1]),
        ({"type": "map", "values": "float"}, {"a": 0.5}, pa.map_(pa.string(), pa.float64()), [("a", 0.5)]),
        (
            record("Q", x="int"),
            {"x": 1},
            pa.struct([("y", pa.int32())]),
            "it has no field 'v.y', and its default",
        ),
    ],
)
def test_values_become_those_of_wider_types_and_of_no_others(
    tmp_path: Path, stored: Any, value: Any, kind: pa.DataType, expected: Any
) -> None:
    path = write(tmp_path / "a.avro", record(v=stored), [{"v": value}])
    schema = pa.schema([("v", kind)])
    if isinstance(expected, str) and " " in expected:
        with pytest.raises(ConfigError, match=rf"a\.avro: {expected}"):
            rows_of(path, schema=schema)
    else:
        assert rows_of(path, schema=schema) == [{"v": expected}]


WHEN: Final = dt.datetime(2001, 9, 9, 1, 46, 40, 1, dt.UTC)


def test_times_inside_of_lists_are_in_the_unit_that_is_wanted(tmp_path: Path) -> None:
    """These are read record by record."""
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    schema = record(
        v={"type": "array", "items": nanos},
        m={"type": "map", "values": ["null", nanos]},
        r=record("R", t=nanos, l={"type": "array", "items": record("Q", t=nanos)}),
    )
    at = 1_000_000_000_000_001_000
    row = {"v": [at], "m": {"k": at}, "r": {"t": at, "l": [{"t": at}]}}
    path = write(tmp_path / "a.avro", schema, [row])
    micros = pa.timestamp("us", "UTC")
    inner = pa.struct([("t", micros)])
    wanted = {
        "v": pa.list_(micros),
        "m": pa.map_(pa.string(), micros),
        "r": pa.struct([("t", micros), ("l", pa.list_(inner))]),
    }
    assert rows_of(path, schema=wanted) == [
        {"v": [WHEN], "m": [("k", WHEN)], "r": {"t": WHEN, "l": [{"t": WHEN}]}}
    ]


def test_a_value_that_a_column_cannot_have_fails_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", record(v="long"), [{"v": 1}, {"v": 2**53 + 1}])
    with pytest.raises(UserCodeError, match=r"block at byte .*, record 2: field 'v' is not a double"):
        rows_of(path, schema=pa.schema([("v", pa.float64())]))
    path = write(tmp_path / "a.avro", record(v=["null", "long"]), [{"v": 1}, {"v": None}])
    with pytest.raises(UserCodeError, match=r"record 2: field 'v' is missing or null"):
        rows_of(path, schema=pa.schema([pa.field("v", pa.int64(), nullable=False)]))
    timed = FileSource(str(path), format="avro").timed_by("v")
    with pytest.raises(UserCodeError, match=r"a\.avro, block at byte .*, record 2: .*null"):
        read(timed)


OLD: Final = record(
    "Order", id="int", gone="string", name=["null", "string"], place=record("Place", city="string")
)
NEW: Final = record(
    "Bestellung",
    name="string",
    id="long",
    place=record("Place", zip=with_default("bytes", "\u00ff\u0001"), city="string"),
    total=with_default(MONEY, "\u00ff"),
    tags=with_default({"type": "array", "items": "string"}, ["a"]),
    note=with_default(["null", "string"], None),
)
OLD_ROW: Final = {"id": 1, "gone": "g", "name": "n", "place": {"city": "c"}}
NEW_ROW: Final = {
    "name": "m",
    "id": 2**40,
    "place": {"zip": b"z", "city": "d"},
    "total": Decimal("2.00"),
    "tags": [],
    "note": "x",
}
AS_NEW: Final = {
    "name": "n",
    "id": 1,
    "place": {"zip": b"\xff\x01", "city": "c"},
    "total": Decimal("-0.01"),
    "tags": ["a"],
    "note": None,
}


def test_files_of_older_and_newer_schemas_are_read_by_one(tmp_path: Path) -> None:
    """By the one that is given, or that of the first file."""
    write(tmp_path / "b.avro", OLD, [OLD_ROW])
    given = AvroRecord(schema=json.dumps(NEW))
    assert rows_of(tmp_path, schema=given) == [AS_NEW]
    write(tmp_path / "a.avro", NEW, [NEW_ROW])
    assert rows_of(tmp_path) == rows_of(tmp_path, schema=given) == [NEW_ROW, AS_NEW]
    some = ["total", "id"]
    assert rows_of(tmp_path, columns=some) == [
        {name: row[name] for name in some} for row in (NEW_ROW, AS_NEW)
    ]
    (tmp_path / "a.avro").unlink()
    write(tmp_path / "c.avro", record(id="int"), [{"id": 1}])
    with pytest.raises(
        ConfigError, match=r"c\.avro: .*it has no field 'gone', which has no default in the schema"
    ):
        rows_of(tmp_path)
    write(tmp_path / "c.avro", NEW, [NEW_ROW])
    with pytest.raises(ConfigError, match=r"c\.avro: field 'id' of its schema is int64, expected int32"):
        rows_of(tmp_path, columns=["id"])


def test_a_field_is_found_by_its_former_name(tmp_path: Path) -> None:
    write(tmp_path / "a.avro", OLD, [OLD_ROW])
    renamed = record("Other", key=with_default("long", 0, "id"), extra=with_default("bytes", "\u00fe"))
    assert rows_of(tmp_path, schema=AvroRecord(schema=json.dumps(renamed))) == [{"key": 1, "extra": b"\xfe"}]


def test_without_defaults_a_file_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.avro", OLD, [OLD_ROW])
    with pytest.raises(
        ConfigError, match=r"no field 'total', and its default is not known.*schema=us.AvroRecord"
    ):
        rows_of(tmp_path, schema=pa.schema([("total", pa.int64())]))
    wrong = record("Order", total=with_default("long", "x"))
    with pytest.raises(ConfigError, match="file source: schema= cannot be read: SchemaParseException"):
        FileSource(str(tmp_path), format="avro", schema=AvroRecord(schema=json.dumps(wrong)))
    with pytest.raises(ConfigError, match="is for format=\"avro\", not 'csv'"):
        FileSource(str(tmp_path), format="csv", schema=AvroRecord(schema="{}"))


# --- against fastavro -----------------------------------------------------------------------------

LEAVES: Final = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and its values."""
    shape = draw(st.sampled_from(["leaf", "leaf", "optional", "array", "map", "record"][: 6 if depth else 2]))
    if shape == "leaf":
        name = draw(st.sampled_from(sorted(LEAVES)))
        return name, LEAVES[name]
    kind, values = draw(kinds(depth - 1))
    match shape:
        case "array":
            return {"type": "array", "items": kind}, st.lists(values, max_size=3)
        case "map":
            return {"type": "map", "values": kind}, st.dictionaries(st.text(max_size=3), values, max_size=3)
        case "record":
            name = f"R{draw(st.uuids()).hex}"
            return record(name, a=kind, b="int"), st.fixed_dictionaries({"a": values, "b": LEAVES["int"]})
        case _:
            if isinstance(kind, list):
                return kind, values
            order = draw(st.permutations(["null", kind]))
            return list(order), st.none() | values


@given(data=st.data(), several=st.integers(1, 4), codec=st.sampled_from(["null", "deflate"]))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rows_of_any_schema_are_those_that_fastavro_reads(
    tmp_path: Path, data: st.DataObject, several: int, codec: str
) -> None:
    fields = {f"f{i}": data.draw(kinds()) for i in range(several)}
    schema = record(**{name: kind for name, (kind, _) in fields.items()})
    rows = data.draw(
        st.lists(st.fixed_dictionaries({name: of for name, (_, of) in fields.items()}), max_size=8)
    )
    path = write(tmp_path / "a.avro", schema, rows, codec=codec, sync_interval=20)
    with path.open("rb") as file:
        expected = list(fastavro.reader(file))
    source = FileSource(str(path), format="avro", split_bytes=data.draw(st.sampled_from([1, 50, 10_000])))
    found = read(source)
    assert found.equals(pa.Table.from_pylist(expected, source.schema))
