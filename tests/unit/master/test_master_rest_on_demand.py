"""The REST API of a cluster of one job: it listens at once, and is loaded when the first client comes."""

from __future__ import annotations

import queue
import socket
import threading
from contextlib import suppress

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.eventually import WAIT_S, eventually
from unistream.rest.listener import Listener, ServedOnDemand
from unistream.rest.server import RestServer


def serve(listener: Listener) -> RestServer:
    return RestServer(Starlette(routes=[Route("/", lambda _request: PlainTextResponse("here"))]), listener)


def test_clients_that_come_together_are_answered_by_one_server() -> None:
    served: list[Listener] = []

    def once(listener: Listener) -> RestServer:
        served.append(listener)
        return serve(listener)

    listener = Listener("127.0.0.1", 0)
    with ServedOnDemand(listener, once):
        assert served == []
        answers: queue.Queue[str] = queue.Queue()
        clients = [
            threading.Thread(target=lambda: answers.put(httpx.get(listener.url, timeout=WAIT_S).text))
            for _ in range(3)
        ]
        for client in clients:
            client.start()
        assert [answers.get(timeout=WAIT_S) for _ in clients] == ["here"] * 3
        assert served == [listener]
        for client in clients:
            client.join(WAIT_S)
    with pytest.raises(httpx.ConnectError):
        httpx.get(listener.url)


def test_without_a_client_nothing_is_loaded_and_the_port_is_free_again() -> None:
    listener = Listener("127.0.0.1", 0)
    ServedOnDemand(listener, lambda _listener: pytest.fail("nobody came")).close()
    Listener("127.0.0.1", listener.port).close()


def test_a_server_that_cannot_be_made_is_logged_and_its_client_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_listener: Listener) -> RestServer:
        raise ModuleNotFoundError("No module named 'fastapi'")

    listener = Listener("127.0.0.1", 0)
    with ServedOnDemand(listener, broken):
        with suppress(ConnectionResetError):  # it may be refused before it knows that it is connected
            socket.create_connection(("127.0.0.1", listener.port), WAIT_S).close()
        eventually(lambda: "event=rest_not_served" in caplog.text, "it is logged", WAIT_S)
        assert "No module named 'fastapi'" in caplog.text
        with pytest.raises(httpx.TransportError):
            httpx.get(listener.url, timeout=WAIT_S)


def test_it_closes_while_its_libraries_are_loaded() -> None:
    loading, go_on = threading.Event(), threading.Event()

    def slow(listener: Listener) -> RestServer:
        loading.set()
        assert go_on.wait(WAIT_S)
        return serve(listener)

    listener = Listener("127.0.0.1", 0)
    on_demand = ServedOnDemand(listener, slow)
    with socket.create_connection(("127.0.0.1", listener.port), WAIT_S):
        assert loading.wait(WAIT_S)
        closing = threading.Thread(target=on_demand.close)
        closing.start()
        go_on.set()
        closing.join(WAIT_S)
        assert not closing.is_alive()
    Listener("127.0.0.1", listener.port).close()
