"""One Arrow Flight server for a process: control by DoAction, channels by DoExchange (`net.outgoing`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyarrow import flight

from unistream.base.errors import ConfigError, ProtocolError, Unreachable
from unistream.base.hosts import in_url, is_loopback
from unistream.base.limits import FRAME_BYTES_MAX
from unistream.model.credentials import Credentials, PeerAddress, name_in
from unistream.net import frames, wire
from unistream.net.address import (
    TCP_SCHEME,
    TLS_SCHEME,
    UNIX_SCHEME,
    SocketFolder,
    break_connections,
    check_bind,
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
        bind_host: Where it listens: a loopback address, or any other with `credentials`.
        control: Called on a server thread for each control message, with who has sent it (`Credentials.name`;
            "": nobody else reaches this server); its errors go to the caller.
        partitions: Those of this process; None: it produces nothing.
        unix_dir: Where the private folder of the unix socket is created; None: the system's choice.
        unix: Without credentials: it listens on a unix socket instead of TCP, unless it is given a port; the
            socket is created again when it or its folder is removed. With them: on both, and peers on this
            host take the socket.
        ports: TCP ports, of which it takes the first free one; 0: any free one.
        secret: Peers have to present it with each call; "": none, since nobody else reaches the socket.
        credentials: It speaks TLS, and takes peers with a certificate of the same authority alone.
        host: By which other hosts reach it; "": by `bind_host`.

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
        ports: Sequence[int] = (),
        secret: str = "",
        credentials: Credentials | None = None,
        host: str = "",
    ) -> None:
        if credentials is None and not is_loopback(bind_host):
            raise ConfigError(
                f"{bind_host or repr('')} is not a loopback address: every peer that connects can run code "
                "here, so a server there needs a certificate"
            )
        use_grpc()
        is_tcp = credentials is not None or not unix or bool(ports)
        self._folder = SocketFolder(unix_dir) if unix and (credentials is not None or not ports) else None
        self._streams = _Streams()
        peers = _Peers(control, partitions, self._streams, secret)
        self._services: list[_Service] = []
        socket_ = "" if self._folder is None else UNIX_SCHEME + self._folder.socket_path
        self._listen: Callable[[], _Service] = partial(_Service, socket_, peers, None)
        try:
            if is_tcp:
                self._services.append(_listening(bind_host, tuple(ports) or (0,), peers, credentials))
            if self._folder:
                self._services.append(_checked(socket_, self._listen))
        except BaseException:
            self._shut_down()
            if self._folder:
                self._folder.close()
            raise
        self.address = socket_
        if is_tcp:
            self.address = _address(host or bind_host, self._services[0].port, credentials, socket_)
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
                for service in self._services:
                    break_connections(service.listens_at, service.port)
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


@dataclass(frozen=True, slots=True)
class _Peers:
    """What all services of one server share. `secret`: that peers present on a connection that says nothing
    of them."""

    control: ControlHandler
    partitions: PartitionSource | None
    streams: _Streams
    secret: str


def _listening(
    bind_host: str, ports: Sequence[int], peers: _Peers, credentials: Credentials | None
) -> _Service:
    """A service on the first of the ports that is free. Raises ConfigError: none is."""
    scheme = TCP_SCHEME if credentials is None else TLS_SCHEME
    why = ""
    for port in ports:
        try:
            check_bind(bind_host, port)  # gRPC says less of what is wrong, and that on stderr
            location = f"{scheme}{in_url(bind_host)}:{port}"
            return _checked(location, partial(_Service, location, peers, credentials))
        except ConfigError as error:
            why = why or str(error)
    more = f"; nor is any other of {len(ports)} ports free" if len(ports) > 1 else ""
    raise ConfigError(why + more)


def _checked(location: str, listen: Callable[[], _Service]) -> _Service:
    try:
        return listen()
    except wire.WIRE_ERRORS as error:
        raise ConfigError(f"cannot listen on {location}: {wire.from_peer(error, 'gRPC')}") from error


def _address(host: str, port: int, credentials: Credentials | None, unix: str) -> str:
    """What peers are given to find a server that listens on TCP."""
    place = f"{in_url(host)}:{port}"
    if credentials is None:
        return TCP_SCHEME + place
    return str(PeerAddress(TLS_SCHEME + place, credentials.name, unix.removeprefix(UNIX_SCHEME)))


class _Service(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow is not typed
    """gRPC's side: each method runs on a thread of its own call."""

    def __init__(self, location: str, peers: _Peers, credentials: Credentials | None) -> None:
        # Before the base class, which listens from then on.
        self.listens_at = location
        self._peers = peers
        self._is_tls = credentials is not None
        tls: dict[str, object] = {}
        if credentials is not None:
            tls = {
                "tls_certificates": [(credentials.certificate, credentials.key.reveal())],
                "verify_client": True,
                "root_certificates": credentials.roots,
            }
        is_checked = peers.secret and location.startswith(TCP_SCHEME)
        super().__init__(
            location, middleware={"peer": PeerCheck(peers.secret)} if is_checked else None, **tls
        )

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[flight.Result]:
        try:
            if action.type != wire.CONTROL_ACTION:
                raise ProtocolError(f"unknown action {action.type[:64]!r}")  # noqa: TRY301
            if action.body.size > FRAME_BYTES_MAX:
                raise ProtocolError(f"message of {action.body.size} B, limit {FRAME_BYTES_MAX} B")  # noqa: TRY301
            answer = self._peers.control(action.body.to_pybytes(), self._caller(context))
            return [flight.Result(answer)]
        except ProtocolError as error:
            raise wire.to_peer(error) from error
        except Exception as error:
            _LOG.exception("event=control_failed")
            raise wire.to_peer(error) from error

    def _caller(self, context: flight.ServerCallContext) -> str:
        """Whom the caller's certificate names; "": this connection has none. Raises ProtocolError: one that
        names no process."""
        if not self._is_tls:
            return ""
        name = name_in(context.peer_identity().decode("utf-8", "replace"))
        if not name:
            raise ProtocolError("the certificate of the caller names no process of this cluster")
        return name

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        peers = self._peers
        try:
            self._caller(context)
            head = frames.decode_head(descriptor.command)
            if peers.partitions is None:
                raise ProtocolError(f"edge {head.edge}: a process that produces nothing has no channels")  # noqa: TRY301
            stream = OutgoingStream(head, reader, writer, peers.partitions)
            peers.streams.add(stream)
            try:
                stream.run()
            finally:
                peers.streams.remove(stream)
        except (ProtocolError, Unreachable) as error:
            raise wire.to_peer(error) from error
        except wire.WIRE_ERRORS:
            raise
        except Exception as error:
            _LOG.exception("event=exchange_failed")
            raise wire.to_peer(error) from error
