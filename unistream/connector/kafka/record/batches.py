"""Columns as Kafka's record batches (message format v2): the other direction of `records`.

    ProducerRecords (keys, values, headers, times)
        --sections-->  Section: records of one batch, maybe compressed
        --sealed-->    bytes for a produce request

What depends on the transaction is in the header of a batch, so a section can be made before its number in the
sequence of its partition is known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from unistream.connector.common.machine_code import loops
from unistream.connector.kafka.record.records import Int64s, UInt8s
from unistream.connector.kafka.record.transactions import ProducerId

Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

COMPRESSIONS: Final[dict[Compression, int]] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TRANSACTIONAL: Final = 0x10
BATCH_EXTRA_BYTES: Final = 61  # the header of a batch
SEQUENCE_MAX: Final = 2**31 - 1

_HEAD: Final = struct.Struct(">qiibI")  # offset, length, leader epoch, magic, CRC
_BODY: Final = struct.Struct(">hiqqqhii")  # attributes, last offset, times, producer, epoch, sequence, count
_LENGTH_BEFORE: Final = 12  # what the length of a batch does not count
_NOTHING: Final = np.zeros(0, np.uint8)
RECORD_EXTRA_MAX: Final = 40  # of a record without key, value and headers: varints, attributes, its size


@dataclass(frozen=True, slots=True)
class Blobs:
    """A column of bytes: places in `data`; length -1: null."""

    data: UInt8s
    starts: Int64s
    lengths: Int64s

    @staticmethod
    def of(column: pa.Array) -> Blobs:
        """The blobs of a column of text or bytes, without a copy of these."""
        wide = column.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        bounds = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
        lengths = np.diff(bounds)
        if wide.null_count:
            lengths[np.asarray(wide.is_null())] = -1
        return Blobs(_NOTHING if data is None else np.frombuffer(data, np.uint8), bounds[:-1], lengths)

    @staticmethod
    def absent(rows: int) -> Blobs:
        return Blobs(_NOTHING, np.zeros(rows, np.int64), np.full(rows, -1))

    @property
    def sizes(self) -> Int64s:
        return np.maximum(self.lengths, 0)

    def rows(self, which: slice | Int64s) -> Blobs:
        return Blobs(self.data, self.starts[which], self.lengths[which])

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class ProducerRecords:
    """Records of one partition, in order. `headers`: encoded, `header_count` in each; `times`: ms since
    1970."""

    keys: Blobs
    values: Blobs
    times: Int64s
    headers: Blobs
    header_count: int = 0

    def __len__(self) -> int:
        return len(self.times)

    @property
    def sizes(self) -> Int64s:
        """Bytes of each, at most."""
        return (
            self.keys.sizes
            + self.values.sizes
            + self.headers.sizes * (self.header_count > 0)
            + RECORD_EXTRA_MAX
        )

    def rows(self, which: slice | Int64s) -> ProducerRecords:
        return ProducerRecords(
            keys=self.keys.rows(which),
            values=self.values.rows(which),
            times=self.times[which],
            headers=self.headers.rows(which),
            header_count=self.header_count,
        )


@dataclass(frozen=True, slots=True)
class Section:
    """The records of one batch. `attributes`: their compression."""

    payload: memoryview
    rows: int
    first_ms: int
    last_ms: int
    attributes: int


def encoded_headers(headers: Sequence[tuple[str, Blobs]], rows: int) -> Blobs:
    """The headers of each row, one after the other."""
    data, bounds = _NOTHING, np.zeros(rows + 1, np.int64)
    for name, values in headers:
        key = np.frombuffer(name.encode(), np.uint8)
        out = np.empty(int(bounds[-1] + values.sizes.sum()) + rows * (len(key) + 20), np.uint8)
        after = np.zeros(rows + 1, np.int64)
        _kernels().add_header(data, bounds, key, values.data, values.starts, values.lengths, out, after)
        data, bounds = out, after
    return Blobs(data, bounds[:-1], np.diff(bounds))


def sections(records: ProducerRecords, compression: Compression, bytes_max: int) -> Iterator[Section]:
    """Divides records into batches of at most `bytes_max` uncompressed; a larger record has one of its
    own."""
    ends = np.cumsum(records.sizes)
    first = 0
    while first < len(records):
        used = ends[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(ends, used + bytes_max, side="right")))
        yield _section(records.rows(slice(first, end)), compression, int(ends[end - 1] - used))
        first = end


def _section(records: ProducerRecords, compression: Compression, size: int) -> Section:
    out = np.empty(size, np.uint8)
    first = int(records.times[0])
    columns = (records.keys, records.values, records.headers)
    places = [array for one in columns for array in (one.data, one.starts, one.lengths)]
    used = _kernels().put_records(records.times - first, *places, records.header_count, out)
    return Section(
        payload=_compressed(out[:used].data, compression),
        rows=len(records),
        first_ms=first,
        last_ms=int(records.times.max()),
        attributes=COMPRESSIONS[compression],
    )


def sealed(section: Section, producer: ProducerId, sequence: int, *, transactional: bool) -> bytes:
    """The batch. `sequence`: of its first record, among those of the producer in the partition."""
    body = _BODY.pack(
        section.attributes | (TRANSACTIONAL if transactional else 0),
        section.rows - 1,
        section.first_ms,
        section.last_ms,
        producer.id,
        producer.epoch,
        sequence,
        section.rows,
    )
    checksum = crc32c(section.payload, crc32c(body))
    length = _HEAD.size + len(body) + len(section.payload) - _LENGTH_BEFORE
    return b"".join((_HEAD.pack(0, length, -1, 2, checksum), body, section.payload))


def next_sequence(sequence: int, rows: int) -> int:
    """The sequence number after so many records. It begins again behind the greatest one."""
    return (sequence + rows) & SEQUENCE_MAX


def partitions_of(keys: Blobs, count: int) -> Int64s:
    """The partition of each key, as Kafka's clients place it (murmur2); -1: there is no key."""
    hashes = np.empty(len(keys), np.int64)
    _kernels().murmur2(keys.data, keys.starts, keys.lengths, hashes)
    return np.where(hashes < 0, hashes, hashes % count)


def _compressed(payload: memoryview, compression: Compression) -> memoryview:
    if compression == "none":
        return payload
    if compression == "snappy":  # one bare block, which brokers and clients read, too
        return memoryview(pa.compress(payload, codec="snappy", asbytes=True))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, compression) as stream:
        stream.write(payload)
    return memoryview(sink.getvalue())


def _kernels() -> SimpleNamespace:
    return loops("unistream.connector.kafka.record.write_kernels")
