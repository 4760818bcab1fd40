"""A blocking partition whose consumers sort its rows by key: each reads them bucket by bucket.

    file of a consumer = segments      in the order of the spills; a segment has frames of one stream
    read as              rows of any bucket ─ rows of bucket 0 ─ EndOfBucket ─ … ─ events

Each spill is divided among the buckets of all consumers (`model.key_buckets`) and appended, and where each
segment is stays in memory, 16 bytes for each. So the rows are neither divided nor written once more before
they are sorted, however many there are. Events come after all rows: in a bounded job that is where they are.
A partition of one spill is not divided: its rows are so few that they may all be there before the first
bucket.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from unistream.base.ids import AttemptId
from unistream.model.deployment import PartitionDescriptor
from unistream.model.elements import Batch, Element, EndOfBucket, EndOfPartition, Event
from unistream.worker.exchange.blocking_partition import SPILL_BYTES, BlockingPartition
from unistream.worker.exchange.sealed_partition import SealedPartition
from unistream.worker.exchange.shipping import Router
from unistream.worker.exchange.spill_file import FrameReader, read_file

Segments: TypeAlias = "array[int]"
"""(offset, length) of each."""

_OF_ANY: Final = 1  # streams of a file besides those of its buckets: rows of any of them
_EVENTS: Final = 1


class BucketedPartition(BlockingPartition):
    """See `BlockingPartition`; `descriptor.buckets` is not 0."""

    def __init__(
        self,
        attempt: AttemptId,
        descriptor: PartitionDescriptor,
        folder: Path,
        on_sealed: Callable[[SealedPartition], None],
        *,
        spill_bytes: int = SPILL_BYTES,
    ) -> None:
        self._buckets = descriptor.buckets
        super().__init__(
            attempt,
            descriptor,
            folder,
            on_sealed,
            spill_bytes=spill_bytes,
            streams_per_file=_OF_ANY + self._buckets + _EVENTS,
        )
        self._bucket_router = Router(descriptor, attempt.index, buckets=self._buckets)
        self._segments: list[Segments] = [array("Q") for _ in self._encoders]

    def _divide(self) -> list[list[Batch | Event]]:
        rows = deque(element for element in self._pending if isinstance(element, Batch))
        events = [element for element in self._pending if not isinstance(element, Batch)]
        self._pending.clear()
        self._pending_bytes = 0
        divided: list[list[Batch | Event]] = [[] for _ in self._encoders]
        is_only_one = any(isinstance(event, EndOfPartition) for event in events) and not any(self._sizes)
        if is_only_one:
            for consumer, batch in self._router.route(rows):
                divided[consumer * self._streams_per_file].append(batch)
        else:
            for output, batch in self._bucket_router.route(rows):
                consumer, bucket = divmod(output, self._buckets)
                divided[consumer * self._streams_per_file + _OF_ANY + bucket].append(batch)
        for last in range(self._streams_per_file - 1, len(divided), self._streams_per_file):
            divided[last].extend(events)
        return divided

    def _appended(self, stream: int, offset: int, length: int) -> None:
        self._segments[stream].extend((offset, length))

    def _sealed(self) -> SealedPartition:
        return replace(super()._sealed(), segments=tuple(self._segments))


class BucketReader:
    """Reads one file of a `BucketedPartition`; used like `FrameReader`.

    Args:
        streams: The segments of each stream of the file.
    """

    def __init__(self, path: Path, streams: Sequence[Segments]) -> None:
        readers = [_reader(path, segments) for segments in streams]
        self._elements = _in_order(readers)

    def next(self) -> Element:
        """See `FrameReader.next`."""
        return next(self._elements)


def _in_order(readers: Sequence[FrameReader]) -> Iterator[Element]:
    of_any, *buckets, events = readers
    yield from _all(of_any)
    for number, bucket in enumerate(buckets):
        yield from _all(bucket)
        yield EndOfBucket(number, len(buckets))
    yield from _all(events)


def _all(reader: FrameReader) -> Iterator[Element]:
    while not reader.is_at_end:
        yield reader.next()


def _reader(path: Path, segments: Segments) -> FrameReader:
    starts = [0, *accumulate(segments[1::2])]
    size = starts.pop()

    def read(at: int, count: int) -> pa.Buffer:
        """No frame goes on in another segment."""
        number = bisect_right(starts, at) - 1
        inside = at - starts[number]
        offset, length = segments[2 * number], segments[2 * number + 1]
        return read_file(path, offset + inside, min(count, length - inside))

    return FrameReader(read, size)


def reader_of(sealed: SealedPartition, file: int) -> partial[BucketReader]:
    """Opens the reader of that file."""
    per_file = len(sealed.segments) // len(sealed.sizes)
    return partial(
        BucketReader, sealed.folder / str(file), sealed.segments[file * per_file : (file + 1) * per_file]
    )
