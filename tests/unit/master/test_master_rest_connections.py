"""Clients that do not go on lose their connections, and shut nobody out."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from fastapi import FastAPI, Request, Response

from tests.eventually import eventually
from unistream.rest.connections import ConnectionLimits, ConnectionPhase, ConnectionProgress, in_the_way
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer

LIMITS = ConnectionLimits(head_s=2.0, body_s=3.0, body_rate=100.0, unread_s=4.0)
PATIENT_S = 60.0
WHOLE = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize(
    ("phase", "received", "limit_s"),
    [
        pytest.param(ConnectionPhase.HEAD, 0, 2.0, id="a head"),
        pytest.param(ConnectionPhase.HEAD, 1_000, 2.0, id="a head that comes byte by byte"),
        pytest.param(ConnectionPhase.BODY, 0, 3.0, id="a body of which nothing comes"),
        pytest.param(ConnectionPhase.BODY, 500, 8.0, id="a body that comes fast enough gets longer"),
        pytest.param(ConnectionPhase.UNREAD, 0, 4.0, id="a response that is not read"),
        pytest.param(ConnectionPhase.IDLE, 0, None, id="an idle one, which uvicorn ends"),
        pytest.param(ConnectionPhase.SERVED, 0, None, id="one that is served"),
    ],
)
def test_how_long_a_client_may_take(phase: ConnectionPhase, received: int, limit_s: float | None) -> None:
    progress = ConnectionProgress(phase, since_s=10.0, received=received)
    if limit_s is None:
        assert not progress.is_late(LIMITS, 1_000_000.0)
    else:
        assert not progress.is_late(LIMITS, 10.0 + limit_s)
        assert progress.is_late(LIMITS, 10.0 + limit_s + 0.1)


@pytest.mark.parametrize(
    ("phases", "closed"),
    [
        pytest.param("HEAD HEAD", None, id="there is room"),
        pytest.param("HEAD HEAD HEAD", 0, id="the oldest head"),
        pytest.param("IDLE HEAD HEAD", 1, id="a head before an idle one that is older"),
        pytest.param("BODY IDLE HEAD", 1, id="an idle one before a body"),
        pytest.param("UNREAD BODY HEAD", 1, id="a body before a response that is not read"),
        pytest.param("SERVED UNREAD HEAD", 1, id="a response that is not read before one that is served"),
        pytest.param("SERVED SERVED HEAD", None, id="none that is served, nor the new one"),
    ],
)
def test_which_connection_makes_room_for_the_last_one(phases: str, closed: int | None) -> None:
    all_ = [
        ConnectionProgress(ConnectionPhase[name], since_s=float(at)) for at, name in enumerate(phases.split())
    ]
    assert in_the_way(all_, 2) is (None if closed is None else all_[closed])


@pytest.fixture
def serve() -> Iterator[Callable[[ConnectionLimits], RestServer]]:
    app = FastAPI()

    @app.get("/small")
    def small() -> str:
        return "here"

    @app.get("/large")
    def large() -> Response:
        return Response(b"x" * 64 * 1024 * 1024)

    @app.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    with ExitStack() as owned:

        def serve(limits: ConnectionLimits) -> RestServer:
            server = RestServer(app, Listener("127.0.0.1", 0), limits=limits)
            owned.callback(server.close)
            return server

        yield serve


def connected(server: RestServer, first: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENT_S)
    client.sendall(first)
    return client


def is_ended(client: socket.socket) -> bool:
    """Without another byte of this client; what it got before may be there."""
    try:
        while client.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", id="nothing is sent"),
        pytest.param(WHOLE[:-4], id="half a head"),
        pytest.param(WHOLE + WHOLE[:-4], id="half of the second head"),
        pytest.param(BODY, id="no body"),
        pytest.param(BODY + b"1234", id="half a body"),
    ],
)
def test_a_request_that_does_not_go_on_ends(
    serve: Callable[[ConnectionLimits], RestServer], first: bytes
) -> None:
    server = serve(ConnectionLimits(head_s=0.2, body_s=0.2, check_s=0.05))
    with closing(connected(server, first)) as client:
        assert is_ended(client)


def test_a_head_that_comes_byte_by_byte_ends(serve: Callable[[ConnectionLimits], RestServer]) -> None:
    server = serve(ConnectionLimits(head_s=0.2, check_s=0.05))
    ended = threading.Event()

    def drip(client: socket.socket) -> None:
        with suppress(OSError):
            while not ended.wait(0.02):
                client.sendall(b"x")

    with closing(connected(server, b"GET /small HTTP/1.1\r\nX-A: ")) as client:
        dripping = threading.Thread(target=drip, args=(client,))
        dripping.start()
        try:
            assert is_ended(client)
        finally:
            ended.set()
            dripping.join(PATIENT_S)


def test_a_response_that_is_not_read_ends(serve: Callable[[ConnectionLimits], RestServer]) -> None:
    server = serve(ConnectionLimits(unread_s=0.2, check_s=0.05))
    with closing(connected(server, LARGE)):
        connections = server._server.server_state.connections
        eventually(lambda: len(connections) == 1, "it is served")
        eventually(lambda: not connections, "it is given up")


def test_whole_requests_are_answered_however_many_are_half(
    serve: Callable[[ConnectionLimits], RestServer],
) -> None:
    server = serve(ConnectionLimits(head_s=PATIENT_S, body_s=PATIENT_S, connections_max=20))
    with ExitStack() as owned:
        for first in (WHOLE[:-4], BODY, WHOLE, b"") * 25:
            owned.enter_context(closing(connected(server, first)))
        for _ in range(3):
            with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENT_S)) as client:
                client.request("GET", "/small")
                assert client.getresponse().read() == b'"here"'
                client.request("POST", "/body", body=b"x" * 200_000)
                assert client.getresponse().read() == b"200000"
        assert len(server._server.server_state.connections) <= 20
