"""Compiled loops over the headers of Kafka's records; see `unistream.connector.kafka.record.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from unistream.connector.common import Int64s, UInt8s
from unistream.connector.common.compiled import compiled
from unistream.connector.common.varint_kernels import varint
from unistream.connector.kafka.record.kernels import _sized


@compiled("u1[:] i8[:] >i8[:] >i8[:]")
def count_headers(data: UInt8s, starts: Int64s, counts: Int64s, places: Int64s) -> int:
    """How many headers each record has, and where the first one begins; -1, or the row of a broken one.

    `starts`: behind the value of each record, where their number is.
    """
    for row in range(len(starts)):
        count, place = varint(data, starts[row], len(data))
        if place < 0 or count < 0 or count > len(data) - place:
            return row
        counts[row] = count
        places[row] = place
    return -1


@compiled("u1[:] i8[:] i8[:] >i8[:,:]")
def place_headers(data: UInt8s, counts: Int64s, places: Int64s, out: Int64s) -> Any:
    """Fills starts and lengths of keys and values, a column for each header; -1, or the broken row."""
    to = 0
    for row in range(len(counts)):
        pos = places[row]
        for _ in range(counts[row]):
            key_start, key_length, pos = _sized(data, pos, len(data))
            if pos < 0 or key_length < 0:
                return row
            value_start, value_length, pos = _sized(data, pos, len(data))
            if pos < 0:
                return row
            out[0, to] = key_start
            out[1, to] = key_length
            out[2, to] = value_start
            out[3, to] = value_length
            to += 1
    return np.int64(-1)
