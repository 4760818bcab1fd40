"""Clients of another process's `FlightServer`: control requests, and streams of elements (`net.incoming`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from pyarrow import flight

from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import ProtocolError, Unreachable
from unistream.base.ids import EdgeId
from unistream.base.limits import RPC_TIMEOUT_S
from unistream.model.codec import decode_answer, encode
from unistream.model.credentials import Credentials, shown_address
from unistream.model.deployment import ChannelDescriptor
from unistream.model.messages import Answer, Request
from unistream.net import wire
from unistream.net.frames import StreamHead
from unistream.net.in_channel import InChannel
from unistream.net.incoming import IncomingStream
from unistream.net.peer_check import presenting
from unistream.net.peers import CLOSE_JOIN_S, Alarms, Connections, connect
from unistream.port.transport import InputSink


class FlightControlClient:
    """Requests to one peer, from any thread. Reconnects automatically.

    Args:
        address: `FlightServer.address` of the peer.
        timeout_s: For one call, connecting included.
        secret: What each call presents; asked for each time, since the peer may be started again meanwhile.
        credentials: What this process shows to a peer on another host.

    Raises:
        ConfigError: not a Flight location, or one that this process may not or cannot use.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float = RPC_TIMEOUT_S,
        *,
        secret: Callable[[], str | None] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._address = address
        self._secret = secret
        self._timeout_s = timeout_s
        self._options = flight.FlightCallOptions(timeout=timeout_s)
        self._client: flight.FlightClient | None = connect(address, credentials)

    def call(self, message: Request) -> Answer:
        """The peer's answer.

        Raises:
            Unreachable: no answer in time; the outcome is unknown.
            ProtocolError: the peer did not understand it, or its answer is invalid.
        """
        client = self._client
        if client is None:
            raise Unreachable(f"the connection to {self._address} is closed")
        where = f"{type(message).__name__} to {shown_address(self._address)}"
        try:
            results = list(
                client.do_action(flight.Action(wire.CONTROL_ACTION, encode(message)), self._call_options())
            )
        except wire.WIRE_ERRORS as error:
            raise wire.from_peer(error, where) from error
        if len(results) != 1:
            raise ProtocolError(f"{where}: {len(results)} answers")
        return decode_answer(results[0].body.to_pybytes())

    def _call_options(self) -> flight.FlightCallOptions:
        if self._secret is None:
            return self._options
        return flight.FlightCallOptions(timeout=self._timeout_s, headers=presenting(self._secret()))

    def close(self) -> None:
        """Calls in progress end by their timeout; later ones raise Unreachable."""
        self._client = None  # the connection ends with its last user: Flight's own close does nothing


class FlightDataClient:
    """Channels from other processes. Those of one gate and one edge from one process share a stream, whose
    thread calls their sinks.

    Args:
        partition_request_timeout_ms: How long a channel requests its partition, with growing pauses.
        credentials: What this process shows to others; None: all are on this host.
    """

    def __init__(
        self,
        partition_request_timeout_ms: int = 10_000,
        clock: Clock | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._timeout_ms = partition_request_timeout_ms
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._streams: set[IncomingStream] = set()
        self._connections = Connections(credentials)
        self._alarms = Alarms(self._clock)
        self._closed = False

    def gate(self, token: str = "") -> FlightGate:
        """See `port.transport.DataClient`."""
        return FlightGate(partial(self.open_stream, token=token))

    def open_stream(self, edge: EdgeId, address: str, *, token: str = "") -> IncomingStream:
        """A stream that is not started. `token`: of its job.

        Raises:
            Unreachable: this client is closed.
        """
        stream = IncomingStream(
            StreamHead(edge, token),
            address,
            timeout_ms=self._timeout_ms,
            clock=self._clock,
            connections=self._connections,
            alarms=self._alarms,
            ended=self._forget,
        )
        with self._lock:
            if self._closed:
                raise _closed()
            self._streams.add(stream)
        return stream

    @property
    def streams(self) -> int:
        with self._lock:
            return len(self._streams)

    def close(self) -> None:
        """Closes every channel and waits, for a limited time, until no sink is called any more."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        for stream in streams:
            stream.end(CLOSE_JOIN_S)
        self._alarms.close()

    def _forget(self, stream: IncomingStream) -> None:
        with self._lock:
            self._streams.discard(stream)


class FlightGate:
    """The channels of one gate from other processes (port.transport.GateInput). Thread-safe."""

    def __init__(self, open_stream: Callable[[EdgeId, str], IncomingStream]) -> None:
        self._open_stream = open_stream
        self._lock = threading.Lock()
        self._streams: dict[tuple[EdgeId, str], IncomingStream] = {}

    def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> InChannel:
        """See `port.transport.GateInput`.

        Raises:
            Unreachable: the client is closed.
        """
        with self._lock:
            key = (channel.edge, channel.address)
            stream = self._streams.get(key)
            joined = stream.join(channel, sink, credits) if stream else None
            if joined is None:
                stream = self._streams[key] = self._open_stream(channel.edge, channel.address)
                joined = stream.join(channel, sink, credits)
                if joined is None:
                    raise _closed()
                stream.start()
            return joined

    def close(self) -> None:
        """See `port.transport.GateInput`."""
        with self._lock:
            streams = list(self._streams.values())
            self._streams.clear()
        for stream in streams:
            stream.close()


def _closed() -> Unreachable:
    return Unreachable("the data client is closed")
