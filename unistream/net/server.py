"""One Arrow Flight server for a process: control by DoAction, channels by DoExchange (`net.outgoing`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from pyarrow import flight

from unistream.base.errors import ConfigError, ProtocolError, Unreachable
from unistream.base.limits import FRAME_BYTES_MAX
from unistream.net import frames, wire
from unistream.net.address import (
    TCP_SCHEME,
    UNIX_SCHEME,
    SocketFolder,
    break_connections,
    is_loopback,
)
from unistream.net.after_fork import use_grpc
from unistream.net.outgoing import OutgoingStream
from unistream.net.peer_check import PeerCheck
from unistream.port.transport import ControlHandler, PartitionSource

CLOSE_GRACE_S: Final = 1.0  # for calls in progress to end by themselves
CLOSE_BREAK_S: Final = 2.0  # for calls whose connection was cut
SOCKET_WATCH_S: Final = 1.0  # a new worker tries to register for longer
LISTENERS_MAX: Final = 100  # each removal leaves a service with its threads; cleaners run daily
CLOSE_JOIN_S: Final = 1.0  # for threads whose call has ended
WATCH_JOIN_S: Final = 5.0  # creating a folder and a socket takes milliseconds

_LOG: Final = logging.getLogger("unistream.net")


class FlightServer:
    """Listens from construction until `close`.

    Args:
        bind_host: A loopback address: a unix socket (unless `unix` is False), created again when it or its
            folder is removed. Any other is refused: TCP has neither TLS nor authentication yet, and the
            server runs code for every peer that connects.
        control: Called on a server thread for each control message; its errors go to the caller.
        partitions: Those of this process; None: it produces nothing.
        unix_dir: Where the private folder of the unix socket is created; None: the system's choice.
        port: TCP port to listen on instead of a unix socket; 0: a unix socket, or a free port.
        secret: Peers have to present it with each call; "": none, since nobody else reaches the socket.

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
        port: int = 0,
        secret: str = "",
    ) -> None:
        if not is_loopback(bind_host):
            raise ConfigError(
                f"jobmanager.bind-host {bind_host or repr('')} is not a loopback address: every peer that"
                " connects can run code here, so it needs TLS and authentication first, which this version"
                " does not have; use 127.0.0.1"
            )
        use_grpc()
        self._folder = SocketFolder(unix_dir) if unix and not port else None
        tcp = f"{TCP_SCHEME}{bind_host}:{port}"
        listen = UNIX_SCHEME + self._folder.socket_path if self._folder else tcp
        self._streams = _Streams()
        self._listen: Callable[[], _Service] = partial(
            _Service, listen, control, partitions, self._streams, secret
        )
        try:
            self._services = [self._listen()]
        except wire.WIRE_ERRORS as error:
            if self._folder:
                self._folder.close()
            raise ConfigError(f"cannot listen on {listen}: {wire.from_peer(error, 'gRPC')}") from error
        self.address = listen if self._folder else f"{TCP_SCHEME}{bind_host}:{self._services[0].port}"
        self._closing = threading.Lock()
        self._closed = False
        self._stopping = threading.Event()
        self._watch = threading.Thread(target=self._watch_socket, name="socket-watch", daemon=True)
        if self._folder:
            self._watch.start()

    def close(self) -> None:
        """Ends all calls and streams (consumers get Unreachable) within CLOSE_GRACE_S + CLOSE_BREAK_S, and
        waits until their threads have ended, CLOSE_JOIN_S at most.

        May be called again, but not from a control handler: that call would wait for itself.
        """
        self._stopping.set()
        if self._folder:
            self._watch.join(WATCH_JOIN_S)
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._streams.close()
            # gRPC's shutdown waits for every call without a limit, so it must not be this thread.
            ending = threading.Thread(target=self._shut_down, name="flight-shutdown", daemon=True)
            ending.start()
            ending.join(CLOSE_GRACE_S)
            if ending.is_alive():
                break_connections(self.address)
                ending.join(CLOSE_BREAK_S)
            if ending.is_alive() or not self._streams.join(CLOSE_JOIN_S):
                _LOG.error("event=server_close_timeout address=%s", self.address)
            if self._folder:
                self._folder.close()

    def _shut_down(self) -> None:
        for service in self._services:
            service.shutdown()

    def _watch_socket(self) -> None:
        failure = ""
        while not self._stopping.wait(SOCKET_WATCH_S):
            try:
                self._listen_again()
                failure = ""
            except Exception as error:  # logged once as long as it is the same, and tried again
                if str(error) != failure:
                    _LOG.exception("event=watch_failed watch=socket-watch")
                failure = str(error)

    def _listen_again(self) -> None:
        """Creates a removed socket again, with a new service. Connected peers keep the former one."""
        assert self._folder is not None, "only unix sockets are watched"
        with self._closing:
            if self._closed or self._folder.has_socket:
                return
            if len(self._services) == LISTENERS_MAX:
                raise ConfigError(
                    f"{self.address} was removed {LISTENERS_MAX} times; it is not created again"
                )
            self._folder.restore()
            self._services.append(self._listen())
        _LOG.warning("event=socket_made_again address=%s reason='it had been removed'", self.address)


class _Streams:
    """The open streams, for `close`, and threads that are about to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[OutgoingStream] = set()
        self._ending: list[threading.Thread] = []  # no streams: these must not outlive their calls
        self._closing = False

    def add(self, stream: OutgoingStream) -> None:
        """Raises Unreachable: the server closes."""
        with self._lock:
            if self._closing:
                raise _closes()
            self._open.add(stream)

    def remove(self, stream: OutgoingStream) -> None:
        with self._lock:
            self._open.discard(stream)
            self._ending = [thread for thread in [*self._ending, stream.writing] if thread.is_alive()]

    def close(self) -> None:
        with self._lock:
            self._closing = True
            streams = list(self._open)
        for stream in streams:
            stream.close(_closes())

    def join(self, patience_s: float) -> bool:
        """Waits until the threads of all calls have ended, which have to be over. False: one has not, after
        `patience_s`."""
        with self._lock:
            ending = self._ending
        for thread in ending:
            thread.join(patience_s)
            if thread.is_alive():
                return False
        return True


def _closes() -> Unreachable:
    return Unreachable("the server closes")


class _Service(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow is not typed
    """gRPC's side: each method runs on a thread of its own call."""

    def __init__(
        self,
        location: str,
        control: ControlHandler,
        partitions: PartitionSource | None,
        streams: _Streams,
        secret: str,
    ) -> None:
        # Before the base class, which listens from then on.
        self._control = control
        self._partitions = partitions
        self._streams = streams
        super().__init__(location, middleware={"peer": PeerCheck(secret)} if secret else None)

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
            edge = frames.decode_head(descriptor.command)
            if self._partitions is None:
                raise ProtocolError(f"edge {edge}: a process that produces nothing has no channels")  # noqa: TRY301
            stream = OutgoingStream(edge, reader, writer, self._partitions)
            self._streams.add(stream)
            try:
                stream.run()
            finally:
                self._streams.remove(stream)
        except (ProtocolError, Unreachable) as error:
            raise wire.to_peer(error) from error
        except wire.WIRE_ERRORS:
            raise
        except Exception as error:
            _LOG.exception("event=exchange_failed")
            raise wire.to_peer(error) from error
