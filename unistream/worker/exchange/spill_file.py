"""The files of a blocking partition: Arrow IPC messages and events, each in a frame with its checksum.

    frame = header (32 bytes) ─ payload ─ zeros up to a multiple of 8
    header = "USF3" ─ sequence number ─ kind ─ crc32c of payload and zeros
             ─ length of the payload (8 bytes) ─ crc32c of the header up to here ─ 4 zeros

Any changed bit is detected. The header has its own checksum, so that a length is verified before that many
bytes are read. Checkpoints of older versions have frames "USF2" with crc32, which took six times as long.

A schema is written before the first batch and again when it changes; batches are bare IPC messages, which
cost no more than their columns. Batches with dictionaries are separate IPC streams (schema,
dictionaries, batch): pyarrow reads dictionaries only as part of a stream. The last frame is EndOfPartition:
a file that ends before it is damaged. The sequence number detects a lost or repeated frame.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from crc32c import crc32c
from pyarrow import ipc

from unistream.base.errors import ProtocolError
from unistream.base.limits import KIB
from unistream.model.codec import decode_event, encode_event
from unistream.model.elements import Batch, Element
from unistream.net.wire import from_wire, to_wire
from unistream.worker.exchange.batch_stream import as_stream, decode_batch

MAGIC: Final = b"USF3"
CHECKSUMS: Final[Mapping[bytes, Callable[[bytes | pa.Buffer], int]]] = {MAGIC: crc32c, b"USF2": zlib.crc32}
READ_BYTES: Final = 256 * KIB  # read at once: small frames share one read, and large ones need no second
_FIELDS: Final = struct.Struct("<4sIIIQ")
_SEAL: Final = struct.Struct("<I4x")
_HEADER_BYTES: Final = _FIELDS.size + _SEAL.size
_ALIGNMENT: Final = 8  # of frames, so that Arrow's buffers are aligned in memory

Buffers = list[bytes | pa.Buffer]


class _Kind(IntEnum):
    SCHEMA = 1
    BATCH = 2
    STREAM = 3
    EVENT = 4


class FrameEncoder:
    """Elements of one file, in order, as bytes."""

    def __init__(self) -> None:
        self._sequence = itertools.count()
        self._schema: pa.Schema | None = None
        self._has_dictionaries = False

    def encode(self, element: Element) -> Buffers:
        """The bytes to append to the file."""
        if not isinstance(element, Batch):
            return self._frame(_Kind.EVENT, encode_event(element))
        records = to_wire(element)
        out: Buffers = []
        if self._schema is None or not records.schema.equals(self._schema, check_metadata=True):
            self._schema = records.schema
            self._has_dictionaries = any(_has_dictionary(field.type) for field in records.schema)
            if not self._has_dictionaries:
                out += self._frame(_Kind.SCHEMA, records.schema.serialize())
        if self._has_dictionaries:
            return out + self._frame(_Kind.STREAM, as_stream(records))
        return out + self._frame(_Kind.BATCH, records.serialize())

    def _frame(self, kind: _Kind, payload: bytes | pa.Buffer) -> Buffers:
        size = memoryview(payload).nbytes
        padding = bytes(-size % _ALIGNMENT)
        checksum = crc32c(padding, crc32c(payload))
        fields = _FIELDS.pack(MAGIC, next(self._sequence), kind, checksum, size)
        return [fields + _SEAL.pack(crc32c(fields)), payload, padding]


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(
        _has_dictionary(kind.field(i).type) for i in range(kind.num_fields)
    )


class FrameReader:
    """Reads frames from the first on, an element at a time, and checks each. Batches refer to the memory that
    they were read into.

    Args:
        read: (offset, count) -> up to so many bytes from there; fewer where they end.
        size: Bytes of all frames when they were written.
    """

    def __init__(self, read: Callable[[int, int], pa.Buffer], size: int) -> None:
        self._read = read
        self._size = size
        self._sequence = 0
        self._schema: pa.Schema | None = None
        self._chunk = pa.py_buffer(b"")
        self._start = 0  # of the chunk, in the file
        self._position = 0  # of the next frame, in the file

    @property
    def is_at_end(self) -> bool:
        """No frame follows."""
        return self._position >= self._size

    def next(self) -> Element:
        """The next element; never called after the last.

        Raises:
            OSError: the file cannot be read.
            ProtocolError: it is not what was written.
        """
        while True:
            kind, payload = self._frame()
            match kind:
                case _Kind.SCHEMA:
                    self._schema = ipc.read_schema(payload)
                case _Kind.BATCH:
                    return from_wire(ipc.read_record_batch(payload, self._schema))
                case _Kind.STREAM:
                    return decode_batch(payload)
                case _:
                    return decode_event(payload.to_pybytes())

    def _frame(self) -> tuple[int, pa.Buffer]:
        at = self._position
        head = self._bytes(at, _HEADER_BYTES).to_pybytes()
        magic, sequence, kind, checksum, size = _FIELDS.unpack_from(head)
        checksum_of = CHECKSUMS.get(magic, crc32c)
        if _SEAL.pack(checksum_of(head[: _FIELDS.size])) != head[_FIELDS.size :]:
            raise ProtocolError(
                f"the header of frame {self._sequence} at byte {at} does not match its checksum"
            )
        padded = size + -size % _ALIGNMENT
        end = at + _HEADER_BYTES + padded
        if magic not in CHECKSUMS or sequence != self._sequence or end > self._size:
            raise ProtocolError(f"there is no frame {self._sequence} at byte {at}")
        payload = self._bytes(at + _HEADER_BYTES, padded)
        if checksum_of(payload) != checksum:
            raise ProtocolError(f"frame {sequence} at byte {at} does not match its checksum")
        self._sequence += 1
        self._position = end
        return kind, payload.slice(0, size)

    def _bytes(self, at: int, count: int) -> pa.Buffer:
        """`count` bytes from `at`, from the present chunk or a new one."""
        offset = at - self._start
        if not 0 <= offset <= self._chunk.size - count:
            wanted = min(max(count + _HEADER_BYTES, READ_BYTES), self._size - at)
            self._chunk, self._start, offset = self._read(at, wanted), at, 0
            if self._chunk.size < count:
                raise ProtocolError(f"it ends at byte {at + self._chunk.size} of {self._size}")
        return self._chunk.slice(offset, count)


def spill_reader(path: Path, size: int) -> FrameReader:
    """Reads one file of `size` bytes.

    No file handle is held between reads, so that thousands can be read at once. The file is not mapped, so
    that a disk error is an exception and not a signal that ends the process.
    """
    return FrameReader(partial(read_file, path), size)


def read_file(path: Path, at: int, count: int) -> pa.Buffer:
    """Up to `count` bytes; fewer where the file ends."""
    chunk = pa.allocate_buffer(max(0, count), resizable=True)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        done = 0
        with memoryview(chunk) as view:
            while done < count:
                got = os.preadv(handle, [view[done:]], at + done)
                if got == 0:
                    break
                done += got
    finally:
        os.close(handle)
    return chunk.slice(0, done)


def append_frames(path: Path, buffers: Iterable[bytes | pa.Buffer]) -> int:
    """Appends `buffers` and returns their bytes. After an OSError any part of them may be in the file."""
    count = 0
    with path.open("ab") as file:
        for buffer in buffers:
            count += file.write(buffer)
    return count
