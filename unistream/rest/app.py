"""The REST API of a cluster: Flink's paths (so that its tools work), and our own below /unistream.

Every path exists with and without the prefix /v1, and is answered for who has a token whose scope it needs
(`unistream.rest.access`). Errors are ``{"errors": [text]}``. It binds to loopback only (see
`unistream.rest.server`), and of what browsers send it takes changes from its own pages alone (see
`unistream.rest.guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.routing import Mount

from unistream.base.clock import Clock
from unistream.base.config import WEB_CANCEL_ENABLE
from unistream.base.errors import (
    UNDECODABLE,
    ConfigError,
    NotFound,
)
from unistream.base.ids import JobId, VertexId
from unistream.core.access import Identity
from unistream.core.contract import SnapshotRequest
from unistream.master.cluster import Dispatcher, counts_of
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.submission import SubmitRequest
from unistream.rest import flink_json
from unistream.rest.access import AccessControl
from unistream.rest.allowed_paths import AllowedPaths
from unistream.rest.answers import json_answer as _json
from unistream.rest.answers import operation
from unistream.rest.authorized import Authorized, identity_of
from unistream.rest.backpressure import backpressure
from unistream.rest.body_limit import BodyLimit
from unistream.rest.certificates import NO_ISSUER, CertificatesApi, Issuer
from unistream.rest.checkpoints import CheckpointsApi
from unistream.rest.cluster import ClusterApi
from unistream.rest.commits import CommitsApi
from unistream.rest.dead_letters import DeadLettersApi
from unistream.rest.error_answers import add_error_handlers
from unistream.rest.events import EventsApi
from unistream.rest.explain import ExplainApi
from unistream.rest.figures import FiguresApi
from unistream.rest.guard import Guard, rules_of
from unistream.rest.job_commits import JobCommitsApi
from unistream.rest.job_log import JobLogApi
from unistream.rest.kept_jobs import KeptJobsApi
from unistream.rest.letter_replays import LetterReplaysApi
from unistream.rest.metrics import MetricsApi
from unistream.rest.openapi import MSGPACK, OPERATIONS, document
from unistream.rest.pages import PagesApi, built
from unistream.rest.past_jobs import PastJobsApi
from unistream.rest.plans import PlansApi
from unistream.rest.procedures import ProceduresApi
from unistream.rest.refusal import RefusalApi
from unistream.rest.requests import (
    SavepointBody,
    StopBody,
    body_of,
    chosen_trigger,
    job_id,
    savepoint_format,
    target,
    task_manager_id,
    trigger_id,
)
from unistream.rest.run_links import RunLinksApi
from unistream.rest.savepoints import SavepointsApi
from unistream.rest.scaling import ScalingApi
from unistream.rest.timeline import TimelineApi
from unistream.rest.tokens import TokensApi
from unistream.rest.triggers import Triggers
from unistream.rest.vertices import VerticesApi
from unistream.rest.workers import WorkersApi

REFRESH_INTERVAL_MS: Final = 3_000
SUBMISSION_PATH: Final = "/unistream/jobs"
EXCEPTIONS_SHOWN_MAX: Final = 1_000

logger = logging.getLogger(__name__)


class _Api:
    """The handlers. Plain functions: they run in a pool of threads and may block briefly."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        version: str,
        triggers: Triggers,
        on_shutdown: Callable[[], None],
        paths: AllowedPaths,
    ) -> None:
        self._paths = paths
        self._dispatcher = dispatcher
        self._clock = clock
        self._version = version
        self._triggers = triggers
        self._on_shutdown = on_shutdown

    # --- the cluster ------------------------------------------------------------------------------

    def overview(self) -> Response:
        workers = [worker for worker in self._dispatcher.task_managers() if worker.address is not None]
        counts = counts_of([job.state for job in self._dispatcher.jobs()])
        total = sum(worker.slots for worker in workers)
        return _json(
            {
                "taskmanagers": len(workers),
                "slots-total": total,
                "slots-available": sum(worker.free_slots for worker in workers),
                "taskmanagers-blocked": sum(worker.blocked_ms > 0 for worker in workers),
                "slots-free-and-blocked": sum(w.free_slots for w in workers if w.blocked_ms),
                "jobs-running": counts["running"],
                "jobs-finished": counts["finished"],
                "jobs-cancelled": counts["cancelled"],
                "jobs-failed": counts["failed"],
                "flink-version": self._version,
                "flink-commit": "unistream",
            }
        )

    def config(self) -> Response:
        changes = self._dispatcher.config.get(WEB_CANCEL_ENABLE)
        features = {
            "web-submit": False,
            "web-cancel": changes,
            "web-rescale": changes,
            "web-history": False,
        }
        return _json(
            {
                "refresh-interval": REFRESH_INTERVAL_MS,
                "timezone-name": "Coordinated Universal Time",
                "timezone-offset": 0,
                "flink-version": self._version,
                "flink-revision": f"unistream {self._version}",
                "features": features,
            }
        )

    def task_managers(self) -> Response:
        items = [flink_json.task_manager(worker) for worker in self._dispatcher.task_managers()]
        return _json({"taskmanagers": items})

    def task_manager(self, id_: str) -> Response:
        wanted = task_manager_id(id_)
        for worker in self._dispatcher.task_managers():
            if worker.id == wanted:
                return _json(flink_json.task_manager(worker))
        raise NotFound(f"there is no task manager {wanted}")

    def shutdown(self) -> Response:
        self._on_shutdown()
        return _json({}, 202)

    # --- jobs, as Flink shows them ------------------------------------------------------------------

    def jobs(self) -> Response:
        return _json({"jobs": [{"id": job.job, "status": job.state} for job in self._dispatcher.jobs()]})

    def jobs_overview(self) -> Response:
        now_ms = self._clock.wall_ms()
        jobs = self._dispatcher.jobs()
        return _json({"jobs": [flink_json.overview_item(job, now_ms) for job in jobs]})

    def job(self, id_: str) -> Response:
        job = job_id(id_)
        info = self._dispatcher.job(job)
        return _json(flink_json.job_details(info, self._dispatcher.known_graph(job), self._clock.wall_ms()))

    def status(self, id_: str) -> Response:
        return _json({"status": self._dispatcher.job(job_id(id_)).state})

    def exceptions(self, id_: str, maxExceptions: int = 20) -> Response:  # Flink's spelling
        limit = min(max(0, maxExceptions), EXCEPTIONS_SHOWN_MAX)
        return _json(flink_json.exceptions(self._dispatcher.whole_job(job_id(id_)), limit))

    def plan(self, id_: str) -> Response:
        job = job_id(id_)
        return _json({"plan": flink_json.plan(self._dispatcher.whole_job(job), self._dispatcher.graph(job))})

    def backpressure(self, id_: str, vertex: str) -> Response:
        info = self._dispatcher.whole_job(job_id(id_))
        return _json(backpressure(info, VertexId(vertex.lower()), self._clock.wall_ms()))

    # --- changes ------------------------------------------------------------------------------------

    def cancel(self, id_: str, mode: str = "cancel") -> Response:
        if mode != "cancel":
            raise ConfigError(f"mode {mode[:80]!r} is not 'cancel'")
        self._dispatcher.cancel(job_id(id_))
        return _json({}, 202)

    async def savepoint(self, id_: str, request: Request) -> Response:
        body = await body_of(request, SavepointBody)
        self._check_place(body.target, request)
        return await run_in_threadpool(self._savepoint, id_, body)

    def _savepoint(self, id_: str, body: SavepointBody) -> Response:
        job, where, form = job_id(id_), target(body.target), savepoint_format(body.format)
        kind = SnapshotKind.SUSPEND if body.cancel else SnapshotKind.SAVEPOINT
        request = SnapshotRequest(kind=kind, target=where, format=form)
        return self._snapshot(job, request, chosen_trigger(body.trigger))

    async def stop(self, id_: str, request: Request) -> Response:
        body = await body_of(request, StopBody)
        self._check_place(body.target, request)
        return await run_in_threadpool(self._stop, id_, body)

    def _stop(self, id_: str, body: StopBody) -> Response:
        job, where, form = job_id(id_), target(body.target), savepoint_format(body.format)
        kind = SnapshotKind.TERMINATE if body.drain else SnapshotKind.SUSPEND
        request = SnapshotRequest(kind=kind, target=where, format=form)
        return self._snapshot(job, request, chosen_trigger(body.trigger))

    def _check_place(self, where: str | None, request: Request) -> None:
        self._paths.check(target(where), identity_of(request))

    def _snapshot(self, job: JobId, request: SnapshotRequest, trigger: str | None) -> Response:
        known = None if trigger is None else self._dispatcher.operation(job, trigger)
        if known is not None and trigger is not None:  # an earlier leader may have begun it
            known.of(request, trigger)
            return _json({"request-id": trigger}, 202)
        begin = partial(self._dispatcher.snapshot, job, request)
        started = self._triggers.start(job, begin, trigger=trigger, request=request)
        return _json({"request-id": started}, 202)

    def savepoint_status(self, id_: str, trigger: str) -> Response:
        job, id_ = job_id(id_), trigger_id(trigger)
        known = self._dispatcher.operation(job, id_)
        if known is not None and known.is_rescale:
            raise NotFound(f"there is no savepoint operation {id_} of job {job}")
        path = self._triggers.outcome(job, id_, known=None if known is None else known.answer)
        if path is None:
            return operation(None)
        known = self._dispatcher.operation(job, id_)  # as it is now that it is over
        result = {"location": path}
        if known is not None and known.resumes_from not in (None, path):
            result["resumable-location"] = known.resumes_from
        return operation(result)

    # --- our own ------------------------------------------------------------------------------------

    def own_job(self, id_: str) -> Response:
        """The whole `JobInfo`."""
        return _json(self._dispatcher.job(job_id(id_)))

    def own_task_managers(self) -> Response:
        """Answers with the `TaskManagerInfo` of every worker."""
        return _json({"taskmanagers": self._dispatcher.task_managers()})

    def own_jobs(self) -> Response:
        """Every `JobSummary`, the cluster that answers, and what a user should know of it."""
        jobs, notes = self._dispatcher.jobs(), self._dispatcher.notes()
        return _json({"jobs": jobs, "cluster": self._dispatcher.cluster, "notes": notes})

    def health(self) -> Response:
        """The metadata database, and what a user should know of it."""
        metadata = self._dispatcher.metadata_health()
        return _json({"metadata": metadata, "notes": metadata.sentences()})

    async def submit(self, request: Request) -> Response:
        """Body: msgpack of `SubmitRequest`; the artifact in it stays opaque bytes here."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MSGPACK:
            raise ConfigError(f"a submission must be {MSGPACK}")
        content = await request.body()
        return await run_in_threadpool(self._submit, content, identity_of(request))

    def _submit(self, content: bytes, identity: Identity) -> Response:
        try:
            submission = msgspec.msgpack.decode(content, type=SubmitRequest)
        except UNDECODABLE as error:
            raise ConfigError(f"not a submission: {error}") from error
        target(submission.savepoint)
        self._paths.check_submission(submission, identity)
        return _json({"jobid": self._dispatcher.submit(submission)}, 202)


def create_app(
    dispatcher: Dispatcher,
    *,
    clock: Clock,
    version: str,
    triggers: Triggers,
    on_shutdown: Callable[[], None],
    access: AccessControl,
    issuer: Issuer = NO_ISSUER,
    pages: Path | None = None,
) -> FastAPI:
    """The ASGI application.

    Args:
        dispatcher: What is asked.
        clock: Of the answers.
        version: Of unistream.
        triggers: Operations that go on after their answer.
        on_shutdown: Called for DELETE /cluster; must return at once.
        access: Knows who may ask.
        issuer: Makes certificates of hosts that join.
        pages: Where the built web UI is; None: where this installation has it, if it does.
    """
    figures = FiguresApi(dispatcher, clock.wall_ms, version)
    events = EventsApi(dispatcher, figures, clock.wall_ms, version)
    router = _routes(
        _Api(
            dispatcher,
            clock=clock,
            version=version,
            triggers=triggers,
            on_shutdown=on_shutdown,
            paths=access.paths,
        )
    )
    figures.routes(router)
    events.routes(router)
    _add_others(router, dispatcher, clock=clock, version=version, triggers=triggers, access=access)
    TokensApi(access, issuer).routes(router)
    CertificatesApi(access, issuer, clock, dispatcher.control_address).routes(router)
    _authorize(router, access)
    app = FastAPI(title="unistream", version=version, docs_url=None, redoc_url=None)
    app.state.before_close = events.end
    web = APIRouter()
    PagesApi(pages or built(), version).routes(web)
    # `include_router` would look at the parameters of each route once more, at the first request: 40 ms
    app.router.routes.extend([*router.routes, *web.routes])
    app.router.routes.append(Mount("/v1", routes=list(router.routes)))
    app.openapi = cache(partial(document, app))  # type: ignore[method-assign]  # FastAPI's way to replace it
    add_error_handlers(app)
    app.add_middleware(BodyLimit, large_path=SUBMISSION_PATH)
    app.add_middleware(Guard, rules=rules_of(dispatcher.config))
    return app


def _add_others(
    router: APIRouter,
    dispatcher: Dispatcher,
    *,
    clock: Clock,
    version: str,
    triggers: Triggers,
    access: AccessControl,
) -> None:
    """Adds the paths that have a module each."""
    ScalingApi(dispatcher, triggers).routes(router)
    CheckpointsApi(dispatcher, triggers).routes(router)
    MetricsApi(dispatcher).routes(router)
    RefusalApi(dispatcher).routes(router)
    CommitsApi(dispatcher).routes(router)
    JobLogApi(dispatcher).routes(router)
    KeptJobsApi(dispatcher, access.paths).routes(router)
    RunLinksApi(dispatcher).routes(router)
    ProceduresApi(dispatcher, clock.wall_ms, version).routes(router)
    VerticesApi(dispatcher).routes(router)
    JobCommitsApi(dispatcher, clock.wall_ms).routes(router)
    SavepointsApi(dispatcher, clock.wall_ms).routes(router)
    DeadLettersApi(dispatcher).routes(router)
    LetterReplaysApi(dispatcher, triggers).routes(router)
    ExplainApi(dispatcher).routes(router)
    TimelineApi(dispatcher).routes(router)
    PastJobsApi(dispatcher).routes(router)
    PlansApi(dispatcher, access.paths, clock.wall_ms).routes(router)
    ClusterApi(dispatcher).routes(router)
    WorkersApi(dispatcher).routes(router)


def _authorize(router: APIRouter, access: AccessControl) -> None:
    """Every path is answered for who may ask it: one that is not described cannot be served."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        described = {method: OPERATIONS[f"{method} {route.path}"] for method in route.methods or ()}
        needed = {method: operation.needs for method, operation in described.items()}
        audited = {method for method, operation in described.items() if operation.changes}
        route.app = Authorized(route.app, access, needed, audited)


