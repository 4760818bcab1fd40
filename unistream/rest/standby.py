"""What one of several masters answers: its own REST API while it leads, otherwise that of the leader.

As in Flink, every master serves the web UI and the whole API, so that a page which was loaded from one of
them goes on when another one leads. Flink's standbys ask the leader by RPC; here a request is passed on as it
is, and its answer back, event streams piece by piece. Nobody leads, or the leader does not answer: status
503, and the same request may be sent again.

A request has passed the guard here before it is passed on, and passes that of the leader, for which pages of
this server are its own: `Host` and `Origin` are replaced. One that was passed on is not passed on again: two
masters that take each other for the leader, or one that finds its own address, would never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from types import SimpleNamespace
from typing import Final, TypeAlias

import msgspec
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from unistream.base.config import Configuration
from unistream.base.errors import UnistreamError
from unistream.rest.app import SUBMISSION_PATH
from unistream.rest.body_limit import BodyLimit
from unistream.rest.error_answers import RETRY_AFTER_S, add_error_handlers
from unistream.rest.guard import JSON, Guard, rules_of
from unistream.rest.pages import PagesApi, built
from unistream.rest.passing_on import NoAnswer, pass_on

STANDBY: Final = b"x-unistream-standby"
"""A header of a request that was passed on; of an answer: it is a standby's own, and says why there is no
other."""

RestApp: TypeAlias = FastAPI
"""What `create_app` makes."""

LeaderUrl: TypeAlias = Callable[[], str]
"""Where the leader answers now; may block. Raises Unreachable: nobody leads, or nobody can say."""


class MasterFront:
    """The ASGI application of one of several masters, from its start to its end. `lead` and `stand_by` may be
    called from any thread. `context`: verifies the leader, if it speaks TLS.

    Attributes:
        state: See `RestServer`.
    """

    def __init__(
        self,
        leader_url: LeaderUrl,
        config: Configuration,
        *,
        version: str,
        pages: Path | None = None,
        context: SSLContext | None = None,
    ) -> None:
        self._standby = _standby(_PassOn(leader_url, context), config, version=version, pages=pages)
        self._leader: RestApp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.state = SimpleNamespace(before_close=self._end_streams)

    def lead(self, app: RestApp) -> None:
        """Makes `app` answer, from now on."""
        self._leader = app

    def stand_by(self) -> None:
        """Makes the leader answer from now on; streams of before end, and their clients ask again."""
        loop, before = self._loop, self._leader
        self._leader = None
        if loop is not None and before is not None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(before.state.before_close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        await (self._leader or self._standby)(scope, receive, send)

    def _end_streams(self) -> None:
        if self._leader is not None:
            self._leader.state.before_close()


def _standby(pass_on: ASGIApp, config: Configuration, *, version: str, pages: Path | None) -> ASGIApp:
    app = FastAPI(title="unistream", version=version, docs_url=None, redoc_url=None, openapi_url=None)
    PagesApi(pages or built(), version).routes(app.router)
    app.router.default = pass_on
    add_error_handlers(app)
    app.add_middleware(BodyLimit, large_path=SUBMISSION_PATH)
    app.add_middleware(Guard, rules=rules_of(config))
    return app


class _PassOn:
    """ASGI: what the leader answers."""

    def __init__(self, leader_url: LeaderUrl, context: SSLContext | None) -> None:
        self._leader_url = leader_url
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == STANDBY for name, _ in scope["headers"]):
            await _refuse(send, "nobody leads now")  # the one that asks takes this one for the leader
            return
        try:
            url = await run_in_threadpool(self._leader_url)
        except UnistreamError as error:
            await _refuse(send, str(error))
            return
        try:
            await pass_on(scope, receive, send, url, more=[(STANDBY, b"1")], context=self._context)
        except NoAnswer as error:
            await _refuse(send, f"the leader at {url} does not answer: {error or type(error).__name__}")


async def _refuse(send: Send, why: str) -> None:
    headers = [
        (b"content-type", JSON.encode()),
        (b"retry-after", str(RETRY_AFTER_S).encode()),
        (b"connection", b"close"),  # the body of the request may be on its way
        (STANDBY, b"1"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    content = msgspec.json.encode({"errors": [f"this master stands by: {why}"]})
    await send({"type": "http.response.body", "body": content})
