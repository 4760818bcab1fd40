"""A schema registry on loopback, by real HTTP: subjects, versions and numbers, as Confluent's has them."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from unistream.base.closing import Closing


class RegistryServer(Closing):
    """Serves until it is closed.

    Args:
        user, password: Whom it asks for; nobody, if they are empty.

    Attributes:
        asked: Paths, as they were asked for.
        failing: The status that it answers with instead; None: it works.
    """

    def __init__(self, user: str = "", password: str = "") -> None:
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        self.asked: list[str] = []
        self.failing: int | None = None
        self._start(0)

    def _start(self, port: int) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, answer = registry._answer(self.path, self.headers.get("authorization", ""))
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self._port = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The number of the schema."""
        number = 1 + len(self._schemas)
        self._schemas[number] = {"schema": text, "schemaType": kind, "references": references or []}
        if kind == "AVRO":
            del self._schemas[number]["schemaType"]  # as the real one
        self._subjects.setdefault(subject, []).append(number)
        return number

    def _answer(self, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if self.failing is not None:
            return self.failing, {"error_code": self.failing * 100, "message": "it fails"}
        if self._login and authorization != f"Basic {self._login}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self._schemas:
                return 200, self._schemas[int(number)]
            case ["subjects", subject, "versions", version] if unquote(subject) in self._subjects:
                number = self._subjects[unquote(subject)][int(version) - 1]
                return 200, {"subject": subject, "version": int(version), **self._schemas[number]}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def stop(self) -> None:
        """It does not answer until `start`."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def start(self) -> None:
        """Again, at the same address."""
        self._start(self._port)

    def close(self) -> None:
        self.stop()


def with_number(number: int, payload: bytes) -> bytes:
    """In the wire format."""
    return b"\x00" + number.to_bytes(4, "big") + payload
