"""Asks of each request whether whom it is from may do that (`access`), before anything of it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unistream.base.errors import AccessDenied, Forbidden
from unistream.core.access import Denied, Identity
from unistream.model import access
from unistream.rest.access import AccessControl
from unistream.rest.too_many import TooManyRequests

IDENTITY: Final = "unistream.identity"  # in the ASGI scope
STILL: Final = "unistream.still"


class Authorized:
    """ASGI around one path.

    Args:
        app: Its handlers.
        control: Knows the tokens.
        needed: The scope that each method needs; None: nobody has to say who asks.
        audited: The methods whose requests stand in the audit log.
    """

    def __init__(
        self,
        app: ASGIApp,
        control: AccessControl,
        needed: Mapping[str, access.Scope | None],
        audited: Collection[str],
    ) -> None:
        self._app = app
        self._control = control
        self._needed = needed
        self._audited = audited

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        needed = self._needed[scope["method"]]
        if needed is None:
            await self._app(scope, receive, send)
            return
        identity = self._control.identify(_authorization(scope))
        if isinstance(identity, Denied):
            raise AccessDenied(_unauthenticated(identity.why))
        self._check_rate(identity)
        if self._control.tokens.is_use_due(identity.token):
            await run_in_threadpool(self._control.tokens.used, identity.token)
        scope[IDENTITY] = identity
        scope[STILL] = partial(self._is_taken, _authorization(scope))
        if scope["method"] in self._audited:
            await self._audit(identity, needed, scope, receive, send)
        else:
            await self._answer(identity, needed, scope, receive, send)

    def _check_rate(self, identity: Identity) -> None:
        """Raises TooManyRequests. Without tokens nobody knows whose requests are counted."""
        if not identity.token:
            return
        wait_s = self._control.rates.wait_s(identity.token, asyncio.get_running_loop().time())
        if wait_s > 0:
            raise TooManyRequests(identity.name, wait_s)

    def _is_taken(self, authorization: str | None) -> bool:
        return isinstance(self._control.identify(authorization), Identity)

    async def _answer(
        self, identity: Identity, needed: access.Scope, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if not identity.scope.allows(needed):
            raise Forbidden(
                f"token {identity.name!r} has the scope {identity.scope.value!r}, and this needs "
                f"{needed.value!r}"
            )
        await self._app(scope, receive, send)

    async def _audit(
        self, identity: Identity, needed: access.Scope, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answers, and notes with which status, before the client gets the answer."""
        is_noted = False

        async def note(status: int) -> None:
            nonlocal is_noted
            is_noted = True
            entry = self._control.audited(identity, scope["method"], scope["path"], scope["client"], status)
            await run_in_threadpool(self._control.audit.add, entry)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                await note(message["status"])
            await send(message)

        try:
            await self._answer(identity, needed, scope, receive, noting)
        except Forbidden:
            await note(403)
            raise
        finally:
            if not is_noted:
                await note(0)


def identity_of(request: Request) -> Identity:
    """Whom a request is from that was let in."""
    found: Identity = request.scope[IDENTITY]
    return found


def still_let_in(request: Request) -> Callable[[], bool]:
    """Says whether who was let in would be let in now, for answers that have no end of their own."""
    found: Callable[[], bool] = request.scope[STILL]
    return found


def _unauthenticated(why: str) -> str:
    return (
        f"this cluster answers its owner, and who has a token: {why}. Commands on its owner's account need "
        "none; others take one of 'unistream token create' from UNISTREAM_TOKEN; 'unistream ui' lets a "
        "browser in"
    )


def _authorization(scope: Scope) -> str | None:
    """None: there is none, or there are several."""
    values = [value for key, value in scope["headers"] if key == b"authorization"]
    return values[0].decode("latin-1") if len(values) == 1 else None
