"""Which consumer gets which rows of an edge: a ship strategy as a function over whole batches.

A pipelined partition divides each batch at once (`divide`), a blocking one many together (`route`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.limits import BATCH_ROWS_MAX, FRAME_BYTES_MAX
from unistream.model.columns.key_buckets import buckets_of
from unistream.model.deployment import PartitionDescriptor
from unistream.model.elements import Batch
from unistream.model.graph import Ship
from unistream.model.key_groups import canonical_keys, groups_of_hashes, key_hashes, subtask_table

COALESCE_ROWS: Final = 16_384  # below this the cost of a batch is its overhead, above it its rows
BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX // 2  # leaves room for schema, padding and offsets in a frame


class Router:
    """Divides the rows of one producer among the targets of one edge.

    Args:
        buckets: Into how many the rows of each consumer are divided (`model.key_buckets`); 0: not at all.

    Attributes:
        targets: Number of different outputs: one per consumer, or as many as each has buckets; but only one
            for a broadcast edge, whose consumers all read the same.
    """

    def __init__(self, descriptor: PartitionDescriptor, index: int, *, buckets: int = 0) -> None:
        self._descriptor = descriptor
        consumers = len(descriptor.consumers)
        self._buckets = buckets
        self.targets = 1 if descriptor.ship is Ship.BROADCAST else consumers * max(1, self._buckets)
        self._next = index % max(1, self.targets)
        self._table = _target_table(descriptor) if descriptor.ship is Ship.HASH else None

    def target_of(self, subpartition: int) -> int:
        """The output that consumer number `subpartition` (in the descriptor's order) reads, or the first of
        its buckets."""
        return 0 if self.targets == 1 else subpartition * max(1, self._buckets)

    def route(self, batches: deque[Batch]) -> Iterator[tuple[int, Batch]]:
        """Every row once, as (target, rows), in order for each target. Removes them from `batches`, which
        frees memory early.

        Batches are within BATCH_ROWS_MAX and BATCH_BYTES_MAX (a single row may be larger); small ones are
        merged.
        """
        whole = self.targets > 1 and self._descriptor.ship is Ship.HASH
        for batch in merged(batches, rows_max=None if whole else BATCH_ROWS_MAX):
            for target, part in self.divide(batch):
                for piece in split_oversized(part):
                    yield target, piece

    def divide(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        """The rows of a non-empty batch, as (target, rows): `batch` itself, or slices that together keep
        as much memory. After a hash edge, equal keys have the same (canonical) form."""
        if self._descriptor.ship is Ship.HASH:
            records = canonical_keys(batch.records, self._descriptor.key_columns)
            if records is not batch.records:
                batch = Batch(records, batch.timestamps)
        if self.targets == 1:
            return ((0, batch),)
        match self._descriptor.ship:
            case Ship.HASH:
                return self._by_key(batch)
            case Ship.GLOBAL:
                return ((self._descriptor.consumers.index(0), batch),)
            case _:
                return self._round_robin(batch)

    def _by_key(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        assert self._table is not None
        descriptor = self._descriptor
        hashes = key_hashes(batch.records, descriptor.key_columns)
        targets = self._table[groups_of_hashes(hashes, descriptor.consumer_max_parallelism)]
        if self._buckets:
            targets = targets * np.uint8(self._buckets) + buckets_of(hashes, self._buckets)
        counts = np.bincount(targets, minlength=self.targets)
        if int(counts.max()) == batch.num_rows:
            return ((int(counts.argmax()), batch),)
        # one stable radix sort and one take; the slices share its memory
        ordered = batch.take(pa.array(np.argsort(targets, kind="stable")))
        parts = []
        offset = 0
        for target in np.flatnonzero(counts).tolist():
            rows = int(counts[target])
            parts.append((target, ordered.slice(offset, rows)))
            offset += rows
        return parts

    def _round_robin(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        """Small batches go to one consumer after the other, a large one is divided equally."""
        count = min(self.targets, max(1, batch.num_rows // COALESCE_ROWS))
        size = -(-batch.num_rows // count)
        parts = []
        for offset in range(0, batch.num_rows, size):
            parts.append((self._next, batch.slice(offset, min(size, batch.num_rows - offset))))
            self._next = (self._next + 1) % self.targets
        return parts


def _target_table(descriptor: PartitionDescriptor) -> np.ndarray:
    """Key group -> target."""
    assert descriptor.consumers == tuple(range(descriptor.consumer_parallelism)), "a hash edge reaches all"
    table = subtask_table(descriptor.consumer_max_parallelism, descriptor.consumer_parallelism)
    # one byte sorts in half the passes of two
    return table.astype(np.uint8) if descriptor.consumer_parallelism <= 256 else table


def split_oversized(batch: Batch) -> Sequence[Batch]:
    """`batch` in pieces within BATCH_ROWS_MAX and BATCH_BYTES_MAX; none for an empty one."""
    rows = batch.num_rows
    if rows == 0:
        return ()
    if rows <= BATCH_ROWS_MAX and (rows == 1 or batch.nbytes <= BATCH_BYTES_MAX):
        return (batch,)
    pieces = max(-(-rows // BATCH_ROWS_MAX), -(-batch.nbytes // BATCH_BYTES_MAX))
    size = max(1, -(-rows // pieces))
    return [batch.slice(offset, min(size, rows - offset)) for offset in range(0, rows, size)]


def merged(batches: deque[Batch], rows_max: int | None) -> Iterator[Batch]:
    """Takes the rows out of `batches` and merges small neighbours of one schema, up to `rows_max` rows; None:
    merges everything of one schema."""
    run: list[Batch] = []
    rows = 0
    while batches:
        batch = batches.popleft()
        small = rows_max is None or (batch.num_rows < COALESCE_ROWS and rows + batch.num_rows <= rows_max)
        if run and not (small and _is_alike(run[0], batch)):
            joined = concatenate(run)
            run, rows = [], 0
            yield from joined
        run.append(batch)
        rows += batch.num_rows
    if run:
        yield from concatenate(run)


def concatenate(batches: Sequence[Batch]) -> Sequence[Batch]:
    """One batch, if the schemas are equal and Arrow can join all types; otherwise `batches`."""
    first = batches[0]
    if len(batches) == 1 or not all(_is_alike(first, batch) for batch in batches):
        return batches
    try:
        records = pa.concat_batches([b.records for b in batches])
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # dictionaries that differ inside of nested types
        return batches
    timestamps = None if first.timestamps is None else pa.concat_arrays([b.timestamps for b in batches])
    return [Batch(records, timestamps)]


def _is_alike(one: Batch, other: Batch) -> bool:
    timed = (one.timestamps is None) == (other.timestamps is None)
    return timed and bool(one.records.schema.equals(other.records.schema, check_metadata=True))
