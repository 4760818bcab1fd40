"""A server is asked by the name that the client was given, also by a literal of IPv6."""

from __future__ import annotations

import http.server
import socket
import threading

import pytest

from tests.eventually import WAIT_S
from unistream.client.remote.http import Http


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers with the host that it was asked for."""

    def do_GET(self) -> None:
        body = "; ".join(self.headers.get_all("Host") or ()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:
        pass


class Server6(http.server.HTTPServer):
    address_family = socket.AF_INET6


@pytest.mark.parametrize(("kind", "host"), [(Server6, "[::1]"), (http.server.HTTPServer, "127.0.0.1")])
def test_the_host_is_sent_as_it_stands_in_the_url(kind: type[http.server.HTTPServer], host: str) -> None:
    try:
        server = kind((host.strip("[]"), 0), Answering)
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"{host}:{server.server_address[1]}"
    try:
        with Http() as client:
            answer = client.send("GET", f"http://{url}/v1/config", connect_s=WAIT_S, within_s=WAIT_S)
        assert answer.content.decode() == url
    finally:
        server.shutdown()
        server.server_close()
