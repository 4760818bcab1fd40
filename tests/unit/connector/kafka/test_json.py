"""JSON values to columns: the fast way, and what happens to records that are not of the schema."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.kafka.decode import DEAD_LETTER_SCHEMA, RecordDecoder
from unistream.connector.kafka.json import BadRow, Decoded, JsonDecoder
from unistream.connector.kafka.records import Framed, json_lines


def naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # noqa: DTZ001  (a column without a zone)


def framed_values(*values: bytes | None) -> Framed:
    """Records with the given values, offsets from 100 on, times from 1000 on."""
    data = b"".join(value or b"" for value in values)
    lengths = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
    ends = np.cumsum(np.maximum(lengths, 0))
    n = len(values)
    absent = np.full(n, -1, dtype=np.int64)
    return Framed(
        np.frombuffer(data, dtype=np.uint8),
        np.arange(100, 100 + n),
        np.arange(1000, 1000 + n),
        absent,
        absent,
        ends - np.maximum(lengths, 0),
        lengths,
    )


def decode(schema: pa.Schema, *values: bytes | None, stop_at_bad: bool = False) -> Decoded:
    return JsonDecoder(schema, stop_at_bad=stop_at_bad).decode(json_lines(framed_values(*values)))


def one(name: str, kind: pa.DataType) -> pa.Schema:
    return pa.schema([(name, kind)])


def test_columns_in_the_order_of_the_schema_others_ignored_missing_null():
    schema = pa.schema(
        [("b", pa.string()), ("a", pa.int64()), ("c", pa.struct([("d", pa.list_(pa.float64()))]))]
    )
    decoded = decode(
        schema,
        b'{"a": 1, "z": [1, "x"], "b": "\xc3\xa4"}',
        None,
        b'{"z": {}, "a": null, "c": {"d": [1, 2.5]}}',
    )
    assert decoded.bad == []
    assert decoded.rows.tolist() == [0, 2]
    assert decoded.records.schema == schema
    assert decoded.records.to_pylist() == [
        {"b": "ä", "a": 1, "c": None},
        {"b": None, "a": None, "c": {"d": [1.0, 2.5]}},
    ]


@pytest.mark.parametrize(
    ("kind", "text", "number", "value"),
    [
        (
            pa.timestamp("ms"),
            "2013-01-01T05:15:00.250",
            1357017300250,
            naive(2013, 1, 1, 5, 15, 0, 250_000),
        ),
        (pa.timestamp("s"), "2013-01-01 05:15:00", 1357017300, naive(2013, 1, 1, 5, 15)),
        (
            pa.timestamp("ms", "UTC"),
            "2013-01-01T06:15:00+01:00",
            1357017300000,
            dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC),
        ),
        (pa.date32(), "2013-01-01", 15706, dt.date(2013, 1, 1)),
        (pa.time32("s"), "05:15:00", 18900, dt.time(5, 15)),
    ],
)
def test_times_are_read_from_text_and_from_numbers(kind, text, number, value):
    for given_value in (text, number):
        encoded = json.dumps({"t": given_value}).encode()
        decoded = decode(one("t", kind), encoded, b"{}", encoded)
        assert decoded.bad == []
        assert decoded.records.column(0).to_pylist() == [value, None, value]
    mixed = [json.dumps({"t": given_value}).encode() for given_value in (text, number, number, None, text)]
    decoded = decode(one("t", kind), *mixed)
    assert decoded.bad == []
    assert decoded.records.column(0).to_pylist() == [value, value, value, None, value]


def test_int64_takes_numbers_and_dictionary_takes_text():
    schema = pa.schema([("n", pa.int64()), ("d", pa.dictionary(pa.int32(), pa.string()))])
    decoded = decode(schema, b'{"n": 9007199254740993, "d": "x"}', b'{"n": -1, "d": "x"}')
    assert decoded.records.to_pylist() == [{"n": 9007199254740993, "d": "x"}, {"n": -1, "d": "x"}]
    assert decoded.records.schema == schema


@pytest.mark.parametrize(
    ("kind", "bad", "reason"),
    [
        (pa.int64(), b'{"a": "x"}', "field 'a' is of JSON type string, where the schema needs a number"),
        (pa.int64(), b'{"a": 1.5}', "'1.5' is not a int64"),
        (pa.int8(), b'{"a": 300}', "'300' is not a int8"),
        (pa.string(), b'{"a": 5}', "field 'a' is of JSON type number, where the schema needs a string"),
        (pa.string(), b'{"a": "x\xff"}', "field 'a' has text that is not UTF-8"),
        (pa.timestamp("ms"), b'{"a": "yesterday"}', "'yesterday' is not a timestamp[ms]"),
        (pa.struct([("b", pa.int64())]), b'{"a": {"b": []}}', "field 'a.b' is of JSON type array"),
        (pa.int64(), b'{"a": 1, "a": 2}', "twice"),
        (pa.int64(), b'{"a": 1,}', "it is not valid: Missing a name for object member"),
        (pa.int64(), b"no json", "it is not a JSON object"),
        (pa.int64(), b"", "it is not a JSON object"),
        (pa.int64(), b"{}null{}", "it is not exactly one complete JSON object"),
        (pa.int64(), b'{"a": {}} }', "it is not exactly one complete JSON object"),
    ],
)
def test_a_bad_record_is_found_with_its_reason_and_the_rest_is_kept(kind, bad, reason):
    schema = pa.schema([("a", kind), ("i", pa.int64())])
    values = [b'{"i": %d}' % i for i in range(40)]
    values[23] = bad
    decoded = decode(schema, *values)
    assert [b.row for b in decoded.bad] == [23]
    assert reason in decoded.bad[0].reason
    good = [i for i in range(40) if i != 23]
    assert decoded.rows.tolist() == good
    assert decoded.records.column("i").to_pylist() == good


def test_a_required_field_that_is_missing_or_null_makes_a_bad_record():
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), nullable=False)])
    decoded = decode(schema, b'{"a": 1, "b": 1}', b'{"a": 2}', b'{"a": null, "b": null}', b'{"a": 3, "b": 3}')
    assert decoded.bad == [
        BadRow(1, "field 'b' is missing or null"),
        BadRow(2, "field 'a' is missing or null"),
    ]
    assert decoded.records.to_pylist() == [{"a": 1, "b": 1}, {"a": 3, "b": 3}]
    assert decoded.records.schema == schema


def test_a_row_longer_than_the_parsers_block_is_read():
    long = json.dumps({"a": "x" * 3_000_000}).encode()
    decoded = decode(one("a", pa.string()), b'{"a": "y"}', long, b'{"a": "z"}')
    assert [len(v) for v in decoded.records.column(0).to_pylist()] == [1, 3_000_000, 1]


def test_only_bad_rows_and_no_rows_at_all():
    decoded = decode(one("a", pa.int64()), b"x", b'{"a": "y"}')
    assert decoded.records.num_rows == 0
    assert decoded.records.schema == one("a", pa.int64())
    assert [b.row for b in decoded.bad] == [0, 1]
    assert decode(one("a", pa.int64()), None, None).records.num_rows == 0


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int64()), pa.duration("ms"), pa.float16()])
def test_a_type_that_json_cannot_give_is_refused_with_its_column(kind):
    with pytest.raises(ConfigError, match=r"column 'odd': .* cannot be read from JSON"):
        JsonDecoder(pa.schema([("fine", pa.int64()), ("odd", kind)]), stop_at_bad=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b'{"a": 1}', b'{"a": "x"}', b"{", None, b'{"a":2}', b"{}{}"]), max_size=30))
def test_any_mixture_keeps_good_rows_in_order_and_names_every_bad_one(values):
    decoded = decode(one("a", pa.int64()), *values)
    good = {b'{"a": 1}': 1, b'{"a":2}': 2}
    assert decoded.rows.tolist() == [i for i, v in enumerate(values) if v in good]
    assert decoded.records.column(0).to_pylist() == [good[v] for v in values if v in good]
    assert [b.row for b in decoded.bad] == [
        i for i, v in enumerate(values) if v not in good and v is not None
    ]


def test_fail_names_topic_partition_offset_and_the_first_bad_record():
    decoder = RecordDecoder(one("a", pa.int64()), "json", "fail")
    framed = framed_values(b'{"a": 1}', b'{"a": 2}', b'{"a": "x"}', b"zzz")
    with pytest.raises(
        UserCodeError, match=r"topic 't' partition 7 offset 102: bad record: field 'a' is of JSON type"
    ):
        decoder.decode(framed, "t", 7)


def test_skip_counts_and_dead_letter_keeps_the_raw_bytes():
    values = [b'{"a": 1}', b"zzz", None, b'{"a": "x"}', b'{"a": 2}']
    skipped = RecordDecoder(one("a", pa.int64()), "json", "skip").decode(framed_values(*values), "t", 7)
    assert (skipped.skipped, skipped.tombstones, skipped.dead_letters) == (2, 1, None)
    assert skipped.records.column(0).to_pylist() == [1, 2]
    assert skipped.timestamps.to_pylist() == [1000, 1004]

    kept = RecordDecoder(one("a", pa.int64()), "json", "dead-letter").decode(framed_values(*values), "t", 7)
    assert kept.dead_letters is not None
    assert kept.dead_letters.schema == DEAD_LETTER_SCHEMA
    letters = kept.dead_letters.to_pylist()
    assert [(r["topic"], r["partition"], r["offset"], r["raw"]) for r in letters] == [
        ("t", 7, 101, b"zzz"),
        ("t", 7, 103, b'{"a": "x"}'),
    ]
    assert [r["timestamp"].timestamp() for r in letters] == [1.001, 1.003]
    assert all(r["reason"] for r in letters)
    assert kept.records.column(0).to_pylist() == [1, 2]


def test_bytes_with_their_metadata():
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("value", pa.binary()),
            ("partition", pa.int32()),
            ("timestamp", pa.timestamp("ms")),
        ]
    )
    piece = RecordDecoder(schema, "bytes", "fail").decode(framed_values(b"a", None), "t", 7)
    assert piece.records.schema == schema
    first, second = piece.records.to_pylist()
    assert first == {
        "offset": 100,
        "value": b"a",
        "partition": 7,
        "timestamp": naive(1970, 1, 1, 0, 0, 1),
    }
    assert second["value"] is None
    for wrong, message in (
        (one("body", pa.binary()), "no column 'body'"),
        (one("value", pa.int64()), "is binary"),
    ):
        with pytest.raises(ConfigError, match=message):
            RecordDecoder(wrong, "bytes", "fail")
