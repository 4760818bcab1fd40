"""Records as a broker sends them, framed."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from unistream.connector.kafka.broker.private import _raw_batch
from unistream.connector.kafka.record.records import Framed, frame

Header = tuple[str, bytes | None]
Record = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, list[Header]]


def framed(records: Sequence[Record], *, first: int = 0) -> Framed:
    """Of (key, value) or (key, value, headers), with offsets from `first` on and times 1000, 1001, …"""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 22)
    for i, (key, value, *headers) in enumerate(records):
        assert builder.append(i, 1_000 + i, key, value, headers[0] if headers else []) is not None
    batch = bytearray(builder.build())
    batch[:8] = first.to_bytes(8, "big")
    return frame([_raw_batch(DefaultRecordBatch(bytes(batch)), hidden=False)])
