"""Encoding of rows, requests and errors between processes. (Messages about channels: `net.frames`.)

A batch is Flight's own message; event times are its last column, marked in the field's metadata, so that no
column of a user can be mistaken for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyarrow import flight, ipc

from unistream.base.errors import NothingListens, ProtocolError, UnistreamError, Unreachable
from unistream.base.limits import FRAME_BYTES_MAX, KIB, MIB
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Batch

CONTROL_ACTION: Final = "control"
CREDITS_MAX: Final = 1 << 40  # far above any sensible grant; more means a broken or hostile peer
BATCH_COST_MIN: Final = 4 * KIB  # a batch costs its bytes and this, for the objects around it
OWN_ERROR: Final = b"unistream"  # extra_info of an error that our code raised, not gRPC
ERROR_TEXT_MAX: Final = 1500  # travels three times in HTTP/2 headers, of which gRPC takes 8 KiB
TIMESTAMP_COLUMN: Final = "__timestamp"

# Aligned: numpy and numba take a slow path, or a second compilation, for unaligned columns.
READ_OPTIONS: Final = ipc.IpcReadOptions(use_threads=False, ensure_alignment=ipc.Alignment.DataTypeSpecific)
WRITE_OPTIONS: Final = ipc.IpcWriteOptions(compression=None, use_threads=False)

WIRE_ERRORS: Final = (flight.FlightError, pa.ArrowException, OSError)
"""Errors of pyarrow when a stream or a call fails."""

_TIMESTAMP_FIELD: Final = pa.field(
    TIMESTAMP_COLUMN, pa.int64(), nullable=False, metadata={b"unistream": b"event time"}
)


def cost_of(records: pa.RecordBatch) -> int:
    """Credit that sending `records` costs."""
    return int(records.nbytes) + BATCH_COST_MIN


def describe(channel: ChannelDescriptor) -> str:
    """The channel in words, for error messages."""
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
    """The error for a server method to raise, of which `from_peer` restores the class.

    Always one of Flight's: to any other pyarrow adds the traceback of this process.
    """
    text = str(error) if isinstance(error, UnistreamError) else f"{type(error).__name__}: {error}"
    kind = flight.FlightUnavailableError if isinstance(error, Unreachable) else flight.FlightServerError
    raised: Exception = kind(shortened(text), OWN_ERROR)
    return raised


def shortened(text: str) -> str:
    """The text, of which at most ERROR_TEXT_MAX characters."""
    return text if len(text) <= ERROR_TEXT_MAX else text[: ERROR_TEXT_MAX - 1] + "…"


def from_peer(error: BaseException, where: str) -> UnistreamError:
    """Our error for one of pyarrow. `where` begins the sentence."""
    if isinstance(error, UnistreamError):
        return error
    text = str(error)
    for added in (". gRPC client debug context", ". Client context", ". Detail: "):
        text = text.partition(added)[0]  # by C++ and gRPC, for their developers
    refused = isinstance(error, flight.FlightServerError) and error.extra_info == OWN_ERROR
    if refused or isinstance(error, pa.ArrowInvalid):  # Invalid: our side could not read the data
        return ProtocolError(f"{where}: {text}")
    if isinstance(error, flight.FlightUnavailableError) and error.extra_info != OWN_ERROR:
        return NothingListens(f"{where}: {text}")
    return Unreachable(f"{where}: {text}")
