"""Calls of `RestClient` to real servers that hang, dribble, break off, or are led by another one by now."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.unit.client.servers import Serve, Server, answer, answers, hung, read_request, url_of
from unistream.base.errors import ConfigError, NothingListens, Unreachable
from unistream.base.ids import LeaderEpoch
from unistream.client.remote.address import ElectedAddress
from unistream.client.remote.policy import RULES, CallKind
from unistream.client.remote.rest_client import RestClient
from unistream.port.ha import LeaderInfo

SHORT_S = 1.0
BOUND_S = 60.0  # nobody waits for it
EMPTY = (200, {"jobs": []})


@pytest.fixture
def serving() -> Iterator[Callable[..., Server]]:
    """Starts a server."""
    servers: list[Server] = []

    def start(serve: Serve, port: int = 0) -> Server:
        servers.append(Server(serve, port))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def dribbles_headers(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-padding: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def dribbles_body(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.1)


@pytest.mark.parametrize("serve", [dribbles_headers, dribbles_body])
def test_one_byte_now_and_then_is_no_answer(serve: Serve, serving: Callable[..., Server]) -> None:
    with RestClient(serving(serve).url, timeout_s=SHORT_S) as client:
        began_s = time.monotonic()
        with pytest.raises(Unreachable, match=r"does not answer: no answer within .* client.timeout"):
            client.jobs()
        assert time.monotonic() - began_s > SHORT_S * 0.9


def test_a_server_that_never_answers_is_given_up_at_the_limit() -> None:
    with hung() as listener, RestClient(url_of(listener), timeout_s=SHORT_S) as client:
        began_s = time.monotonic()
        with pytest.raises(Unreachable) as error:
            client.jobs()
        assert time.monotonic() - began_s > SHORT_S * 0.9
        assert f"the cluster at {url_of(listener)} does not answer" in str(error.value)
        waited = re.search(r"\(waited ([0-9.]+) s\)", str(error.value))
        assert waited is not None
        assert float(waited[1]) >= 1.0, "on a busy machine longer"


def test_a_body_that_nobody_reads_does_not_hold_the_client(serving: Callable[..., Server]) -> None:
    def serve(_connection: socket.socket) -> None:
        server.ending.wait()

    server = serving(serve)
    with RestClient(server.url, timeout_s=SHORT_S) as client, pytest.raises(Unreachable, match="no answer"):
        client.request("POST", "/x", call=CallKind.SUBMIT, content=bytes(50_000_000))


def test_answers_that_are_lost_are_asked_for_again(serving: Callable[..., Server]) -> None:
    seen: list[str] = []
    server = serving(answers(lambda _: None if len(seen) < 3 else EMPTY, seen))
    with RestClient(server.url, timeout_s=BOUND_S) as client:
        assert client.jobs() == []
    assert seen == ["GET /v1/unistream/jobs HTTP/1.1"] * 3


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_cluster_that_is_unavailable_for_a_while_is_asked_again(
    status: int, serving: Callable[..., Server]
) -> None:
    seen: list[str] = []
    server = serving(answers(lambda _: (status, {"errors": ["soon"]}) if len(seen) < 3 else EMPTY, seen))
    with RestClient(server.url, timeout_s=BOUND_S) as client:
        assert client.jobs() == []
    assert len(seen) == 3


def test_one_that_stays_unavailable_says_why(serving: Callable[..., Server]) -> None:
    server = serving(answers(lambda _: (503, {"errors": ["no database"]})))
    with RestClient(server.url, timeout_s=SHORT_S) as client, pytest.raises(Unreachable, match="no database"):
        client.jobs()


def test_what_one_has_said_before_it_fell_silent_is_said(serving: Callable[..., Server]) -> None:
    """The reason is known, though the last attempt has none."""
    seen: list[str] = []
    server = serving(
        answers(lambda _: (503, {"errors": ["the disk is full"]}) if len(seen) < 2 else None, seen)
    )
    with (
        RestClient(server.url, timeout_s=BOUND_S) as client,
        pytest.raises(Unreachable, match=r"does not answer: .*; before it said: .*the disk is full"),
    ):
        client.jobs()


def test_a_server_that_always_breaks_off_is_given_up_before_the_limit(serving: Callable[..., Server]) -> None:
    seen: list[str] = []
    server = serving(answers(lambda _: None, seen))
    with (
        RestClient(server.url, timeout_s=3_600) as client,
        pytest.raises(Unreachable, match=r"asked 5 times in .* its log says why"),
    ):
        client.jobs()
    assert len(seen) == RULES[CallKind.READ].lost_max


@pytest.mark.parametrize(
    ("call", "times"), [(CallKind.TRIGGER, 3), (CallKind.CANCEL, 5), (CallKind.ONCE, 1), (None, 1)]
)
def test_how_often_a_change_is_sent(
    call: CallKind | None, times: int, serving: Callable[..., Server]
) -> None:
    seen: list[str] = []
    server = serving(answers(lambda _: None, seen))
    with RestClient(server.url, timeout_s=BOUND_S) as client, pytest.raises(Unreachable):
        client.request("POST", "/jobs/x/stop", call=call, content=b"{}")
    assert len(seen) == times


def test_where_nothing_listens_is_known_at_once(serving: Callable[..., Server]) -> None:
    server = serving(answers(lambda _: EMPTY))
    server.close()
    with (
        RestClient(server.url, timeout_s=3_600) as client,
        pytest.raises(NothingListens, match=r"refused \(asked 4 times in .*\); start it, or name another"),
    ):
        client.jobs()


def test_a_cluster_that_starts_again_on_its_port_is_waited_for(serving: Callable[..., Server]) -> None:
    first = serving(answers(lambda _: EMPTY))
    with RestClient(first.url, timeout_s=60) as client:
        assert client.jobs() == []
        first.close()
        starts = threading.Timer(2.0, lambda: serving(answers(lambda _: EMPTY), first.port))
        starts.start()
        assert client.jobs() == []
        starts.join()


def test_a_shutdown_whose_answer_is_lost_is_done_when_nothing_listens(serving: Callable[..., Server]) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        ended.set()

    ended = threading.Event()
    server = serving(serve)
    closing = threading.Thread(target=lambda: (ended.wait(BOUND_S), server.close()))
    closing.start()
    with RestClient(server.url, timeout_s=BOUND_S) as client:
        client.shutdown()
    closing.join()
    assert ended.is_set()


def test_a_connection_is_used_again_and_a_stale_one_is_replaced(serving: Callable[..., Server]) -> None:
    opened: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        opened.append(connection)
        for _ in range(2):  # then it closes the connection, which the client cannot know
            read_request(connection)
            connection.sendall(answer(*EMPTY))

    with RestClient(serving(serve).url, timeout_s=BOUND_S) as client:
        for _ in range(6):
            assert client.jobs() == []
    assert len(opened) == 3


def test_calls_of_several_threads_have_deadlines_of_their_own(serving: Callable[..., Server]) -> None:
    def serve(connection: socket.socket) -> None:
        if "taskmanagers" in read_request(connection):
            server.ending.wait()
        connection.sendall(answer(*EMPTY))

    server = serving(serve)
    with RestClient(server.url, timeout_s=BOUND_S) as client:
        failures: list[Exception] = []

        def fail() -> None:
            try:
                client.task_managers(timeout_s=SHORT_S)
            except Unreachable as error:
                failures.append(error)

        thread = threading.Thread(target=fail)
        thread.start()
        assert client.jobs() == []
        thread.join(BOUND_S)
    assert len(failures) == 1


class Election:
    """A `LeaderRetrieval` whose leaders the test names."""

    def __init__(self, *leaders: LeaderInfo | None) -> None:
        self._leaders = list(leaders)
        self.asked = 0
        self.is_closed = False

    def leader(self, timeout_s: float) -> LeaderInfo | None:
        assert timeout_s > 0
        self.asked += 1
        return self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]

    def close(self) -> None:
        self.is_closed = True


def leader(epoch: int, url: str | None) -> LeaderInfo:
    return LeaderInfo(epoch=LeaderEpoch(epoch), cluster=f"c{epoch}", rest_url=url)


def test_a_leader_that_is_elected_meanwhile_is_followed(serving: Callable[..., Server]) -> None:
    old, new = serving(answers(lambda _: EMPTY)), serving(answers(lambda _: EMPTY))
    old.close()
    election = Election(leader(1, old.url), None, leader(2, new.url))
    with RestClient(ElectedAddress(election, "zk/flights"), timeout_s=BOUND_S) as client:
        assert client.url == "zk/flights"
        assert client.jobs() == []
        assert client.url == new.url
        assert election.asked == 3
        assert client.jobs() == []
        assert election.asked == 3, "a leader that answers is not looked up again"
    assert election.is_closed


def test_a_leader_that_hangs_is_left_for_its_successor(serving: Callable[..., Server]) -> None:
    new = serving(answers(lambda _: EMPTY))
    with hung() as old:
        election = Election(leader(1, url_of(old)), leader(2, new.url))
        with RestClient(ElectedAddress(election, "zk/flights"), timeout_s=90) as client:
            assert client.jobs() == []
            assert client.url == new.url


def test_a_cluster_without_a_leader_is_given_up_at_the_limit() -> None:
    address = ElectedAddress(Election(None), "zk/flights")
    text = "the cluster at zk/flights does not answer: nobody leads"
    with RestClient(address, timeout_s=SHORT_S) as client, pytest.raises(Unreachable, match=text):
        client.jobs()


def test_a_leader_without_a_rest_api_is_named() -> None:
    address = ElectedAddress(Election(leader(3, None)), "zk/flights")
    with RestClient(address, timeout_s=SHORT_S) as client, pytest.raises(Unreachable, match=r"\(c3\) has no"):
        client.jobs()


@pytest.mark.parametrize("url", ["localhost:8081", "ftp://x", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a REST API"):
        RestClient(url)
