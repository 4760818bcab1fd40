"""What travels in a Flight exchange, and how errors cross it.

Consumer to producer: the command of the descriptor is a `ChannelDescriptor`; then messages with
app_metadata only, each a number of bytes of credit. The first opens the stream.

Producer to consumer: `ACCEPTED`; then, in order, events (app_metadata only, may precede the first batch)
and batches, whose app_metadata is the credit that they cost. A producer that has less credit than its next
batch costs says so once (app_metadata only, `encode_need`) and waits. Arrow's schema message precedes the
first batch, so a stream has one schema. Event times are its last column, marked in the field's metadata;
after EndOfPartition nothing follows, and the consumer closes its side to say that it has read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import pyarrow as pa
from pyarrow import flight, ipc

from unistream.base.errors import NobodyThere, PartitionLost, ProtocolError, UnistreamError, Unreachable
from unistream.base.ids import PartitionId
from unistream.base.limits import FRAME_BYTES_MAX, KIB, MIB
from unistream.model.elements import Batch
from unistream.model.messages import ChannelDescriptor

CONTROL_ACTION: Final = "control"
ACCEPTED: Final = b"accepted"
CREDITS_MAX: Final = 1 << 40  # far above any sensible grant; a larger number is a broken or hostile peer
BATCH_COST_MIN: Final = 4 * KIB  # a batch costs its bytes and this, for the objects around it
_NEED: Final = b"\xc1"  # begins no event: msgpack never uses it
DESCRIPTOR_BYTES_MAX: Final = 4096  # a few ids and an address
OWN_ERROR: Final = b"unistream"  # extra_info of an error that our code raised, not gRPC
LOST_ERROR: Final = b"unistream lost "  # … and of a PartitionLost; the partition follows
ERROR_TEXT_MAX: Final = 1500  # travels three times in HTTP/2 headers, of which gRPC takes 8 KiB
TIMESTAMP_COLUMN: Final = "__timestamp"

# Aligned: numpy and numba take a slow path, or a second compilation, for unaligned columns.
READ_OPTIONS: Final = ipc.IpcReadOptions(use_threads=False, ensure_alignment=ipc.Alignment.DataTypeSpecific)
WRITE_OPTIONS: Final = ipc.IpcWriteOptions(compression=None, use_threads=False)

WIRE_ERRORS: Final = (flight.FlightError, pa.ArrowException, OSError)
"""Whatever pyarrow raises when a stream or a call ends badly."""

_TIMESTAMP_FIELD: Final = pa.field(
    TIMESTAMP_COLUMN, pa.int64(), nullable=False, metadata={b"unistream": b"event time"}
)
_ENCODER: Final = msgspec.msgpack.Encoder()
_CHANNEL: Final = msgspec.msgpack.Decoder(ChannelDescriptor)
_PARTITION: Final = msgspec.msgpack.Decoder(PartitionId)
_CREDITS: Final[msgspec.msgpack.Decoder[int]] = msgspec.msgpack.Decoder(
    Annotated[int, msgspec.Meta(ge=1, le=CREDITS_MAX)]
)


def encode_channel(channel: ChannelDescriptor) -> bytes:
    return _ENCODER.encode(channel)


def decode_channel(data: bytes | None) -> ChannelDescriptor:
    """Raises ProtocolError for anything that is not a channel."""
    if data is None or len(data) > DESCRIPTOR_BYTES_MAX:
        raise ProtocolError(f"an exchange is opened by a channel of at most {DESCRIPTOR_BYTES_MAX} B")
    try:
        return _CHANNEL.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a channel: {error}") from error


def encode_credits(credit: int) -> bytes:
    return _ENCODER.encode(credit)


def decode_credits(data: pa.Buffer | None) -> int:
    """1 to CREDITS_MAX. Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a consumer may send credits only")
    try:
        return _CREDITS.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a number of credits: {error}") from error


def encode_need(cost: int) -> bytes:
    return _NEED + _ENCODER.encode(cost)


def decode_need(data: bytes) -> int | None:
    """Credit that the producer waits for; None: it is an event.

    Raises:
        ProtocolError: neither.
    """
    return decode_cost(data[1:]) if data[:1] == _NEED else None


