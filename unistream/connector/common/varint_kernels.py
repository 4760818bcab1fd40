"""Numbers of variable length, zigzag-encoded, as Kafka, Avro and Protobuf have them: for compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from unistream.connector.common.buffers import UInt8s
from unistream.connector.common.compiled import spliced


@spliced
def varint(data: UInt8s, pos: int, end: int) -> tuple[Any, int]:
    """Reads a number of variable length: (value, next position); position -1: it exceeds `end` or 10
    bytes."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while pos < end and shift < 70:
        byte = data[pos]
        pos += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), pos
        shift += np.uint64(7)
    return np.int64(0), -1
