"""Who may ask at all, and which web pages may change something: the one door of the REST API.

A browser sends requests for any page that it shows, also to loopback addresses; that the page cannot read the
answer does not help if the request has cancelled a job. So, before anybody's token is looked at:

    every request               names this server by an IP address, as localhost, as `rest.address` or by the
                                host of a public origin. A page whose own name resolves to 127.0.0.1 is of the
                                same origin for its browser, and still has that name in `Host`
    a change from a browser     (it has `Origin` or `Sec-Fetch-Site`) is from a page of this server: of the
                                origin that `Host` names, or of a public one; it has a header that no form and
                                no page of another origin can set, and its body, if any, is JSON
    other changes               (no browser) are as before

Changes are all methods but GET and HEAD. OPTIONS is one of them: no page of another origin ever gets a
permission. Nothing here is a WebSocket, which a browser opens for any page.
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from unistream.base.config import (
    REST_ADDRESS,
    REST_BIND,
    WEB_CANCEL_ENABLE,
    WEB_PUBLIC_ORIGINS,
    Configuration,
)
from unistream.base.hosts import is_loopback
from unistream.base.origins import PageOrigin, host_of, origin_of

PAGE_HEADER: Final = "X-Unistream-Page"
"""What the pages of the web UI send along; its value says nothing."""

READS: Final = frozenset({"GET", "HEAD"})
QUERIES: Final = frozenset({"/unistream/savepoints/query"})
"""They change nothing, but take their time: pages of others may not ask them, the own ones always may."""

SIGN_IN: Final = frozenset({"/unistream/login", "/unistream/identity"})
"""Pages let somebody in and out there, also where they change nothing in the cluster."""

JSON: Final = "application/json"
SHOWN_CHARS: Final = 100  # of what the client has sent
POLICY_VIOLATION: Final = 1008  # RFC 6455, 7.4.1


class Rules(NamedTuple):
    """The rules of one cluster.

    Attributes:
        hosts: Names of this server, in lower case; an IP address always is one.
        origins: Those of proxies through which the web UI is reached.
        changes: Whether the web UI may change something.
    """

    hosts: frozenset[str]
    origins: frozenset[PageOrigin]
    changes: bool


class Asked(NamedTuple):
    """What a request says of itself. A header that comes several times has several values."""

    method: str
    path: str = "/"
    scheme: str = "http"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    has_page_header: bool = False
    content_types: tuple[str, ...] = ()
    has_body: bool = False


def rules_of(config: Configuration) -> Rules:
    """Raises ConfigError: an option is not what it should be."""
    origins = config.find(WEB_PUBLIC_ORIGINS)
    own = {"localhost", config.get(REST_ADDRESS).lower()}
    if not is_loopback(config.find(REST_BIND) or config.get(REST_ADDRESS)):
        own.add(socket.gethostname().lower())  # by which other hosts ask it
    return Rules(
        hosts=frozenset(own),
        origins=frozenset(origins or ()),
        changes=config.get(WEB_CANCEL_ENABLE),
    )


def refusal(asked: Asked, rules: Rules) -> str | None:
    """Why the request is refused, in one sentence; None: it is not. Pure."""
    own = _own_origin(asked, rules)
    if own is None and not _is_public(asked.hosts, rules):
        return (
            f"this server is not called {_shown(asked.hosts)}: ask it by an IP address, by localhost or by "
            f"{REST_ADDRESS.key}, or name the origin of a proxy in {WEB_PUBLIC_ORIGINS.key}"
        )
    if asked.method in READS or not (asked.origins or asked.sites):
        return None
    origins = [origin_of(text) for text in asked.origins]
    if any(origin is None or (origin != own and origin not in rules.origins) for origin in origins):
        return (
            f"a page of {_shown(asked.origins)} changes nothing here: that is up to this server's own pages, "
            f"and to those of {WEB_PUBLIC_ORIGINS.key}"
        )
    if any(site.strip().lower() != "same-origin" for site in asked.sites):
        return f"a page of another site changes nothing here (Sec-Fetch-Site: {_shown(asked.sites)})"
    if not asked.has_page_header:
        return f"what a browser asks to change has the header {PAGE_HEADER}, which this server's pages send"
    if asked.has_body and not (asked.content_types and all(map(_is_json, asked.content_types))):
        return f"what a browser sends is {JSON}, not {_shown(asked.content_types)}"
    if not rules.changes and asked.path.removeprefix("/v1") not in QUERIES | SIGN_IN:
        return f"the web UI changes nothing in this cluster: {WEB_CANCEL_ENABLE.key} is false there"
    return None


def _own_origin(asked: Asked, rules: Rules) -> PageOrigin | None:
    """That of this server as the request names it; None: it has not got that name."""
    hosts = asked.hosts
    host = host_of(hosts[0]) if len(hosts) == 1 else None
    if host is None or not (host.is_literal or host.name in rules.hosts):
        return None
    return origin_of(f"{asked.scheme}://{hosts[0]}")


def _is_public(hosts: tuple[str, ...], rules: Rules) -> bool:
    host = host_of(hosts[0]) if len(hosts) == 1 else None
    return host is not None and host.name in {origin.host for origin in rules.origins}


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == JSON


def _shown(values: tuple[str, ...]) -> str:
    return repr(", ".join(values)[:SHOWN_CHARS])


class Guard:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        why = refusal(asked_by(scope), self._rules) if scope["type"] == "http" else None
        if why is None:
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", JSON.encode()), (b"connection", b"close")]  # its body is not read
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode({"errors": [why]})})


def asked_by(scope: Scope) -> Asked:
    """What an HTTP request of ASGI says of itself."""

    def values(name: bytes) -> tuple[str, ...]:
        return tuple(value.decode("latin-1") for key, value in scope["headers"] if key == name)

    lengths = values(b"content-length")
    return Asked(
        method=scope["method"],
        path=scope["path"],
        scheme=scope.get("scheme", "http"),
        hosts=values(b"host"),
        origins=values(b"origin"),
        sites=values(b"sec-fetch-site"),
        has_page_header=bool(values(PAGE_HEADER.lower().encode())),
        content_types=values(b"content-type"),
        has_body=bool(values(b"transfer-encoding")) or any(length != "0" for length in lengths),
    )
