"""The messages of the two ends of a shared stream, other than rows: msgpack in metadata.

Consumer to producer: the command of the descriptor is a `StreamHead`; then messages of one or more commands,
each about one channel: open it, more credit for it, close it. A channel has a small number that the consumer
chooses, for as long as the stream lives.

Producer to consumer: messages of one or more answers. To each `Open` there is one; then, for a channel that
was accepted, its elements follow in order: events as `Sent`, batches as Flight's own messages with
`encode_label` as their app_metadata. A producer that has less credit than the next batch of a channel costs
sends `Need` once. Arrow's schema message precedes the first batch of all channels, so a stream has one
schema; event times are its last column.

           ┌─ Absent ── (Open again, later)
    Open ──┼─ ChannelFailed
           └─ Accepted ── Sent | batch | Need … ──┬─ Sent(EndOfPartition) ── Close
                                                  ├─ ChannelFailed
                                                  └─ Close (the consumer stops reading)

`StreamEnded` ends the whole stream from the producer's side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Annotated, Final, TypeVar

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, PartitionLost, ProtocolError, UnistreamError, Unreachable
from unistream.base.ids import EdgeId, PartitionId
from unistream.base.limits import FRAME_BYTES_MAX, PARALLELISM_MAX
from unistream.model.deployment import ChannelDescriptor
from unistream.net.wire import BATCH_COST_MIN, CREDITS_MAX, shortened

HEAD_BYTES_MAX: Final = 4096  # an id
CHANNELS_MAX: Final = PARALLELISM_MAX  # open in one stream: a gate reads no more subtasks
COMMANDS_MAX: Final = 256  # in one message: some 60 KB where all of them open channels
ANSWERS_MAX: Final = 256  # in one message, likewise
LABEL_ALIGNMENT: Final = 8  # bytes; of the widest number in a column
NUMBER_MAX: Final = 2**32  # channels that one stream may have had in its life

_T = TypeVar("_T")
_Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]
_Credit = Annotated[int, msgspec.Meta(ge=1, le=CREDITS_MAX)]
_Cost = Annotated[int, msgspec.Meta(ge=1, le=FRAME_BYTES_MAX + BATCH_COST_MIN)]


class StreamHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All channels of the stream belong to this edge. `token`: of the job, which its workers have."""

    edge: EdgeId
    token: str = ""


# --- consumer to producer -------------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True, array_like=True, tag=0):
    number: _Number
    credit: _Credit
    channel: ChannelDescriptor


class AddCredit(msgspec.Struct, frozen=True, array_like=True, tag=1):
    number: _Number
    credit: _Credit


