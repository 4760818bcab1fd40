"""A keyed state table as one Arrow IPC file: written as it comes, read in parts, each part checked.

Any Arrow reader can open the file. Its handle makes it readable in parts: it has the offset of each record
batch and its CRC-32C. A reader reads the bytes before the first batch (the schema) and those of its own key
groups, which are contiguous, and detects a changed bit in them without reading the rest. The reader of the
last batch also reads the footer behind it, so that all readers together check every byte. (A CRC finds every
error of up to 32 bits in a row; the SHA-256 of the whole file is checked by those that read all of it.)

Memory: a batch at a time on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from unistream.base.errors import CorruptSnapshot, ProtocolError
from unistream.base.limits import BATCH_ROWS_MAX, MIB
from unistream.model.columns.arrow_layouts import taken
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN, KeyedHandle, KeyedShare
from unistream.port.storage import StateFile, StateReader, StateWriter
from unistream.state.common.migration import plain_type

READ_BYTES_MAX: Final = 8 * MIB  # of one request to a store; small batches are read together
_END: Final = b"ARROW1"
_MAGIC_BYTES: Final = 8  # an IPC file is this and then a stream


# --- writing --------------------------------------------------------------------------------------


def write_keyed_table(table: StateTable, writer: StateWriter) -> KeyedHandle | None:
    """Stores a table, or nothing if it has no rows.

    Dictionary columns of a backend's state are stored as their values, since its batches need not share
    dictionaries; an operator's own table keeps them.

    Raises:
        ProtocolError: its rows are not in the order of their key groups.
        UnistreamError, OSError: it could not be stored; no part of it is visible.
    """
    own = table.kind is StateKind.TABLE
    schema = table.schema if own else pa.schema([f.with_type(plain_type(f.type)) for f in table.schema])
    position = schema.get_field_index(KEY_GROUP_COLUMN)
    if position < 0:
        raise ProtocolError(f"keyed state {table.name!r} has no column {KEY_GROUP_COLUMN}")
    pieces = _pieces(table.name, table.batches, schema, position)
    first = next(pieces, None)
    if first is None:
        return None
    with writer.open(table.name) as file:
        written = _Pieces(file, schema)
        written.add(*first)
        for group, piece in pieces:
            written.add(group, piece)
        written.finish()
    return KeyedHandle(
        name=table.name,
        file=file.ref,
        key_groups=tuple(written.groups),
        rows=written.rows,
        kind=table.kind,
        pickled=table.pickled,
        offsets=tuple(written.offsets),
        checksums=tuple(written.checksums),
        footer_checksum=written.footer_checksum,
    )


def batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a table in memory, in the order of their key groups."""
    groups = table.column(KEY_GROUP_COLUMN).to_numpy()
    if np.any(groups[1:] < groups[:-1]):
        table = taken(table, np.argsort(groups, kind="stable"))
    yield from table.unify_dictionaries().combine_chunks().to_batches()


class _Pieces:
    """An IPC file that is being written, and the fields of its handle."""

    def __init__(self, file: StateFile, schema: pa.Schema) -> None:
        self._file = file
        self._sink = _Sink()
        self._ipc = pa.ipc.new_file(self._sink, schema)
        self.groups: list[int] = []
        self.rows = 0
        self.offsets: list[int] = []
        self.checksums: list[int] = []
        self.footer_checksum: int | None = None
        self._position = 0

    def add(self, group: int, batch: pa.RecordBatch) -> None:
        self._ipc.write_batch(batch)
        message = self._sink.take()
        if not self.offsets:  # the schema comes before the first batch
            size = pa.ipc.get_record_batch_size(batch)
            assert len(message) > size > 0, "the schema comes before the first batch"
            self._append(message[:-size])
            self.offsets.append(self._position)
            message = message[-size:]
        self._append(message)
        self.offsets.append(self._position)
        self.groups.append(group)
        self.rows += batch.num_rows

    def finish(self) -> None:
        self._ipc.close()
        footer = self._sink.take()
        self._file.write(footer)
        self.footer_checksum = crc32c(footer)

    def _append(self, content: bytes) -> None:
        self._file.write(content)
        self._position += len(content)
        self.checksums.append(crc32c(content))


class _Sink:
    """The file that pyarrow writes to; keeps what was written since the last `take`."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, content: bytes) -> int:
        self._pieces.append(bytes(content))
        return len(content)

    def take(self) -> bytes:
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _pieces(
    name: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, position: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each batch cut where the key group changes, and where it is long."""
    latest = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        groups = batch.column(position).to_numpy().astype(np.int64)
        steps = np.diff(groups)
        if int(groups[0]) < latest or bool((steps < 0).any()):
            raise ProtocolError(f"keyed state {name!r}: its rows are not in the order of their key groups")
        latest = int(groups[-1])
        records = batch.cast(schema) if batch.schema != schema else batch
        starts = [0, *(np.flatnonzero(steps) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], len(groups)], strict=True):
            for low in range(start, stop, BATCH_ROWS_MAX):
                piece = records.slice(low, min(stop - low, BATCH_ROWS_MAX))
                yield int(groups[start]), piece


