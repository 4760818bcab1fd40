"""Which web pages may change something: by what a request says of itself, and over HTTP on every path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest

from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.rest.guard import Asked, Guard, refusal, rules_of
from unistream.rest.openapi import OPERATIONS

HOST = "127.0.0.1:8081"
OURS = f"http://{HOST}"
PROXY = "https://jobs.example.com"

NAME = "this server is not called"
ORIGIN = "changes nothing here: that is up to this server's own pages"
SITE = "a page of another site"
HEADER = "has the header X-Unistream-Page"
BODY = "what a browser sends is application/json"
OFF = "web.cancel.enable is false"


def page(origin: str = OURS, host: str = HOST, **more: Any) -> Asked:
    """What our own page sends when it is shown at `origin`."""
    said = {"method": "POST", "has_page_header": True, "content_types": ("application/json",)}
    return Asked(**said | {"hosts": (host,), "origins": (origin,), "has_body": True} | more)


def read(host: str, *origins: str) -> Asked:
    return Asked("GET", hosts=(host,), origins=origins)


ROWS = [
    pytest.param(page(), None, id="our page"),
    pytest.param(page(sites=("same-origin",)), None, id="our page, as newer browsers say it"),
    pytest.param(page(origins=(), sites=("same-origin",)), None, id="our page without an origin"),
    pytest.param(page("HTTP://LocalHost:8081", "LOCALHOST:8081"), None, id="whatever its case"),
    pytest.param(page("http://localhost", "localhost:80"), None, id="a port that goes without saying"),
    pytest.param(page("http://[::1]:8081", "[0:0::1]:8081"), None, id="a literal of IPv6"),
    pytest.param(page("http://localhost:9000", "localhost:9000"), None, id="a tunnel with another port"),
    pytest.param(page(content_types=("Application/JSON; charset=utf-8",)), None, id="JSON with a charset"),
    pytest.param(page(content_types=(), has_body=False), None, id="our page without a body"),
    pytest.param(page(PROXY), None, id="a proxy of the configuration that sets Host"),
    pytest.param(page(PROXY, "jobs.example.com"), None, id="a proxy of the configuration that leaves Host"),
    pytest.param(Asked("DELETE", hosts=(HOST,)), None, id="no browser"),
    pytest.param(Asked("POST", hosts=("master.local",), has_body=True), None, id="by rest.address"),
    pytest.param(read(HOST, "http://evil.example"), None, id="a read, whose answer no other page gets"),
    pytest.param(read("evil.example:8081"), NAME, id="a read by a name that resolves to us"),
    pytest.param(page("http://evil.example:8081", "evil.example:8081"), NAME, id="a change by such a name"),
    pytest.param(Asked("POST", hosts=("evil.example",)), NAME, id="such a name without a browser"),
    pytest.param(Asked("GET"), NAME, id="no name"),
    pytest.param(Asked("GET", hosts=(HOST, "evil.example")), NAME, id="two names"),
    pytest.param(read("127.0.0.1.evil.example"), NAME, id="a name that begins like an address"),
    pytest.param(read("localhost.evil.example"), NAME, id="a name that begins like localhost"),
    pytest.param(read("evil.example@127.0.0.1"), NAME, id="a name before an address"),
    pytest.param(read("127.0.0.1:99999"), NAME, id="a port that there is not"),
    pytest.param(page("http://evil.example"), ORIGIN, id="another page"),
    pytest.param(page("http://127.0.0.1:3000"), ORIGIN, id="another port of this machine"),
    pytest.param(page("http://127.0.0.1"), ORIGIN, id="the port that goes without saying is another one"),
    pytest.param(page("https://127.0.0.1:8081"), ORIGIN, id="another scheme"),
    pytest.param(page("http://localhost:8081"), ORIGIN, id="another name of this machine"),
    pytest.param(page("http://[::1]:8081"), ORIGIN, id="another address of this machine"),
    pytest.param(page("null"), ORIGIN, id="a sandboxed frame or a file"),
    pytest.param(page(""), ORIGIN, id="an empty origin"),
    pytest.param(page("file://"), ORIGIN, id="a file"),
    pytest.param(page("chrome-extension://abcdef"), ORIGIN, id="an extension"),
    pytest.param(page(f"{OURS}/"), ORIGIN, id="a URL is no origin"),
    pytest.param(page(f"{OURS}, http://evil.example"), ORIGIN, id="two origins in one header"),
    pytest.param(page(origins=(OURS, "http://evil.example")), ORIGIN, id="two headers"),
    pytest.param(page("https://jobs.example.com.evil.example"), ORIGIN, id="what begins like the proxy"),
    pytest.param(page("http://jobs.example.com"), ORIGIN, id="the proxy without TLS"),
    pytest.param(
        page("http://jobs.example.com:1", "jobs.example.com:1"), ORIGIN, id="another port of the proxy"
    ),
    pytest.param(page(method="OPTIONS", origins=("http://evil.example",)), ORIGIN, id="a preflight"),
    pytest.param(page(sites=("cross-site",)), SITE, id="another site with our origin"),
    pytest.param(page(origins=(), sites=("same-site",)), SITE, id="a sibling of our host"),
    pytest.param(page(origins=(), sites=("none",)), SITE, id="what somebody typed"),
    pytest.param(page(has_page_header=False), HEADER, id="a form on our own pages"),
    pytest.param(
        page(has_page_header=False, content_types=("text/plain",)), HEADER, id="a simple request with JSON"
    ),
    pytest.param(page(content_types=("text/plain",)), BODY, id="JSON that says it is text"),
    pytest.param(page(content_types=()), BODY, id="a body without a type"),
    pytest.param(page(content_types=("application/json", "text/plain")), BODY, id="two types"),
    pytest.param(page(content_types=("application/json-seq",)), BODY, id="what begins like JSON"),
    pytest.param(page(method="DELETE", content_types=("multipart/form-data",)), BODY, id="a form"),
    pytest.param(page(method="PURGE", origins=("http://evil.example",)), ORIGIN, id="an unknown method"),
]

CONFIG = {"rest.address": "Master.local", "web.public-origins": f"{PROXY}, https://other.example:8443"}


@pytest.mark.parametrize(("asked", "why"), ROWS)
def test_what_is_refused(asked: Asked, why: str | None) -> None:
    said = refusal(asked, rules_of(Configuration(CONFIG)))
    assert (said is None) if why is None else (why in (said or ""))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(page(), OFF, id="a change of the page"),
        pytest.param(page("http://evil.example"), ORIGIN, id="another page is told nothing of it"),
        pytest.param(Asked("PATCH", hosts=(HOST,)), None, id="a change of the command line"),
        pytest.param(read(HOST), None, id="a read"),
        pytest.param(page(path="/v1/unistream/savepoints/query"), None, id="a query changes nothing"),
        pytest.param(page(path="/unistream/login"), None, id="somebody who signs in"),
        pytest.param(page(path="/unistream/identity", method="DELETE"), None, id="somebody who signs out"),
        pytest.param(page(path="/unistream/tokens"), OFF, id="a token that is made"),
        pytest.param(
            page("http://evil.example", path="/unistream/login"), ORIGIN, id="another page signs nobody in"
        ),
        pytest.param(
            page("http://evil.example", path="/unistream/savepoints/query"),
            ORIGIN,
            id="a query of another page",
        ),
    ],
)
def test_where_the_page_changes_nothing(asked: Asked, why: str | None) -> None:
    said = refusal(asked, rules_of(Configuration({"web.cancel.enable": "false"})))
    assert (said is None) if why is None else (why in (said or ""))


@pytest.mark.parametrize("text", ["*", "null", "jobs.example.com", f"{PROXY}/ui", "https://*.example.com"])
def test_an_origin_of_a_proxy_is_one(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(text))):
        rules_of(Configuration({"web.public-origins": text}))


# --- over HTTP ------------------------------------------------------------------------------------

SOME = "0" * 31 + "a"
CHANGES = [key for key in OPERATIONS if not key.startswith("GET ")]


@pytest.fixture
def served(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield api
    api.close()


def test_no_path_is_beside_the_guard(served: Api, subtests: pytest.Subtests) -> None:
    """Each change of the API, as a page of another origin, a form, and our own page send it."""
    ours = {"origin": served.server.url, "x-unistream-page": "1"}
    for key in CHANGES:
        method, _, template = key.partition(" ")
        path = re.sub(r"\{\w+\}", SOME, template)
        for prefix in ("", "/v1"):
            with subtests.test(prefix + key):
                foreign = served.http.request(
                    method, prefix + path, json={}, headers=ours | {"origin": "http://evil.example"}
                )
                form = served.http.request(method, prefix + path, data={"a": "b"}, headers=ours)
                assert [foreign.status_code, form.status_code] == [403, 403]
                assert "evil.example" in foreign.json()["errors"][0]
                if template not in {
                    "/cluster",
                    "/unistream/workers",
                }:  # which is for hosts, not for the owner
                    own = served.http.request(method, prefix + path, json={}, headers=ours)
                    assert own.status_code != 403, own.text
    assert not served.shutdown_asked.is_set()


def test_no_other_origin_gets_a_permission(served: Api) -> None:
    asked = {"origin": "http://evil.example", "access-control-request-method": "PATCH"}
    for headers in (asked, asked | {"access-control-request-private-network": "true"}):
        answer = served.http.options(f"/jobs/{SOME}", headers=headers)
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]
    read = served.http.get("/jobs/overview", headers={"origin": "http://evil.example"})
    assert (read.status_code, read.headers.get("access-control-allow-origin")) == (200, None)


def test_a_name_that_resolves_to_this_server_is_not_its_own(served: Api) -> None:
    for path in ("/", "/ui/", "/jobs/overview", "/v1/config", "/openapi.json", "/assets/index.js"):
        answer = served.http.get(path, headers={"host": f"evil.example:{served.server.port}"})
        assert (answer.status_code, NAME in answer.json()["errors"][0]) == (403, True), path


def test_a_socket_is_opened_for_no_page(served: Api) -> None:
    """The server has none; should it have one, the guard does not let it through."""
    ours = {"origin": served.server.url, "x-unistream-page": "1"}
    handshake = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": "eA=="}
    read = served.http.get("/jobs/overview", headers=ours | handshake)
    assert (read.status_code, read.json()) == (200, {"jobs": []})
    said: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "websocket.connect"}

    guard = Guard(served.server._server.config.app, rules_of(Configuration({})))
    asyncio.run(guard({"type": "websocket", "path": "/jobs/overview", "headers": []}, receive, send))
    assert said == [{"type": "websocket.close", "code": 1008}]


def test_the_pages_are_told_whether_they_may_change_something(make_cluster: Callable[..., Any]) -> None:
    api = Api(make_cluster(config={"web.cancel.enable": "false"}))
    features = api.get("/config")["features"]
    assert (features["web-cancel"], features["web-rescale"]) == (False, False)
    ours = {"origin": api.server.url, "x-unistream-page": "1"}
    answer = api.http.patch(f"/jobs/{SOME}", headers=ours)
    assert (answer.status_code, OFF in answer.json()["errors"][0]) == (403, True)
    assert api.http.patch(f"/jobs/{SOME}").status_code == 404, "a client that is no browser goes on"
    api.close()
