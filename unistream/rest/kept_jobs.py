"""/unistream/kept-jobs: what was submitted of a job, kept beyond its end (`master.cluster.kept_jobs`).

PUT     NAME {"job": ID, "forRestart": false}                 keep it
GET     NAME                                                  which job it is
GET     ?job=ID                                               all that is kept of a job
POST    NAME/check {"config": {…}, "parallelism": {…}}        whether it could be started so
POST    NAME/start {"savepointPath": …, "requestId": …}       a new job of it, also with those
DELETE  NAME                                                  it is not needed any more
"""

from __future__ import annotations

from functools import partial

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.master.cluster import Dispatcher
from unistream.model.stored_job import KeptJob
from unistream.rest.allowed_paths import AllowedPaths
from unistream.rest.answers import json_answer
from unistream.rest.authorized import identity_of
from unistream.rest.requests import body_of, job_id, target

PATH = "/unistream/kept-jobs/{name}"


class KeepBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`job`: its id. `for_restart`: nobody counts on it, but somebody may want to start it again; it is not
    in the way of what an upgrade keeps."""

    job: str
    for_restart: bool = False


class ChangesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`config`: options that take the place of those of the job. `parallelism`: by vertex id, vertex name or
    operator uid."""

    config: dict[str, str] = {}
    parallelism: dict[str, int] = {}


class StartBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`request_id`: sent again with the same one, it is the same new job. `config`, `parallelism`: see
    `ChangesBody`."""

    savepoint_path: str
    request_id: str
    config: dict[str, str] = {}
    parallelism: dict[str, int] = {}


class KeptJobsApi:
    """The handlers of kept jobs."""

    def __init__(self, dispatcher: Dispatcher, paths: AllowedPaths) -> None:
        self._kept = dispatcher.kept_jobs
        self._paths = paths

    def routes(self, router: APIRouter) -> None:
        router.put(PATH)(self.keep)
        router.get(PATH)(self.kept)
        router.get("/unistream/kept-jobs")(self.kept_of)
        router.delete(PATH)(self.release)
        router.post(f"{PATH}/check")(self.check)
        router.post(f"{PATH}/start")(self.start)

    async def keep(self, name: str, request: Request) -> Response:
        """Keeps a job under the name; answered when that is durable."""
        body = await body_of(request, KeepBody)
        keep = partial(self._kept.keep, name, job_id(body.job), for_restart=body.for_restart)
        return _shown(await run_in_threadpool(keep))

    async def kept(self, name: str) -> Response:
        """The job that is kept under the name. 404: none is."""
        return _shown(await run_in_threadpool(self._kept.kept, name))

    async def kept_of(self, job: str) -> Response:
        """What is kept of one job: nothing, also of a job that nobody knows."""
        found = await run_in_threadpool(self._kept.kept_of, job_id(job))
        return json_answer({"kept": [_item(kept) for kept in found]})

    async def release(self, name: str) -> Response:
        """Forgets what is kept under the name; no error if that is nothing."""
        await run_in_threadpool(self._kept.release, name)
        return json_answer({})

    async def start(self, name: str, request: Request) -> Response:
        """Starts the kept job again; answered as a submission."""
        body = await body_of(request, StartBody)
        self._paths.check(target(body.savepoint_path), identity_of(request))
        self._paths.check_options(body.config, identity_of(request))
        start = partial(
            self._kept.start,
            name,
            body.savepoint_path,
            body.request_id,
            config=body.config,
            parallelism=body.parallelism,
        )
        return json_answer({"jobid": await run_in_threadpool(start)})

    async def check(self, name: str, request: Request) -> Response:
        """400: it could not, and why."""
        body = await body_of(request, ChangesBody)
        self._paths.check_options(body.config, identity_of(request))
        await run_in_threadpool(self._kept.check, name, body.config, body.parallelism)
        return json_answer({})


def _shown(kept: KeptJob) -> Response:
    return json_answer(_item(kept))


def _item(kept: KeptJob) -> dict[str, object]:
    return {
        "job": kept.job,
        "name": kept.pointer.name,
        "keptMs": kept.kept_ms,
        "forRestart": kept.for_restart,
    }
