"""The REST API over TLS, by real sockets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.eventually import WAIT_S
from tests.support.authorities import DAY_MS, NOW_MS, authority
from unistream.rest import server as rest_server
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer
from unistream.trust.contexts import client_context, server_context


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(scope["scheme"])(scope, receive, send)


def listener() -> Listener:
    names = ["localhost", "127.0.0.1"]
    shown = authority().issue("", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=names)
    return Listener("127.0.0.1", 0, context=server_context(shown), host="localhost")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    monkeypatch.setattr(rest_server, "HANDSHAKE_S", 0.2)
    made = RestServer(app, listener())
    yield made
    made.close()


def test_it_answers_by_tls_under_its_name(server: RestServer) -> None:
    assert server.url == f"https://localhost:{server.port}"
    context = client_context(authority().roots(NOW_MS))
    with httpx.Client(verify=context, trust_env=False, timeout=WAIT_S) as client:
        assert client.get(server.url).text == "https"


def test_plain_text_is_not_answered(server: RestServer) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{server.port}", trust_env=False, timeout=WAIT_S)


def test_a_connection_without_a_handshake_ends(server: RestServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as half_open:
        assert half_open.recv(1) == b""


def test_a_handshake_that_stops_harms_nobody_else(server: RestServer) -> None:
    half_open = [socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) for _ in range(50)]
    try:
        for one in half_open:
            one.sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a ClientHello
        context = client_context(authority().roots(NOW_MS))
        with httpx.Client(verify=context, trust_env=False, timeout=WAIT_S) as client:
            assert client.get(server.url).status_code == 200
        assert [one.recv(1) for one in half_open] == [b""] * 50
    finally:
        for one in half_open:
            one.close()


def test_an_older_tls_is_refused(server: RestServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().roots(NOW_MS))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as plain,
        pytest.raises(OSError, match=r"(?i)alert|protocol|version"),
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.recv(1)