# --- reading --------------------------------------------------------------------------------------


def read_keyed_share(share: KeyedShare, reader: StateReader) -> StateTable:
    """Record batches [start, stop) of a stored table, read lazily; the schema is read at once.

    Raises:
        CorruptSnapshot: the file is missing, truncated or damaged, or does not match its handle; also while
            the batches are read.
    """
    handle = share.handle
    source = _Ranges(share, reader) if handle.offsets else _Whole(handle, reader)
    return StateTable(
        name=handle.name,
        kind=handle.kind,
        pickled=handle.pickled,
        schema=source.schema,
        batches=_checked(source, share, reader),
    )


class _Ranges:
    """Reads and checks the requested batches only."""

    def __init__(self, share: KeyedShare, reader: StateReader) -> None:
        handle = share.handle
        count = len(handle.key_groups)
        spans = (0, *handle.offsets, handle.file.size)
        fits = len(handle.offsets) == count + 1 == len(handle.checksums)
        if not fits or any(stop < start for start, stop in pairwise(spans)):
            raise damaged(handle, reader, "its handle is inconsistent")
        self._handle = handle
        self._reader = reader
        if handle.footer_checksum is not None and share.stop == count:
            footer = reader.read_range(handle.file, handle.offsets[-1], handle.file.size)
            self._check(footer, handle.footer_checksum)
        elif reader.read_range(handle.file, max(0, spans[-1] - len(_END)), spans[-1]) != _END:
            raise damaged(handle, reader, "it does not end like an Arrow file: it is truncated")
        head = reader.read_range(handle.file, 0, handle.offsets[0])
        self._check(head, handle.checksums[0])
        self._stream = head[_MAGIC_BYTES:]
        try:
            self.schema = pa.ipc.read_schema(pa.py_buffer(self._stream))
        except (pa.ArrowException, OSError) as error:
            raise damaged(handle, reader, str(error)) from error
        self._plain = "dictionary<" not in str(self.schema)  # also inside of lists and structs

    def batches(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        offsets = self._handle.offsets
        while start < stop:
            end = start + 1
            while end < stop and offsets[end + 1] - offsets[start] <= READ_BYTES_MAX:
                end += 1
            content = self._reader.read_range(self._handle.file, offsets[start], offsets[end])
            view = memoryview(content)
            for number in range(start, end):
                yield self._batch(view[offsets[number] - offsets[start] :], number)
            start = end

    def _batch(self, rest: memoryview, number: int) -> pa.RecordBatch:
        offsets = self._handle.offsets
        message = rest[: offsets[number + 1] - offsets[number]]
        self._check(message, self._handle.checksums[number + 1])
        try:
            if self._plain:
                return pa.ipc.read_record_batch(pa.py_buffer(message), self.schema)
            with pa.ipc.open_stream(self._stream + bytes(message)) as stream:
                return stream.read_next_batch()
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise damaged(self._handle, self._reader, str(error)) from error

    def _check(self, content: bytes | memoryview, checksum: int) -> None:
        if crc32c(content) != checksum:
            why = "it does not match its checksum: it was changed after it was written"
            raise damaged(self._handle, self._reader, why)


class _Whole:
    """A handle without checksums of parts: the whole file is checked."""

    def __init__(self, handle: KeyedHandle, reader: StateReader) -> None:
        self._handle = handle
        self._reader = reader
        try:
            self._file = pa.ipc.open_file(reader.open_range(handle.file))
        except (pa.ArrowException, OSError) as error:
            raise damaged(handle, reader, str(error)) from error
        found, wanted = self._file.num_record_batches, len(handle.key_groups)
        if found != wanted:
            raise damaged(handle, reader, f"it holds {found} key groups, not {wanted}")
        self.schema = self._file.schema

    def batches(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        with self._file:
            for number in range(start, stop):
                try:
                    yield self._file.get_batch(number)
                except (pa.ArrowException, OSError) as error:
                    raise damaged(self._handle, self._reader, str(error)) from error


def _checked(source: _Ranges | _Whole, share: KeyedShare, reader: StateReader) -> Iterator[pa.RecordBatch]:
    """The batches, whose rows must be of the key groups in the handle."""
    handle = share.handle
    groups = handle.key_groups[share.start : share.stop]
    position = source.schema.get_field_index(KEY_GROUP_COLUMN)
    if position < 0:
        raise damaged(handle, reader, f"it has no column {KEY_GROUP_COLUMN}")
    for group, batch in zip(groups, source.batches(share.start, share.stop), strict=True):
        stored = batch.column(position)
        if len(stored) == 0 or stored[0].as_py() != group or stored[-1].as_py() != group:
            raise damaged(handle, reader, f"wrong rows for key group {group}")
        yield batch


def damaged(handle: KeyedHandle, reader: StateReader, why: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"state {handle.name!r} in {reader.place(handle.file)} cannot be read: {why}")
