"""GET /unistream/commits: the outbox of commits, by which orchestrators follow what became visible."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.errors import ConfigError
from unistream.master.dispatcher import Dispatcher
from unistream.port.metadata import PAGE_ROWS
from unistream.rest.answers import json_answer

SEQ_MAX: Final = 2**63 - 1


class CommitsApi:
    """The handler."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/commits")(self.commits)

    async def commits(self, request: Request) -> Response:
        """`after`: the last number that is known, 0: none; `limit`: most commits of the answer. They are
        those of all clusters on the database; each number is of one commit, and later ones are greater."""
        after = _number(request, "after", 0, SEQ_MAX)
        limit = _number(request, "limit", PAGE_ROWS, PAGE_ROWS, least=1)
        return json_answer(list(await run_in_threadpool(self._dispatcher.commits, after, limit)))


def _number(request: Request, name: str, default: int, most: int, *, least: int = 0) -> int:
    text = request.query_params.get(name, str(default))
    if not (
        text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and least <= int(text) <= most
    ):
        raise ConfigError(f"{name}: {text[:80]!r} is not a whole number from {least} to {most}")
    return int(text)
