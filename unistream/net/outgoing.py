"""The producer's end of a shared stream: many subpartitions to one consumer, on two threads.

gRPC's thread of the call reads the consumer's commands (and detects at once that it has disconnected). The
stream's own thread writes: it serves channels that have an element and credit in turn, one element each, as
Flink's PartitionRequestQueue does. So a channel without credit delays no other, and a barrier that overtakes
is sent while its channel waits for credit.

A batch stays with the view until there is credit for it, so that a barrier may still overtake it. A batch in
several messages is sent completely before a barrier that overtakes: no snapshot contains it.

The stream ends when the consumer closes its side or disconnects: the reading thread stops the other, waits
for it (its writes fail without a peer), and returns. When the server closes, or the writing thread cannot
continue, it sends `StreamEnded`, and the consumer closes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa
from pyarrow import flight

from unistream.base.errors import ProtocolError, UnistreamError, Unreachable
from unistream.base.ids import EdgeId
from unistream.base.limits import FRAME_BYTES_MAX
from unistream.model.codec import encode_event
from unistream.model.elements import Batch, EndOfPartition, Event
from unistream.net import frames, wire
from unistream.net.outbox import OutChannel, StreamOutbox
from unistream.port.transport import PartitionSource

_LOG: Final = logging.getLogger("unistream.net")


class OutgoingStream:
    """Serves one call of a consumer.

    Args:
        head: The edge that all its channels belong to, and the token of its job.
    """

    def __init__(
        self,
        head: frames.StreamHead,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
        partitions: PartitionSource,
    ) -> None:
        self._edge = edge = head.edge
        self._token = head.token
        self._reader = reader
        self._partitions = partitions
        self._outbox = StreamOutbox()
        self._sender = _Sender(edge, writer, self._outbox)
        self.writing = threading.Thread(target=self._sender.run, name=f"flight-out-{edge}", daemon=True)
        """May end shortly after `run`: the server joins it."""

    def close(self, reason: UnistreamError) -> None:
        """Sends `StreamEnded`; the call ends when the consumer has closed its side. Does not wait."""
        self._outbox.stop(reason)

    def run(self) -> None:
        """Returns when the consumer has closed its side.

        Raises:
            ProtocolError: the consumer broke the rules.
            Unreachable: it has left channels open.
            flight.FlightError, …: the connection broke.
        """
        self.writing.start()
        try:
            self._read()
        finally:
            self._outbox.stop(None)
            # Without a limit: its writer is freed when this call returns. Its writes fail without a consumer;
            # one that stays connected and reads nothing is disconnected when the server closes
            # (`address.break_connections`).
            self._sender.done.wait()
            is_orderly = self._release_all()
        if not is_orderly:
            raise Unreachable(f"the consumer of edge {self._edge} has left")

    def _read(self) -> None:
        """Handles the consumer's commands until it ends the call, on the call's thread."""
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            data = None if chunk.data is not None else chunk.app_metadata
            for command in frames.decode_commands(data):
                self._handle(command)

    def _handle(self, command: frames.Command) -> None:
        match command:
            case frames.AddCredit(number, credit):
                self._outbox.grant(number, credit)
            case frames.Open(number, credit, channel):
                self._open(OutChannel(number, credit, channel))
            case frames.Close(number):
                self._close(number)

    def _open(self, channel: OutChannel) -> None:
        number = channel.number
        self._outbox.check_new(number)
        if channel.descriptor.edge != self._edge:
            raise ProtocolError(f"{channel} was requested in a stream of edge {self._edge}")
        if not self._partitions.takes(channel.descriptor.producer.job, self._token):
            raise ProtocolError(f"{channel} was requested without the token of its job")
        try:
            view = self._partitions.open_subpartition(channel.descriptor, partial(self._outbox.wake, channel))
        except Exception as error:  # of the partition: fails only this channel
            _log_unexpected(error, channel)
            self._outbox.answer(frames.ChannelFailed(number, frames.failure_of(error)))
            return
        if view is None:
            self._outbox.answer(frames.Absent(number))
            return
        channel.view = view
        self._outbox.add(channel)

    def _close(self, number: int) -> None:
        channel = self._outbox.drop(number)
        if channel is not None:
            _release(channel, None if channel.is_complete else _left(channel))

    def _release_all(self) -> bool:
        """True: the consumer has closed all that it opened."""
        left = self._outbox.drop_all()
        for channel in left:
            _release(channel, self._outbox.reason or _left(channel))
        return self._outbox.was_used and not left


class _Sender:
    """The writing thread of a stream."""

    def __init__(self, edge: EdgeId, writer: flight.MetadataRecordBatchWriter, outbox: StreamOutbox) -> None:
        self._edge = edge
        self._writer = writer
        self._outbox = outbox
        self._schema: pa.Schema | None = None
        self._schema_of = ""
        self.done = threading.Event()
        """Nothing is written any more. (A join would register gRPC's thread with Python for good.)"""

    def run(self) -> None:
        try:
            self._send_all()
        finally:
            self.done.set()

    def _send_all(self) -> None:
        try:
            while (work := self._outbox.take()) is not None:
                if isinstance(work, OutChannel):
                    self._serve(work)
                else:
                    self._send(*work)
            reason = self._outbox.reason
        except Exception as error:  # the consumer waits: it must be notified
            cause = error.__cause__ if isinstance(error, _CannotWrite) and error.__cause__ else error
            reason = wire.from_peer(cause, f"the stream of edge {self._edge}")
            self._outbox.stop(reason)
        if reason is not None:
            with contextlib.suppress(_CannotWrite):  # the reading thread detects that as well
                self._send(frames.StreamEnded(frames.failure_of(reason)))

    def _serve(self, channel: OutChannel) -> None:
        """Sends one element of `channel`, or parks it."""
        if not self._outbox.has(channel) or channel.is_complete:
            return
        try:
            if self._send_next(channel):
                self._outbox.wake(channel)
        except _CannotWrite:
            raise
        except Exception as error:  # of the view: fails only this channel
            if self._outbox.drop(channel.number) is not None:
                _log_unexpected(error, channel)
                self._send(frames.ChannelFailed(channel.number, frames.failure_of(error)))
                _release(channel, error)

    def _send_next(self, channel: OutChannel) -> bool:
        """Sends one element. True: there may be more."""
        view = channel.view
        assert view is not None
        if channel.pieces:  # no longer in the view: barriers that overtake come after them
            return self._send_piece(channel)
        while (event := view.poll_urgent()) is not None:
            self._send_event(channel, event)
        head = view.peek()
        if head is None:
            return False
        if isinstance(head, Batch) and not self._may_begin(channel, head):
            return False
        element = view.poll()  # another one if a barrier has arrived meanwhile
        if isinstance(element, Batch):
            if element.num_rows == 0:
                return True
            channel.pieces.extend(wire.split(self._checked(channel, wire.to_wire(element))))
            return self._send_piece(channel)
        if element is not None:
            self._send_event(channel, element)
        return not channel.is_complete

    def _may_begin(self, channel: OutChannel, batch: Batch) -> bool:
        """There is credit for all of `batch`, or for one full message of it."""
        if batch.num_rows == 0:
            return True
        return self._has_credit(channel, min(wire.cost_of(wire.to_wire(batch)), FRAME_BYTES_MAX))

    def _has_credit(self, channel: OutChannel, cost: int) -> bool:
        """False: the consumer knows the cost, and its grant wakes the channel."""
        if self._outbox.has_credit(channel, cost):
            channel.reported_need = 0
            return True
        if channel.reported_need != cost:
            channel.reported_need = cost
            self._send(frames.Need(channel.number, cost))
        return False

    def _send_piece(self, channel: OutChannel) -> bool:
        size = int(channel.pieces[0].nbytes)
        cost = size + wire.BATCH_COST_MIN
        if not self._has_credit(channel, cost):
            return False
        label = frames.encode_label(channel.number, cost, size)
        self._outbox.spend(channel, cost)
        self._write(self._writer.write_with_metadata, channel.pieces.popleft(), label)
        return True

    def _send_event(self, channel: OutChannel, event: Event) -> None:
        channel.is_complete = isinstance(event, EndOfPartition)
        self._send(frames.Sent(channel.number, encode_event(event)))

    def _checked(self, channel: OutChannel, records: pa.RecordBatch) -> pa.RecordBatch:
        """`records`, after a check of their schema."""
        if self._schema is None:
            self._schema, self._schema_of = records.schema, str(channel)
            self._write(self._writer.begin, records.schema, options=wire.WRITE_OPTIONS)
        elif not records.schema.equals(self._schema):
            raise ProtocolError(
                f"the stream of {self._schema_of} began with the schema [{_described(self._schema)}],"
                f" but a later batch of {channel} has [{_described(records.schema)}]"
            )
        return records

    def _send(self, *answers: frames.Answer) -> None:
        self._write(self._writer.write_metadata, frames.encode_answers(answers))

    def _write(self, call: Callable[..., None], *args: object, **options: object) -> None:
        try:
            call(*args, **options)
        except wire.WIRE_ERRORS as error:
            raise _CannotWrite from error


class _CannotWrite(Exception):
    """The connection broke; see the cause."""


def _left(channel: OutChannel) -> Unreachable:
    return Unreachable(f"the consumer of {channel} has left")


def _release(channel: OutChannel, error: BaseException | None) -> None:
    assert channel.view is not None
    channel.view.release(error)


def _log_unexpected(error: Exception, channel: OutChannel) -> None:
    if not isinstance(error, UnistreamError):
        _LOG.error("event=exchange_failed channel=%s", channel, exc_info=error)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
