"""GET /unistream/jobs/ID/explain: what a job became, as `unistream explain` says it of a pipeline."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from unistream.core.graph import explain_submitted
from unistream.master.cluster import Dispatcher
from unistream.rest.answers import json_answer
from unistream.rest.requests import job_id


class JobExplained(msgspec.Struct, frozen=True, kw_only=True):
    """Its job graph and execution graph at its current parallelism, and the engine of a BATCH job; `text` is
    empty if only the end of the job is known."""

    text: str


class ExplainApi:
    """The handler of a job's explanation."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{id_}/explain")(self.explain)

    def explain(self, id_: str) -> Response:
        """Answers with a `JobExplained`, whose text is empty if nobody knows the job's graph."""
        graph = self._dispatcher.known_graph(job_id(id_))
        return json_answer(JobExplained(text=explain_submitted(graph) if graph.vertices else ""))
