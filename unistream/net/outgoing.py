"""The producer's end of a shared stream: many subpartitions to one consumer, on two threads.

The thread that gRPC gives to the call reads what the consumer says (it learns at once that it is gone). A
thread of the stream's own writes: it waits until a channel has something that may be sent and serves such
channels in turn, one element each, as Flink's PartitionRequestQueue does. So a channel without credit holds
back no other, and a barrier that overtakes leaves while its channel waits for credit.

A batch stays with the view until there is credit for it, so that a barrier may still overtake it. What was
taken and is larger than a message goes out before anything that overtakes: it is in nobody's snapshot.

The stream ends when the consumer closes its side or is gone: the reading thread tells the other to stop,
waits for it (its writes fail when the peer is gone), and returns. When the server closes, or the writing
thread cannot go on, the consumer is told `Ended`, and it is the consumer that closes.
"""

from __future__ import annotations

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
from unistream.net.outbox import Outbox, OutChannel
from unistream.port.transport import PartitionSource

_LOG: Final = logging.getLogger("unistream.net")


class OutgoingStream:
    """Serves one call of a consumer.

    Args:
        edge: That all its channels belong to.
    """

    def __init__(
        self,
        edge: EdgeId,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
        partitions: PartitionSource,
    ) -> None:
        self._edge = edge
        self._reader = reader
        self._partitions = partitions
        self._outbox = Outbox()
        self._sender = _Sender(edge, writer, self._outbox)
        self.writing = threading.Thread(target=self._sender.run, name=f"flight-out-{edge}", daemon=True)
        """Lives a last instant longer than `run`: who closes the server joins it."""

    def close(self, reason: UnistreamError) -> None:
        """The consumer is told; the call ends when it has closed its side. Does not wait."""
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
            # Without a limit: what it writes with is freed when this call returns. It ends, since its writes
            # fail without a consumer; for one that keeps the connection and reads nothing, when the server
            # closes (`address.break_connections`).
            self._sender.done.wait()
            is_orderly = self._release_all()
        if not is_orderly:
            raise Unreachable(f"the consumer of edge {self._edge} has left")

    def _read(self) -> None:
        """By the call's thread."""
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            data = None if chunk.data is not None else chunk.app_metadata
            for command in frames.decode_commands(data):
                self._obey(command)

    def _obey(self, command: frames.Command) -> None:
        match command:
            case frames.Grant(number, credit):
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
        try:
            view = self._partitions.open_subpartition(channel.descriptor, partial(self._outbox.wake, channel))
        except Exception as error:  # the partition's own, so the channel's alone
            _log_unexpected(error, channel)
            self._outbox.answer(frames.Failed(number, frames.failure_of(error)))
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

    def __init__(self, edge: EdgeId, writer: flight.MetadataRecordBatchWriter, outbox: Outbox) -> None:
        self._edge = edge
        self._writer = writer
        self._outbox = outbox
        self._schema: pa.Schema | None = None
        self._schema_of = ""
        self.done = threading.Event()
        """Nothing is written any more. (Joining its thread would make a lasting `Thread` of gRPC's own.)"""

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
                    self._tell(*work)
            reason = self._outbox.reason
        except Exception as error:  # the other thread reads, and the consumer waits: it must be told
            cause = error.__cause__ if isinstance(error, _CannotWrite) and error.__cause__ else error
            reason = wire.from_peer(cause, f"the stream of edge {self._edge}")
            self._outbox.stop(reason)
        if reason is not None:
            self._say_farewell(reason)

    def _say_farewell(self, reason: UnistreamError) -> None:
        try:
            self._tell(frames.Ended(frames.failure_of(reason)))
        except _CannotWrite:
            return  # there is nobody: the reading thread has learned it, or will

    def _serve(self, channel: OutChannel) -> None:
        """One element of `channel`; or it is parked."""
        if not self._outbox.has(channel) or channel.is_complete:
            return
        try:
            if self._send_next(channel):
                self._outbox.wake(channel)
        except _CannotWrite:
            raise
        except Exception as error:  # the view's own, so the channel's alone
            if self._outbox.drop(channel.number) is not None:
                _log_unexpected(error, channel)
                self._tell(frames.Failed(channel.number, frames.failure_of(error)))
                _release(channel, error)

    def _send_next(self, channel: OutChannel) -> bool:
        """True: there may be more."""
        view = channel.view
        assert view is not None
        if channel.pieces:  # of what is no longer the view's: what overtakes comes behind them
            return self._send_piece(channel)
        while (event := view.poll_urgent()) is not None:
            self._send_event(channel, event)
        head = view.peek()
        if head is None:
            return False
        if isinstance(head, Batch) and not self._may_begin(channel, head):
            return False
        element = view.poll()  # another one if a barrier has come meanwhile
        if isinstance(element, Batch):
            if element.num_rows == 0:
                return True
            channel.pieces.extend(wire.split(self._checked(channel, wire.to_wire(element))))
            return self._send_piece(channel)
        if element is not None:
            self._send_event(channel, element)
        return not channel.is_complete

    def _may_begin(self, channel: OutChannel, batch: Batch) -> bool:
        """There is credit for all of `batch`, or for as much as one message may hold."""
        if batch.num_rows == 0:
            return True
        return self._has_credit(channel, min(wire.cost_of(wire.to_wire(batch)), FRAME_BYTES_MAX))

    def _has_credit(self, channel: OutChannel, cost: int) -> bool:
        """False: the consumer knows what is needed, and its grant will wake the channel."""
        if self._outbox.has_credit(channel, cost):
            channel.told_need = 0
            return True
        if channel.told_need != cost:
            channel.told_need = cost
            self._tell(frames.Need(channel.number, cost))
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
        self._tell(frames.Sent(channel.number, encode_event(event)))

    def _checked(self, channel: OutChannel, records: pa.RecordBatch) -> pa.RecordBatch:
        """`records`, which have the schema of the stream."""
        if self._schema is None:
            self._schema, self._schema_of = records.schema, str(channel)
            self._write(self._writer.begin, records.schema, options=wire.WRITE_OPTIONS)
        elif not records.schema.equals(self._schema):
            raise ProtocolError(
                f"the stream of {self._schema_of} began with the schema [{_in_words(self._schema)}],"
                f" but a later batch of {channel} has [{_in_words(records.schema)}]"
            )
        return records

    def _tell(self, *answers: frames.Answer) -> None:
        self._write(self._writer.write_metadata, frames.encode_answers(answers))

    def _write(self, call: Callable[..., None], *args: object, **options: object) -> None:
        try:
            call(*args, **options)
        except wire.WIRE_ERRORS as error:
            raise _CannotWrite from error


class _CannotWrite(Exception):
    """The stream takes nothing more; the cause says why."""


def _left(channel: OutChannel) -> Unreachable:
    return Unreachable(f"the consumer of {channel} has left")


def _release(channel: OutChannel, error: BaseException | None) -> None:
    assert channel.view is not None
    channel.view.release(error)


def _log_unexpected(error: Exception, channel: OutChannel) -> None:
    if not isinstance(error, UnistreamError):
        _LOG.error("event=exchange_failed channel=%s", channel, exc_info=error)


def _in_words(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
