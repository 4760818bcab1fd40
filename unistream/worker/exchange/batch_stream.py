"""One batch as an Arrow stream of its own: schema, dictionaries, rows."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import ipc

from unistream.model.elements import Batch
from unistream.net.wire import READ_OPTIONS, WRITE_OPTIONS, from_wire, to_wire


def as_stream(records: pa.RecordBatch, options: ipc.IpcWriteOptions = WRITE_OPTIONS) -> pa.Buffer:
    """The bytes of records that `to_wire` has made."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, records.schema, options=options) as writer:
        writer.write_batch(records)
    return sink.getvalue()


def encode_batch(batch: Batch, options: ipc.IpcWriteOptions = WRITE_OPTIONS) -> bytes:
    """The bytes that `decode_batch` reads."""
    content: bytes = as_stream(to_wire(batch), options).to_pybytes()
    return content


def decode_batch(content: bytes | pa.Buffer) -> Batch:
    """The batch that `encode_batch` was given; its columns refer to `content`. Raises `wire.WIRE_ERRORS`."""
    with ipc.open_stream(content, options=READ_OPTIONS) as stream:
        return from_wire(stream.read_next_batch())
