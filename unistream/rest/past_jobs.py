"""GET /unistream/history: jobs that do not run, of all clusters on the database, page by page."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.errors import ConfigError
from unistream.master.cluster import Dispatcher
from unistream.master.shown import history_place
from unistream.model.job_info import TERMINAL_STATES
from unistream.port.metadata import HistoryPlace, PastJobs
from unistream.rest.answers import json_answer
from unistream.rest.requests import whole_number

JOBS_MAX: Final = 200  # of a page; the graph of each is read
JOBS_DEFAULT: Final = 50
TEXT_CHARS_MAX: Final = 300
TIME_MAX: Final = 2**53 - 1


class PastJobsApi:
    """The handler of the history."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/history")(self.history)

    async def history(self, request: Request) -> Response:
        """`name`: of the job, or the beginning of its id; `table`: a part of the URI of a table or topic;
        `state`: states with commas; `since`, `until`: it was there at some time between them; `cursor`:
        `next` of the page before. 503: the metadata database does not answer."""
        wanted = PastJobs(
            name=_text(request, "name"),
            table=_text(request, "table"),
            states=_states(request),
            since_ms=_time(request, "since"),
            until_ms=_time(request, "until"),
        )
        limit = whole_number(request, "limit", JOBS_DEFAULT, JOBS_MAX, least=1)
        page = await run_in_threadpool(self._dispatcher.past_jobs, wanted, limit, _before(request))
        return json_answer(page)


def _text(request: Request, name: str) -> str:
    text = request.query_params.get(name, "").strip()
    if len(text) > TEXT_CHARS_MAX or "\x00" in text:
        raise ConfigError(f"{name}: at most {TEXT_CHARS_MAX} characters, without NUL")
    return text


def _states(request: Request) -> tuple[str, ...]:
    states = tuple(filter(None, request.query_params.get("state", "").upper().split(",")))
    for state in states:
        if state not in TERMINAL_STATES:
            ended = ", ".join(sorted(TERMINAL_STATES))
            raise ConfigError(f"state: {state[:80]!r} is none of {ended}")
    return states


def _time(request: Request, name: str) -> int | None:
    return whole_number(request, name, 0, TIME_MAX) if request.query_params.get(name) else None


def _before(request: Request) -> HistoryPlace | None:
    text = request.query_params.get("cursor", "")
    place = history_place(text)
    if text and place is None:
        raise ConfigError(f"cursor: {text[:80]!r} is not the `next` of a page")
    return place
