"""A server over TCP answers who presents its secret, and reads nothing of what others send."""

from __future__ import annotations

import pickle  # noqa: TID251  # what an attacker sends
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from tests.eventually import WAIT_S
from unistream.base.errors import Unreachable
from unistream.base.ids import TaskManagerId
from unistream.model.codec import encode
from unistream.model.messages import Ack, Heartbeat
from unistream.net import wire
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer

SECRET = "5ec2e7" * 10
BEAT = Heartbeat(task_manager=TaskManagerId("tm"))
CALL = flight.FlightCallOptions(timeout=WAIT_S)


class Control:
    """Notes what has reached it."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def __call__(self, body: bytes, caller: str = "", /) -> bytes:
        self.got.append(body)
        return encode(Ack())


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def server(control: Control) -> Iterator[FlightServer]:
    made = FlightServer("127.0.0.1", control=control, partitions=None, unix=False, secret=SECRET)
    yield made
    made.close()


def test_who_presents_the_secret_is_answered(server: FlightServer, control: Control) -> None:
    client = FlightControlClient(server.address, secret=lambda: SECRET)
    assert client.call(BEAT) == Ack()
    assert control.got == [encode(BEAT)]


@pytest.mark.parametrize(
    "secret", [None, "", SECRET[:-1], SECRET + "0", SECRET.upper(), "x"], ids=lambda text: repr(text)[:20]
)
def test_who_does_not_is_refused(server: FlightServer, control: Control, secret: str | None) -> None:
    client = FlightControlClient(server.address, secret=lambda: secret)
    with pytest.raises(Unreachable, match="it takes calls of its own workers only"):
        client.call(BEAT)
    assert control.got == []


def test_the_secret_is_asked_for_with_each_call(server: FlightServer) -> None:
    """The cluster's entry may come after the worker."""
    known = [SECRET, "", ""]
    client = FlightControlClient(server.address, secret=lambda: known.pop() or None)
    for _ in range(2):
        with pytest.raises(Unreachable):
            client.call(BEAT)
    assert client.call(BEAT) == Ack()


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._path,)


def test_every_kind_of_call_is_refused_before_it_is_read(
    server: FlightServer, control: Control, tmp_path: Path
) -> None:
    canary = pickle.dumps(Canary(tmp_path / "was run"))
    command = flight.FlightDescriptor.for_command(canary)

    def streamed(client: Any) -> None:
        _, reader = client.do_exchange(command, CALL)
        reader.read_chunk()

    calls: list[Callable[[Any], object]] = [
        lambda client: list(client.do_action(flight.Action(wire.CONTROL_ACTION, canary), CALL)),
        lambda client: list(client.do_action(flight.Action("unknown", canary), CALL)),
        streamed,
        lambda client: client.do_get(flight.Ticket(canary), CALL),
        lambda client: list(client.list_flights(canary, CALL)),
        lambda client: client.list_actions(CALL),
    ]
    with flight.FlightClient(server.address) as client:
        for call in calls:
            with pytest.raises(flight.FlightUnauthenticatedError, match="own workers only"):
                call(client)
    assert (control.got, list(tmp_path.iterdir())) == ([], [])


def test_a_secret_that_is_sent_twice_is_none(server: FlightServer) -> None:
    header = (b"authorization", f"Bearer {SECRET}".encode())
    options = flight.FlightCallOptions(timeout=WAIT_S, headers=[header, header])
    with (
        flight.FlightClient(server.address) as client,
        pytest.raises(flight.FlightUnauthenticatedError, match="own workers only"),
    ):
        list(client.do_action(flight.Action(wire.CONTROL_ACTION, encode(BEAT)), options))
