"""Kafka's record batches (message format v2) as columns.

A batch is varint-framed, so numpy cannot split it; small compiled loops do (`kernels`).

    RawBatch*  --frame-->  Framed (offsets, timestamps, places of keys and values)
               --json_lines / binary_column-->  one buffer for the decoder
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.errors import ProtocolError

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt8s: TypeAlias = npt.NDArray[np.uint8]

ABSENT: Final = -1  # length of a null key or value, as on the wire

# verdicts on one JSON value
GOOD, TOMBSTONE, NOT_AN_OBJECT, TRAILING, CONTROL_CHARACTER = range(5)
VERDICTS: Final = {
    NOT_AN_OBJECT: "it is not a JSON object",
    TRAILING: "it is not exactly one complete JSON object",
    CONTROL_CHARACTER: "it has an unescaped control character in a string",
}


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
    """Records of one partition in the order of their offsets; starts and lengths refer to `data`."""

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
        """Rows [low, high); shares the memory."""
        if low == 0 and high >= len(self):
            return self
        cut = slice(low, high)
        return Framed(
            self.data,
            self.offsets[cut],
            self.timestamps[cut],
            self.key_starts[cut],
            self.key_lengths[cut],
            self.value_starts[cut],
            self.value_lengths[cut],
        )


@dataclass(frozen=True, slots=True)
class JsonLines:
    """JSON objects, one per line. Line k is ``text[bounds[k]:bounds[k + 1]]`` and is record ``rows[k]``.

    `verdicts`: one per record; only those that are GOOD have a line.
    """

    text: UInt8s
    bounds: Int64s
    rows: Int64s
    verdicts: UInt8s


@functools.cache
def kernels() -> ModuleType:
    """The compiled loops; imported late, because a master does not need the compiler."""
    return importlib.import_module("unistream.connector.kafka.kernels")


def frame(batches: Sequence[RawBatch]) -> Framed:
    """Finds every record of consecutive batches of one partition.

    Raises:
        ProtocolError: a batch is shorter or longer than its records say.
    """
    data = np.frombuffer(b"".join([b.payload for b in batches]), dtype=np.uint8)
    ends = np.cumsum(np.array([len(b.payload) for b in batches], dtype=np.int64))
    heads = np.array(
        [(b.count, b.base_offset, b.first_timestamp, b.append_timestamp) for b in batches], dtype=np.int64
    ).reshape(-1, 4)
    out = np.empty((6, int(heads[:, 0].sum())), dtype=np.int64)
    broken = int(kernels().frame_batches(data, ends, heads, out))
    if broken >= 0:
        raise ProtocolError(
            f"the record batch at offset {batches[broken].base_offset} does not hold what its header says"
        )
    return Framed(data, *out)


def json_lines(framed: Framed) -> JsonLines:
    """Copies values into lines for a JSON parser. Line ends inside a value become blanks."""
    n = len(framed)
    lengths = framed.value_lengths
    text = np.empty(int(np.maximum(lengths, 0).sum()) + n, dtype=np.uint8)
    bounds = np.zeros(n + 1, dtype=np.int64)
    verdicts = np.empty(n, dtype=np.uint8)
    loops = kernels()
    used = loops.write_json_lines(
        framed.data, framed.value_starts, lengths, loops.CLASSES, text, bounds, verdicts
    )
    rows = np.flatnonzero(verdicts == GOOD)
    return JsonLines(text[: bounds[used]], bounds[: used + 1], rows, verdicts)


def binary_column(data: UInt8s, starts: Int64s, lengths: Int64s) -> pa.Array:
    """Byte strings as a `large_binary` array; ABSENT becomes null."""
    bounds = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(np.maximum(lengths, 0), out=bounds[1:])
    out = np.empty(int(bounds[-1]), dtype=np.uint8)
    kernels().gather(data, starts, lengths, bounds, out)
    valid = pa.array(lengths >= 0)
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts), [valid.buffers()[1], pa.py_buffer(bounds), pa.py_buffer(out)]
    )


def warm_up() -> None:
    """Compiles the kernels, or loads them from numba's cache: once per process."""
    empty = frame([RawBatch(0, 1, 0, -1, 1, memoryview(b"\x0c\x00\x00\x00\x01\x00\x00"))])
    json_lines(empty)
    binary_column(empty.data, empty.value_starts, empty.value_lengths)
