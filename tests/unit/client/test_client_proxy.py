"""`unistream proxy`: whom it answers, what it adds to a request, and how an answer comes back."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.eventually import WAIT_S
from tests.support.authorities import DAY_MS, NOW_MS, authority
from tests.unit.client.servers import Server
from unistream.client.machine.peers import SocketEnd, user_at, user_in
from unistream.client.remote.address import FixedAddress
from unistream.client.remote.proxy import ClusterProxy, refusal
from unistream.rest.guard import Asked
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer
from unistream.trust.contexts import server_context

PORT = 8081
TOKEN = f"unistream_{'0' * 12}_{'a' * 64}"

Serve = Callable[..., httpx.Client]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param({"hosts": ("127.0.0.1:8081",)}, None, id="a program that asks by the address"),
        pytest.param({"hosts": ("LocalHost:8081",)}, None, id="or by the name"),
        pytest.param(
            {"hosts": ("127.0.0.1:8081",), "origins": ("http://127.0.0.1:8081",), "sites": ("same-origin",)},
            None,
            id="a page of its own",
        ),
        pytest.param(
            {"hosts": ("127.0.0.1:8081",), "sites": ("none",)}, None, id="an address that was typed"
        ),
        pytest.param(
            {"hosts": ("evil.example:8081",)}, "is not called", id="a name that resolves to loopback"
        ),
        pytest.param({"hosts": ("127.0.0.1:8082",)}, "is not called", id="another port"),
        pytest.param({"hosts": ("127.0.0.1",)}, "is not called", id="no port"),
        pytest.param({"hosts": ("10.0.0.7:8081",)}, "is not called", id="another address"),
        pytest.param({"hosts": ()}, "is not called", id="no name"),
        pytest.param({"hosts": ("127.0.0.1:8081",) * 2}, "is not called", id="two names"),
        pytest.param(
            {"hosts": ("127.0.0.1:8081",), "origins": ("http://evil.example",)},
            "a page of",
            id="another page",
        ),
        pytest.param(
            {"hosts": ("127.0.0.1:8081",), "origins": ("null",)}, "a page of", id="a page of a file"
        ),
        pytest.param(
            {"hosts": ("127.0.0.1:8081",), "origins": ("http://127.0.0.1:9000",)},
            "a page of",
            id="a page of another port of this machine",
        ),
        pytest.param(
            {"hosts": ("localhost:8081",), "origins": ("http://127.0.0.1:8081",)},
            "a page of",
            id="its own page by another name",
        ),
        pytest.param(
            {"hosts": ("127.0.0.1:8081",), "sites": ("cross-site",)}, "another site", id="an image of a page"
        ),
        pytest.param(
            {"hosts": ("127.0.0.1:8081",), "sites": ("same-site",)}, "another site", id="of another port"
        ),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_page_of_the_web_may_not_ask(method: str, asked: dict[str, Any], why: str | None) -> None:
    found = refusal(Asked(method, **asked), PORT)
    assert (found is None) if why is None else (found is not None and why in found)


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
WIDE = "0000000000000000FFFF0000"
REST = "00000000:00000000 00:00000000 00000000"


@pytest.mark.parametrize(
    ("line", "user"),
    [
        pytest.param(f" 0: 0100007F:C350 0100007F:1F91 01 {REST} 1000 0 77 1 0", 1000, id="its process"),
        pytest.param(
            f" 0: {WIDE}0100007F:C350 {WIDE}0100007F:1F91 01 {REST} 7 0 77",
            7,
            id="a socket of IPv6, as Java has it",
        ),
        pytest.param(f" 0: 0100007F:C350 0100007F:1F91 04 {REST} 0 0 0 1 0", None, id="it was closed"),
        pytest.param(f" 0: 0100007F:1F91 0100007F:C350 01 {REST} 1000 0 77", None, id="our own end"),
        pytest.param(f" 0: 0100007F:C351 0100007F:1F91 01 {REST} 1000 0 77", None, id="another connection"),
        pytest.param(" 0: 0100007F:C350", None, id="a line that is cut off"),
    ],
)
def test_whose_process_is_at_the_other_end(line: str, user: int | None) -> None:
    here, there = SocketEnd("127.0.0.1", 8081), SocketEnd("127.0.0.1", 50_000)
    assert user_in([HEAD, line], here, there) == user


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def test_the_kernel_says_whose_it_is_until_it_is_closed(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2], WAIT_S)
        accepted, _ = server.accept()
        here, there = (SocketEnd(*one.getsockname()[:2]) for one in (accepted, client))
        with accepted:
            assert user_at(here, there) == os.getuid()
            client.close()
            assert user_at(here, there) is None, "nobody's; the table says user 0"


# --- over real servers ----------------------------------------------------------------------------------


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what has come."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    query = scope["query_string"].decode()
    said = {"method": scope["method"], "path": scope["path"], "query": query, "size": size, **headers}
    await JSONResponse(said)(scope, receive, send)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(stack: ExitStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Serve:
    """A client of a proxy in front of a server."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UNISTREAM_TOKEN", TOKEN)

    def serve(app: Any = echo, *, url: str = "", **more: Any) -> httpx.Client:
        if not url:
            upstream = RestServer(app, Listener("127.0.0.1", 0))
            stack.callback(upstream.close)
            url = upstream.url
        proxy = RestServer(ClusterProxy(FixedAddress(url), os.getuid(), **more), Listener("127.0.0.1", 0))
        stack.callback(proxy.close)
        client = httpx.Client(base_url=proxy.url, trust_env=False, verify=False, timeout=WAIT_S)
        return stack.enter_context(client)

    return serve


