"""A proxy in front of an S3 server: it counts requests, and lets chosen ones fail."""

from __future__ import annotations

import http.client
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from unistream.base.closing import Closing

UPSTREAM_TIMEOUT_S: Final = 30.0
SLOW_DOWN: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
HEADERS_OF_HOP: Final = {"connection", "transfer-encoding", "expect", "keep-alive"}


class FaultKind(Enum):
    """What becomes of a request."""

    SLOW_DOWN = "answered by 503 SlowDown, and not carried out"
    RESET = "the connection breaks, and it is not carried out"
    LOST = "it is carried out, and the connection breaks before the answer"
    HALF = "it is carried out, and the connection breaks in the middle of the answer"
    SILENT = "it is not carried out, and nothing is answered"
    DEAD_WITHIN = "the server is killed while it carries it out"
    DEAD_BEHIND = "it is carried out, and the server is killed before it has answered"


@dataclass(slots=True, kw_only=True)
class Fault:
    """For `times` requests with this method ("": any) whose path and query contain `path`, after `skip`."""

    kind: FaultKind
    method: str = ""
    path: str = ""
    skip: int = 0
    times: int = 1
    hits: int = 0

    def takes(self, method: str, path: str) -> bool:
        if (self.method and method != self.method) or self.path not in path or self.hits >= self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.hits += 1
        return True


class S3Proxy(Closing):
    """For clients of one server. `kill` ends it at once.

    Attributes:
        address: For clients.
        seen: (method, path with query) of all requests.
        ignores_conditions: The header If-None-Match does not reach the server, which must not check
            signatures then.
    """

    def __init__(self, server: str, kill: Callable[[], None] | None = None) -> None:
        self._server = server
        self._kill = kill
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.seen: list[tuple[str, str]] = []
        self.ignores_conditions = False
        self.ended = threading.Event()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._http = _Server(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    @property
    def server(self) -> str:
        return self._server

    def kill(self) -> None:
        assert self._kill is not None, "nobody has said how the server is killed"
        self._kill()

    def fault(self, kind: FaultKind, **options: object) -> Fault:
        """Begins with the next request."""
        fault = Fault(kind=kind, **options)  # type: ignore[arg-type]
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, method: str, path: str) -> FaultKind | None:
        with self._lock:
            self.seen.append((method, path))
            return next((fault.kind for fault in self._faults if fault.takes(method, path)), None)

    def counts(self) -> Counter[str]:
        """Requests by kind, as stores bill them."""
        with self._lock:
            return Counter(_kind(method, path) for method, path in self.seen)


def _kind(method: str, path: str) -> str:
    query = path.partition("?")[2]
    if method == "GET" and "list-type" in query:
        return "LIST"
    if method == "GET" and "uploadId" in query:
        return "LIST PARTS"
    if method == "GET" and "uploads" in query:
        return "LIST UPLOADS"
    if method == "PUT" and "partNumber" in query:
        return "PART"
    if method == "POST" and "uploads" in query:
        return "BEGIN"
    if method == "POST" and "uploadId" in query:
        return "COMPLETE"
    if method == "DELETE" and "uploadId" in query:
        return "ABORT"
    return "DELETE" if method == "POST" and "delete" in query else method


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone, as one that was killed: it gets no answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    owner: S3Proxy
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:
        """Silent: tests look at `seen`."""

    def _any(self) -> None:
        body = self._body()
        kind = self.owner.take(self.command, self.path)
        match kind:
            case FaultKind.SLOW_DOWN:
                self._answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
            case FaultKind.RESET:
                self._cut()
            case FaultKind.SILENT:
                self.owner.ended.wait(UPSTREAM_TIMEOUT_S)
                self._cut()
            case _:
                self._forward(body, kind)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers, of which clients send none here
            continue
        return b"".join(parts)

    def _forward(self, body: bytes, kind: FaultKind | None) -> None:
        upstream = http.client.HTTPConnection(self.owner.server, timeout=UPSTREAM_TIMEOUT_S)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                dropped = self.owner.ignores_conditions and name.lower() == "if-none-match"
                if name.lower() not in HEADERS_OF_HOP and not dropped:
                    upstream.putheader(name, value)
            if "Content-Length" not in self.headers and body:
                upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            if kind is FaultKind.DEAD_WITHIN:
                self.owner.kill()
            answer = upstream.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):  # it is away, or has just been killed
            self._cut()
            return
        finally:
            upstream.close()
        if kind is FaultKind.DEAD_BEHIND:
            self.owner.kill()
        if kind in (FaultKind.LOST, FaultKind.DEAD_BEHIND, FaultKind.DEAD_WITHIN):
            self._cut()
            return
        headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in HEADERS_OF_HOP]
        if kind is FaultKind.HALF:
            self._answer(answer.status, headers, content[: len(content) // 2], said=len(content))
            self._cut()
            return
        self._answer(answer.status, headers, content)

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, said: int | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content) if said is None else said))
        self.end_headers()
        self.wfile.write(content)

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            self.connection.shutdown(socket.SHUT_RDWR)
