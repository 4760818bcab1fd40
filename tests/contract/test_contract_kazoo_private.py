"""What `unistream.ha.zookeeper` assumes of kazoo beyond its documents, touched by name."""

from __future__ import annotations

import inspect
import ssl

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, RolledBackError, RuntimeInconsistency, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat

from unistream.ha.zookeeper.client import NO_ANSWER


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (ConnectionHandler, "_invoke", ["self", "timeout", "request", "xid"]),
        (ConnectionHandler, "_connect", ["self", "host", "hostip", "port"]),
        (SequentialThreadingHandler, "create_connection", ["self", "args", "kwargs"]),
        (SequentialThreadingHandler, "select", ["self", "args", "kwargs"]),
        (ConnectionHandler, "_authenticate_with_sasl", ["self", "host", "timeout"]),
        (ConnectionHandler, "__init__", ["self", "client", "retry_sleeper", "logger", "sasl_options"]),
        (ConnectionHandler, "stop", ["self", "timeout"]),
        (KazooClient, "_session_callback", ["self", "state"]),
        (KazooClient, "start_async", ["self"]),
        (KazooClient, "sync_async", ["self", "path"]),
    ],
)
def test_methods_have_these_parameters(owner: type, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_a_client_makes_its_connection_when_it_is_made_and_starts_it_later() -> None:
    client = KazooClient("127.0.0.1:1")
    assert isinstance(client._connection, ConnectionHandler)
    assert client._connection._connection_routine is None
    assert client._conn_retry.copy() is not client._conn_retry
    assert client.client_id is None


def test_why_a_connection_failed_is_the_context_of_its_error() -> None:
    connection = KazooClient("127.0.0.1:1")._connection
    with pytest.raises(ConnectionDropped) as dropped, connection._socket_error_handling():
        raise ssl.SSLError("not trusted")
    assert isinstance(dropped.value.__context__, ssl.SSLError)


def test_the_answer_to_a_connection_says_for_how_long_a_session_lives() -> None:
    answer = bytes.fromhex("0000000000000fa0000000000000000700000010" + "ab" * 16 + "00")
    assert Connect.deserialize(answer, 0)[0].time_out == 4_000


def test_listeners_hear_of_a_session_that_was_refused_while_its_state_says_so() -> None:
    client = KazooClient("127.0.0.1:1")
    heard: list[tuple[KazooState, KeeperState]] = []
    client.add_listener(lambda state: heard.append((state, client.client_state)))
    for state in (KeeperState.CONNECTING, KeeperState.CONNECTED, KeeperState.AUTH_FAILED, KeeperState.CLOSED):
        client._session_callback(state)
    assert heard == [
        (KazooState.CONNECTED, KeeperState.CONNECTED),
        (KazooState.LOST, KeeperState.AUTH_FAILED),
    ]


def test_a_session_that_expired_answers_only_to_what_was_never_sent() -> None:
    """What was sent is answered with the loss of its connection, before anybody knows of the session."""
    client = KazooClient("127.0.0.1:1")
    client._session_callback(KeeperState.CONNECTED)
    sent, kept = client.handler.async_result(), client.handler.async_result()
    client._pending.append((None, sent, 1))
    client._session_callback(KeeperState.CONNECTING)
    client._queue.append((None, kept))
    client._session_callback(KeeperState.EXPIRED_SESSION)
    assert isinstance(sent.exception, NO_ANSWER)
    assert not isinstance(sent.exception, SessionExpiredError)
    assert isinstance(kept.exception, SessionExpiredError)
    assert not isinstance(kept.exception, ConnectionClosedError)


def test_errors_and_stats_have_these_names() -> None:
    assert issubclass(ConnectionClosedError, SessionExpiredError)
    assert (RolledBackError.code, RuntimeInconsistency.code) == (0, -2)
    wanted = {"czxid", "mzxid", "version", "ephemeralOwner", "dataLength", "numChildren"}
    assert wanted <= set(ZnodeStat._fields)
