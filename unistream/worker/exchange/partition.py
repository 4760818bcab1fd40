"""The output of one edge that consumers read while it is produced: a subpartition for each.

Slices that a shuffle makes are gathered until they are worth a batch (COALESCE_ROWS) or until the
buffer timeout, so that high parallelism does not shred batches; an event flushes the rows before it. They
are also sent when the batches that they were cut from reach half of the partition's memory: a slice of a few
rows keeps its whole batch in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId
from unistream.model.deployment import PartitionDescriptor
from unistream.model.elements import AlignmentType, Batch, CheckpointBarrier, Event
from unistream.model.graph import Ship
from unistream.model.redistribution import may_overtake
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
        self.edge = descriptor.edge
        self._descriptor = descriptor
        self._index = index
        self._clock = clock
        self._buffer_timeout_ms = buffer_timeout_ms
        self._on_room = on_room
        self._is_blocked = False  # the task waits for room
        self._subpartitions = [
            Subpartition(memory, self._one_polled, self._one_consumed, on_room) for _ in descriptor.consumers
        ]
        self._pending: list[list[Batch]] = [[] for _ in descriptor.consumers]
        self._pending_rows = [0] * len(descriptor.consumers)
        self._pending_bytes = 0  # of the batches that pending slices were cut from
        self.flush_at_ms: int | None = None
        self._router = Router(descriptor, index)
        self._gathers = descriptor.ship is Ship.HASH and len(descriptor.consumers) > 1
        self.on_consumed: Callable[[], None] | None = None
        self.rows_out = 0

    def subpartition(self, index: int) -> Subpartition | None:
        """The subpartition of consumer number `index` in the descriptor's order."""
        return self._subpartitions[index] if 0 <= index < len(self._subpartitions) else None

    @property
    def has_room(self) -> bool:
        """When it is False, `on_room` is called once there is room again."""
        self._is_blocked = True  # before the check, so that a reader that frees memory after it sees this
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

    def emit(self, batch: Batch) -> None:
        for piece in split_oversized(batch):
            self.rows_out += piece.num_rows
            self._ship(piece)

    def broadcast(self, event: Event) -> None:
        self.flush()
        for subpartition in self._subpartitions:
            subpartition.add(event)

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        if self._descriptor.committables or not may_overtake(self._descriptor.ship):
            self.broadcast(barrier.in_place())
            return []
        self.broadcast(barrier)
        return self.overtake(barrier.checkpoint_id) if barrier.alignment is AlignmentType.UNALIGNED else []

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        return any(s.holds_barrier(checkpoint_id) for s in self._subpartitions)

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        runs = []
        for consumer, subpartition in zip(self._descriptor.consumers, self._subpartitions, strict=True):
            passed = subpartition.overtake(checkpoint_id)
            if passed:
                runs.append(Run(self.edge, self._index, consumer, passed))
        return runs

    def flush(self) -> None:
        if self.flush_at_ms is None:
            return
        self.flush_at_ms = None
        self._pending_bytes = 0
        for target in range(len(self._pending)):
            self._flush_one(target)

    def abandon(self) -> None:
        for subpartition in self._subpartitions:
            subpartition.abandon()
        self.memory.close()

    # --- sending ----------------------------------------------------------------------------------

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
        if len(parts) > 1 and self.flush_at_ms is not None:
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
        elif self.flush_at_ms is None:
            self.flush_at_ms = self._clock.monotonic_ms() + self._buffer_timeout_ms

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
        if not all(s.is_released for s in self._subpartitions):
            return
        self.memory.close()
        if self.on_consumed is not None:
            self.on_consumed()
