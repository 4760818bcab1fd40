"""The output of a task, as the task sees it: each edge is a stream or files."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from unistream.base.ids import CheckpointId, EdgeId
from unistream.model.deployment import PartitionDescriptor
from unistream.model.elements import Batch, CheckpointBarrier, Event
from unistream.worker.exchange.in_flight import Run
from unistream.worker.exchange.shipping import Router


class OutputPartition(Protocol):
    """Output of one edge. Used by the producer's task only."""

    edge: EdgeId
    rows_out: int
    """Rows emitted so far."""

    @property
    def has_room(self) -> bool:
        """False: the task must not take more input."""

    @property
    def flush_at_ms(self) -> int | None:
        """Monotonic time by which gathered rows must be sent."""

    def emit(self, batch: Batch) -> None:
        """Never waits for a consumer."""

    def broadcast(self, event: Event) -> None:
        """Sends an event to every consumer, after all rows so far."""

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        """Sends it to every consumer; returns the rows that it overtakes here."""

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        """The barrier of `checkpoint_id`, which may time out, still waits here for some consumer."""

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        """The barrier of `checkpoint_id`, if it still waits here, overtakes all rows; returns them."""

    def flush(self) -> None:
        """Sends gathered rows."""

    def abandon(self) -> None:
        """The producer ended without EndOfPartition."""


class EndOnlyOutput:
    """The part of an `OutputPartition` that is for consumers while its task runs, of one that keeps its rows
    until the task ends: nobody waits for them, and no barrier overtakes them."""

    @property
    def has_room(self) -> bool:
        return True

    @property
    def flush_at_ms(self) -> int | None:
        return None

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        raise AssertionError(f"{barrier} in a bounded job")

    def holds_barrier(self, _checkpoint_id: CheckpointId, /) -> bool:
        return False

    def overtake(self, _checkpoint_id: CheckpointId, /) -> list[Run]:
        return []

    def flush(self) -> None:
        """Nothing is due before the end."""


class GatheringOutput(EndOnlyOutput):
    """An `EndOnlyOutput` that gathers rows in memory, so that consumers get them in few large parts.
    `bytes_max`: with so many bytes `_full` is called."""

    def __init__(self, descriptor: PartitionDescriptor, index: int, bytes_max: int) -> None:
        self.edge = descriptor.edge
        self.rows_out = 0
        self._consumers = descriptor.consumers
        self._router = Router(descriptor, index)
        self._gathered: deque[Batch] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max

    def emit(self, batch: Batch) -> None:
        self.rows_out += batch.num_rows
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._bytes_max:
            self._full()

    @abstractmethod
    def _full(self) -> None:
        """Nothing more can be gathered."""

    def _taken(self) -> Iterator[tuple[int, Batch]]:
        """The gathered rows by target, of which none is gathered afterwards."""
        self._bytes = 0
        return self._router.route(self._gathered)

    def abandon(self) -> None:
        self._gathered.clear()


class Outputs:
    """All outputs of one task; see `OutputPartition`."""

    def __init__(self, partitions: Sequence[OutputPartition]) -> None:
        self._partitions = partitions

    def broadcast(self, event: Event) -> None:
        for partition in self._partitions:
            partition.broadcast(event)

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        return [run for partition in self._partitions for run in partition.send_barrier(barrier)]

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        return any(partition.holds_barrier(checkpoint_id) for partition in self._partitions)

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        return [run for partition in self._partitions for run in partition.overtake(checkpoint_id)]
