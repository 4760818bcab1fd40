"""/unistream/workers: each worker with what is in its slots, hosts that are avoided, and the ends of logs.

A worker is drained by `POST …/ID/drain`, which says whether that has begun; `GET` says how far it is.
"""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.errors import Unreachable
from unistream.master.cluster import Dispatcher
from unistream.rest.answers import json_answer
from unistream.rest.requests import body_of, task_manager_id

DECIDED_WITHIN_S: Final = 10.0  # the cluster's slots are decided on within milliseconds


class DrainBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`wait`: without enough slots on other workers its tasks wait for them; otherwise nothing is done."""

    wait: bool = False


class WorkersApi:
    """The handlers of workers and their logs."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/workers")(self.workers)
        router.get("/unistream/workers/{id_}/log")(self.log)
        router.post("/unistream/workers/{id_}/drain")(self.drain)
        router.get("/unistream/workers/{id_}/drain")(self.drain_status)

    def workers(self) -> Response:
        """Answers with the `WorkersInfo`."""
        return json_answer(self._dispatcher.workers_info())

    def log(self, id_: str) -> Response:
        """The end of the log of a worker, also of one that was lost. 404: it is on another machine."""
        return json_answer(self._dispatcher.worker_log(task_manager_id(id_)))

    async def drain(self, id_: str, request: Request) -> Response:
        """Begins. 409: there are too few slots elsewhere; nothing was done."""
        body = await body_of(request, DrainBody)
        return await run_in_threadpool(self._drain, id_, body)

    def _drain(self, id_: str, body: DrainBody) -> Response:
        worker = task_manager_id(id_)
        answer = self._dispatcher.drain(worker, wait=body.wait)
        try:
            answer.result(DECIDED_WITHIN_S)
        except TimeoutError:
            raise Unreachable(f"whether worker {worker} is drained is not decided yet: ask again") from None
        return json_answer(self._dispatcher.drain_status(worker), 202)

    def drain_status(self, id_: str) -> Response:
        """The `DrainStatus`. 404: it is not being drained."""
        return json_answer(self._dispatcher.drain_status(task_manager_id(id_)))