def test_a_request_goes_on_with_the_token_of_the_user(serve: Serve) -> None:
    said = serve().post("/v1/jobs/x?mode=cancel", content=b"x" * 3_000_000).json()
    assert said["authorization"] == f"Bearer {TOKEN}"
    assert (said["method"], said["path"], said["query"]) == ("POST", "/v1/jobs/x", "mode=cancel")
    assert said["size"] == 3_000_000
    assert "x-unistream-page" not in said


def test_one_that_has_a_token_keeps_it(serve: Serve) -> None:
    said = serve().get("/", headers={"Authorization": "Bearer of-a-page"}).json()
    assert said["authorization"] == "Bearer of-a-page"


def test_a_page_of_its_own_is_one_of_the_cluster(serve: Serve) -> None:
    client = serve()
    own = str(client.base_url).rstrip("/")
    said = client.patch("/jobs/x", headers={"Origin": own}).json()
    assert said["origin"] == f"http://{said['host']}" != own
    assert said["x-unistream-page"] == "proxy"


def test_pages_of_others_get_nothing(serve: Serve) -> None:
    client = serve(url="http://127.0.0.1:1")
    for headers in (
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = client.get("/jobs", headers=headers)
        assert (answer.status_code, len(answer.json()["errors"])) == (403, 1)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_an_answer_comes_piece_by_piece(serve: Serve) -> None:
    """Also one that is no stream of events, so it may be larger than the memory."""
    heard = threading.Event()

    async def two(scope: Scope, receive: Receive, send: Send) -> None:
        async def pieces() -> Any:
            yield b"first"
            await asyncio.get_running_loop().run_in_executor(None, heard.wait, WAIT_S)
            yield b"second"

        await StreamingResponse(pieces(), media_type="text/plain")(scope, receive, send)

    with serve(two).stream("GET", "/") as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"first"
        heard.set()
        assert b"".join(parts) == b"second"


def test_an_answer_that_was_cut_off_is_not_a_whole_one(serve: Serve) -> None:
    def half(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345")

    with Server(half) as server, pytest.raises(httpx.RemoteProtocolError):
        serve(url=server.url).get("/")


def test_a_cluster_that_is_away_may_come_back(serve: Serve) -> None:
    answer = serve(url="http://127.0.0.1:1").get("/jobs")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "the cluster at http://127.0.0.1:1 does not answer" in answer.json()["errors"][0]


def test_another_authority_than_that_of_the_token_is_named(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets no token."""
    seen: list[Any] = []

    async def spying(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["headers"])
        await echo(scope, receive, send)

    shown = authority().issue("", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=["localhost"])
    listener = Listener("127.0.0.1", 0, context=server_context(shown), host="localhost")
    server = RestServer(spying, listener)
    try:
        answer = serve(url=server.url).get("/jobs")
    finally:
        server.close()
    assert answer.status_code == 502
    assert "shows a certificate that is not accepted" in answer.json()["errors"][0]
    assert seen == []


def test_files_of_a_folder_are_served_next_to_the_api(serve: Serve, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text("a dashboard")
    (pages / "main.js").write_text("its code")
    (tmp_path / "secret").write_text("of the user")
    (pages / "link").symlink_to(tmp_path / "secret")
    client = serve(pages=pages)
    assert (client.get("/").text, client.get("/main.js").text) == ("a dashboard", "its code")
    assert client.get("/jobs/overview").json()["path"] == "/jobs/overview"
    assert client.post("/main.js").json()["method"] == "POST"
    for path in ("/%2e%2e/secret", "/..%2fsecret", "/link"):
        assert client.get(path).json()["authorization"], "the cluster has answered, no file"


ASK = """
import os, sys, urllib.request, urllib.error
"x".encode("idna")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=60).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")
def test_another_user_of_the_machine_is_refused(serve: Serve) -> None:
    url = str(serve(url="http://127.0.0.1:1").base_url)
    asked = subprocess.run(
        [sys.executable, "-c", ASK, url], capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    assert asked.stdout.startswith("403")
    assert "answers the user who has started it" in asked.stdout


def test_who_has_gone_when_he_is_looked_at_is_nobody(serve: Serve) -> None:
    """So a request that was sent blindly, by whom nobody knows, is not performed in the name of root."""
    answer = serve(user_at=lambda _here, _there: None).get("/jobs")
    assert answer.status_code == 403
