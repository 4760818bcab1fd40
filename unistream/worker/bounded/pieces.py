"""Rows between the subtasks of a bounded job: made by one, read by another, in whatever way they travel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from unistream.base.ids import EdgeId, SubtaskId, VertexId
from unistream.base.limits import MAX_WATERMARK, MIB
from unistream.model.deployment import ChannelDescriptor, PartitionDescriptor
from unistream.model.elements import (
    Batch,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    Event,
    Watermark,
)
from unistream.model.stored_rows import StoredRows
from unistream.worker.exchange import GatheringOutput, Run, StoredOutput, decode_batch, encode_batch

GATHERED_BYTES: Final = 8 * MIB  # of an edge, before its rows are divided among the consumers


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one producer for one consumer, as an Arrow stream of one batch.

    Attributes:
        producer, consumer: Indices of the subtasks at both ends of `edge`.
        number: Of the pieces of that producer on that edge: from 0, in the order in which they were made.
    """

    edge: EdgeId
    producer: int
    consumer: int
    number: int
    content: bytes


END_OF_INPUT: Final[tuple[Element, ...]] = (Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition())
"""What comes behind the rows of a producer that has ended for good."""

FAILED: Final = EdgeId("")
"""The edge of a piece without rows, which says that its producer has failed: nothing is to be made of the
others."""


class PieceSink(Protocol):
    """Takes the pieces of a task."""

    @property
    def has_room(self) -> bool:
        """False: the task has to wait."""

    def put(self, piece: Piece) -> None:
        """One more; also without room."""


class PieceOutput(GatheringOutput):
    """`worker.exchange.OutputPartition` of one edge: rows become pieces. Events are not kept: a consumer
    knows that all rows are there when its pieces end."""

    def __init__(self, descriptor: PartitionDescriptor, index: int, out: PieceSink) -> None:
        super().__init__(descriptor, index, GATHERED_BYTES)
        self._out = out
        self._index = index
        self._number = 0

    @property
    def has_room(self) -> bool:
        return self._out.has_room

    def _full(self) -> None:
        self._divide()

    def broadcast(self, event: Event) -> None:
        if isinstance(event, EndOfPartition):
            self._divide()

    def _divide(self) -> None:
        for target, batch in self._taken():
            content = encode_batch(batch)
            for place, consumer in enumerate(self._consumers):
                if self._router.target_of(place) == target:
                    self._out.put(Piece(self.edge, self._index, consumer, self._number, content))
                    self._number += 1

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        """The end of the rows of a bootstrap."""
        self._divide()
        return []


class StoredPieceOutput(StoredOutput):
    """`worker.exchange.OutputPartition` of one edge whose rows are stored for a stream: its only piece says
    where."""

    def __init__(
        self, descriptor: PartitionDescriptor, subtask: SubtaskId, folder: str, out: PieceSink
    ) -> None:
        from unistream.storage.state_files import FsStateWriter

        writer = FsStateWriter(folder)
        super().__init__(descriptor, subtask.vertex, subtask.index, folder=folder, writer=writer)
        self._out = out

    def broadcast(self, event: Event) -> None:
        super().broadcast(event)
        if isinstance(event, EndOfPartition):
            assert self.stored is not None, "the file is complete"
            self._out.put(Piece(self.edge, self.stored.producer, 0, 0, msgspec.msgpack.encode(self.stored)))


def stored_rows(piece: Piece) -> StoredRows:
    """What the piece of a `StoredPieceOutput` says."""
    return msgspec.msgpack.decode(piece.content, type=StoredRows)


class PieceInputs:
    """The pieces that one subtask reads, by channel. Implements `channels.LocalPartitions`.

    Args:
        last: What comes behind the rows of a producer's vertex.
    """

    def __init__(self, last: Callable[[VertexId], Sequence[Element]]) -> None:
        self._last = last
        self._channels: dict[tuple[EdgeId, int], _PieceChannel] = {}

    def add(self, piece: Piece) -> None:
        """The next piece of its channel."""
        self._channels[piece.edge, piece.producer].add(decode_batch(piece.content))

    def end(self) -> None:
        """All pieces were added."""
        for channel in self._channels.values():
            channel.end(self._last(channel.producer))

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> _PieceChannel:
        producer = channel.producer
        return self._channels.setdefault(
            (channel.edge, producer.index), _PieceChannel(producer.vertex, listener)
        )

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        listener()


class _PieceChannel:
    """The rows of one producer; implements `port.transport.SubpartitionView`."""

    def __init__(self, producer: VertexId, listener: Callable[[], None]) -> None:
        self.producer = producer
        self._listener = listener
        self._elements: deque[Element] = deque()

    def add(self, batch: Batch) -> None:
        self._elements.append(batch)
        self._listener()

    def end(self, last: Sequence[Element]) -> None:
        self._elements += last
        self._listener()

    def poll(self) -> Element | None:
        return self._elements.popleft() if self._elements else None

    def peek(self) -> Element | None:
        return self._elements[0] if self._elements else None

    def poll_urgent(self) -> None:
        """There are no barriers."""

    def release(self, error: BaseException | None) -> None:
        self._elements.clear()
