"""A REST catalog that says nothing is not waited for without limit; what others say is shown."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.iceberg_lake import TABLE
from unistream.base.errors import ConfigError, Unreachable
from unistream.connector.iceberg import IcebergSink, rest


def sink(port: int) -> IcebergSink:
    return IcebergSink(TABLE, catalog_properties={"uri": f"http://127.0.0.1:{port}", "token": "t"})


@pytest.fixture
def silent() -> Iterator[int]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_catalog_that_says_nothing_is_given_up(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "SILENT_TIMEOUT_S", 0.2)
    with pytest.raises(Unreachable, match=r"catalog 'default' did not answer while opening it: .*timed out"):
        sink(silent).check(None)


def test_a_catalog_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unreachable, match=r"catalog 'default' did not answer while opening it: .*refused"):
        sink(port).check(None)


class Answers(BaseHTTPRequestHandler):
    """A catalog without tables, for nobody."""

    def do_GET(self) -> None:
        is_config = self.path.startswith("/v1/config")
        body = json.dumps(
            {"defaults": {}, "overrides": {}}
            if is_config
            else {"error": {"message": "not you", "type": "ForbiddenException", "code": 403}}
        ).encode()
        self.send_response(200 if is_config else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_what_a_catalog_forbids_is_a_matter_of_configuration() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with pytest.raises(ConfigError, match=r"loading it was refused: .*not you"):
                sink(server.server_port).check(None)
        finally:
            server.shutdown()
            thread.join()
