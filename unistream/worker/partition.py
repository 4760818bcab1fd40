"""What a task produces for one edge: rows find their consumer's subpartition, a column at a time.

Slices that a shuffle makes are gathered until they are worth a batch (COALESCE_ROWS) or until the
buffer timeout, so that high parallelism does not shred batches; an event flushes what is before it. They
also leave when the batches that they were cut from are worth half of the partition's memory: a slice of a few
rows keeps all of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.clock import Clock
from unistream.base.ids import EdgeId
from unistream.base.limits import BATCH_ROWS_MAX, FRAME_BYTES_MAX
from unistream.model.elements import Batch, Event
from unistream.model.graph import Ship
from unistream.model.key_groups import key_groups, subtask_table
from unistream.model.messages import PartitionDescriptor
from unistream.worker.channels import Subpartition
from unistream.worker.network_memory import PartitionMemory, compacted

COALESCE_ROWS: Final = 16_384  # below this the cost of a batch is its overhead, above it its rows
BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX // 2  # leaves room for schema, padding and offsets in a frame


class ResultPartition:
    """Output of one edge: one subpartition per consumer. Used by the producer's task only, except for
    `subpartition`."""

    def __init__(
        self,
        descriptor: PartitionDescriptor,
        index: int,
        *,
        clock: Clock,
        buffer_timeout_ms: int,
        on_room: Callable[[], None],
        memory: PartitionMemory,
    ) -> None:
        self.memory = memory
        self._descriptor = descriptor
        self._clock = clock
        self._buffer_timeout_ms = buffer_timeout_ms
        self._on_room = on_room
        self._is_blocked = False  # the task was told to wait
        self._subpartitions = [
            Subpartition(memory, self._one_polled, self._one_consumed) for _ in descriptor.consumers
        ]
        self._pending: list[list[Batch]] = [[] for _ in descriptor.consumers]
        self._pending_rows = [0] * len(descriptor.consumers)
        self._pending_bytes = 0  # of the batches that pending slices were cut from
        self._flush_at_ms: int | None = None
        self._next = index % max(1, len(descriptor.consumers))
        self._targets = _target_table(descriptor) if descriptor.ship is Ship.HASH else None
        self.on_consumed: Callable[[], None] | None = None
        self.rows_out = 0

    @property
    def edge(self) -> EdgeId:
        return self._descriptor.edge

    def subpartition(self, index: int) -> Subpartition | None:
        """The end that consumer number `index` (in the descriptor's order) reads."""
        return self._subpartitions[index] if 0 <= index < len(self._subpartitions) else None

    @property
    def has_room(self) -> bool:
        """False: the task must not take more input; `on_room` is called when it may again."""
        self._is_blocked = True  # before the look: a reader that frees something after it will see this
        if self._is_full:
            return False
        self._is_blocked = False
        return True

    @property
    def _is_full(self) -> bool:
        return not self.memory.has_room or not all(s.has_room for s in self._subpartitions)

    @property
    def queued(self) -> int:
        """Batches that wait for their consumers."""
        return sum(s.queued for s in self._subpartitions)

    @property
    def is_consumed(self) -> bool:
        return all(s.is_released for s in self._subpartitions)

    @property
    def flush_at_ms(self) -> int | None:
        """Monotonic time by which gathered rows must leave."""
        return self._flush_at_ms

    def emit(self, batch: Batch) -> None:
        """Rows on their way; never blocks."""
        for piece in split_oversized(batch):
            self.rows_out += piece.num_rows
            self._ship(piece)

    def broadcast(self, event: Event) -> None:
        """An event to every consumer, behind all rows so far."""
        self.flush()
        for subpartition in self._subpartitions:
            subpartition.add(event)

    def flush(self) -> None:
        """Gathered rows leave now."""
        if self._flush_at_ms is None:
            return
        self._flush_at_ms = None
        self._pending_bytes = 0
        for target in range(len(self._pending)):
            self._flush_one(target)

    def abandon(self) -> None:
        """The producer ended without EndOfPartition."""
        for subpartition in self._subpartitions:
            subpartition.abandon()
        self.memory.close()

    # --- ship strategies --------------------------------------------------------------------------

    def _ship(self, batch: Batch) -> None:
        match self._descriptor.ship:
            case Ship.BROADCAST:
                batch = compacted(batch)
                for subpartition in self._subpartitions:
                    subpartition.add(batch)
            case Ship.GLOBAL:
                self._send(self._descriptor.consumers.index(0), batch)
            case Ship.HASH:
                self._ship_hash(batch)
            case _ if len(self._subpartitions) == 1:
                self._send(0, batch)
            case _:
                self._ship_round_robin(batch)

    def _ship_round_robin(self, batch: Batch) -> None:
        """Small batches whole, one consumer after the other; a large one in equal parts."""
        consumers = len(self._subpartitions)
        parts = min(consumers, max(1, batch.num_rows // COALESCE_ROWS))
        size = -(-batch.num_rows // parts)
        for offset in range(0, batch.num_rows, size):
            self._send(self._next, batch.slice(offset, min(size, batch.num_rows - offset)))
            self._next = (self._next + 1) % consumers

    def _ship_hash(self, batch: Batch) -> None:
        assert self._targets is not None
        if len(self._subpartitions) == 1:
            self._send(0, batch)
            return
        descriptor = self._descriptor
        groups = key_groups(batch.records, descriptor.key_columns, descriptor.consumer_max_parallelism)
        targets = self._targets[groups]
        counts = np.bincount(targets, minlength=len(self._subpartitions))
        if int(counts.max()) == batch.num_rows:
            self._gather(int(counts.argmax()), batch)
            return
        # one stable radix sort and one take; the slices share its memory
        ordered = batch.take(pa.array(np.argsort(targets, kind="stable")))
        offset = 0
        for target in np.flatnonzero(counts):
            rows = int(counts[target])
            self._gather(int(target), ordered.slice(offset, rows))
            offset += rows
        if self._flush_at_ms is not None:
            self._pending_bytes += ordered.nbytes
            if self._pending_bytes > self.memory.size // 2:
                self.flush()

    def _gather(self, target: int, batch: Batch) -> None:
        rows = self._pending_rows[target]
        if rows == 0 and batch.num_rows >= COALESCE_ROWS:
            self._send(target, batch)
            return
        self._pending[target].append(batch)
        self._pending_rows[target] = rows + batch.num_rows
        if rows + batch.num_rows >= COALESCE_ROWS:
            self._flush_one(target)
        elif self._flush_at_ms is None:
            self._flush_at_ms = self._clock.monotonic_ms() + self._buffer_timeout_ms

    def _flush_one(self, target: int) -> None:
        pending = self._pending[target]
        if not pending:
            return
        self._pending[target] = []
        self._pending_rows[target] = 0
        for batch in _concatenate(pending):
            for piece in split_oversized(batch):
                self._send(target, piece)

    def _send(self, target: int, batch: Batch) -> None:
        self._subpartitions[target].add(compacted(batch))

    # --- readers, from their threads --------------------------------------------------------------

    def _one_polled(self) -> None:
        if self._is_blocked and not self._is_full:
            self._is_blocked = False
            self._on_room()

    def _one_consumed(self) -> None:
        if not self.is_consumed:
            return
        self.memory.close()
        if self.on_consumed is not None:
            self.on_consumed()


def _target_table(descriptor: PartitionDescriptor) -> np.ndarray:
    """Key group -> subpartition."""
    table = subtask_table(descriptor.consumer_max_parallelism, descriptor.consumer_parallelism)
    assert descriptor.consumers == tuple(range(descriptor.consumer_parallelism)), "a hash edge reaches all"
    # one byte sorts in half the passes of two
    return table.astype(np.uint8) if descriptor.consumer_parallelism <= 256 else table


def split_oversized(batch: Batch) -> Sequence[Batch]:
    """`batch` in pieces within BATCH_ROWS_MAX and BATCH_BYTES_MAX; nothing for an empty one."""
    rows = batch.num_rows
    if rows == 0:
        return ()
    if rows <= BATCH_ROWS_MAX and (rows == 1 or batch.nbytes <= BATCH_BYTES_MAX):
        return (batch,)
    pieces = max(-(-rows // BATCH_ROWS_MAX), -(-batch.nbytes // BATCH_BYTES_MAX))
    size = max(1, -(-rows // pieces))
    return [batch.slice(offset, min(size, rows - offset)) for offset in range(0, rows, size)]


def _concatenate(batches: list[Batch]) -> list[Batch]:
    """One batch of all, in order; as they are if the schema changes on the way."""
    if len(batches) == 1:
        return batches
    first = batches[0]
    schema, timed = first.records.schema, first.timestamps is not None
    if any(b.records.schema != schema or (b.timestamps is not None) != timed for b in batches):
        return batches
    records = pa.concat_batches([b.records for b in batches])
    timestamps = None if first.timestamps is None else pa.concat_arrays([b.timestamps for b in batches])
    return [Batch(records, timestamps)]
