"""/unistream/workers: each worker with what is in its slots, hosts that are avoided, and the ends of logs."""

from __future__ import annotations

from fastapi import APIRouter, Response

from unistream.master.cluster import Dispatcher
from unistream.rest.answers import json_answer
from unistream.rest.requests import task_manager_id


class WorkersApi:
    """The handlers of workers and their logs."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/workers")(self.workers)
        router.get("/unistream/workers/{id_}/log")(self.log)

    def workers(self) -> Response:
        """Answers with the `WorkersInfo`."""
        return json_answer(self._dispatcher.workers_info())

    def log(self, id_: str) -> Response:
        """The end of the log of a worker, also of one that was lost. 404: it is on another machine."""
        return json_answer(self._dispatcher.worker_log(task_manager_id(id_)))
