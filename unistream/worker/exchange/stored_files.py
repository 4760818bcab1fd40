"""The output of one edge as one file in the checkpoint storage, for consumers that start when it is complete.

    file = segments ─ index            index = which target each subpartition reads, and for each target the
    segment = frames of one target             (offset, length) of its segments

Frames are those of local stored partitions (`spill_file`), each with its checksum; the last ones of a target
are the end of the stream. Rows are gathered and divided as there, so a file has a segment for each target and
some megabytes of rows. Nobody needs more than a segment's part and the index in memory.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
import pyarrow as pa
from crc32c import crc32c

from unistream.base.config import CHECKPOINT_DIR
from unistream.base.errors import CorruptSnapshot, ProtocolError, Transient
from unistream.base.ids import VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.deployment import ChannelDescriptor, PartitionDescriptor
from unistream.model.elements import (
    Batch,
    Element,
    EndOfData,
    EndOfPartition,
    Event,
    Watermark,
)
from unistream.model.file_ref import FileRef
from unistream.model.stored_rows import StoredRows
from unistream.port.storage import StateFile, StateReader, StateWriter
from unistream.worker.exchange.blocking_partition import SPILL_BYTES
from unistream.worker.exchange.frame_view import FrameView
from unistream.worker.exchange.output import GatheringOutput
from unistream.worker.exchange.spill_file import FrameEncoder, FrameReader

_LAST = (Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition())


class _SegmentIndex(msgspec.Struct, frozen=True, array_like=True):
    targets: tuple[int, ...]
    segments: tuple[tuple[tuple[int, int], ...], ...]


class StoredOutput(GatheringOutput):
    """An `OutputPartition`. EndOfPartition completes the file; of one that is abandoned nothing stays.

    Args:
        folder: URL of the folder that `writer` writes to.

    Attributes:
        stored: The complete file; None before.

    Raises (`emit` and `broadcast`):
        Transient: the storage cannot be written to.
    """

    def __init__(
        self,
        descriptor: PartitionDescriptor,
        vertex: VertexId,
        index: int,
        *,
        folder: str,
        writer: StateWriter,
    ) -> None:
        super().__init__(descriptor, index, SPILL_BYTES)
        self.stored: StoredRows | None = None
        self._vertex = vertex
        self._index = index
        self._folder = folder
        self._writer = writer
        self._file: StateFile | None = None
        self._encoders = [FrameEncoder() for _ in range(self._router.targets)]
        self._segments: list[list[tuple[int, int]]] = [[] for _ in self._encoders]
        self._position = 0

    def emit(self, batch: Batch) -> None:
        assert self.stored is None, "nothing follows EndOfPartition"
        super().emit(batch)

    def _full(self) -> None:
        with self._named():
            self._divide()

    def broadcast(self, event: Event) -> None:
        """The end alone is stored: there is no watermark before it in a bounded job."""
        if isinstance(event, EndOfPartition):
            with self._named():
                self._complete()

    def abandon(self) -> None:
        super().abandon()
        file, self._file = self._file, None
        if file is not None:
            error = Transient("its task has ended early")
            file.__exit__(type(error), error, None)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A failure says what has to be reachable."""
        try:
            yield
        except Transient as error:
            raise Transient(
                f"rows of the bounded part cannot be stored in {self._folder}: {error}; make "
                f"{CHECKPOINT_DIR.key} a folder that all executors and workers reach"
            ) from error

    def _divide(self) -> None:
        divided: list[list[Element]] = [[] for _ in self._encoders]
        for target, batch in self._taken():
            divided[target].append(batch)
        for target, elements in enumerate(divided):
            self._append(target, elements)
            elements.clear()

    def _append(self, target: int, elements: Sequence[Element]) -> None:
        if not elements:
            return
        if self._file is None:
            self._file = self._writer.open(f"{self.edge}-{self._index}").__enter__()
        start = self._position
        encode = self._encoders[target].encode
        for buffer in itertools.chain.from_iterable(encode(element) for element in elements):
            content = memoryview(buffer).cast("B")
            if len(content):
                self._file.write(content)
                self._position += len(content)
        self._segments[target].append((start, self._position - start))

    def _complete(self) -> None:
        self._divide()
        for target in range(len(self._encoders)):
            self._append(target, _LAST)
        targets = tuple(self._router.target_of(place) for place in range(len(self._consumers)))
        index = msgspec.msgpack.encode(_SegmentIndex(targets, tuple(tuple(of) for of in self._segments)))
        file, self._file = self._file, None
        assert file is not None, "each target has an end"
        with file:
            file.write(index)
        self.stored = StoredRows(
            edge=self.edge,
            vertex=self._vertex,
            producer=self._index,
            folder=self._folder,
            file=file.ref,
            index_bytes=len(index),
            index_crc=crc32c(index),
        )


class StoredFile:
    """Reads what a `StoredOutput` has made. Implements `channels.LocalPartitions`.

    Args:
        open_reader: URL of a folder -> what reads files below it.
    """

    def __init__(self, rows: StoredRows, open_reader: Callable[[str], StateReader]) -> None:
        self._rows = rows
        self._open_reader = open_reader

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> FrameView:
        listener()
        place = f"the file {self._rows.folder}/{self._rows.file.path}"
        return FrameView(partial(self._frames, channel.subpartition), place, self._rows.partition)

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        """Does nothing: the partition is always registered."""

    def _frames(self, subpartition: int) -> FrameReader:
        rows = self._rows
        read = partial(_read, self._open_reader(rows.folder), rows.file)
        content = read(rows.file.size - rows.index_bytes, rows.file.size)
        if crc32c(content) != rows.index_crc:
            raise ProtocolError("its index does not match its checksum")
        index = msgspec.msgpack.decode(content, type=_SegmentIndex)
        segments = _Segments(index.segments[index.targets[subpartition]], read)
        return FrameReader(segments.read, segments.size)


def _read(reader: StateReader, file: FileRef, start: int, stop: int) -> bytes:
    """All of these bytes. Raises ProtocolError, or Transient if the store does not answer."""
    try:
        return reader.read_range(file, start, stop)
    except CorruptSnapshot as error:
        raise ProtocolError("it is missing, or shorter than it was") from error


class _Segments:
    """Pieces of a file, as if they followed each other.

    >>> pieces = _Segments([(4, 2), (0, 3)], lambda start, stop: b"abcdef"[start:stop])
    >>> pieces.read(1, 3).to_pybytes()
    b'fab'
    """

    def __init__(self, segments: Sequence[tuple[int, int]], read: Callable[[int, int], bytes]) -> None:
        self._segments = segments
        self._read = read
        self._starts = [0, *itertools.accumulate(length for _, length in segments)]
        self.size = self._starts.pop()

    def read(self, at: int, count: int) -> pa.Buffer:
        found: list[bytes] = []
        end = min(at + count, self.size)
        while at < end:
            number = bisect_right(self._starts, at) - 1
            offset, length = self._segments[number]
            inside = at - self._starts[number]
            wanted = min(length - inside, end - at)
            found.append(self._read(offset + inside, offset + inside + wanted))
            if len(found[-1]) < wanted:
                break
            at += wanted
        return pa.py_buffer(found[0] if len(found) == 1 else b"".join(found))
