"""A proxy in front of a cluster's REST API, which answers for it what makes no sense."""

from __future__ import annotations

import http.client
import threading
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from unistream.base.closing import Closing

PASSED_ON = ("content-type", "authorization")
UPSTREAM_TIMEOUT_S: Final = 30.0
PAGE: Final = b"<html><body><h1>Please stand by</h1></body></html>"


class Mode(Enum):
    """How requests are answered. str: for people."""

    OPEN = "by the cluster"
    FAILS = "by status 500 and a page"
    DEFECT = "by status 500, as a cluster reports a defect of its own"
    FORBIDS = "by status 403 and a page"
    MISSING = "by status 404 and a page"
    GARBAGE = "by status 200 and a page"


_ANSWERS: Final = {
    Mode.FAILS: (500, PAGE),
    Mode.DEFECT: (500, b'{"errors": ["Internal server error.", "KeyError"]}'),
    Mode.FORBIDS: (403, PAGE),
    Mode.MISSING: (404, PAGE),
    Mode.GARBAGE: (200, PAGE),
}


class HttpProxy(Closing):
    """For clients of the server at `url`.

    Attributes:
        address: HOST:PORT, for clients.
        upstream: The URL of the server.
        mode: May be changed at any time.
    """

    def __init__(self, url: str) -> None:
        self.upstream = url
        self._upstream = url.removeprefix("http://")
        self._lock = threading.Lock()
        self._spoiled: list[str] = []
        self.mode = Mode.OPEN
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def spoiled(self, path: str) -> int:
        """How many requests whose path contains this the cluster has not got."""
        with self._lock:
            return sum(path in one for one in self._spoiled)

    def answer_to(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and content."""
        mode = self.mode
        if mode is not Mode.OPEN:
            with self._lock:
                self._spoiled.append(path)
            return _ANSWERS[mode]
        connection = http.client.HTTPConnection(self._upstream, timeout=UPSTREAM_TIMEOUT_S)
        try:
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            return 502, PAGE
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: HttpProxy

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        status, content = self.owner.answer_to(self.command, self.path, body, headers)
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # as `http.server` names them

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""
