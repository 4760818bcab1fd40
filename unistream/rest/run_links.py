"""/unistream/run-links: which run of an orchestrator watches which job, and when its last heartbeat was.

    POST attach, heartbeat, release, take-over   see `unistream.port.run_links.RunLinks`; may be sent again
    GET ?key=KEY                                 the link, and the time of the clock that stamps heartbeats
    GET ?job=ID                                  all links that name a job, the newest first, and the keys of
                                                 the assets that it represents, also without a run

No request names a time: this cluster's clock counts.
"""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.config import DAGSTER_ASSETS, Configuration
from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import JobId
from unistream.master.cluster import Dispatcher
from unistream.port.run_links import Watcher
from unistream.rest.answers import json_answer
from unistream.rest.requests import body_of, job_id

PATH = "/unistream/run-links"


class WatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of a heartbeat, and of a release."""

    key: str
    watcher: Watcher


class AttachBody(WatchBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`job`: 32 hex digits."""

    job: str


class TakeOverBody(WatchBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`silent_ms`: how old the last heartbeat of the other watcher must be."""

    silent_ms: int


class RunLinksApi:
    """The handlers of links between runs and jobs."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._links = dispatcher.run_links

    def routes(self, router: APIRouter) -> None:
        router.get(PATH)(self.find)
        router.post(f"{PATH}/attach")(self.attach)
        router.post(f"{PATH}/heartbeat")(self.heartbeat)
        router.post(f"{PATH}/release")(self.release)
        router.post(f"{PATH}/take-over")(self.take_over)

    async def find(self, request: Request) -> Response:
        """`SeenLink`, whose link is null if there is none; or `links`."""
        key, job = request.query_params.get("key"), request.query_params.get("job")
        if job is not None and key is None:
            return json_answer(await run_in_threadpool(self._of_job, job_id(job)))
        if key is None or job is not None:
            raise ConfigError(f"key: name the link, as in {PATH}?key=KEY, or the job, as in {PATH}?job=ID")
        return json_answer(await run_in_threadpool(self._links.find, key))

    def _of_job(self, job: JobId) -> dict[str, object]:
        return {"links": self._links.of_job(job), "assets": self._assets(job)}

    def _assets(self, job: JobId) -> tuple[tuple[str, ...], ...]:
        """The keys of the assets that the job represents, as its submission says; none of a job that nobody
        knows."""
        try:
            config = self._dispatcher.graph(job).config
        except NotFound:
            return ()
        return (
            Configuration({key: config[key] for key in config if key == DAGSTER_ASSETS.key}).find(
                DAGSTER_ASSETS
            )
            or ()
        )

    async def attach(self, request: Request) -> Response:
        """The link as it is now: of the watcher, or of another one that still watches."""
        body = await body_of(request, AttachBody)
        job = job_id(body.job)
        return json_answer(await run_in_threadpool(self._links.attach, body.key, job, body.watcher))

    async def heartbeat(self, request: Request) -> Response:
        """`own`: the link is of this watcher."""
        body = await body_of(request, WatchBody)
        return json_answer({"own": await run_in_threadpool(self._links.heartbeat, body.key, body.watcher)})

    async def release(self, request: Request) -> Response:
        """`own`: it was of this watcher until now."""
        body = await body_of(request, WatchBody)
        return json_answer({"own": await run_in_threadpool(self._links.release, body.key, body.watcher)})

    async def take_over(self, request: Request) -> Response:
        """`link` as it is now; null: there is none."""
        body = await body_of(request, TakeOverBody)

        def take_over() -> object:
            return self._links.take_over(body.key, body.watcher, silent_ms=body.silent_ms)

        return json_answer({"link": await run_in_threadpool(take_over)})
