"""One Arrow Flight server for a process: control by DoAction, subpartitions by DoExchange.

A stream costs one thread, the one that gRPC gives to its call. It sends what the view has while there
is credit for it, and reads the consumer's messages only when there is not: a grant that is not needed yet
waits in gRPC's buffer. One thread for all looks every `WATCH_S` whose consumers are gone, and wakes them.

A batch stays with the view until there is credit for it, so that a barrier may still overtake it. While the
thread waits for that credit, urgent events are written by the server's `Courier`; never by both at once.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import pyarrow as pa
from pyarrow import flight

from unistream.base.errors import ConfigError, ProtocolError, Unreachable
from unistream.base.limits import FRAME_BYTES_MAX
from unistream.model.codec import encode_event
from unistream.model.elements import Batch, Element, EndOfPartition
from unistream.model.messages import ChannelDescriptor
from unistream.net import wire
from unistream.net.address import (
    TCP_SCHEME,
    UNIX_SCHEME,
    SocketFolder,
    advertised_host,
    break_connections,
    is_loopback,
)
from unistream.net.overtaking import Courier
from unistream.port.transport import ControlHandler, PartitionSource, SubpartitionView

WATCH_S: Final = 0.25  # how late an idle stream is told that its consumer is gone
IDLE_S: Final = 10.0  # a bound for one wait of a stream; nothing depends on it
CLOSE_GRACE_S: Final = 1.0  # for calls in progress to end by themselves
CLOSE_BREAK_S: Final = 2.0  # for calls whose connection was cut

_LOG: Final = logging.getLogger("unistream.net")


class FlightServer:
    """Listens from construction until `close`.

    Args:
        bind_host: A loopback address: a unix socket (unless `unix` is False). Any other: TCP, which
            carries neither TLS nor authentication yet and runs code for whoever can connect;
            therefore it needs `allow_plaintext`.
        control: Called on a server thread for each control message; its errors go to the caller.
        partitions: What this process produces; None: it produces nothing.
        unix_dir: Where the private folder of the unix socket is made; None: the system's choice.
        port: TCP port to listen on instead of a unix socket; 0: a unix socket, or a free port.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(
        self,
        bind_host: str,
        *,
        control: ControlHandler,
        partitions: PartitionSource | None,
        unix_dir: str | None = None,
        unix: bool = True,
        allow_plaintext: bool = False,
        port: int = 0,
    ) -> None:
        local = is_loopback(bind_host)
        if not local and not allow_plaintext:
            raise ConfigError(
                f"{bind_host} is not a loopback address: without TLS and authentication, whoever can connect"
                " could run code here; use 127.0.0.1, or allow plaintext on a network that you trust"
            )
        self._folder = SocketFolder(unix_dir) if local and unix and not port else None
        tcp = f"{TCP_SCHEME}{bind_host}:{port}"
        listen = UNIX_SCHEME + self._folder.socket_path if self._folder else tcp
        self._streams = _Streams()
        try:
            self._service = _Service(listen, control, partitions, self._streams)
        except wire.WIRE_ERRORS as error:
            if self._folder:
                self._folder.close()
            raise ConfigError(f"cannot listen on {listen}: {wire.from_peer(error, 'gRPC')}") from error
        self._address = (
            listen if self._folder else f"{TCP_SCHEME}{advertised_host(bind_host)}:{self._service.port}"
        )
        self._closing = threading.Lock()
        self._closed = False

    @property
    def address(self) -> str:
        return self._address

    def close(self) -> None:
        """Ends all calls and streams (consumers see Unreachable) within CLOSE_GRACE_S + CLOSE_BREAK_S.

        May be called again, but not from a control handler: that call would wait for itself.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._streams.close()
            # gRPC's shutdown waits for every call without a limit, so it must not be this thread.
            ending = threading.Thread(target=self._service.shutdown, name="flight-shutdown", daemon=True)
            ending.start()
            ending.join(CLOSE_GRACE_S)
            if ending.is_alive():
                break_connections(self._address)
                ending.join(CLOSE_BREAK_S)
            if ending.is_alive():
                _LOG.error("event=server_close_timeout address=%s", self._address)
            if self._folder:
                self._folder.close()


class _Streams:
    """The wake-up of each open stream, so that close and the loss of a consumer reach it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[threading.Event, flight.ServerCallContext] = {}
        self._watching = threading.Event()  # set at the end
        self._watch: threading.Thread | None = None
        self.closing = False
        self.courier = Courier()

    def add(self, wake: threading.Event, context: flight.ServerCallContext) -> None:
        with self._lock:
            self._wakes[wake] = context
            if self._watch is None and not self.closing:
                self._watch = threading.Thread(target=self._look, name="flight-watch", daemon=True)
                self._watch.start()

    def remove(self, wake: threading.Event) -> None:
        """Before the call returns: its context is not looked at any more."""
        with self._lock:
            self._wakes.pop(wake, None)

    def _look(self) -> None:
        """Wakes the streams whose consumers are gone: one thread looks for all, since thousands that look by
        themselves would have no time for anything else."""
        while not self._watching.wait(WATCH_S):
            with self._lock:
                gone = [wake for wake, context in self._wakes.items() if context.is_cancelled()]
            for wake in gone:
                wake.set()

    def close(self) -> None:
        self._watching.set()
        with self._lock:
            self.closing = True
            wakes = list(self._wakes)
        self.courier.close()
        for wake in wakes:
            wake.set()


