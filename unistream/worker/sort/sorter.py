"""Groups the rows of a keyed input by key, in bounded memory.

    rows ─► a chunk ──(full)──► 64 buckets by hash of the key, in memory ──(full)──► each a file
                                  │ at the end, one after the other
                                  ├─ fits into memory ─► sorted there ─► key by key
                                  ├─ does not ─► 64 buckets by the next bits of the hash
                                  └─ has one key ─► 64 buckets by event time, in their order

Where rows come bucket by bucket (`model.key_buckets`), those of one are sorted as soon as all of them are
there, and no others are in memory.

No order among keys is needed, so nothing is merged: a row is divided once for each level of buckets, is
written then if the memory is full, and is sorted in memory. Chunks and buckets are small, so that happens in
the cache of a processor, and copies take little more than the rows. What is in memory at the end is not
written. One key may have more rows than the memory: its rows are divided by their times. (Hash partitioning
after G. Graefe, "Query Evaluation Techniques for Large Databases", 1993, 4.3.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import ProtocolError
from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.columns.key_codes import key_codes
from unistream.model.elements import Batch
from unistream.port.sorting import KeyedRows
from unistream.worker.sort.bucket import (
    BUCKETS,
    Bucket,
    Buckets,
    Rule,
    Targets,
    by_hash,
    by_key,
    by_time,
    together,
)
from unistream.worker.sort.order import Numbers, sorted_order, starts_of

CHUNK_BYTES: Final = 8 * 2**20
CHUNKS_LEAST: Final = 16  # in the memory
COPIES: Final = 3  # of rows while they are divided: as they came, in one piece, and in order
ORDER_BYTES: Final = 44  # for each row, while its place is found


class KeySorter:
    """`port.sorting.RowSorter`: the rows of one input of one subtask.

    Args:
        keys: The key columns; equal keys are in their canonical form (`canonical_keys`).
        folder: An empty folder of its own, for the files; it is created when the first is written.
        memory_bytes: About what rows take up in memory, including the copies while they are sorted.
        batch_rows: Most rows of a batch that comes out.

    Attributes:
        spilled_bytes: Written to files, at all levels.
    """

    def __init__(
        self, keys: Sequence[str], folder: Path, memory_bytes: int, batch_rows: int = BATCH_ROWS_MAX
    ) -> None:
        self._keys = list(keys)
        self._folder = folder
        self._memory = max(1, memory_bytes)
        self._chunk = max(1, min(CHUNK_BYTES, memory_bytes // CHUNKS_LEAST))
        self._batch_rows = batch_rows
        self._rows: list[Batch] = []
        self._bytes = 0
        self._buckets: Buckets | None = None
        self._number = 0
        self._ended = 0  # so many buckets have
        self.spilled_bytes = 0

    def add(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        self._rows.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._chunk:
            self._divide_chunk()

    def sorted_until(self, number: int, count: int) -> Iterator[KeyedRows]:
        """The rows that are there have come bucket by bucket, so that most of them are of these buckets; they
        are divided no further unless they are more than the memory."""
        self._divide_chunk()
        assert self._buckets is not None, "it is made with the first chunk"
        self._ended = (number + 1) * BUCKETS // count
        yield from self._all_of(self._buckets, stop=self._ended)

    def sorted(self) -> Iterator[KeyedRows]:
        """Files are removed as they are read."""
        if self._buckets is None:
            rows, self._rows = self._rows, []
            yield from self._in_memory(rows)
            return
        self._divide_chunk()
        buckets, self._buckets = self._buckets, None
        yield from self._all_of(buckets)

    def close(self) -> None:
        self._rows = []
        self._buckets = None
        if self._folder.exists():
            for file in self._folder.iterdir():
                file.unlink()
            self._folder.rmdir()

    # --- buckets ----------------------------------------------------------------------------------

    def _divide_chunk(self) -> None:
        if self._buckets is None:
            self._buckets = self._new_buckets()
        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            _divide(rows, self._buckets, self._by_hash)
        if self._buckets.held_bytes + (COPIES + 1) * self._chunk > self._memory:
            self._write(self._buckets)

    def _by_hash(self, batch: Batch) -> Targets:
        targets = by_hash(self._keys, level=0)(batch)
        if int(targets.min()) < self._ended:
            raise ProtocolError(f"rows of bucket {int(targets.min())} after its end")
        return targets

    def _new_buckets(self) -> Buckets:
        self._number += 1
        return Buckets(self._folder, self._number, self._keys)

    def _write(self, buckets: Buckets) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.spilled_bytes += buckets.write()

    def _fits(self, bucket: Bucket, held_bytes: int = 0) -> bool:
        in_one_piece = bucket.nbytes
        besides = max(bucket.nbytes, ORDER_BYTES * bucket.rows)  # as they came, and after that their order
        return held_bytes + in_one_piece + besides <= self._memory

    def _all_of(self, buckets: Buckets, level: int = 0, stop: int = BUCKETS) -> Iterator[KeyedRows]:
        for bucket in buckets.take(stop):
            if not self._fits(bucket, buckets.held_bytes):
                self._write(buckets)
            yield from self._one(bucket, level)

    def _one(self, bucket: Bucket, level: int) -> Iterator[KeyedRows]:
        if self._fits(bucket):
            rows = list(bucket.read())
            bucket.remove()
            yield from self._in_memory(rows)
        elif bucket.hash_is_one:
            yield from self._of_one_hash(bucket)
        else:
            yield from self._all_of(self._redivide(bucket, by_hash(self._keys, level + 1)), level + 1)

    def _of_one_hash(self, bucket: Bucket) -> Iterator[KeyedRows]:
        """Groups more rows than fit, of one key most likely; of few others, whose hash is the same,
        otherwise."""
        rule = by_key(self._keys, bucket)
        if rule is None:
            yield from self._of_one_key(bucket, is_last=True)
            return
        for part in self._redivide(bucket, rule).take():
            yield from self._one(part, 0) if self._fits(part) else self._of_one_hash(part)

    def _of_one_key(self, bucket: Bucket, *, is_last: bool) -> Iterator[KeyedRows]:
        """`is_last`: no rows of the key follow."""
        if self._fits(bucket):
            rows = list(bucket.read())
            bucket.remove()
            for found in self._in_memory(rows):
                yield replace(found, ends_key=found.ends_key and is_last)
        elif bucket.earliest is None or bucket.latest is None or bucket.earliest == bucket.latest:
            # any order is right
            left = bucket.rows
            for batch in bucket.read():
                for piece in _pieces(batch, self._batch_rows):
                    left -= piece.num_rows
                    yield KeyedRows(piece, np.zeros(1, np.int64), ends_key=is_last and not left)
            bucket.remove()
        else:
            parts = list(self._redivide(bucket, by_time(bucket.earliest, bucket.latest)).take())
            for number, part in enumerate(parts, 1):
                yield from self._of_one_key(part, is_last=is_last and number == len(parts))

    def _redivide(self, bucket: Bucket, rule: Rule) -> Buckets:
        buckets = self._new_buckets()
        rows: list[Batch] = []
        size = 0
        for batch in bucket.read():
            rows.append(batch)
            size += batch.nbytes
            if size > self._memory // COPIES:
                self._redivided(rows, buckets, rule)
                size = 0
        self._redivided(rows, buckets, rule)
        bucket.remove()
        return buckets

    def _redivided(self, rows: list[Batch], buckets: Buckets, rule: Rule) -> None:
        if rows:
            _divide(rows, buckets, rule)
            self._write(buckets)

    # --- memory -----------------------------------------------------------------------------------

    def _in_memory(self, rows: list[Batch]) -> Iterator[KeyedRows]:
        if not rows:
            return
        batch = together(rows)
        rows.clear()
        codes = key_codes([batch.records.column(name) for name in self._keys])
        times = None if batch.timestamps is None else batch.timestamps.to_numpy()
        order = sorted_order(codes, times)
        starts = starts_of(codes[order])
        for start, stop, ends_key in _cuts(starts, len(order), self._batch_rows):
            yield KeyedRows(batch.take(pa.array(order[start:stop])), _within(starts, start, stop), ends_key)


def _divide(rows: list[Batch], buckets: Buckets, rule: Rule) -> None:
    """Divides `rows` among the buckets, and empties it."""
    batch = together(rows)
    rows.clear()
    buckets.add(batch, rule(batch))


def _cuts(starts: Numbers, rows: int, most: int) -> Iterator[tuple[int, int, bool]]:
    """Ranges of at most so many rows, that end with a key where one begins within them."""
    at = 0
    while at < rows:
        stop = min(at + most, rows)
        if stop < rows:
            key = int(starts[np.searchsorted(starts, stop, side="right") - 1])
            stop = key if key > at else stop
        following = int(np.searchsorted(starts, stop))
        ends_key = stop == rows or (following < len(starts) and int(starts[following]) == stop)
        yield at, stop, ends_key
        at = stop


def _within(starts: Numbers, start: int, stop: int) -> Numbers:
    """Where keys begin in that range; the first may have begun before it."""
    found = starts[np.searchsorted(starts, start, side="right") : np.searchsorted(starts, stop)] - start
    return np.concatenate(([0], found))


def _pieces(batch: Batch, most: int) -> Iterator[Batch]:
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, min(most, batch.num_rows - start))
