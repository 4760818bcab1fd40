"""Columns as record batches, read back by kafka-python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from kafka.record import MemoryRecords

from unistream.connector.kafka.broker.private import _payload
from unistream.connector.kafka.record.batches import (
    COMPRESSIONS,
    SEQUENCE_MAX,
    Blobs,
    Compression,
    ProducerRecords,
    encoded_headers,
    next_sequence,
    partitions_of,
    sealed,
    sections,
)
from unistream.connector.kafka.record.transactions import ProducerId

BYTES = st.none() | st.binary(max_size=300)
TIMES = st.integers(min_value=0, max_value=2**45)
ROWS = st.lists(st.tuples(BYTES, BYTES, BYTES, TIMES), min_size=1, max_size=50)
Row = tuple[bytes | None, bytes | None, bytes | None, int]


def outgoing(rows: list[Row]) -> ProducerRecords:
    keys, values, headers, times = zip(*rows, strict=True)

    def blobs(column: tuple[bytes | None, ...]) -> Blobs:
        padded = pa.array([b"before", *column], pa.binary())
        return Blobs.of(padded.slice(1))

    named = [("first", blobs(headers)), ("ä", blobs(values))]
    return ProducerRecords(
        keys=blobs(keys),
        values=blobs(values),
        times=pa.array(times, pa.int64()).to_numpy(),
        headers=encoded_headers(named, len(rows)),
        header_count=2,
    )


def read(batches: list[bytes]) -> list[tuple[Row, list[tuple[str, bytes | None]]]]:
    found = []
    for batch in batches:
        records = MemoryRecords(batch)
        while (one := records.next_batch()) is not None:
            assert one.validate_crc()
            assert (one.producer_id, one.producer_epoch) == (5, 3)
            assert one.is_transactional
            for record in one:
                header = dict(record.headers)["first"]
                found.append(((record.key, record.value, header, record.timestamp), list(record.headers)))
    return found


@given(rows=ROWS, compression=st.sampled_from(["none", "gzip"]), bytes_max=st.integers(1, 2_000))
@settings(deadline=None, max_examples=60)
def test_all_records_are_read_back_in_order(
    rows: list[Row], compression: Compression, bytes_max: int
) -> None:
    sequence, batches, count = 10, [], 0
    for section in sections(outgoing(rows), compression, bytes_max):
        batches.append(sealed(section, ProducerId(5, 3), sequence, transactional=True))
        sequence = next_sequence(sequence, section.rows)
        count += section.rows
    assert count == len(rows)
    assert sequence == 10 + len(rows)
    found = read(batches)
    assert [row for row, _ in found] == rows
    assert [headers for _, headers in found] == [
        [("first", header), ("ä", value)] for _, value, header, _ in rows
    ]


@pytest.mark.parametrize("compression", sorted(COMPRESSIONS))
def test_what_is_compressed_is_the_same(compression: Compression) -> None:
    """Also by codecs that kafka-python has only with further packages."""
    rows: list[Row] = [(b"k", b"v" * 100, None, i) for i in range(1_000)]
    [plain] = sections(outgoing(rows), "none", 10**6)
    [section] = sections(outgoing(rows), compression, 10**6)
    assert compression == "none" or len(section.payload) < len(plain.payload) / 10
    batch = MemoryRecords(sealed(section, ProducerId(5, 3), 0, transactional=True)).next_batch()
    assert bytes(_payload(batch)) == bytes(plain.payload)


def test_a_batch_has_so_many_bytes_at_most() -> None:
    rows: list[Row] = [(b"k", b"v" * 100, b"", i) for i in range(1_000)]
    found = list(sections(outgoing(rows), "none", 10_000))
    assert len(found) > 20
    assert max(len(section.payload) for section in found) <= 10_000
    [large] = sections(outgoing([(None, b"v" * 20_000, None, 0)]), "none", 10_000)
    assert large.rows == 1, "a larger record has a batch of its own"


@given(keys=st.lists(BYTES, min_size=1, max_size=50), count=st.integers(1, 100))
@settings(deadline=None, max_examples=60)
def test_keys_are_placed_as_by_kafka_s_own_clients(keys: list[bytes | None], count: int) -> None:
    found = partitions_of(Blobs.of(pa.array(keys, pa.binary())), count).tolist()
    assert found == [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys]


@pytest.mark.parametrize(
    ("sequence", "rows", "then"), [(0, 5, 5), (SEQUENCE_MAX, 1, 0), (SEQUENCE_MAX - 1, 5, 3)]
)
def test_sequences_begin_again(sequence: int, rows: int, then: int) -> None:
    assert next_sequence(sequence, rows) == then
