"""Peers on other hosts: each shows a certificate of the cluster's authority, and says whom it expects."""

from __future__ import annotations

import os
import pickle  # noqa: TID251  # as a canary
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from tests.eventually import WAIT_S
from tests.support.authorities import DAY_MS, NOW_MS, authority, other_authority
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import TaskManagerId
from unistream.model.codec import encode
from unistream.model.credentials import JOB_MANAGER, Credentials, PeerAddress, certified_name
from unistream.model.messages import Ack, Heartbeat
from unistream.net import wire
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer
from unistream.trust.authority import Authority, new_authority, rotated

BEAT = Heartbeat(task_manager=TaskManagerId("tm-1"))
OTHER_USER = 65_534
CALL = flight.FlightCallOptions(timeout=WAIT_S)


class NotedCalls:
    """What has reached the server, and from whom."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, str]] = []

    def __call__(self, body: bytes, caller: str = "", /) -> bytes:
        self.got.append((body, caller))
        return encode(Ack())


def issued(name: str, **how: Any) -> Credentials:
    return authority().issue(name, now_ms=NOW_MS, lasts_ms=DAY_MS, **how)


@pytest.fixture
def noted() -> NotedCalls:
    return NotedCalls()


@pytest.fixture
def server(noted: NotedCalls) -> Iterator[FlightServer]:
    made = FlightServer(
        "127.0.0.1", control=noted, partitions=None, unix=False, credentials=issued(JOB_MANAGER)
    )
    yield made
    made.close()


def test_the_server_learns_who_calls(server: FlightServer, noted: NotedCalls) -> None:
    client = FlightControlClient(server.address, credentials=issued("tm-1"))
    assert client.call(BEAT) == Ack()
    assert noted.got == [(encode(BEAT), "tm-1")]


def test_the_address_says_who_is_there(server: FlightServer) -> None:
    address = PeerAddress.parse(server.address)
    assert (address.name, address.socket) == (JOB_MANAGER, "")
    assert address.location.startswith("grpc+tls://127.0.0.1:")


def test_who_is_not_there_is_not_called(server: FlightServer, noted: NotedCalls) -> None:
    """A process that has got the address of another one."""
    address = server.address.replace(f"//{JOB_MANAGER}@", "//tm-2@")
    with pytest.raises(UnistreamError, match="tm-2"):
        FlightControlClient(address, credentials=issued("tm-1")).call(BEAT)
    assert noted.got == []


REFUSED: list[tuple[str, Callable[[], Credentials]]] = [
    ("another authority", lambda: other_authority().issue("tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)),
    ("expired", lambda: authority().issue("tm-1", now_ms=NOW_MS - 10 * DAY_MS, lasts_ms=DAY_MS)),
    ("not yet valid", lambda: authority().issue("tm-1", now_ms=NOW_MS + 10 * DAY_MS, lasts_ms=DAY_MS)),
]


@pytest.mark.parametrize("credentials", [pytest.param(make, id=name) for name, make in REFUSED])
def test_a_certificate_that_does_not_count_is_refused(
    server: FlightServer, noted: NotedCalls, credentials: Callable[[], Credentials]
) -> None:
    trusting = Credentials(**{**_fields(credentials()), "roots": authority().roots(NOW_MS)})
    with pytest.raises(UnistreamError):
        FlightControlClient(server.address, 5.0, credentials=trusting).call(BEAT)
    assert noted.got == []


def test_a_client_believes_its_own_authority_alone(server: FlightServer, noted: NotedCalls) -> None:
    doubting = Credentials(**{**_fields(issued("tm-1")), "roots": other_authority().roots(NOW_MS)})
    with pytest.raises(UnistreamError):
        FlightControlClient(server.address, 5.0, credentials=doubting).call(BEAT)
    assert noted.got == []


def test_a_certificate_that_names_no_process_may_call_nothing(
    server: FlightServer, noted: NotedCalls
) -> None:
    """That of a REST server, say: it is of the same authority."""
    rest = authority().issue("", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=["jobs.example.com"])
    with pytest.raises(UnistreamError, match="names no process"):
        FlightControlClient(server.address, credentials=rest).call(BEAT)
    assert noted.got == []


@pytest.mark.parametrize("newer", ["server", "client", "both"])
def test_processes_before_and_after_a_rotation_know_each_other(noted: NotedCalls, newer: str) -> None:
    """Those before it know the former authority alone."""
    former = Authority(new_authority("c", NOW_MS))
    later = Authority(rotated(former, "c", now_ms=NOW_MS, keep_ms=DAY_MS))
    of = {"server": former, "client": former, newer: later}
    if newer == "both":
        of = {"server": later, "client": later}
    shown = of["server"].issue(JOB_MANAGER, now_ms=NOW_MS, lasts_ms=DAY_MS)
    server = FlightServer("127.0.0.1", control=noted, partitions=None, unix=False, credentials=shown)
    try:
        own = of["client"].issue("tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)
        assert FlightControlClient(server.address, credentials=own).call(BEAT) == Ack()
    finally:
        server.close()


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("scheme", ["grpc+tls", "grpc+tcp"])
def test_who_shows_nothing_can_call_nothing(
    server: FlightServer, noted: NotedCalls, tmp_path: Path, scheme: str
) -> None:
    location = PeerAddress.parse(server.address).location.replace("grpc+tls", scheme)
    tls = {"tls_root_certs": authority().roots(NOW_MS), "override_hostname": certified_name(JOB_MANAGER)}
    canary = pickle.dumps(Canary(tmp_path / "was run"))
    command = flight.FlightDescriptor.for_command(canary)
    short = flight.FlightCallOptions(timeout=5)

    def streamed(client: Any) -> None:
        _, reader = client.do_exchange(command, short)
        reader.read_chunk()

    calls: list[Callable[[Any], object]] = [
        lambda client: list(client.do_action(flight.Action(wire.CONTROL_ACTION, canary), short)),
        streamed,
        lambda client: client.do_get(flight.Ticket(canary), short),
        lambda client: list(client.list_flights(canary, short)),
        lambda client: client.list_actions(short),
    ]
    for call in calls:
        with (
            flight.FlightClient(location, **(tls if scheme == "grpc+tls" else {})) as client,
            pytest.raises((flight.FlightUnavailableError, flight.FlightTimedOutError)),
        ):
            call(client)
    assert (noted.got, list(tmp_path.iterdir())) == ([], [])


def test_a_process_without_a_certificate_says_what_it_lacks(server: FlightServer) -> None:
    with pytest.raises(ConfigError, match=r"wants a certificate of its cluster.*--join"):
        FlightControlClient(server.address)


def test_a_process_with_one_speaks_to_nobody_in_plain_text(server: FlightServer) -> None:
    plain = PeerAddress.parse(server.address).location.replace("grpc+tls", "grpc+tcp")
    with pytest.raises(ConfigError, match="is not encrypted"):
        FlightControlClient(plain, credentials=issued("tm-1"))


def test_peers_on_the_same_host_take_a_socket(noted: NotedCalls) -> None:
    server = FlightServer("127.0.0.1", control=noted, partitions=None, credentials=issued("tm-2"))
    try:
        address = PeerAddress.parse(server.address)
        assert Path(address.socket).is_socket()
        client = FlightControlClient(server.address, credentials=issued(JOB_MANAGER))
        assert client.call(BEAT) == Ack()
        elsewhere = PeerAddress(address.location, address.name, "/nowhere/flight.sock")
        assert FlightControlClient(str(elsewhere), credentials=issued("tm-1")).call(BEAT) == Ack()
        assert [caller for _, caller in noted.got] == ["", "tm-1"]
    finally:
        server.close()


@pytest.mark.parametrize("impostor", ["nobody listens", "of another user", "in a folder of another user"])
def test_a_socket_that_is_not_of_the_peer_is_not_taken(noted: NotedCalls, impostor: str) -> None:
    """The path comes from the host of the peer: on another one anybody may have made it, or the disk
    is that of both."""
    if impostor != "nobody listens" and os.geteuid() != 0:
        pytest.skip("only root gives files to others")
    fooled = NotedCalls()
    server = FlightServer("127.0.0.1", control=noted, partitions=None, unix=False, credentials=issued("tm-2"))
    other = FlightServer("127.0.0.1", control=fooled, partitions=None)
    path = Path(other.address.removeprefix("grpc+unix://"))
    try:
        if impostor == "nobody listens":
            path = path.with_name("left")
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(str(path))
        else:
            os.chown(path if impostor == "of another user" else path.parent, OTHER_USER, -1)
        here = PeerAddress.parse(server.address)
        client = FlightControlClient(
            str(PeerAddress(here.location, here.name, str(path))), credentials=issued(JOB_MANAGER)
        )
        assert client.call(BEAT) == Ack()
        assert ([caller for _, caller in noted.got], fooled.got) == ([JOB_MANAGER], [])
    finally:
        os.chown(path.parent, os.geteuid(), -1)
        server.close()
        other.close()


def test_the_first_free_port_is_taken(noted: NotedCalls) -> None:
    first = FlightServer(
        "127.0.0.1", control=noted, partitions=None, unix=False, ports=(0,), credentials=issued("tm-1")
    )
    port = int(first.address.rpartition(":")[2])
    second = FlightServer(
        "127.0.0.1", control=noted, partitions=None, unix=False, ports=(port, 0), credentials=issued("tm-2")
    )
    try:
        assert not second.address.endswith(f":{port}")
        with pytest.raises(ConfigError, match=f"cannot listen on .*:{port}"):
            FlightServer("127.0.0.1", control=noted, partitions=None, unix=False, ports=(port,))
    finally:
        first.close()
        second.close()


def test_without_a_certificate_nothing_listens_beyond_this_machine(noted: NotedCalls) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.77", ""):
        with pytest.raises(ConfigError, match="is not a loopback address"):
            FlightServer(host, control=noted, partitions=None)


def _fields(credentials: Credentials) -> dict[str, Any]:
    return {name: getattr(credentials, name) for name in Credentials.__struct_fields__}
