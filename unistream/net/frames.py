"""What the two ends of a shared stream say to each other beside the rows, as msgpack in metadata.

Consumer to producer: the command of the descriptor is a `StreamHead`; then messages of one or more commands,
each about one channel: open it, more credit for it, close it. A channel has a small number that the consumer
chooses, for as long as the stream lives.

Producer to consumer: messages of one or more answers. To each `Open` there is one; then, for a channel that
was accepted, its elements follow in order: events as `Sent`, batches as Flight's own messages with
`encode_label` as their app_metadata. A producer that has less credit than the next batch of a channel costs
says `Need` once. Arrow's schema message precedes the first batch of all channels, so a stream has one schema;
event times are its last column.

           ┌─ Absent ── (Open again, later)
    Open ──┼─ Failed
           └─ Accepted ── Sent | batch | Need … ──┬─ Sent(EndOfPartition) ── Close
                                                  ├─ Failed
                                                  └─ Close (the consumer wants no more)

`Ended` is about the whole stream: the producer's side stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Annotated, Final

import msgspec
import pyarrow as pa

from unistream.base.errors import PartitionLost, ProtocolError, UnistreamError, Unreachable
from unistream.base.ids import EdgeId, PartitionId
from unistream.base.limits import FRAME_BYTES_MAX, PARALLELISM_MAX
from unistream.model.messages import ChannelDescriptor
from unistream.net.wire import BATCH_COST_MIN, CREDITS_MAX, shortened

HEAD_BYTES_MAX: Final = 4096  # an id
CHANNELS_MAX: Final = PARALLELISM_MAX  # of one stream at a time: a gate reads no more subtasks
COMMANDS_MAX: Final = 256  # in one message: some 60 KB where all of them open channels
ANSWERS_MAX: Final = 256  # in one message, likewise
LABEL_ALIGNMENT: Final = 8  # bytes; of the widest number in a column
NUMBER_MAX: Final = 2**32  # channels that one stream may have had in its life

_Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]
_Credit = Annotated[int, msgspec.Meta(ge=1, le=CREDITS_MAX)]
_Cost = Annotated[int, msgspec.Meta(ge=1, le=FRAME_BYTES_MAX + BATCH_COST_MIN)]


class StreamHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All channels of the stream belong to this edge."""

    edge: EdgeId


# --- consumer to producer -------------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True, array_like=True, tag=0):
    number: _Number
    credit: _Credit
    channel: ChannelDescriptor


class Grant(msgspec.Struct, frozen=True, array_like=True, tag=1):
    number: _Number
    credit: _Credit


class Close(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Nothing more is wanted; after EndOfPartition: everything was read."""

    number: _Number


Command = Open | Grant | Close


# --- producer to consumer -------------------------------------------------------------------------


class FailureKind(IntEnum):
    """What the consumer is to make of it; the classes of `unistream.base.errors`."""

    PROTOCOL = 0
    UNREACHABLE = 1
    LOST = 2


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error on its way to the other process. `partition`: what is lost."""

    kind: FailureKind
    text: str
    partition: PartitionId | None = None


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag=0):
    number: _Number


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Not there (yet)."""

    number: _Number


class Need(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The next batch costs so much, and there is not enough credit for it."""

    number: _Number
    cost: _Cost


class Sent(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """An event of a channel, as `model.codec` encodes it."""

    number: _Number
    event: bytes


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Nothing more comes of this channel."""

    number: _Number
    failure: Failure


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Nothing more comes of any channel; the consumer closes."""

    failure: Failure


Answer = Accepted | Absent | Need | Sent | Failed | Ended

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


def encode_head(edge: EdgeId) -> bytes:
    return _ENCODER.encode(StreamHead(edge))


def decode_head(data: bytes | None) -> EdgeId:
    """Raises ProtocolError for anything that is not the head of a stream."""
    if data is None or len(data) > HEAD_BYTES_MAX:
        raise ProtocolError(f"an exchange must name the edge of its channels, in at most {HEAD_BYTES_MAX} B")
    try:
        return _HEAD.decode(data).edge
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not the edge of channels: {error}") from error


def encode_commands(commands: Sequence[Command]) -> Iterator[bytes]:
    """The messages that carry them."""
    for start in range(0, len(commands), COMMANDS_MAX):
        yield _ENCODER.encode(commands[start : start + COMMANDS_MAX])


def decode_commands(data: pa.Buffer | None) -> list[Command]:
    """Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a consumer may open and close channels and grant credits only")
    try:
        return _COMMANDS.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a consumer sent an invalid command: {error}") from error


def encode_answers(answers: Sequence[Answer]) -> bytes:
    """The message that carries them: at most ANSWERS_MAX."""
    return _ENCODER.encode(answers)


def decode_answers(data: pa.Buffer | None) -> list[Answer]:
    """Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a producer sent an empty message")
    try:
        return _ANSWERS.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a producer sent an invalid answer: {error}") from error


def encode_label(number: int, cost: int, body_bytes: int) -> bytes:
    """Of a batch with so many bytes of rows: its channel and what it costs.

    It is filled up so that the rows begin at an address that is a multiple of 8: then the receiver takes
    them as they lie, instead of copying each column to an aligned place. In a message the label stands
    between Arrow's header (3 bytes and a multiple of 8) and the rows, and its field and theirs begin with
    2, and with 2 and the varint of their size. Where that is off (rows a little larger than `body_bytes`, a
    header below 128 B) they are copied, as they would be without it.
    """
    varint_bytes = max(1, -(-body_bytes.bit_length() // 7))
    unfilled = len(_ENCODER.encode((number, cost, b"")))
    fill = -(7 + varint_bytes + unfilled) % LABEL_ALIGNMENT
    return _ENCODER.encode((number, cost, bytes(fill)))


def decode_label(data: pa.Buffer | None) -> tuple[int, int]:
    """(channel, cost). Raises ProtocolError for anything else."""
    if data is None:
        raise ProtocolError("a batch arrived without its channel and cost")
    try:
        number, cost, _ = _LABEL.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not the channel and cost of a batch: {error}") from error
    return number, cost


# --- errors ---------------------------------------------------------------------------------------


def failure_of(error: BaseException) -> Failure:
    """What `error_of` makes the same class of on the other side."""
    text = shortened(str(error) if isinstance(error, UnistreamError) else f"{type(error).__name__}: {error}")
    if isinstance(error, PartitionLost):
        return Failure(FailureKind.LOST, text, error.partition)
    kind = FailureKind.UNREACHABLE if isinstance(error, Unreachable) else FailureKind.PROTOCOL
    return Failure(kind, text)


def error_of(failure: Failure, where: str) -> UnistreamError:
    """`where` begins the sentence."""
    text = f"{where}: {failure.text}"
    if failure.kind is FailureKind.LOST and failure.partition is not None:
        return PartitionLost(text, failure.partition)
    return Unreachable(text) if failure.kind is FailureKind.UNREACHABLE else ProtocolError(text)
