"""Real servers that misbehave, on loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Final

JOIN_S: Final = 10.0

Serve = Callable[[socket.socket], None]


class Server:
    """Calls `serve` with each connection, on a thread of its own.

    Attributes:
        requests: First lines of the requests that `read_request` has read.
    """

    def __init__(self, serve: Serve, port: int = 0) -> None:
        self.ending = threading.Event()
        self._serve = serve
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=100)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            with self._lock:
                self._open.add(connection)
            thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the client, or `close`, has ended it
            self._serve(connection)

    def close(self) -> None:
        """Nothing listens any more, and all connections are reset."""
        self.ending.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._listener.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(JOIN_S)
            assert not thread.is_alive()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def hung() -> socket.socket:
    """Accepts connections (the system does) and never answers."""
    return socket.create_server(("127.0.0.1", 0), backlog=100)


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def read_request(connection: socket.socket) -> str:
    """The first line of a request that is read completely; "" if there is none any more."""
    content = b""
    while b"\r\n\r\n" not in content:
        piece = connection.recv(65_536)
        if not piece:
            return ""
        content += piece
    head, _, body = content.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    ]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        missing -= len(connection.recv(65_536))
    return head.split(b"\r\n")[0].decode()


def answer(status: int, payload: object) -> bytes:
    body = json.dumps(payload).encode()
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def answers(respond: Callable[[str], tuple[int, object] | None], seen: list[str] | None = None) -> Serve:
    """Serves requests with what `respond` makes of their first lines; None: the connection breaks."""

    def serve(connection: socket.socket) -> None:
        while line := read_request(connection):
            if seen is not None:
                seen.append(line)
            response = respond(line)
            if response is None:
                return
            connection.sendall(answer(*response))

    return serve
