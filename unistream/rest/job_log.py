"""GET /unistream/jobs/ID/log: what the functions of a job have logged."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.master.cluster import Dispatcher
from unistream.model.job_log_line import LINES_KEPT_MAX
from unistream.rest.answers import json_answer
from unistream.rest.requests import job_id, whole_number

SEQ_MAX: Final = 2**63 - 1


class JobLogApi:
    """The handler of a job's log."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{job}/log")(self.log)

    async def log(self, job: str, request: Request) -> Response:
        """`after`: the last line that is known, 0: none; `limit`: most lines of the answer, oldest first."""
        after = whole_number(request, "after", 0, SEQ_MAX)
        limit = whole_number(request, "limit", LINES_KEPT_MAX, LINES_KEPT_MAX, least=1)
        lines = await run_in_threadpool(self._dispatcher.log, job_id(job), after, limit)
        return json_answer(lines)