def _routes(api: _Api) -> APIRouter:
    router = APIRouter()
    get, post = router.get, router.post
    get("/overview")(api.overview)
    get("/config")(api.config)
    get("/taskmanagers")(api.task_managers)
    get("/taskmanagers/{id_}")(api.task_manager)
    router.delete("/cluster")(api.shutdown)
    get("/jobs")(api.jobs)
    get("/jobs/overview")(api.jobs_overview)
    get("/jobs/{id_}")(api.job)
    get("/jobs/{id_}/status")(api.status)
    get("/jobs/{id_}/exceptions")(api.exceptions)
    get("/jobs/{id_}/plan")(api.plan)
    get("/jobs/{id_}/vertices/{vertex}/backpressure")(api.backpressure)
    router.patch("/jobs/{id_}")(api.cancel)
    post("/jobs/{id_}/savepoints")(api.savepoint)
    post("/jobs/{id_}/stop")(api.stop)
    get("/jobs/{id_}/savepoints/{trigger}")(api.savepoint_status)
    get("/unistream/jobs")(api.own_jobs)
    get("/unistream/jobs/{id_}")(api.own_job)
    get("/unistream/health")(api.health)
    get("/unistream/taskmanagers")(api.own_task_managers)
    post(SUBMISSION_PATH)(api.submit)
    return router
