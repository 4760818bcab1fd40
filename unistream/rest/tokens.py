"""Tokens over REST: made, listed, revoked; and how a browser gets one.

GET    /unistream/tokens          all, without their secrets
POST   /unistream/tokens          a new one: its text is in this answer, and nowhere else
DELETE /unistream/tokens/{id}     revokes one, by its id or the beginning of it, or its name
GET    /unistream/audit           who has changed what
GET    /unistream/identity        whom the request is from
DELETE /unistream/identity        its token is taken no more: a browser signs out
POST   /unistream/login-codes     a code for a browser, with the scope of who asks
POST   /unistream/login           a token for a code; the one path for which nobody needs a token
"""

from __future__ import annotations

from functools import partial
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.core.access import IssuedToken, TokenRecord
from unistream.model.access import (
    CodeBody,
    IdentityShown,
    LoginBody,
    NewCode,
    NewToken,
    TokenBody,
    TokenShown,
    TokensShown,
)
from unistream.rest.access import AccessControl
from unistream.rest.answers import json_answer
from unistream.rest.audit import AuditPage
from unistream.rest.authorized import identity_of
from unistream.rest.certificates import Issuer
from unistream.rest.requests import body_of, whole_number
from unistream.trust.authority import fingerprint_of

AUDIT_ROWS: Final = 100
AUDIT_ROWS_MAX: Final = 10_000


class TokensApi:
    """The handlers."""

    def __init__(self, control: AccessControl, issuer: Issuer) -> None:
        self._control = control
        self._issuer = issuer

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/tokens")(self.tokens)
        router.post("/unistream/tokens")(self.create)
        router.delete("/unistream/tokens/{id_}")(self.revoke)
        router.get("/unistream/audit")(self.audit)
        router.get("/unistream/identity")(self.identity)
        router.delete("/unistream/identity")(self.sign_out)
        router.post("/unistream/login-codes")(self.login_code)
        router.post("/unistream/login")(self.log_in)

    def tokens(self) -> Response:
        records = sorted(self._control.tokens.known.values(), key=lambda one: -one.created_ms)
        return json_answer(TokensShown([_shown(record) for record in records]))

    async def create(self, request: Request) -> Response:
        body = await body_of(request, TokenBody)
        issue = partial(self._control.issue, body.name, body.scope, body.lasts_ms, uses=body.uses)
        return self._made(await run_in_threadpool(issue))

    def revoke(self, id_: str) -> Response:
        return json_answer(_shown(self._control.tokens.revoke(id_)))

    def audit(self, request: Request) -> Response:
        limit = whole_number(request, "limit", AUDIT_ROWS, AUDIT_ROWS_MAX)
        return json_answer(AuditPage(self._control.audit.newest(limit)))

    def identity(self, request: Request) -> Response:
        identity = identity_of(request)
        return json_answer(
            IdentityShown(
                token=identity.token,
                name=identity.name,
                scope=identity.scope,
                expires_ms=identity.expires_ms,
            )
        )

    def sign_out(self, request: Request) -> Response:
        """Revokes the token of the request. Raises NotFound: that is the owner's, or none is needed."""
        return json_answer(_shown(self._control.tokens.revoke(identity_of(request).token)))

    async def login_code(self, request: Request) -> Response:
        body = await body_of(request, CodeBody)
        code = self._control.login_code(identity_of(request), body.lasts_ms)
        return json_answer(NewCode(code, body.lasts_ms))

    async def log_in(self, request: Request) -> Response:
        body = await body_of(request, LoginBody)
        return self._made(await run_in_threadpool(self._control.log_in, body.code))

    def _made(self, token: IssuedToken) -> Response:
        """The answer, in which the token has the fingerprint by which its holder recognises this cluster."""
        record, roots = token.record, self._issuer.roots
        pin = f"_{fingerprint_of(roots)}" if roots else ""
        answer = json_answer(
            NewToken(
                token=token.text + pin,
                id=record.id,
                name=record.name,
                scope=record.scope,
                expires_ms=record.expires_ms,
            ),
            201,
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer


def _shown(record: TokenRecord) -> TokenShown:
    """The record without its digest."""
    return TokenShown(
        id=record.id,
        name=record.name,
        scope=record.scope,
        created_ms=record.created_ms,
        expires_ms=record.expires_ms,
        revoked_ms=record.revoked_ms,
        used_ms=record.used_ms,
        uses_left=record.uses_left,
    )