class _Service(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow is not typed
    """gRPC's side: each method runs on a thread of its own call."""

    def __init__(
        self, location: str, control: ControlHandler, partitions: PartitionSource | None, streams: _Streams
    ) -> None:
        # Before the base class, which listens from then on.
        self._control = control
        self._partitions = partitions
        self._streams = streams
        super().__init__(location)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[flight.Result]:
        try:
            if action.type != wire.CONTROL_ACTION:
                raise ProtocolError(f"unknown action {action.type[:64]!r}")  # noqa: TRY301
            if action.body.size > FRAME_BYTES_MAX:
                raise ProtocolError(f"message of {action.body.size} B, limit {FRAME_BYTES_MAX} B")  # noqa: TRY301
            return [flight.Result(self._control(action.body.to_pybytes()))]
        except ProtocolError as error:
            raise wire.to_peer(error) from error
        except Exception as error:
            _LOG.exception("event=control_failed")
            raise wire.to_peer(error) from error

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        try:
            channel = wire.decode_channel(descriptor.command)
            if self._partitions is None:
                raise ProtocolError(f"{wire.describe(channel)}: nothing is produced here")  # noqa: TRY301
            _Stream(channel, context, reader, writer, self._streams).run(self._partitions)
        except (ProtocolError, Unreachable) as error:
            raise wire.to_peer(error) from error
        except wire.WIRE_ERRORS:
            raise
        except Exception as error:
            _LOG.exception("event=exchange_failed")
            raise wire.to_peer(error) from error


class _Stream:
    """Sends one subpartition to one consumer, on the thread of its call."""

    def __init__(
        self,
        channel: ChannelDescriptor,
        context: flight.ServerCallContext,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
        streams: _Streams,
    ) -> None:
        self._channel = channel
        self._context = context
        self._reader = reader
        self._writer = writer
        self._streams = streams
        self._wake = threading.Event()
        self._credits = 0
        self._schema: pa.Schema | None = None
        self._view: SubpartitionView | None = None
        self._turn = threading.Lock()  # whose turn it is to write while the thread waits for credit
        self._starving = False

    def run(self, partitions: PartitionSource) -> None:
        """Returns when the consumer has read EndOfPartition.

        Raises:
            Unreachable: no such subpartition yet, the consumer is gone, or the server closes.
            ProtocolError: the consumer or the partition broke the rules.
        """
        self._streams.add(self._wake, self._context)
        try:
            self._await_credits()
            view = partitions.open_subpartition(self._channel, self._on_ready)
            if view is None:
                raise Unreachable(f"{wire.describe(self._channel)} is not there (yet)")
            self._serve(view)
        finally:
            self._streams.remove(self._wake)

    def _on_ready(self) -> None:
        """By the producer's thread: the view has something."""
        self._wake.set()
        if self._starving:
            self._streams.courier.send(self._overtake)

    def _serve(self, view: SubpartitionView) -> None:
        self._view = view
        try:
            self._send_all(view)
            self._await_end()
        except BaseException as error:
            view.release(wire.from_peer(error, "the consumer is gone") if _from_wire(error) else error)
            raise
        view.release(None)

    def _send_all(self, view: SubpartitionView) -> None:
        self._writer.write_metadata(wire.ACCEPTED)
        while True:
            element = self._next(view)
            if isinstance(element, Batch):
                self._send_batch(element)
                continue
            self._writer.write_metadata(encode_event(element))
            if isinstance(element, EndOfPartition):
                return

    def _next(self, view: SubpartitionView) -> Element:
        """What is to be sent now; there is credit for it."""
        while True:
            self._wake.clear()  # before the look: a wake-up after it is kept
            head = view.peek()
            self._check_open()
            if isinstance(head, Batch):
                self._await_credits_for(head)
            if head is not None:
                element = view.poll()  # another one if a barrier has come meanwhile
                if element is not None:
                    return element
                continue
            self._wake.wait(IDLE_S)
            if self._context.is_cancelled():
                raise Unreachable(f"the consumer of {wire.describe(self._channel)} is gone")

    def _send_batch(self, batch: Batch) -> None:
        if batch.num_rows == 0:
            return
        records = wire.to_wire(batch)
        if self._schema is None:
            self._schema = records.schema
            self._writer.begin(records.schema, options=wire.WRITE_OPTIONS)
        elif not records.schema.equals(self._schema):
            raise ProtocolError(
                f"{wire.describe(self._channel)} began with the schema [{_in_words(self._schema)}],"
                f" but a later batch has [{_in_words(records.schema)}]"
            )
        for piece in wire.split(records):
            cost = wire.cost_of(piece)
            self._starve(cost)
            self._writer.write_with_metadata(piece, wire.encode_cost(cost))
            self._credits -= cost

    # --- credit -----------------------------------------------------------------------------------

    def _await_credits_for(self, batch: Batch) -> None:
        """Before `batch` is taken from the view: for all of it, or for as much as one message may hold."""
        if batch.num_rows:
            self._starve(min(wire.cost_of(wire.to_wire(batch)), FRAME_BYTES_MAX))

    def _starve(self, cost: int) -> None:
        """Returns when there is so much credit; meanwhile the courier may write."""
        if self._credits >= cost:
            return
        self._writer.write_metadata(wire.encode_need(cost))
        with self._turn:
            self._starving = True
            self._send_urgent()  # what came before anybody could know
        try:
            while self._credits < cost:
                self._await_credits()
        finally:
            with self._turn:
                self._starving = False

    def _overtake(self) -> None:
        """By the courier."""
        with self._turn:
            if self._starving:
                try:
                    self._send_urgent()
                except wire.WIRE_ERRORS:
                    return  # the stream's own thread learns of it by its read, and says so

    def _send_urgent(self) -> None:
        """By whoever has the turn."""
        assert self._view is not None
        while (event := self._view.poll_urgent()) is not None:
            self._writer.write_metadata(encode_event(event))

    def _await_credits(self) -> None:
        """Blocks until the consumer grants something, leaves, or `break_connections` ends its wait."""
        try:
            granted = self._reader.read_chunk().app_metadata
        except StopIteration:
            raise Unreachable(f"the consumer of {wire.describe(self._channel)} has left") from None
        self._check_open()
        self._credits += wire.decode_credits(granted)

    def _await_end(self) -> None:
        """Until the consumer has closed its side: it has read everything."""
        try:
            while True:
                self._reader.read_chunk()
        except StopIteration:
            if self._context.is_cancelled():
                raise Unreachable(f"the consumer of {wire.describe(self._channel)} is gone") from None

    def _check_open(self) -> None:
        if self._streams.closing:
            raise Unreachable("the server closes")


def _from_wire(error: BaseException) -> bool:
    return isinstance(error, wire.WIRE_ERRORS)


def _in_words(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
