"""How kafka-python receives what a broker sends, without its copies. With `private` the only module that uses
private names of kafka-python's consumer; `tests/contract/test_contract_kafka_receive.py` uses each of them:

    KafkaTCPTransport._sock_recv, ._sock, ._protocol; KafkaConnection.parser
    KafkaProtocol._receiving, ._rbuffer; KafkaBytes.read, ._idx
    FetchResponse._struct.fields, SimpleField._type, Bytes.emit_decode_from
    MemoryRecords._next_slice, ._cache_next; DefaultRecordBatch._buffer, HEADER_STRUCT

As it is, kafka-python makes a system call for each 4096 bytes, and copies each byte eight times: the pieces
are joined, put into the frame of the response (by way of another copy), the frame is copied, then the records
of a partition, then each batch. Here the socket fills the frame, and all others are views of it. So a frame
lives until the records of all its partitions are decoded. Connections with TLS are received as they were:
their records have 16 KB.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from kafka.errors import KafkaConnectionError
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.schemas.fields.codecs import Bytes
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch

SHORT_BYTES: Final = 4096  # of which one copy more costs nothing
LONG_BYTES: Final = 64 * 2**10  # a message of a login is shorter, and has to be bytes
DISCONNECTED: Final = "socket disconnected"
MAGIC: Final = 2  # the only format of batches whose header is read here
_MAGIC: Final = struct.Struct(">b")


class BatchView(DefaultRecordBatch):  # type: ignore[misc, unused-ignore]
    """A batch whose records are read by nobody: `_buffer` is a view of the frame."""

    def __init__(self, buffer: memoryview) -> None:
        super().__init__(buffer[: self.HEADER_STRUCT.size])  # this is copied
        self._buffer = buffer


def next_batch(records: Any) -> Any:
    """The next one of `MemoryRecords`, None behind the last. A batch of another format than 2 is left to
    kafka-python."""
    part = records._next_slice
    if part is None or len(part) < DefaultRecordBatch.HEADER_STRUCT.size:
        return records.next_batch()
    if _MAGIC.unpack_from(part, MemoryRecords.MAGIC_OFFSET)[0] != MAGIC:
        return records.next_batch()
    records._cache_next()
    return BatchView(part)


def _receive(self: Any) -> tuple[bytes, Exception | None]:
    """What has come, except for what went into a frame, and why there will be no more."""
    try:
        _fill_frame(self)
        data = self._sock.recv(SHORT_BYTES)
    except (BlockingIOError, InterruptedError):
        return b"", None
    except (OSError, AttributeError) as error:  # there is no socket any more
        return b"", KafkaConnectionError(error)
    return data, None if data else KafkaConnectionError(DISCONNECTED)


def _fill_frame(transport: Any) -> None:
    """Reads all but the last byte of a frame whose begin was received: with that one it goes the usual
    way."""
    parser = getattr(transport._protocol, "parser", None)
    if parser is None or not parser._receiving:
        return
    frame = parser._rbuffer
    with memoryview(frame) as whole:
        while frame.tell() < len(frame) - 1:
            with whole[frame.tell() : len(frame) - 1] as missing:
                received = transport._sock.recv_into(missing)
            if not received:
                return  # the next call sees it, too
            frame.seek(frame.tell() + received)


def _read(self: Any, nbytes: int | None = None) -> bytes | memoryview:
    """Reads bytes of a frame. The rest of a long one is a view; kafka-python copies everything twice."""
    start = self._idx
    stop = len(self) if nbytes is None else min(len(self), start + nbytes)
    self._idx = stop
    if nbytes is None and stop - start > LONG_BYTES:
        return memoryview(self)[start:].toreadonly()
    return bytes(self[start:stop])


class _View(Bytes):  # type: ignore[misc, unused-ignore]
    """A field that is not copied out of its response."""

    @classmethod
    def emit_decode_from(cls, ctx: Any, var_name: str, indent: str, compact: bool = False) -> None:
        first = len(ctx.lines)
        super().emit_decode_from(ctx, var_name, indent, compact=compact)
        ctx.lines[first:] = [line.replace("bytes(data[", "(data[") for line in ctx.lines[first:]]


KafkaTCPTransport._sock_recv = _receive
KafkaBytes.read = _read
FetchResponse._struct.fields["responses"].fields["partitions"].fields["records"]._type = _View
