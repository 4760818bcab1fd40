"""Framing of record batches, against batches built by kafka-python itself."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.structs import TopicPartition

from unistream.base.errors import ProtocolError
from unistream.connector.common import binary_array
from unistream.connector.kafka.broker import private as kafka_private
from unistream.connector.kafka.record import records as kafka_records
from unistream.connector.kafka.record.records import RawBatch, frame

HEADER = DefaultRecordBatch.HEADER_STRUCT.size
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def build(records: list[Record], *, base: int = 0, codec: int = 0) -> bytes:
    """A v2 batch as a producer sends it; base offset as a broker writes it (outside of the checksum)."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for i, (time_ms, key, value, headers) in enumerate(records):
        builder.append(i, time_ms, key, value, headers)
    return base.to_bytes(8, "big", signed=True) + bytes(builder.build())[8:]


def raw(built: bytes) -> RawBatch:
    return kafka_private._raw_batch(DefaultRecordBatch(built), hidden=False)


def of_values(*values: bytes | None) -> kafka_records.Framed:
    return frame([raw(build([(0, None, value, []) for value in values]))])


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**42),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), RECORDS, st.sampled_from([0, 1])), min_size=1, max_size=4))
def test_framing_gives_back_every_record(batches: list[tuple[int, list[Record], int]]):
    base = 0
    raws, expected = [], []
    for gap, records, codec in batches:
        base += gap
        raws.append(raw(build(records, base=base, codec=codec)))
        expected += [(base + i, *record[:3]) for i, record in enumerate(records)]
        base += len(records)
    framed = frame(raws)
    keys = binary_array(framed.data, framed.key_starts, framed.key_lengths).to_pylist()
    values = binary_array(framed.data, framed.value_starts, framed.value_lengths).to_pylist()
    got = list(zip(framed.offsets.tolist(), framed.timestamps.tolist(), keys, values, strict=True))
    assert got == expected
    assert raws[-1].next_offset == base
    assert raws[-1].offset == base - 1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.integers(1, 20))
def test_damaged_payloads_are_refused_and_never_read_beyond_their_end(payload: bytes, count: int):
    batch = RawBatch(0, count, 0, -1, count, memoryview(payload))
    try:
        framed = frame([batch])
    except ProtocolError:
        return
    assert len(framed) == count
    assert all(framed.value_starts + np.maximum(framed.value_lengths, 0) <= len(payload))


def test_each_truncation_of_a_real_payload_is_refused():
    whole = raw(build([(1, b"key", b"value" * 40, [("h", b"x")]), (2, None, None, [])]))
    for size in range(len(whole.payload)):
        cut = RawBatch(0, 2, 0, -1, 2, whole.payload[:size])
        with pytest.raises(ProtocolError, match="does not hold what its header says"):
            frame([cut])


def test_log_append_time_replaces_the_records_own():
    batch = raw(build([(5, None, b"a", []), (9, None, b"b", [])]))
    appended = RawBatch(0, 2, batch.first_timestamp, 77, 2, batch.payload)
    assert frame([batch]).timestamps.tolist() == [5, 9]
    assert frame([appended]).timestamps.tolist() == [77, 77]


def test_between_and_rows_select_by_offset_and_position():
    framed = frame([raw(build([(0, None, b"%d" % i, []) for i in range(5)], base=10))])
    assert framed.between(12, 14).offsets.tolist() == [12, 13]
    assert framed.between(0, None).offsets.tolist() == [10, 11, 12, 13, 14]
    assert framed.between(15, None).offsets.tolist() == []
    assert framed.rows(1, 3).offsets.tolist() == [11, 12]


@pytest.mark.parametrize(("codec", "name"), [(3, "lz4"), (4, "zstd"), (2, "snappy"), (1, "gzip")])
def test_every_codec_of_kafka_is_read(codec: int, name: str):
    plain = build([(7, b"k", b"value-%d" % i * 9, []) for i in range(50)])
    body = plain[HEADER:]
    packed = _packed(body, name)
    header = bytearray(plain[:HEADER])
    header[8:12] = (HEADER - 12 + len(packed)).to_bytes(4, "big")
    header[21:23] = codec.to_bytes(2, "big")
    assert bytes(raw(bytes(header) + packed).payload) == body


def _packed(body: bytes, name: str) -> bytes:
    if name == "gzip":
        return gzip.compress(body)
    if name == "snappy":  # the xerial framing of the Java client: blocks with their sizes
        blocks = [pa.compress(part, codec="snappy", asbytes=True) for part in (body[:100], body[100:])]
        framed = b"".join(len(b).to_bytes(4, "big") + b for b in blocks)
        return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + framed
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


def test_bare_snappy_blocks_are_read_too():
    body = b"abc" * 100
    assert kafka_private._snappy(memoryview(pa.compress(body, codec="snappy", asbytes=True))) == body


def test_checksum_is_castagnoli_and_a_flipped_bit_is_found():
    assert kafka_private.crc32c(memoryview(b"123456789")) == 0xE3069283
    assert kafka_private.crc32c(memoryview(b"")) == 0
    built = build([(0, None, b"some value", [])])
    where = TopicPartition("t", 3)
    kafka_private._check_crc(DefaultRecordBatch(built), where)
    broken = bytearray(built)
    broken[-3] ^= 1
    with pytest.raises(CorruptRecordError, match="t-3 at offset 0 fails its checksum"):
        kafka_private._check_crc(DefaultRecordBatch(bytes(broken)), where)
