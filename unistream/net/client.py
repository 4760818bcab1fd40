"""Clients of another process's `FlightServer`: control requests, and streams of elements."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pyarrow import flight

from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import ConfigError, PartitionLost, ProtocolError, UnistreamError, Unreachable
from unistream.base.ids import PartitionId
from unistream.base.limits import RPC_TIMEOUT_S
from unistream.model.codec import decode_answer, decode_event, encode
from unistream.model.elements import Element, EndOfPartition
from unistream.model.messages import Answer, ChannelDescriptor, Request
from unistream.net import wire
from unistream.net.peers import Alarms, Connections, connect
from unistream.port.transport import InputSink

ANSWER_MS_MIN: Final = 1_000  # a producer that is there says what it has within it
BACKOFF_MS_MIN: Final = 100  # taskmanager.network.request-backoff.initial
BACKOFF_MS_MAX: Final = 10_000  # taskmanager.network.request-backoff.max
CLOSE_JOIN_S: Final = 2.0  # a cancelled read returns at once; this is for a thread inside its sink


class FlightControlClient:
    """Requests to one peer, from any thread. Reconnects by itself.

    Args:
        address: `FlightServer.address` of the peer.
        timeout_s: For one call, connecting included.

    Raises:
        ConfigError: not a Flight location.
    """

    def __init__(self, address: str, timeout_s: float = RPC_TIMEOUT_S) -> None:
        self._address = address
        self._options = flight.FlightCallOptions(timeout=timeout_s)
        self._client: flight.FlightClient | None = connect(address)

    def call(self, message: Request) -> Answer:
        """The peer's answer.

        Raises:
            Unreachable: no answer in time; whether it was acted on is unknown.
            ProtocolError: the peer refused to understand it, or its answer is not one.
        """
        client = self._client
        if client is None:
            raise Unreachable(f"the connection to {self._address} is closed")
        where = f"{type(message).__name__} to {self._address}"
        try:
            results = list(
                client.do_action(flight.Action(wire.CONTROL_ACTION, encode(message)), self._options)
            )
        except wire.WIRE_ERRORS as error:
            raise wire.from_peer(error, where) from error
        if len(results) != 1:
            raise ProtocolError(f"{where}: {len(results)} answers")
        return decode_answer(results[0].body.to_pybytes())

    def close(self) -> None:
        """Calls in progress end by their timeout; later ones are Unreachable."""
        self._client = None  # the connection ends with its last user: Flight's own close does nothing


class FlightDataClient:
    """Streams from other processes; each has one thread, which calls its sink.

    Args:
        partition_request_timeout_ms: How long a stream asks for its partition, with growing pauses.
    """

    def __init__(self, partition_request_timeout_ms: int = 10_000, clock: Clock | None = None) -> None:
        self._timeout_ms = partition_request_timeout_ms
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._streams: set[FlightStream] = set()
        self._connections = Connections()
        self._alarms = Alarms(self._clock)
        self._closed = False

    def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> FlightStream:
        """Returns at once; see `port.transport.DataClient`.

        Raises:
            Unreachable: this client is closed.
        """
        stream = FlightStream(
            channel,
            sink,
            credits,
            timeout_ms=self._timeout_ms,
            clock=self._clock,
            connections=self._connections,
            alarms=self._alarms,
            ended=self._forget,
        )
        with self._lock:
            if self._closed:
                raise Unreachable("the data client is closed")
            self._streams.add(stream)
        stream.start()
        return stream

    def close(self) -> None:
        """Closes every stream and waits (bounded) until no sink is called any more."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        for stream in streams:
            stream.end(CLOSE_JOIN_S)
        self._alarms.close()

    def _forget(self, stream: FlightStream) -> None:
        with self._lock:
            self._streams.discard(stream)


