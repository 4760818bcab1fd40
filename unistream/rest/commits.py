"""GET /unistream/commits: the outbox of commits, by which orchestrators follow what became visible."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.master.cluster import Dispatcher
from unistream.port.metadata import PAGE_ROWS
from unistream.rest.answers import json_answer
from unistream.rest.requests import whole_number

SEQ_MAX: Final = 2**63 - 1


class CommitsApi:
    """The handler of the outbox."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/commits")(self.commits)

    async def commits(self, request: Request) -> Response:
        """`after`: the last number that is known, 0: none; `limit`: most commits of the answer. They are
        those of all clusters on the database; each number is of one commit, and later ones are greater."""
        after = whole_number(request, "after", 0, SEQ_MAX)
        limit = whole_number(request, "limit", PAGE_ROWS, PAGE_ROWS, least=1)
        return json_answer(list(await run_in_threadpool(self._dispatcher.commits, after, limit)))
