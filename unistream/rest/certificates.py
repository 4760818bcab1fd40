"""Certificates over REST.

GET    /unistream/certificates                authorities, and what was issued to whom until when: no secret
GET    /unistream/certificates/authorities    whose certificates the cluster's servers show, PEM: no secret
POST   /unistream/certificates/rotation       the cluster gets another authority
POST   /unistream/workers                     a certificate for the process of a worker on another host, for a
                                              join token, of which that is one use
"""

from __future__ import annotations

import secrets
from typing import Final, Protocol

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import ConfigError, NotFound
from unistream.base.releases import Release, check_release
from unistream.model.access import JoinAnswer, JoinBody, RotationAnswer, RotationBody, process_name
from unistream.model.certificates import CertificatesShown
from unistream.model.credentials import Credentials
from unistream.model.time_range import time_text
from unistream.rest.access import AccessControl
from unistream.rest.answers import json_answer
from unistream.rest.authorized import identity_of
from unistream.rest.requests import body_of
from unistream.trust.authority import CLOCKS_DIFFER_MS, Authority

PEM: Final = "application/x-pem-file"
SUFFIX_BYTES: Final = 6


class Issuer(Protocol):
    """The authority of a cluster, as its REST API needs it."""

    @property
    def roots(self) -> str:
        """What clients have to know to verify its servers, PEM; "": none of them speaks TLS."""

    def join(self, request: str, name: str) -> Credentials | None:
        """Credentials, without their key, for a worker's process of that name; None: this cluster has no
        workers on other hosts. `request`: PEM. Raises ConfigError: that is none."""

    def rotate(self, keep_ms: int) -> Authority:
        """Another authority, from now on. Raises ConfigError: this cluster has none."""

    def shown(self) -> CertificatesShown:
        """What there is, for people who look."""


class NoIssuer:
    """The authority of a cluster whose servers all listen on loopback addresses: none."""

    roots = ""

    def join(self, request: str, name: str) -> Credentials | None:
        return None

    def rotate(self, keep_ms: int) -> Authority:
        raise ConfigError("this cluster has no certificates: all its servers listen on loopback addresses")

    def shown(self) -> CertificatesShown:
        return CertificatesShown(now_ms=SystemClock().wall_ms())


NO_ISSUER: Final = NoIssuer()


class CertificatesApi:
    """The handlers. `control`: where workers register."""

    def __init__(self, access: AccessControl, issuer: Issuer, clock: Clock, control: str) -> None:
        self._access = access
        self._issuer = issuer
        self._clock = clock
        self._control = control

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/certificates")(self.shown)
        router.get("/unistream/certificates/authorities")(self.authorities)
        router.post("/unistream/certificates/rotation")(self.rotate)
        router.post("/unistream/workers")(self.join)

    def shown(self) -> Response:
        """Answers with the `CertificatesShown`."""
        return json_answer(self._issuer.shown())

    def authorities(self) -> Response:
        """Raises NotFound: no server of this cluster speaks TLS."""
        roots = self._issuer.roots
        if not roots:
            raise NotFound("this cluster has no certificates: all its servers listen on loopback addresses")
        return Response(roots, media_type=PEM)

    async def rotate(self, request: Request) -> Response:
        body = await body_of(request, RotationBody)
        if body.keep_ms < 0:
            raise ConfigError("former certificates are believed for some time: give a duration of 0 or more")
        made = await run_in_threadpool(self._issuer.rotate, body.keep_ms)
        return json_answer(RotationAnswer(made.fingerprint))

    async def join(self, request: Request) -> Response:
        body = await body_of(request, JoinBody)
        return await run_in_threadpool(self._join, body, identity_of(request).token)

    def _join(self, body: JoinBody, token: str) -> Response:
        """Raises ConfigError: it cannot join, and no use of the token is counted."""
        now_ms = self._clock.wall_ms()
        if abs(body.clock_ms - now_ms) > CLOCKS_DIFFER_MS:
            raise ConfigError(
                f"the clock of host {body.host!r} says {time_text(body.clock_ms)}, and that of the "
                f"JobManager {time_text(now_ms)}: set the one that is wrong, since certificates begin and "
                "end by them"
            )
        there = Release(body.version, body.python)
        check_release(there, who=f"host {body.host!r}", whom="this cluster")
        name = process_name(body.host, secrets.token_hex(SUFFIX_BYTES))
        issued = self._issuer.join(body.request, name)
        if issued is None:
            raise ConfigError(
                "this cluster takes no workers of other hosts: start it with --target standalone and "
                "jobmanager.bind-host, such as -D jobmanager.bind-host=0.0.0.0"
            )
        self._access.tokens.take_use(token)
        answer = JoinAnswer(
            name=issued.name,
            certificate=issued.certificate,
            roots=issued.roots,
            until_ms=issued.until_ms,
            control=self._control,
        )
        return json_answer(answer, 201)