class Close(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The consumer stops reading; after EndOfPartition: it has read everything."""

    number: _Number


Command = Open | AddCredit | Close


# --- producer to consumer -------------------------------------------------------------------------


class FailureKind(IntEnum):
    """The class of the error at the consumer, of `unistream.base.errors`."""

    PROTOCOL = 0
    UNREACHABLE = 1
    LOST = 2


class ExchangeFailure(msgspec.Struct, frozen=True, array_like=True):
    """An error for the consumer. `partition`: the lost one."""

    kind: FailureKind
    text: str
    partition: PartitionId | None = None


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag=0):
    number: _Number


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Not there (yet)."""

    number: _Number


class Need(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The next batch costs more than the credit."""

    number: _Number
    cost: _Cost


class Sent(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """An event of a channel, as `model.codec` encodes it."""

    number: _Number
    event: bytes


class ChannelFailed(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The channel has failed."""

    number: _Number
    failure: ExchangeFailure


class StreamEnded(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """All channels have ended; the consumer closes."""

    failure: ExchangeFailure


Answer = Accepted | Absent | Need | Sent | ChannelFailed | StreamEnded

_ENCODER: Final = msgspec.msgpack.Encoder()
_HEAD: Final = msgspec.msgpack.Decoder(StreamHead)
_COMMANDS: Final[msgspec.msgpack.Decoder[list[Command]]] = msgspec.msgpack.Decoder(
    Annotated[list[Command], msgspec.Meta(min_length=1, max_length=COMMANDS_MAX)]
)
_ANSWERS: Final[msgspec.msgpack.Decoder[list[Answer]]] = msgspec.msgpack.Decoder(
    Annotated[list[Answer], msgspec.Meta(min_length=1, max_length=ANSWERS_MAX)]
)
_LABEL: Final[msgspec.msgpack.Decoder[tuple[int, int, bytes]]] = msgspec.msgpack.Decoder(
    tuple[_Number, _Cost, Annotated[bytes, msgspec.Meta(max_length=LABEL_ALIGNMENT - 1)]]
)


def encode_head(head: StreamHead) -> bytes:
    return _ENCODER.encode(head)


def decode_head(data: bytes | None) -> StreamHead:
    """Raises ProtocolError for anything that is not the head of a stream."""
    if data is None or len(data) > HEAD_BYTES_MAX:
        raise ProtocolError(f"an exchange must name the edge of its channels, in at most {HEAD_BYTES_MAX} B")
    return _decoded(_HEAD, data, "not the edge of channels")


def encode_commands(commands: Sequence[Command]) -> Iterator[bytes]:
    """The messages that carry them."""
    for start in range(0, len(commands), COMMANDS_MAX):
        yield _ENCODER.encode(commands[start : start + COMMANDS_MAX])


def decode_commands(data: pa.Buffer | None) -> list[Command]:
    """Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a consumer may open and close channels and grant credits only")
    return _decoded(_COMMANDS, data, "a consumer sent an invalid command")


def encode_answers(answers: Sequence[Answer]) -> bytes:
    """The message that carries them: at most ANSWERS_MAX."""
    return _ENCODER.encode(answers)


def decode_answers(data: pa.Buffer | None) -> list[Answer]:
    """Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a producer sent an empty message")
    return _decoded(_ANSWERS, data, "a producer sent an invalid answer")


def encode_label(number: int, cost: int, body_bytes: int) -> bytes:
    """The channel and the cost of a batch with `body_bytes` of rows.

    It is padded so that the rows begin at an address that is a multiple of 8: the receiver then uses them in
    place, instead of copying each column. In a message the label is between Arrow's header (3 bytes and a
    multiple of 8) and the rows, and its field and theirs begin with 2 bytes, and with 2 bytes and the varint
    of their size. If the estimate is wrong (rows a little larger than `body_bytes`, a header below 128 B)
    they are copied.
    """
    varint_bytes = max(1, -(-body_bytes.bit_length() // 7))
    unfilled = len(_ENCODER.encode((number, cost, b"")))
    fill = -(7 + varint_bytes + unfilled) % LABEL_ALIGNMENT
    return _ENCODER.encode((number, cost, bytes(fill)))


def decode_label(data: pa.Buffer | None) -> tuple[int, int]:
    """(channel, cost). Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a batch arrived without its channel and cost")
    number, cost, _ = _decoded(_LABEL, data, "not the channel and cost of a batch")
    return number, cost


def _decoded(decoder: msgspec.msgpack.Decoder[_T], data: bytes | pa.Buffer, wrong: str) -> _T:
    try:
        return decoder.decode(data)
    except UNDECODABLE as error:
        raise ProtocolError(f"{wrong}: {error}") from error


# --- errors ---------------------------------------------------------------------------------------


def failure_of(error: BaseException) -> ExchangeFailure:
    """`error_of` creates an error of the same class from it."""
    text = shortened(str(error) if isinstance(error, UnistreamError) else f"{type(error).__name__}: {error}")
    if isinstance(error, PartitionLost):
        return ExchangeFailure(FailureKind.LOST, text, error.partition)
    kind = FailureKind.UNREACHABLE if isinstance(error, Unreachable) else FailureKind.PROTOCOL
    return ExchangeFailure(kind, text)


def error_of(failure: ExchangeFailure, where: str) -> UnistreamError:
    """`where` begins the sentence."""
    text = f"{where}: {failure.text}"
    if failure.kind is FailureKind.LOST and failure.partition is not None:
        return PartitionLost(text, failure.partition)
    return Unreachable(text) if failure.kind is FailureKind.UNREACHABLE else ProtocolError(text)
