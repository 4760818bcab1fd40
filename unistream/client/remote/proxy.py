"""`unistream proxy`: a door on loopback to a cluster, for programs that have no token and know no authority.

What comes here goes on to the leader with the token of the user of this process, over TLS that is verified as
his commands verify it, and its answer back, piece by piece. So who may come in has what that token gives:

    another user of the machine     the kernel says whose process is at the other end (`machine.peers`), and
                                    only that of the proxy's own user is answered: a port is no secret, and
                                    a path would be none that Flink's tools could be given
    a page of the web               asks by another name than this server's (`Host`), or says where it is
                                    from (`Origin`, `Sec-Fetch-Site`); only pages of the proxy itself may ask
    another machine                 nothing listens for it

Nothing of a request is read before that.

A folder of pages that were made for a cluster without a token, such as Flink's dashboard, may be served next
to the API: for their browser both are one server.
"""

from __future__ import annotations

import logging
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.origins import PORTS
from unistream.client.machine.peers import SocketEnd, user_at
from unistream.client.machine.tokens import token_for
from unistream.client.machine.trusted import Trusted
from unistream.client.remote.address import LeaderAddress
from unistream.client.remote.http import not_verified
from unistream.client.remote.policy import CONNECT_S
from unistream.rest.error_answers import RETRY_AFTER_S
from unistream.rest.guard import JSON, PAGE_HEADER, READS, Asked, asked_by
from unistream.rest.passing_on import CutOff, NoAnswer, pass_on

OWN_NAMES: Final = ("127.0.0.1", "localhost")
OWN_SITES: Final = frozenset(
    {"same-origin", "none"}
)  # a page of the proxy; somebody who has typed the address
SHOWN_CHARS: Final = 100  # of what the client has sent

logger = logging.getLogger(__name__)

UserAt = Callable[[SocketEnd, SocketEnd], int | None]
"""See `machine.peers.user_at`."""


class _Leader(NamedTuple):
    """Where a request goes on to. `context`: None: it speaks no TLS. `token`: None: there is none."""

    url: str
    context: ssl.SSLContext | None
    token: str | None


def refusal(asked: Asked, port: int) -> str | None:
    """Why a request is refused that says this of itself; None: it is not. Pure.

    Args:
        asked: What it says.
        port: Where the proxy listens.
    """
    own = {f"{name}:{port}" for name in OWN_NAMES}
    if port == PORTS["http"]:
        own |= set(OWN_NAMES)
    host = asked.hosts[0].lower() if len(asked.hosts) == 1 else ""
    if host not in own:
        return f"this proxy is not called {_shown(asked.hosts)}: ask it as http://127.0.0.1:{port}"
    if any(origin.lower() != f"http://{host}" for origin in asked.origins):
        return f"a page of {_shown(asked.origins)} may not ask this proxy, which lends its user's token"
    if any(site.strip().lower() not in OWN_SITES for site in asked.sites):
        return (
            f"a page of another site may not ask this proxy, nor link to it (Sec-Fetch-Site: "
            f"{_shown(asked.sites)}): type its address"
        )
    return None


class ClusterProxy:
    """ASGI: what the leader of a cluster answers to the user `user`, and to nobody else.

    Args:
        address: Of the cluster; the caller closes it.
        user: User id of this process.
        pages: A folder whose files are served, and its ``index.html`` at the root; None: the cluster's own.
        user_at: Says whose process is at the other end of a connection.
    """

    def __init__(
        self,
        address: LeaderAddress,
        user: int,
        pages: Path | None = None,
        *,
        user_at: UserAt = user_at,
    ) -> None:
        self._address = address
        self._user = user
        self._user_at = user_at
        self._pages = None if pages is None else StaticFiles(directory=pages, html=True)
        self._trusted = Trusted()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"  # the server takes no WebSocket
        here, there = SocketEnd(*scope["server"]), SocketEnd(*scope["client"])
        if await run_in_threadpool(self._user_at, here, there) != self._user:
            await _answer(
                send, 403, "this proxy answers the user who has started it, and no other one of this machine"
            )
            return
        asked = asked_by(scope)
        why = refusal(asked, here.port)
        if why is not None:
            await _answer(send, 403, why)
            return
        if self._pages is not None and await run_in_threadpool(self._is_file, self._pages, asked):
            await self._pages(scope, receive, send)
            return
        await self._pass_on(scope, receive, send, is_page=bool(asked.origins))

    @staticmethod
    def _is_file(pages: StaticFiles, asked: Asked) -> bool:
        """Whether the folder of pages has what is asked for; a link out of it is none of its files."""
        path = asked.path.lstrip("/") or "index.html"
        found = pages.lookup_path(path)[1] if asked.method in READS else None
        return found is not None and stat.S_ISREG(found.st_mode)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, *, is_page: bool) -> None:
        try:
            leader = await run_in_threadpool(self._leader)
        except ConfigError as error:
            await _answer(send, 502, str(error))
            return
        except (UnistreamError, OSError) as error:
            await _answer(send, 503, f"the cluster at {self._address.name} is not reached: {error}")
            return
        try:
            await pass_on(
                scope,
                receive,
                send,
                leader.url,
                more=_headers(scope, leader.token, is_page=is_page),
                context=leader.context,
                in_pieces=True,
            )
        except ssl.SSLCertVerificationError as error:
            await _answer(send, 502, not_verified(leader.url, error))
        except NoAnswer as error:
            why = str(error) or type(error).__name__
            await _answer(send, 503, f"the cluster at {leader.url} does not answer: {why}")
        except CutOff:  # uvicorn ends the connection: the client sees that its answer is not complete
            logger.warning("event=answer_cut_off url=%s path=%s", leader.url, scope["path"])

    def _leader(self) -> _Leader:
        """Who leads now, and what is shown to it. Raises UnistreamError, OSError."""
        url = self._address.url(CONNECT_S)
        at = urlsplit(url)
        context = None
        if at.scheme == "https":
            context = self._trusted.context(at.hostname or "", at.port or PORTS["https"], CONNECT_S)
        return _Leader(url, context, token_for(url))


def _headers(scope: Scope, token: str | None, *, is_page: bool) -> list[tuple[bytes, bytes]]:
    """What a request gets besides its own headers. One that has a token of its own keeps that; Flink's
    dashboard has no header that says that it is no form, which `refusal` has made sure of."""
    own = {name for name, _ in scope["headers"]}
    more = []
    if token is not None and b"authorization" not in own:
        more.append((b"authorization", b"Bearer " + token.encode()))
    page_header = PAGE_HEADER.lower().encode()
    if is_page and page_header not in own:
        more.append((page_header, b"proxy"))
    return more


def _shown(values: tuple[str, ...]) -> str:
    return repr(", ".join(values)[:SHOWN_CHARS])


async def _answer(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", JSON.encode()), (b"connection", b"close")]  # its body is not read
    if status == 503:
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode({"errors": [why]})})
