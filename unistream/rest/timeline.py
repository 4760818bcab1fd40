"""GET /unistream/jobs/ID/timeline: the life of a job on one axis."""

from __future__ import annotations

from fastapi import APIRouter, Response

from unistream.master.cluster import Dispatcher
from unistream.rest.answers import json_answer
from unistream.rest.requests import job_id


class TimelineApi:
    """The handler of a job's timeline."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{id_}/timeline")(self.timeline)

    def timeline(self, id_: str) -> Response:
        """A `JobTimeline`. 503: the metadata database, which has it, does not answer."""
        return json_answer(self._dispatcher.timeline(job_id(id_)))
