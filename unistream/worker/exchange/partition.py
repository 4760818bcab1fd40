"""What a task produces for one edge: rows find their consumer's subpartition, a column at a time.

Slices that a shuffle makes are gathered until they are worth a batch (COALESCE_ROWS) or until the
buffer timeout, so that high parallelism does not shred batches; an event flushes what is before it. They
also leave when the batches that they were cut from are worth half of the partition's memory: a slice of a few
rows keeps all of its batch.
"""

from __future__ import annotations

from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId, EdgeId
from unistream.core.restore import may_overtake
from unistream.model.elements import Alignment, Batch, CheckpointBarrier, Event
from unistream.model.graph import Ship
from unistream.model.messages import PartitionDescriptor
from unistream.worker.exchange.channels import Subpartition
from unistream.worker.exchange.in_flight import Run
from unistream.worker.exchange.network_memory import PartitionMemory, compacted
from unistream.worker.exchange.shipping import COALESCE_ROWS, Router, concatenate, split_oversized


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
        self._index = index
        self._clock = clock
        self._buffer_timeout_ms = buffer_timeout_ms
        self._on_room = on_room
        self._is_blocked = False  # the task was told to wait
        self._subpartitions = [
            Subpartition(memory, self._one_polled, self._one_consumed, on_room) for _ in descriptor.consumers
        ]
        self._pending: list[list[Batch]] = [[] for _ in descriptor.consumers]
        self._pending_rows = [0] * len(descriptor.consumers)
        self._pending_bytes = 0  # of the batches that pending slices were cut from
        self._flush_at_ms: int | None = None
        self._router = Router(descriptor, index)
        self._gathers = descriptor.ship is Ship.HASH and len(descriptor.consumers) > 1
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

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        """To every consumer; what it overtakes here, if it overtakes."""
        if self._descriptor.committables or not may_overtake(self._descriptor.ship):
            self.broadcast(barrier.in_place())
            return []
        self.broadcast(barrier)
        return self.overtake(barrier.checkpoint_id) if barrier.alignment is Alignment.UNALIGNED else []

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        """The barrier of `checkpoint_id`, which may time out, still waits here for some consumer."""
        return any(s.holds_barrier(checkpoint_id) for s in self._subpartitions)

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        """The barrier of `checkpoint_id`, wherever it still waits here, goes before all rows: those rows."""
        runs = []
        for consumer, subpartition in zip(self._descriptor.consumers, self._subpartitions, strict=True):
            passed = subpartition.overtake(checkpoint_id)
            if passed:
                runs.append(Run(self.edge, self._index, consumer, passed))
        return runs

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

    # --- on their way -----------------------------------------------------------------------------

    def _ship(self, batch: Batch) -> None:
        if self._descriptor.ship is Ship.BROADCAST:
            batch = compacted(batch)
            for subpartition in self._subpartitions:
                subpartition.add(batch)
            return
        parts = self._router.divide(batch)
        if not self._gathers:
            for target, part in parts:
                self._send(target, part)
            return
        for target, part in parts:
            self._gather(target, part)
        if len(parts) > 1 and self._flush_at_ms is not None:
            self._pending_bytes += batch.nbytes
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
        for batch in concatenate(pending):
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
