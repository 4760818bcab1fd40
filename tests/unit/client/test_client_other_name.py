"""A server whose certificate is of other names: what a client is told."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.eventually import WAIT_S
from tests.support.authorities import DAY_MS, NOW_MS, authority
from unistream.base.errors import ConfigError
from unistream.client.remote.http import Http
from unistream.trust.contexts import client_context, server_context


@pytest.mark.parametrize("hosts", [["jobs.example.com"], ["192.0.2.7"]])
def test_a_client_learns_that_it_asks_by_another_address(hosts: list[str]) -> None:
    credentials = authority().issue("", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=hosts)
    roots = client_context(authority().roots(NOW_MS))
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            connection, _ = server.accept()
            with connection, pytest.raises(OSError, match=r".*"):
                server_context(credentials).wrap_socket(connection, server_side=True).recv(1)

        serving = threading.Thread(target=serve)
        serving.start()
        with (
            Http(lambda _host, _port, _limit_s: roots) as client,
            pytest.raises(ConfigError, match=r"shows a certificate of other names.*set rest.address there"),
        ):
            client.send("GET", f"{url}/v1/config", connect_s=WAIT_S, within_s=WAIT_S)
        serving.join(WAIT_S)
