"""Columns of a Kafka source next to those of the value: of the key, of what Kafka says, and of tombstones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.unit.connector.kafka.framed_records import framed
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common.buffers import PADDING
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import HEADERS_TYPE, METADATA, checked_layout
from unistream.connector.kafka.record.records import Framed

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def decoded(
    records, *, schema=SCHEMA, format="json", on_bad="fail", key_format=None, **more
) -> PartitionRows:
    layout = checked_layout(schema, format, key_format=key_format, **more)
    decoder = RecordDecoder(RecordForm(layout=layout, values=format, keys=key_format, on_bad_record=on_bad))
    piece = decoder.decode(framed(records, first=40), "prices", 3)
    piece.records.validate(full=True)
    assert piece.records.schema.equals(layout.schema)
    return piece


def rows(piece: PartitionRows) -> list[tuple]:
    return [tuple(row.values()) for row in piece.records.to_pylist()]


# --- metadata -----------------------------------------------------------------------------------------


def test_what_kafka_says_of_a_record_becomes_columns():
    headers = [("trace", b"\x00\xff"), ("trace", None), ("größe", b"")]
    piece = decoded(
        [(b"k", b'{"id": "a", "n": 1}', headers), (None, b'{"id": "b"}')],
        metadata={
            "topic": "topic",
            "part": "partition",
            "at": "offset",
            "time": "timestamp",
            "headers": "headers",
            "raw key": "key",
            "raw": "value",
            "deleted": "tombstone",
        },
    )
    written = datetime.fromtimestamp(1, UTC)
    pairs = [{"key": name, "value": value} for name, value in headers]
    assert rows(piece) == [
        ("a", 1, "prices", 3, 40, written, pairs, b"k", b'{"id": "a", "n": 1}', False),
        ("b", None, "prices", 3, 41, written.replace(microsecond=1000), [], None, b'{"id": "b"}', False),
    ]
    assert [field.type for field in piece.records.schema][2:7] == [
        pa.string(),
        pa.int32(),
        pa.int64(),
        pa.timestamp("ms", tz="UTC"),
        HEADERS_TYPE,
    ]


def test_a_column_of_metadata_that_the_schema_names_has_its_place_and_type():
    schema = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64()), ("p", pa.int64())])
    piece = decoded(
        [(None, b'{"n": 5, "p": 7}')], schema=schema, metadata={"at": "timestamp", "p": "partition"}
    )
    assert piece.records.schema.equals(schema)
    assert rows(piece) == [(datetime(1970, 1, 1, 0, 0, 1), 5, 3)]  # noqa: DTZ001  (as its type)


def test_rows_of_bytes_have_columns_by_their_names():
    piece = decoded(
        [(b"k", b"v", [("h", b"1")]), (None, None)],
        schema=pa.schema([("value", pa.binary()), ("headers", HEADERS_TYPE), ("offset", pa.int64())]),
        format="bytes",
        metadata={"from": "topic"},
    )
    assert rows(piece) == [
        (b"v", [{"key": "h", "value": b"1"}], 40, "prices"),
        (None, [], 41, "prices"),
    ]
    skipped = decoded(
        [(b"k", None), (b"k", b"v")],
        schema=pa.schema([("value", pa.binary())]),
        format="bytes",
        tombstones="skip",
    )
    assert (rows(skipped), skipped.tombstones) == ([(b"v",)], 1)


def test_headers_of_many_records_and_broken_ones():
    records = [
        (b"k" * (i % 5), b"v" * (i % 7), [(f"h{k}", b"x" * k) for k in range(i % 4)]) for i in range(500)
    ]
    piece = decoded(records, schema=pa.schema([("headers", HEADERS_TYPE)]), format="bytes")
    found = piece.records.column(0).to_pylist()
    assert [[(h["key"], h["value"]) for h in one] for one in found] == [headers for *_, headers in records]


CUT, ODD = -1 - len(b"\x04h0\x00"), -2  # the number of headers: 63; a byte of a name


@pytest.mark.parametrize(
    ("at", "byte", "reason"),
    [(CUT, 0x7E, "its headers are broken"), (ODD, 0xFF, "the name of a header is not UTF-8")],
    ids=["cut", "no text"],
)
def test_broken_headers_make_a_bad_record_if_they_are_read(at, byte, reason):
    given = framed([(None, b'{"n": 1}'), (None, b'{"n": 2}', [("h0", b"")])], first=40)
    broken = changed(given, at, byte)
    schema = pa.schema([("n", pa.int64())])
    layout = checked_layout(schema, "json", metadata={"headers": "headers"})
    piece = RecordDecoder(RecordForm(layout=layout, values="json", on_bad_record="dead-letter")).decode(
        broken, "prices", 3
    )
    assert rows(piece) == [(1, [])]
    assert piece.dead_letters is not None
    [letter] = piece.dead_letters.to_pylist()
    assert (letter["offset"], letter["raw"], letter["headers"]) == (41, b'{"n": 2}', None)
    assert letter["reason"].endswith(reason)
    with pytest.raises(UserCodeError, match=r"topic 'prices' partition 3 offset 41: bad record: .*" + reason):
        RecordDecoder(RecordForm(layout=layout, values="json")).decode(broken, "prices", 3)
    unread = RecordDecoder(RecordForm.of_values(schema, "json")).decode(broken, "prices", 3)
    assert rows(unread) == [(1,), (2,)]


def changed(given: Framed, at: int, byte: int) -> Framed:
    data = given.data.copy()
    data[at - PADDING] = byte
    return replace(given, data=data)


# --- keys ---------------------------------------------------------------------------------------------


def test_columns_of_keys_of_text_and_of_json():
    records = [(b"a", b'{"id": "ignored", "n": 1}'), (None, b'{"n": 2}')]
    assert rows(decoded(records, key_format="bytes", key_fields=["id"])) == [("a", 1), (None, 2)]
    schema = pa.schema([("n", pa.int64()), ("k_id", pa.int32()), ("k_region", pa.string())])
    piece = decoded(
        [(b'{"region": "eu", "id": 5}', b'{"n": 1, "id": 99}'), (None, b'{"n": 2}')],
        schema=schema,
        key_format="json",
        key_fields=["k_region", "k_id"],
        key_fields_prefix="k_",
    )
    assert rows(piece) == [(1, 5, "eu"), (2, None, None)]


BAD = [
    (b"a", b'{"n": 1}'),
    (b"\xff", b'{"n": 2}'),
    (b"c", b'{"n": "x"}'),
    (b"\xfe", b"nothing"),
    (b"e", None),
    (b"f", b'{"n": 6}'),
]


def test_bad_keys_are_bad_records():
    keyed = {"key_format": "bytes", "key_fields": ["id"]}
    with pytest.raises(
        UserCodeError,
        match="offset 41: bad record: its key: field 'id' is not a string",
    ):
        decoded(BAD, **keyed)
    skipped = decoded(BAD, on_bad="skip", **keyed)
    assert (rows(skipped), skipped.skipped, skipped.tombstones) == ([("a", 1), ("f", 6)], 3, 1)
    piece = decoded(BAD, on_bad="dead-letter", **keyed)
    assert rows(piece) == [("a", 1), ("f", 6)]
    assert piece.timestamps.to_pylist() == [1_000, 1_005]
    letters = piece.dead_letters.to_pylist()
    assert [(one["offset"], one["raw"]) for one in letters] == [
        (41, b'{"n": 2}'),
        (42, b'{"n": "x"}'),
        (43, b"nothing"),
    ]
    assert [one["reason"] for one in letters] == [
        "its key: field 'id' is not a string: Invalid UTF8 payload",
        "field 'n' is of JSON type string, where the schema needs a number",
        "it is not a JSON object",
    ]


def test_a_record_without_a_key_that_has_to_be_there():
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int64())])
    given = [(b"a", b'{"n": 1}'), (None, b'{"n": 2}')]
    keyed = {"schema": schema, "key_format": "bytes", "key_fields": "id"}
    with pytest.raises(UserCodeError, match="offset 41: bad record: it has no key"):
        decoded(given, **keyed)
    assert rows(decoded(given, on_bad="skip", **keyed)) == [("a", 1)]


# --- tombstones ---------------------------------------------------------------------------------------


def test_tombstones_are_rows_for_those_who_delete_by_key():
    piece = decoded(
        [(b"a", b'{"n": 1}'), (b"a", None), (b"b", b"{}"), (None, None)],
        key_format="bytes",
        key_fields=["id"],
        tombstones="row",
        metadata={"deleted": "tombstone", "at": "offset"},
    )
    assert rows(piece) == [
        ("a", 1, False, 40),
        ("a", None, True, 41),
        ("b", None, False, 42),
        (None, None, True, 43),
    ]
    assert piece.tombstones == 0
    assert piece.timestamps.to_pylist() == [1_000, 1_001, 1_002, 1_003]
    only = decoded([(b"a", None)], key_format="bytes", key_fields=["id"], tombstones="row")
    assert rows(only) == [("a", None)]


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key_format": "json"}, "key_format and key_fields go together"),
        ({"key_fields": ["id"]}, "key_format and key_fields go together"),
        ({"key_format": "json", "key_fields": ["x"]}, "'x' is no column of the schema, .*it has id, n"),
        (
            {"key_format": "json", "key_fields": ["n", "n"]},
            "'n' is no column of the schema, or is na",
        ),
        ({"key_format": "bytes", "key_fields": ["n"]}, r"fills one column of bytes or text, not n \(int64\)"),
        ({"key_format": "bytes", "key_fields": ["id", "n"]}, "fills one column of bytes or text, not id, n"),
        (
            {"key_format": "json", "key_fields": ["id"], "key_fields_prefix": "k_"},
            "'id' does not begin with key_fields_prefix 'k_'",
        ),
        (
            {"metadata": {"x": "offsets"}},
            "column 'x' cannot have 'offsets'; there is topic, part",
        ),
        (
            {"metadata": {"n": "topic"}},
            "column 'n' has the topic of a record.*string or .* not int64",
        ),
        (
            {"metadata": {"id": "offset"}, "key_format": "json", "key_fields": ["id"]},
            "column 'id' is both a field of the key and metadata",
        ),
        ({"tombstones": "null"}, "tombstones must be one of skip, row, not 'null'"),
        ({"tombstones": "row", "required": True}, "gives rows without a value, but column 'n' is"),
        ({"format": "bytes"}, "with format=\"bytes\" has no column 'id'; it has topic, partition, offset"),
    ],
)
def test_what_is_refused(changed, message):
    required = changed.pop("required", False)
    schema = pa.schema([("id", pa.string()), pa.field("n", pa.int64(), nullable=not required)])
    with pytest.raises(ConfigError, match=message):
        checked_layout(schema, **{"format": "json", **changed})
    assert len(METADATA) == 8


# --- fewer columns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["json", "json-confluent", "bytes"])
def test_only_the_columns_that_are_used_and_the_same_bad_records(format):
    prefix = b"\x00\x00\x00\x00\x07" if format == "json-confluent" else b""
    records = [(key, None if value is None else prefix + value, [("h", b"1")]) for key, value in BAD]
    schema = SCHEMA if format != "bytes" else pa.schema([("id", pa.string()), ("value", pa.binary())])
    layout = checked_layout(
        schema,
        format,
        key_format="bytes",
        key_fields=["id"],
        metadata={"at": "offset", "headers": "headers"},
        tombstones="row",
    )

    def read(*columns: str) -> PartitionRows:
        used = frozenset(columns) or None
        decoder = RecordDecoder(
            RecordForm(layout=layout, values=format, keys="bytes", on_bad_record="dead-letter"), used
        )
        return decoder.decode(framed(records), "prices", 3)

    whole = read()
    for names in (["at"], ["id"], [schema.names[1]], ["headers", "id"], [schema.names[1], "at"]):
        some = read(*names)
        ordered = [name for name in layout.schema.names if name in names]
        assert some.records.equals(whole.records.select(ordered))
        assert some.timestamps.equals(whole.timestamps)
        assert some.dead_letters == whole.dead_letters
