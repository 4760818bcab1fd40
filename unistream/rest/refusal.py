"""PUT /unistream/cluster/refusal: a cluster that is being stopped refuses new jobs for a while.

It is a lease: who stops the cluster extends it, and if that client dies, jobs are accepted again.
"""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.errors import ConfigError
from unistream.master.cluster import Dispatcher
from unistream.rest.answers import json_answer
from unistream.rest.requests import body_of

REFUSAL_MS_MAX: Final = 300_000  # a client that needs longer extends it


class RefusalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`for_ms`: from now on; 0: jobs are accepted again."""

    for_ms: int


class RefusalApi:
    """The handler of a cluster's refusal of jobs."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.put("/unistream/cluster/refusal")(self.refuse)

    async def refuse(self, request: Request) -> Response:
        """`refused`: they were refused until now."""
        body = await body_of(request, RefusalBody)
        if not 0 <= body.for_ms <= REFUSAL_MS_MAX:
            raise ConfigError(f"forMs: {body.for_ms} is not 0 to {REFUSAL_MS_MAX}")
        return json_answer({"refused": await run_in_threadpool(self._dispatcher.refuse_jobs, body.for_ms)})
