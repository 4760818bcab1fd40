"""/unistream/kept-jobs/NAME: what was submitted of a job, kept beyond its end (`unistream.master.kept_jobs`).

PUT     {"job": ID}                                        keep it
GET                                                        which job it is
POST    …/start {"savepointPath": …, "requestId": …}       a new job of it
DELETE                                                     it is not needed any more
"""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.master.dispatcher import Dispatcher
from unistream.model.stored_job import KeptJob
from unistream.rest.answers import json_answer
from unistream.rest.requests import body_of, job_id

PATH = "/unistream/kept-jobs/{name}"


class KeepBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`job`: its id."""

    job: str


class StartBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`request_id`: sent again with the same one, it is the same new job."""

    savepoint_path: str
    request_id: str


class KeptJobsApi:
    """The handlers."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._kept = dispatcher.kept_jobs

    def routes(self, router: APIRouter) -> None:
        router.put(PATH)(self.keep)
        router.get(PATH)(self.kept)
        router.delete(PATH)(self.release)
        router.post(f"{PATH}/start")(self.start)

    async def keep(self, name: str, request: Request) -> Response:
        """Answered when it is durable."""
        body = await body_of(request, KeepBody)
        return _shown(await run_in_threadpool(self._kept.keep, name, job_id(body.job)))

    async def kept(self, name: str) -> Response:
        """404: none is kept under the name."""
        return _shown(await run_in_threadpool(self._kept.kept, name))

    async def release(self, name: str) -> Response:
        """No error if none is kept under the name."""
        await run_in_threadpool(self._kept.release, name)
        return json_answer({})

    async def start(self, name: str, request: Request) -> Response:
        """Answered as a submission."""
        body = await body_of(request, StartBody)
        job = await run_in_threadpool(self._kept.start, name, body.savepoint_path, body.request_id)
        return json_answer({"jobid": job})


def _shown(kept: KeptJob) -> Response:
    return json_answer({"job": kept.job, "name": kept.pointer.name, "keptMs": kept.kept_ms})
