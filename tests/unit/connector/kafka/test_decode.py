"""Records to rows: what happens to those that are not of the schema, and where they come from."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.connector.kafka.framed_records import framed
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common import padded
from unistream.connector.kafka.format.decode import DEAD_LETTER_SCHEMA, RecordDecoder, RecordForm
from unistream.connector.kafka.record.records import Framed


def naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # noqa: DTZ001  (a column without a zone)


def framed_values(*values: bytes | None) -> Framed:
    """Records with the given values, offsets from 100 on, times from 1000 on."""
    data = b"".join((value or b"") + b"\x00" for value in values)  # behind each one: it has no headers
    lengths = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
    ends = np.cumsum(np.maximum(lengths, 0) + 1) - 1
    n = len(values)
    absent = np.full(n, -1, dtype=np.int64)
    return Framed(
        padded(data),
        np.arange(100, 100 + n),
        np.arange(1000, 1000 + n),
        absent,
        absent,
        ends - np.maximum(lengths, 0),
        lengths,
    )


def one(name: str, kind: pa.DataType) -> pa.Schema:
    return pa.schema([(name, kind)])


def test_fail_names_topic_partition_offset_and_the_first_bad_record():
    decoder = RecordDecoder(RecordForm.of_values(one("a", pa.int64()), "json"))
    framed = framed_values(b'{"a": 1}', b'{"a": 2}', b'{"a": "x"}', b"zzz")
    with pytest.raises(
        UserCodeError, match=r"topic 't' partition 7 offset 102: bad record: field 'a' is of JSON type"
    ):
        decoder.decode(framed, "t", 7)


def test_skip_counts_and_dead_letter_keeps_the_raw_bytes():
    values = [b'{"a": 1}', b"zzz", None, b'{"a": "x"}', b'{"a": 2}']
    skipped = RecordDecoder(RecordForm.of_values(one("a", pa.int64()), "json", "skip")).decode(
        framed_values(*values), "t", 7
    )
    assert (skipped.skipped, skipped.tombstones, skipped.dead_letters) == (2, 1, None)
    assert skipped.records.column(0).to_pylist() == [1, 2]
    assert skipped.timestamps.to_pylist() == [1000, 1004]

    kept = RecordDecoder(RecordForm.of_values(one("a", pa.int64()), "json", "dead-letter")).decode(
        framed_values(*values), "t", 7
    )
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


def test_a_letter_has_the_whole_record():
    headers = [("trace", b"\x00\x01"), ("trace", None)]
    records = framed([(b"k1", b"zzz", headers), (b"k2", b'{"a": 1}'), (None, b"yyy", []), (b"", b"xxx")])
    piece = RecordDecoder(RecordForm.of_values(one("a", pa.int64()), "json", "dead-letter")).decode(
        records, "t", 7
    )
    assert piece.dead_letters is not None
    letters = piece.dead_letters.to_pylist()
    assert [(r["raw"], r["key"], r["headers"]) for r in letters] == [
        (b"zzz", b"k1", [{"key": "trace", "value": b"\x00\x01"}, {"key": "trace", "value": None}]),
        (b"yyy", None, []),
        (b"xxx", b"", []),
    ]
    assert piece.records.column(0).to_pylist() == [1]


def test_bytes_with_their_metadata():
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("value", pa.binary()),
            ("partition", pa.int32()),
            ("timestamp", pa.timestamp("ms")),
        ]
    )
    decoder = RecordDecoder(RecordForm.of_values(schema, "bytes"))
    piece = decoder.decode(framed_values(b"a", None), "t", 7)
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
            RecordDecoder(RecordForm.of_values(wrong, "bytes"))
