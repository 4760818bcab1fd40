"""HTTP calls that end: a deadline bounds a whole call, whatever the other side does with its bytes.

A timeout of a socket bounds one wait for bytes, so a server that sends one byte now and then holds its client
for ever. Here each wait of a call gets what is left until the call's deadline.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from ssl import PROTOCOL_TLS_CLIENT, SSLCertVerificationError, SSLContext, create_default_context
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import httpcore

from unistream.base.closing import Closing
from unistream.base.errors import ConfigError
from unistream.client.remote.policy import AttemptFailure

_BY_THE_CLOCK: Final = frozenset((9, 10))  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_BY_ANOTHER_NAME: Final = frozenset((62, 64))  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
WRITE_BYTES: Final = 65_536  # between two looks at the clock
CONNECTIONS_MAX: Final = 10
KEPT_S: Final = 5.0  # less than the server keeps an idle connection


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of any status. `retry_after_s`: how long it wants its client to wait; 0: it does not say."""

    method: str
    url: str
    status: int
    content: bytes
    retry_after_s: float = 0.0

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class NoAnswer(Exception):
    """An attempt without an answer; str: as the system reports it. `wait_s`: how long the cluster wants its
    client to wait."""

    def __init__(self, failure: AttemptFailure, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.failure = failure
        self.wait_s = wait_s


ContextFor: TypeAlias = Callable[[str, int, float], SSLContext]
"""Host, port, seconds left -> the TLS with which that server is verified. May raise ConfigError, OSError."""


def no_context(_host: str, _port: int, _within_s: float) -> SSLContext:
    """That of a client which believes the authorities of this machine."""
    return create_default_context()


class Http(Closing):
    """Connections to any number of servers. Thread-safe. It uses no proxy of the environment."""

    def __init__(self, context_for: ContextFor = no_context) -> None:
        self._deadline = _Deadline()
        self._pool = httpcore.ConnectionPool(
            ssl_context=SSLContext(PROTOCOL_TLS_CLIENT),  # not used: `context_for` has one for each server
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=KEPT_S,
            network_backend=_Network(self._deadline, context_for),
        )

    def send(
        self,
        method: str,
        url: str,
        content: bytes = b"",
        content_type: str = "application/json",
        *,
        token: str | None = None,
        connect_s: float,
        within_s: float,
    ) -> Response:
        """The answer, complete.

        Args:
            method: GET, POST, …
            url: With path and query.
            content: The body; a GET has none.
            content_type: Of the body.
            token: A bearer token; None: none.
            connect_s: Longest wait for a connection.
            within_s: Longest time from now to the last byte of the answer.

        Raises:
            NoAnswer: there is none, and why.
        """
        self._deadline.set(connect_s, within_s)
        host = urlsplit(url).netloc  # httpcore's own header has a literal of IPv6 without its brackets
        headers = [("host", host), ("accept", "application/json")]
        if content:
            headers.append(("content-type", content_type))
        if token is not None:
            headers.append(("authorization", f"Bearer {token}"))
        try:
            answer = self._pool.request(
                method,
                url,
                headers=headers,
                content=content or None,
                extensions={"timeout": {"pool": within_s}},
            )
        except httpcore.ConnectError as error:
            if isinstance(error.__context__, SSLCertVerificationError):  # httpcore takes away its cause
                raise ConfigError(not_verified(url, error.__context__)) from error
            raise NoAnswer(AttemptFailure.REFUSED, str(error) or type(error).__name__) from error
        except httpcore.UnsupportedProtocol as error:
            raise NoAnswer(AttemptFailure.REFUSED, str(error) or type(error).__name__) from error
        except httpcore.ConnectTimeout as error:
            raise NoAnswer(AttemptFailure.UNCONNECTED, "it accepts no connection in time") from error
        except httpcore.PoolTimeout as error:
            raise NoAnswer(AttemptFailure.UNCONNECTED, "all connections to it wait for answers") from error
        except httpcore.TimeoutException as error:
            raise NoAnswer(AttemptFailure.SILENT, f"no answer within {within_s:.3g} s") from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise NoAnswer(AttemptFailure.BROKEN, str(error) or "the connection was closed") from error
        return Response(method, url, answer.status, answer.content, _retry_after_s(answer.headers))

    def close(self) -> None:
        self._pool.close()


class _Deadline(threading.local):
    """The deadline of the call that the current thread makes."""

    def __init__(self) -> None:
        self._connect_s = 0.0
        self._at_s = 0.0

    def set(self, connect_s: float, within_s: float) -> None:
        self._connect_s = connect_s
        self._at_s = time.monotonic() + within_s

    def left(self, late: type[Exception]) -> float:
        """Seconds; raises `late` if there are none."""
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise late("the deadline of the call is over")
        return left_s

    def to_connect(self) -> float:
        return min(self._connect_s, self.left(httpcore.ConnectTimeout))


class _Network(httpcore.NetworkBackend):
    def __init__(self, deadline: _Deadline, context_for: ContextFor) -> None:
        self._deadline = deadline
        self._context_for = context_for
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        limit_s = self._deadline.to_connect()
        stream = self._sockets.connect_tcp(host, port, limit_s, local_address, socket_options)
        return _DeadlineStream(stream, self._deadline, partial(self._context_for, host, port))


class _DeadlineStream(httpcore.NetworkStream):
    """A connection. Timeouts that it is given are ignored: the call's own deadline counts."""

    def __init__(
        self,
        stream: httpcore.NetworkStream,
        deadline: _Deadline,
        context: Callable[[float], SSLContext],
    ) -> None:
        self._stream = stream
        self._deadline = deadline
        self._context = context

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            piece = buffer[start : start + WRITE_BYTES]
            self._stream.write(piece, self._deadline.left(httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Verifies the server by its own context, whatever the pool's is."""
        limit_s = self._deadline.to_connect()
        try:
            context = self._context(limit_s)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        inner = self._stream.start_tls(context, server_hostname, limit_s)
        return _DeadlineStream(inner, self._deadline, self._context)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _retry_after_s(headers: Iterable[tuple[bytes, bytes]]) -> float:
    """A date in it counts as none: the clocks of two hosts are never the same."""
    said = next((value for name, value in headers if name.lower() == b"retry-after"), b"")
    return float(said) if said.isdigit() and len(said) < 9 else 0.0


def not_verified(url: str, error: SSLCertVerificationError) -> str:
    """Why the certificate of the server at `url` is not accepted, and what to do."""
    server = "/".join(url.split("/", 3)[:3])
    if error.verify_code in _BY_ANOTHER_NAME:
        return (
            f"{server} shows a certificate of other names: {error.verify_message.rstrip('.')}; ask it by the "
            "address that 'unistream cluster start' has printed, or set rest.address there to this one"
        )
    now = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
    clock = f"; this machine's clock says {now}" if error.verify_code in _BY_THE_CLOCK else ""
    return (
        f"{server} shows a certificate that is not accepted: {error.verify_message}{clock}; name the "
        "authorities of its cluster by UNISTREAM_CA_FILE ('unistream certs show' prints them), or present a "
        "token of it"
    )