class FlightStream:
    """One subpartition as its consumer reads it (port.transport.RemoteInput).

    The thread connects, opens, reads and delivers. `grant` may be called from any thread: grants are
    collected until they are worth a message, half of the most that could be on its way. That cannot starve
    the producer: where its credit does not reach for its next batch it says so, and what is held back is sent
    as soon as both together do.
    """

    def __init__(
        self,
        channel: ChannelDescriptor,
        sink: InputSink,
        credit: int,
        *,
        timeout_ms: int,
        clock: Clock,
        connections: Connections,
        alarms: Alarms,
        ended: Callable[[FlightStream], None],
    ) -> None:
        if not 1 <= credit <= wire.CREDITS_MAX:
            raise ConfigError(f"a stream opens with 1 to {wire.CREDITS_MAX} bytes of credit, not {credit}")
        self._channel = channel
        self._sink = sink
        self._initial = credit
        self._room_most = credit
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._connections = connections
        self._alarms = alarms
        self._ended = ended
        self._where = f"{wire.describe(channel)} at {channel.address}"
        self._closed = threading.Event()
        self._lock = threading.Lock()  # guards the eight below
        self._room = credit  # bytes that may still arrive
        self._held_back = 0  # of them: granted, and the producer does not know it yet
        self._needed = 0  # what the producer waits for
        self._accepted = False
        self._complete = False
        self._client: flight.FlightClient | None = None
        self._writer: flight.FlightStreamWriter | None = None
        self._reader: flight.FlightStreamReader | None = None
        self._thread = threading.Thread(target=self._run, name=f"flight-in-{channel.edge}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, patience_s: float) -> None:
        """After `close`: waits until the sink is not called any more, at most twice `patience_s`."""
        if self._thread is threading.current_thread():
            return
        self._thread.join(patience_s)
        if self._thread.is_alive():  # complete, but the producer does not end its side
            with self._lock:
                if self._reader is not None:
                    self._reader.cancel()
            self._thread.join(patience_s)

    def grant(self, credits: int) -> None:
        with self._lock:
            self._room += credits
            self._room_most = max(self._room_most, self._room)
            self._held_back += credits
            self._send_credits()

    def close(self) -> None:
        """Ends the stream; does not wait for its thread. A delivery in progress may still finish.

        Where EndOfPartition has arrived there is nothing to break off: the producer is still told so.
        """
        self._closed.set()
        with self._lock:
            if self._reader is not None and not self._complete:
                self._reader.cancel()

    # --- the stream's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._open()
            self._receive()
        except _ClosedHere:
            pass
        except Exception as error:  # a sink's own errors are the stream's too
            self._disconnect()
            if not self._closed.is_set():
                self._sink.on_error(self._in_words(error))
        finally:
            self._disconnect()
            self._ended(self)

    def _open(self) -> None:
        """Asks until the producer accepts."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        pause_ms = BACKOFF_MS_MIN
        while True:
            try:
                return self._ask(max(ANSWER_MS_MIN, deadline_ms - self._clock.monotonic_ms()))
            except flight.FlightUnavailableError as error:
                self._disconnect(is_broken=error.extra_info != wire.OWN_ERROR)
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    last = wire.from_peer(error, "last answer")
                    raise self._lost(f"did not appear within {self._timeout_ms} ms: {last}") from error
                if self._closed.wait(min(pause_ms, left_ms) / 1000):
                    raise _ClosedHere from None
                pause_ms = min(2 * pause_ms, BACKOFF_MS_MAX)

    def _ask(self, patience_ms: int) -> None:
        descriptor = flight.FlightDescriptor.for_command(wire.encode_channel(self._channel))
        options = flight.FlightCallOptions(read_options=wire.READ_OPTIONS)
        client = self._connections.take(self._channel.address)
        with self._lock:
            self._client = client
        writer, reader = client.do_exchange(descriptor, options)
        with self._lock:
            self._writer, self._reader = writer, reader
        if self._closed.is_set():  # close() came before there was a reader to cancel
            raise _ClosedHere
        # A call has a limit for its whole life only; for the first answer it is this alarm.
        alarm = self._alarms.set(patience_ms, reader.cancel)
        try:
            writer.write_metadata(wire.encode_credits(self._initial))
            answer = reader.read_chunk().app_metadata
        except StopIteration:
            raise ProtocolError(f"{self._where} ended before it began") from None
        except flight.FlightCancelledError as error:
            raise self._lost(f"did not answer within {self._timeout_ms} ms") from error
        finally:
            self._alarms.forget(alarm)
        if answer is None or answer.to_pybytes() != wire.ACCEPTED:
            raise ProtocolError(f"{self._where} did not begin as a stream of elements")
        with self._lock:
            self._accepted = True
            self._send_credits()

    def _receive(self) -> None:
        while True:
            element, cost = self._next()
            if self._closed.is_set() and not self._complete:
                raise _ClosedHere
            if element is None:
                self._needs(cost)
                continue
            self._sink.on_element(element, cost)
            if self._complete:
                self._finish()
                return

    def _next(self) -> tuple[Element | None, int]:
        """An element and its cost; or None and what the producer needs."""
        reader = self._reader
        assert reader is not None
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            raise Unreachable(f"{self._where} ended without EndOfPartition") from None
        if chunk.data is None:
            data = chunk.app_metadata.to_pybytes()
            needed = wire.decode_need(data)
            if needed is not None:
                return None, needed
            event = decode_event(data)
            with self._lock:
                self._complete = isinstance(event, EndOfPartition)
            return event, 0
        cost = wire.decode_cost(chunk.app_metadata)
        if chunk.data.nbytes > 2 * cost:  # twice: the two sides may count padding and bitmaps unlike
            raise ProtocolError(f"{self._where} sent {chunk.data.nbytes} B and called it {cost} B")
        with self._lock:
            self._room -= cost
            self._needed = 0
            if self._room < 0:
                raise ProtocolError(f"{self._where} sent more bytes than it had credit for")
        return wire.from_wire(chunk.data), cost

    def _needs(self, size: int) -> None:
        """The producer waits: for what is held back, or for what only the sink can grant."""
        with self._lock:
            self._needed = size
            enough = self._room >= size
            self._send_credits()
        if not enough:
            self._sink.on_need(size)

    def _finish(self) -> None:
        """Tells the producer that everything was read, and waits for its end of the call."""
        with self._lock:
            writer, reader, self._writer = self._writer, self._reader, None  # no more grants
        assert writer is not None
        assert reader is not None
        try:
            writer.done_writing()
            reader.read_chunk()
        except StopIteration:
            return
        except wire.WIRE_ERRORS:
            return  # the stream is complete already; the producer learns it from its side
        finally:
            _close_quietly(writer)

    def _send_credits(self) -> None:
        """Under the lock."""
        if self._writer is None or not self._accepted or not self._held_back:
            return
        is_awaited = 0 < self._needed <= self._room
        if not is_awaited and self._held_back < self._room_most // 2:
            return
        try:
            self._writer.write_metadata(wire.encode_credits(self._held_back))
        except wire.WIRE_ERRORS:
            self._accepted = False  # broken: the reading side says so, with the reason
        self._held_back = 0

    def _disconnect(self, *, is_broken: bool = False) -> None:
        with self._lock:
            client, writer, reader = self._client, self._writer, self._reader
            self._client = self._writer = self._reader = None
            self._accepted = False
        if reader is not None:
            reader.cancel()
        if writer is not None:
            _close_quietly(writer)
        if client is not None:
            self._connections.give_back(self._channel.address, client, is_broken=is_broken)

    def _lost(self, why: str) -> PartitionLost:
        channel = self._channel
        return PartitionLost(f"{self._where} {why}", PartitionId(channel.producer.subtask, channel.edge))

    def _in_words(self, error: Exception) -> UnistreamError | Exception:
        return wire.from_peer(error, self._where) if isinstance(error, wire.WIRE_ERRORS) else error


class _ClosedHere(Exception):
    """Not an error: the owner has closed the stream."""


def _close_quietly(writer: flight.FlightStreamWriter) -> None:
    """Explicitly, since a writer that is merely dropped complains on stderr."""
    try:
        writer.close()
    except wire.WIRE_ERRORS:
        return