def decode_cost(data: bytes | pa.Buffer | None) -> int:
    """Credit that a batch costs. Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a batch came without its cost")
    try:
        cost = _CREDITS.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not the cost of a batch: {error}") from error
    if cost > FRAME_BYTES_MAX + BATCH_COST_MIN:
        raise ProtocolError(f"a batch of {cost} B is larger than one message")
    return cost


def cost_of(records: pa.RecordBatch) -> int:
    """Credit that sending `records` costs."""
    return int(records.nbytes) + BATCH_COST_MIN


def encode_cost(cost: int) -> bytes:
    return _ENCODER.encode(cost)


def describe(channel: ChannelDescriptor) -> str:
    """For errors: which stream."""
    return f"subpartition {channel.subpartition} of edge {channel.edge} from task {channel.producer}"


# --- batches --------------------------------------------------------------------------------------


def to_wire(batch: Batch) -> pa.RecordBatch:
    """The rows, with event times (if there are any) as the last column. No copy."""
    if batch.timestamps is None:
        return batch.records
    return batch.records.append_column(_TIMESTAMP_FIELD, batch.timestamps)


def from_wire(records: pa.RecordBatch) -> Batch:
    """Inverse of `to_wire`.

    Raises:
        ProtocolError: the rows are not what their schema says (offsets out of range, wrong lengths).
    """
    try:
        records.validate()  # cheap: sizes of buffers, not every value
    except pa.ArrowInvalid as error:
        raise ProtocolError(f"a malformed batch arrived: {error}") from error
    last = records.num_columns - 1
    if last < 0 or not _is_timestamp(records.schema.field(last)):
        return Batch(records)
    return Batch(records.remove_column(last), records.column(last))


def _is_timestamp(field: pa.Field) -> bool:
    return bool(field.equals(_TIMESTAMP_FIELD, check_metadata=True))


def split(records: pa.RecordBatch, bytes_max: int = FRAME_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """`records` in runs of rows of at most `bytes_max` bytes each, without a copy.

    Raises:
        ProtocolError: one row alone is larger.
    """
    if records.nbytes <= bytes_max:
        yield records
        return
    if records.num_rows <= 1:
        raise ProtocolError(
            f"a row of {records.nbytes} B does not fit into one message of {bytes_max // MIB} MiB"
        )
    half = records.num_rows // 2
    yield from split(records.slice(0, half), bytes_max)
    yield from split(records.slice(half), bytes_max)


# --- errors ---------------------------------------------------------------------------------------


def to_peer(error: Exception) -> Exception:
    """What a server method raises, so that `from_peer` on the other side finds the same class.

    Always one of Flight's own errors: to any other pyarrow adds this process's traceback.
    """
    text = str(error) if isinstance(error, UnistreamError) else f"{type(error).__name__}: {error}"
    if len(text) > ERROR_TEXT_MAX:
        text = text[: ERROR_TEXT_MAX - 1] + "…"
    kind = flight.FlightUnavailableError if isinstance(error, Unreachable) else flight.FlightServerError
    extra = OWN_ERROR
    if isinstance(error, PartitionLost):
        extra = LOST_ERROR + _ENCODER.encode(error.partition)
    raised: Exception = kind(text, extra)
    return raised


def from_peer(error: BaseException, where: str) -> UnistreamError:
    """The error of ours for whatever pyarrow raised. `where` begins the sentence."""
    if isinstance(error, UnistreamError):
        return error
    text = str(error)
    for added in (". gRPC client debug context", ". Client context", ". Detail: "):
        text = text.partition(added)[0]  # by C++ and gRPC, for their developers
    if isinstance(error, flight.FlightServerError) and error.extra_info.startswith(LOST_ERROR):
        return _partition_lost(f"{where}: {text}", error.extra_info)
    refused = isinstance(error, flight.FlightServerError) and error.extra_info == OWN_ERROR
    if refused or isinstance(error, pa.ArrowInvalid):  # Invalid: our side could not read what came
        return ProtocolError(f"{where}: {text}")
    if isinstance(error, flight.FlightUnavailableError) and error.extra_info != OWN_ERROR:
        return NobodyThere(f"{where}: {text}")
    return Unreachable(f"{where}: {text}")


def _partition_lost(text: str, extra: bytes) -> UnistreamError:
    try:
        return PartitionLost(text, _PARTITION.decode(extra[len(LOST_ERROR) :]))
    except msgspec.MsgspecError:
        return ProtocolError(f"{text} (of a partition without a name)")
