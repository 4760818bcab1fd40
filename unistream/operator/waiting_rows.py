"""Batches that an operator cannot use yet: in memory up to a budget, then in a file.

    with room in the budget     [batch, batch, …]                            in memory
    beyond it                   file: batch batch batch …   [batch, …]       the older ones are in the file

The file has no name: it is deleted with its last user, and so with the process. A snapshot refers to the
written part, and reads it in chunks when it is stored.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Final, overload

import pyarrow as pa

from unistream.base.errors import CorruptSnapshot, Transient
from unistream.base.limits import MIB
from unistream.core.task import BATCH_OVERHEAD_BYTES
from unistream.model.elements import Batch

CHUNK_BYTES: Final = 16 * MIB  # of one list of a snapshot: what is in memory while it is stored or restored
TIMESTAMP: Final = "__timestamp"


class WaitingRows:
    """Used by the task's thread.

    Args:
        budget: Maximum number of bytes in memory.
        folder: The folder of the file; None: the system's.
    """

    def __init__(self, budget: int, folder: str | None) -> None:
        self._budget = budget
        self._folder = folder
        self._batches: list[Batch] = []
        self._bytes = 0
        self._file: SpillFile | None = None

    @property
    def has_spilled(self) -> bool:
        """The file has the older rows."""
        return self._file is not None

    def add(self, batch: Batch) -> None:
        """Appends a batch. Raises Transient if the file cannot be written."""
        self._batches.append(batch)
        self._bytes += batch.nbytes + BATCH_OVERHEAD_BYTES
        if self._bytes > self._budget:
            self._spill()

    def _take_in_memory(self) -> list[Batch]:
        batches, self._batches, self._bytes = self._batches, [], 0
        return batches

    def drain(self) -> Iterator[Batch]:
        """Removes all, in order; the iterator reads the file."""
        file, self._file = self._file, None
        batches = self._take_in_memory()
        if file is not None:
            for item in file.items():
                yield decode_batch(item)
        yield from batches

    def snapshot(self) -> list[Sequence[bytes]]:
        """Encoded batches in order, in chunks; those of the file are read at their use."""
        chunks: list[Sequence[bytes]] = [] if self._file is None else list(self._file.chunks())
        if self._batches:
            chunks.append(tuple(encode_batch(batch) for batch in self._batches))
        return chunks

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = SpillFile(self._folder)
            for batch in self._batches:
                self._file.append(encode_batch(batch))
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise Transient(
                f"{self._bytes} bytes of waiting rows cannot be written to {folder} (io.tmp.dirs): {error}"
            ) from error
        self._take_in_memory()


class SpillFile:
    """Items one after the other in a file without a name. Appended by one thread, read by any."""

    def __init__(self, folder: str | None) -> None:
        descriptor, path = tempfile.mkstemp(prefix="unistream-waiting-", dir=folder)
        os.unlink(path)
        self._descriptor = descriptor
        self._index: list[tuple[int, int]] = []
        self.size = 0
        weakref.finalize(self, os.close, descriptor)

    def append(self, item: bytes) -> None:
        """Raises OSError, without having appended the item."""
        view, offset = memoryview(item), self.size
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written
        self._index.append((self.size, len(item)))
        self.size = offset

    def read(self, number: int) -> bytes:
        offset, size = self._index[number]
        parts = []
        while size:
            part = os.pread(self._descriptor, size, offset)
            if not part:
                raise Transient("a file of spilled rows ended early")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def items(self) -> Iterator[bytes]:
        return (self.read(number) for number in range(len(self._index)))

    def chunks(self) -> Iterator[_Items]:
        """The written items, in runs of about CHUNK_BYTES."""
        first = total = 0
        for number, (_, size) in enumerate(self._index):
            if total and total + size > CHUNK_BYTES:
                yield _Items(self, first, number)
                first, total = number, 0
            total += size
        if first < len(self._index):
            yield _Items(self, first, len(self._index))


class _Items(Sequence[bytes]):
    """A run of items, read at each use."""

    def __init__(self, file: SpillFile, start: int, stop: int) -> None:
        self._file = file
        self._numbers = range(start, stop)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(position, slice):
            return tuple(self._file.read(number) for number in self._numbers[position])
        return self._file.read(self._numbers[position])


def encode_batch(batch: Batch) -> bytes:
    """An Arrow IPC stream of one batch; event times are its last column."""
    records = batch.records
    if batch.timestamps is not None:
        records = pa.RecordBatch.from_arrays(
            [*records.columns, batch.timestamps], names=[*records.schema.names, TIMESTAMP]
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return bytes(memoryview(sink.getvalue()))


def decode_batch(payload: bytes) -> Batch:
    """Inverse of `encode_batch`. Raises CorruptSnapshot."""
    try:
        with pa.ipc.open_stream(payload) as reader:
            records = reader.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise CorruptSnapshot(f"restored rows of a join cannot be read: {error}") from error
    if TIMESTAMP not in records.schema.names:
        return Batch(records)
    timestamps = records.column(TIMESTAMP)
    return Batch(records.drop_columns([TIMESTAMP]), timestamps)
