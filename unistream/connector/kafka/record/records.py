"""Kafka's record batches (message format v2) as columns.

A batch is varint-framed, so numpy cannot split it; small compiled loops do (`kernels`).

    RawBatch*  --frame-->  Framed (offsets, timestamps, places of keys and values)
               --decode-->  columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Final

import numpy as np

from unistream.base.errors import ProtocolError
from unistream.connector.common import Int64s, UInt8s, padded, warm_up_json
from unistream.connector.common.machine_code import loops

ABSENT: Final = -1  # length of a null key or value, as on the wire


@dataclass(frozen=True, slots=True)
class RawBatch:
    """One record batch, decompressed.

    Attributes:
        base_offset: Records have offsets relative to it.
        next_offset: One past the last offset that the batch covers; some records may be compacted.
        first_timestamp: ms; records have times relative to it.
        append_timestamp: ms of all records if the topic uses LogAppendTime, else -1.
        count: Records in `payload`; 0 for control batches and aborted transactions.
        payload: The records, one after the other.
    """

    base_offset: int
    next_offset: int
    first_timestamp: int
    append_timestamp: int
    count: int
    payload: memoryview

    @property
    def offset(self) -> int:
        """The last covered offset, which the consumer compares with its position."""
        return self.next_offset - 1


@dataclass(frozen=True, slots=True)
class Framed:
    """Records of one partition in the order of their offsets; starts and lengths refer to `data`, padded."""

    data: UInt8s
    offsets: Int64s
    timestamps: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s

    def __len__(self) -> int:
        return len(self.offsets)

    def between(self, first: int, stop: int | None) -> Framed:
        """Records with first <= offset < stop."""
        low = int(np.searchsorted(self.offsets, first))
        high = len(self) if stop is None else int(np.searchsorted(self.offsets, stop))
        return self.rows(low, high)

    def rows(self, low: int, high: int) -> Framed:
        """The rows [low, high), which share the memory."""
        return self if low == 0 and high >= len(self) else self.at(slice(low, high))

    def keys(self) -> Framed:
        """The records with their keys as values."""
        return replace(self, value_starts=self.key_starts, value_lengths=self.key_lengths)

    def at(self, cut: slice | Int64s) -> Framed:
        """A selection of the records: these rows, in this order."""
        return Framed(
            self.data,
            self.offsets[cut],
            self.timestamps[cut],
            self.key_starts[cut],
            self.key_lengths[cut],
            self.value_starts[cut],
            self.value_lengths[cut],
        )


def kernels() -> SimpleNamespace:
    """The compiled loops."""
    return loops("unistream.connector.kafka.record.kernels")


def frame(batches: Sequence[RawBatch]) -> Framed:
    """Finds every record of consecutive batches of one partition.

    Raises:
        ProtocolError: a batch is shorter or longer than its records say.
    """
    data = padded(*[b.payload for b in batches])
    ends = np.cumsum(np.array([len(b.payload) for b in batches], dtype=np.int64))
    heads = np.array(
        [(b.count, b.base_offset, b.first_timestamp, b.append_timestamp) for b in batches], dtype=np.int64
    ).reshape(-1, 4)
    out = np.empty((6, int(heads[:, 0].sum())), dtype=np.int64)
    broken = kernels().frame_batches(data, ends, heads, out)
    if broken >= 0:
        raise ProtocolError(
            f"the record batch at offset {batches[broken].base_offset} does not hold what its header says"
        )
    return Framed(data, *out)


def warm_up() -> None:
    """Loads the loops, or compiles them if their machine code is nowhere: once per process."""
    warm_up_json()
    frame([RawBatch(0, 1, 0, -1, 1, memoryview(b"\x0c\x00\x00\x00\x01\x00\x00"))])
