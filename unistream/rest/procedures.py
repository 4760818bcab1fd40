"""/unistream/procedures: how far backfills and upgrades are, as their commands report (`model.procedures`).

PUT   a report of one; may be sent again
GET   those of ?job=ID, or all; the one with the newest report first, and the time of the cluster's clock;
      notes: which are not listed, and why
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.master.cluster import Dispatcher
from unistream.model.procedures import ProcedureReport
from unistream.rest.answers import json_answer
from unistream.rest.requests import body_of, job_id

PATH = "/unistream/procedures"


class ProceduresApi:
    """The handlers. `wall_ms`, `version`: clock and version of this process."""

    def __init__(self, dispatcher: Dispatcher, wall_ms: Callable[[], int], version: str) -> None:
        self._procedures = dispatcher.procedures
        self._wall_ms = wall_ms
        self._version = version

    def routes(self, router: APIRouter) -> None:
        router.put(PATH)(self.report)
        router.get(PATH)(self.procedures)

    async def report(self, request: Request) -> Response:
        """Takes the report of a procedure; answered when it is stored."""
        report = await body_of(request, ProcedureReport)
        await run_in_threadpool(self._procedures.report, report)
        return json_answer({})

    async def procedures(self, request: Request) -> Response:
        """Answers with the procedures that are reported; with `job`, those that were begun while that job
        ran."""
        job = request.query_params.get("job")
        found = await run_in_threadpool(self._procedures.procedures, None if job is None else job_id(job))
        notes = found.notes(self._version)
        return json_answer({"now_ms": self._wall_ms(), "procedures": list(found.procedures), "notes": notes})
