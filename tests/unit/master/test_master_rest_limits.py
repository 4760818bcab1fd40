"""What one client may take of a cluster: requests of a token, and memory for bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.eventually import WAIT_S, eventually
from tests.unit.client.servers import Server, answer, read_request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.client.remote.rest_client import RestClient
from unistream.core.access import RequestRates
from unistream.core.access.rates import BUCKETS_MAX
from unistream.model import access
from unistream.rest.body_limit import BodyLimit
from unistream.rest.error_answers import add_error_handlers
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    made = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_a_token_that_floods_takes_nothing_from_others(api: Api) -> None:
    """Nothing of what was refused is done, or noted."""
    flood, quiet = (api.access.issue(name, access.Scope.OPERATE, None).text for name in ("flood", "quiet"))
    api.access.rates = RequestRates(0.01)
    with httpx.Client(base_url=api.server.url, trust_env=False, verify=False, timeout=WAIT_S) as client:
        assert client.get("/config", headers=bearer(flood)).status_code == 200
        refused = client.get("/config", headers=bearer(flood))
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 100
        assert "token 'flood' asks more often than it may" in refused.json()["errors"][0]
        assert client.delete("/cluster", headers=bearer(flood)).status_code == 429
        assert client.get("/config", headers=bearer(quiet)).status_code == 200
        assert client.get("/config").status_code == 401, "who has no token has no bucket"
    assert api.access.audit.newest(9) == []


def test_clients_of_ours_wait_as_long_as_they_are_asked_to(api: Api) -> None:
    """They wait with what is never sent twice, too: nothing was done."""
    text = api.access.issue("busy", access.Scope.ADMIN, None).text
    api.access.rates = RequestRates(5)
    with RestClient(api.server.url, timeout_s=WAIT_S, token=text) as client:
        for _ in range(40):
            assert client.request("GET", "/config").is_success


@pytest.mark.parametrize(("said", "waits"), [("0", True), ("soon", True), ("99999", False)])
def test_a_client_does_not_wait_beyond_its_own_time(said: str, waits: bool) -> None:
    """What is no number of seconds counts as none."""
    seen: list[str] = []

    def serve(connection: Any) -> None:
        while line := read_request(connection):
            seen.append(line)
            refused = answer(429, {"errors": ["too often"]})
            refused = refused.replace(b"\r\n\r\n", b"\r\nretry-after: " + said.encode() + b"\r\n\r\n", 1)
            connection.sendall(answer(200, {}) if len(seen) > 2 else refused)

    with Server(serve) as server, RestClient(server.url, timeout_s=WAIT_S, token="x") as client:
        if waits:
            assert client.request("GET", "/config").is_success
        else:
            with pytest.raises(Exception, match=r"too often .*its other holders have to ask less"):
                client.request("GET", "/config")
            assert len(seen) == 1


def test_buckets_that_are_full_are_forgotten() -> None:
    rates = RequestRates(10)
    for number in range(BUCKETS_MAX + 10):
        assert rates.wait_s(str(number), float(number)) == 0
    assert len(rates._buckets) < 100


# --- bodies ---------------------------------------------------------------------------------------------


def test_all_bodies_share_one_budget() -> None:
    """Who comes when there is no room may send it again, and gets in when others have ended."""
    release = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        if scope["path"] == "/hold":
            loops.append(asyncio.get_running_loop())
            await release.wait()
        await PlainTextResponse(str(len(body)))(scope, receive, send)

    with ExitStack() as stack:
        server = RestServer(limited(app, 1_000), Listener("127.0.0.1", 0))
        stack.callback(server.close)
        client = stack.enter_context(
            httpx.Client(base_url=server.url, trust_env=False, verify=False, timeout=WAIT_S)
        )
        pool = stack.enter_context(ThreadPoolExecutor(1))
        first = pool.submit(client.post, "/hold", content=b"x" * 900)
        eventually(lambda: bool(loops), "its body was read", WAIT_S)
        refused = client.post("/", content=b"x" * 200)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert client.post("/", content=b"x" * 50).text == "50"
        loops[0].call_soon_threadsafe(release.set)
        assert first.result(WAIT_S).text == "900"
        eventually(lambda: client.post("/", content=b"x" * 1_000).text == "1000", "there is room", WAIT_S)


def limited(app: Any, bytes_max: int) -> Any:

    whole = FastAPI(openapi_url=None)
    whole.router.default = app
    add_error_handlers(whole)
    whole.add_middleware(BodyLimit, large_path="/large", bytes_max=bytes_max)
    return whole
