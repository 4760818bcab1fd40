"""A server in front of ZooKeeper that cuts, holds and loses what goes through it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from enum import Enum
from typing import Final, Self

from unistream.base.closing import Closing

POLL_S: Final = 0.02
MULTI: Final = (14).to_bytes(4, "big")  # ZooKeeper's code of a transaction
VERSION_QUESTION: Final = b"srvr"


class Mode(Enum):
    OPEN = "open"
    CUT = "cut"  # connections are closed, and new ones too
    HELD = "held"  # connections stay, and nothing passes


class ZooKeeperProxy(Closing):
    """For clients of one server.

    Attributes:
        address: For clients.
        version_answer: What clients hear that ask for the version; None: what the server says.
        after_transaction: The next transaction is carried out, its answer lost, and this is the mode then.
    """

    def __init__(self, server: str) -> None:
        host, _, port = server.partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.mode = Mode.OPEN
        self.version_answer: bytes | None = None
        self.after_transaction: Mode | None = None
        self._losing = False
        self._ends = threading.Event()
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        self._ends.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _begin(self, run, *arguments: object) -> None:  # type: ignore[no-untyped-def]
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        self._listener.settimeout(POLL_S)
        while not self._ends.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if self.mode is Mode.CUT:
                client.close()
            else:
                self._begin(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server, 5) as server:
            client.settimeout(POLL_S)
            server.settimeout(POLL_S)
            while not self._ends.is_set() and self.mode is not Mode.CUT:
                if not self._pass(client, server) or not self._answer(server, client):
                    return

    def _pass(self, client: socket.socket, server: socket.socket) -> bool:
        data = self._received(client)
        if data == VERSION_QUESTION and self.version_answer is not None:
            client.sendall(self.version_answer)
            return False
        if (
            data
            and self.after_transaction is not None
            and MULTI in {data[i + 8 : i + 12] for i in frames(data)}
        ):
            self._losing = True
        if data:
            server.sendall(data)
        return data is not None

    def _answer(self, server: socket.socket, client: socket.socket) -> bool:
        data = self._received(server)
        if data and self._losing and self.after_transaction is not None:
            self.mode, self.after_transaction, self._losing = self.after_transaction, None, False
            return False
        if data:
            client.sendall(data)
        return data is not None

    def _received(self, sender: socket.socket) -> bytes | None:
        """b"": nothing yet; None: its end."""
        if self.mode is Mode.HELD:
            self._ends.wait(POLL_S)
            return b""
        try:
            return sender.recv(65_536) or None
        except TimeoutError:
            return b""


def frames(data: bytes) -> list[int]:
    """Where each request in `data` begins."""
    found, at = [], 0
    while at + 12 <= len(data):
        found.append(at)
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    return found
