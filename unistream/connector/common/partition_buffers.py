"""Rows of each partition in memory, until they are written to a file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import pyarrow as pa

from unistream.base.limits import MIB

BUFFERED_BYTES_MAX: Final = 128 * MIB  # of all partitions together; above it the largest is written to a file

K = TypeVar("K")


class PartitionBuffers(Generic[K]):
    """Buffers the rows of a writer.

    Args:
        target_bytes: Rows of a partition are written to a file when they take this much memory.
        write_out: Writes one, of the rows of a partition.
        cuts: A file ends with the row that makes it large enough, also inside of a batch, as in Flink, which
            checks after every record. False: with the batch.
    """

    def __init__(
        self, target_bytes: int, write_out: Callable[[K, list[pa.RecordBatch]], None], *, cuts: bool = False
    ) -> None:
        self._target_bytes = target_bytes
        self._write_out = write_out
        self._cuts = cuts
        self._held: dict[K, list[pa.RecordBatch]] = {}
        self._bytes: dict[K, int] = {}
        self._total = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, key: K, records: pa.RecordBatch) -> None:
        """Raises as `write_out`."""
        for piece in self._pieces(key, records) if self._cuts else (records,):
            self._held.setdefault(key, []).append(piece)
            self._bytes[key] = self._bytes.get(key, 0) + piece.nbytes
            self._total += piece.nbytes
            if self._bytes[key] >= self._target_bytes:
                self._pass_on(key)
        while self._total > BUFFERED_BYTES_MAX:
            self._pass_on(max(self._bytes, key=lambda one: self._bytes[one]))

    def flush(self) -> None:
        """Raises as `write_out`."""
        for key in list(self._held):
            self._pass_on(key)

    def clear(self) -> None:
        self._held.clear()
        self._bytes.clear()
        self._total = 0

    def _pieces(self, key: K, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        while records.num_rows:
            count = rows_that_fill(records, self._target_bytes - self._bytes.get(key, 0))
            yield records.slice(0, count)
            records = records.slice(count)

    def _pass_on(self, key: K) -> None:
        self._total -= self._bytes.pop(key)
        self._write_out(key, self._held.pop(key))


def rows_that_fill(records: pa.RecordBatch, room_bytes: int) -> int:
    """The least number of first rows that take `room_bytes` of memory; all of them if they take less.

    Dictionaries do not count: each piece has the whole of them, and one that is larger than a file would make
    a file of each row.
    """
    if records.nbytes < room_bytes:
        return int(records.num_rows)
    shared = records.slice(0, 0).nbytes
    counts = range(1, records.num_rows)
    return 1 + bisect_left(counts, room_bytes, key=lambda count: records.slice(0, count).nbytes - shared)
