"""Changing the parallelism of jobs: Flink's /resource-requirements, and a path that reports the outcome.

The upper bound is the parallelism of the job; an adaptive job runs with less, down to 1, while there are too
few slots. The lower bound is kept and shown while this process runs, and has no other effect.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.errors import AlreadyEnded, Busy, ConfigError, Unreachable
from unistream.base.ids import JobId, VertexId
from unistream.master.cluster import Dispatcher
from unistream.master.store import RescaleAsked, digest_of_widths
from unistream.model.graph import JobGraph
from unistream.rest.answers import json_answer, operation
from unistream.rest.requests import body_of, chosen_trigger, job_id, trigger_id
from unistream.rest.triggers import Triggers

WHAT = "rescale"
JOBS_MAX = 1_000  # whose lower bounds are kept
LOOK_S: Final = 0.1  # between two looks at a job that has not said whether it takes a request
LOOKS_MAX: Final = 300
UNBOUNDED = -1
"""Flink: as low, or as high, as can be."""


class Bounds(msgspec.Struct, frozen=True, rename={"lower": "lowerBound", "upper": "upperBound"}):
    """Flink's `JobVertexResourceRequirements.Parallelism`: the parallelism that a vertex needs, and the most
    that it uses."""

    lower: int
    upper: int


class Requirements(msgspec.Struct, frozen=True):
    """The requirements of one vertex."""

    parallelism: Bounds


class RescaleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"trigger": "triggerId"}):
    """POST /unistream/jobs/{id}/rescale: by vertex id, vertex name or operator uid."""

    parallelism: dict[str, int]
    trigger: str | None = None


class ScalingApi:
    """The handlers. Those that wait run in a pool of threads."""

    def __init__(self, dispatcher: Dispatcher, triggers: Triggers) -> None:
        self._dispatcher = dispatcher
        self._triggers = triggers
        self._lower = LowerBounds()

    def routes(self, router: APIRouter) -> None:
        router.get("/jobs/{id_}/resource-requirements")(self.requirements)
        router.put("/jobs/{id_}/resource-requirements")(self.require)
        router.post("/unistream/jobs/{id_}/rescale")(self.rescale)
        router.get("/unistream/jobs/{id_}/rescale/{trigger}")(self.status)

    def requirements(self, id_: str) -> Response:
        job = job_id(id_)
        graph = self._dispatcher.wanted_graph(job)
        lower = self._lower.of(job)
        return json_answer(
            {
                v.id: Requirements(Bounds(min(lower.get(v.id, 1), v.parallelism), v.parallelism))
                for v in graph.vertices
            }
        )

    async def require(self, id_: str, request: Request) -> Response:
        body = await body_of(request, dict[str, Requirements])
        return await run_in_threadpool(self._require, id_, body)

    def _require(self, id_: str, body: Mapping[str, Requirements]) -> Response:
        job = job_id(id_)
        graph = self._dispatcher.wanted_graph(job)
        errors = _errors(graph, body)
        if errors:
            raise ConfigError("\n".join(errors))
        wanted: dict[str, int] = {v.id: _upper(graph, v.id, body) for v in graph.vertices}
        refusal = self._refusal(job, wanted, self._dispatcher.rescale(job, wanted))
        if isinstance(refusal, AlreadyEnded):
            raise refusal
        if refusal is not None:
            raise Busy(str(refusal))
        self._lower.keep(job, {VertexId(name): max(1, one.parallelism.lower) for name, one in body.items()})
        return json_answer({})

    def _refusal(self, job: JobId, wanted: Mapping[str, int], answer: Future[str]) -> BaseException | None:
        """Why the job refuses; None as soon as it shows that it takes the request, which may be long before
        it runs so. Raises Unreachable: it is too busy to say either."""
        for _ in range(LOOKS_MAX):
            graph = self._dispatcher.wanted_graph(job)
            if answer.done():
                return answer.exception()
            if all(vertex.parallelism == wanted[vertex.id] for vertex in graph.vertices):
                return None
            futures.wait([answer], LOOK_S)
        raise Unreachable(
            f"job {job} has not said yet whether it takes this; it may: ask what it has, or again"
        )

    async def rescale(self, id_: str, request: Request) -> Response:
        body = await body_of(request, RescaleBody)
        return await run_in_threadpool(self._rescale, id_, body)

    def _rescale(self, id_: str, body: RescaleBody) -> Response:
        job, trigger = job_id(id_), chosen_trigger(body.trigger)
        known = None if trigger is None else self._dispatcher.operation(job, trigger)
        if known is not None and trigger is not None:  # an earlier leader may have begun it
            known.of(RescaleAsked(digest_of_widths(body.parallelism)), trigger)
            return json_answer({"request-id": trigger}, 202)
        begin = partial(self._dispatcher.rescale, job, body.parallelism)
        started = self._triggers.start(job, begin, what=WHAT, trigger=trigger, request=body.parallelism)
        return json_answer({"request-id": started}, 202)

    def status(self, id_: str, trigger: str) -> Response:
        job, asked = job_id(id_), trigger_id(trigger)
        known = self._dispatcher.operation(job, asked)
        answer = known.answer if known is not None and known.is_rescale else None
        if self._triggers.outcome(job, asked, WHAT, known=answer) is None:
            return operation(None)
        graph = self._dispatcher.wanted_graph(job)
        return operation({"parallelism": {vertex.id: vertex.parallelism for vertex in graph.vertices}})


class LowerBounds:
    """The bounds requested last, for the `JOBS_MAX` jobs that were changed last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bounds: OrderedDict[JobId, dict[VertexId, int]] = OrderedDict()

    def keep(self, job: JobId, bounds: dict[VertexId, int]) -> None:
        with self._lock:
            self._bounds[job] = bounds
            self._bounds.move_to_end(job)
            while len(self._bounds) > JOBS_MAX:
                self._bounds.popitem(last=False)

    def of(self, job: JobId) -> Mapping[VertexId, int]:
        """Empty if none were requested."""
        with self._lock:
            return self._bounds.get(job, {})


def _upper(graph: JobGraph, vertex_id: str, body: Mapping[str, Requirements]) -> int:
    vertex = next(vertex for vertex in graph.vertices if vertex.id == vertex_id)
    upper = body[vertex_id].parallelism.upper
    return vertex.max_parallelism if upper == UNBOUNDED else upper


def _errors(graph: JobGraph, body: Mapping[str, Requirements]) -> list[str]:
    """Everything that is wrong with a request: as in Flink it names all vertices, with possible bounds."""
    known = {str(vertex.id): vertex for vertex in graph.vertices}
    errors = [f"job {graph.name!r} has no vertex {name[:200]!r}" for name in body if name not in known]
    for name, vertex in known.items():
        if name not in body:
            errors.append(f"the request is incomplete: it lacks vertex {name} ({vertex.name!r})")
            continue
        bounds = body[name].parallelism
        lower = 1 if bounds.lower == UNBOUNDED else bounds.lower
        upper = vertex.max_parallelism if bounds.upper == UNBOUNDED else bounds.upper
        where = f"vertex {name} ({vertex.name!r})"
        if lower < 1 or upper < 1:
            errors.append(f"{where}: bounds {lower} and {upper} must both be at least 1")
        elif lower > upper:
            errors.append(f"{where}: the lower bound {lower} is above the upper bound {upper}")
        elif upper > vertex.max_parallelism:
            errors.append(f"{where}: {upper} is above its max parallelism {vertex.max_parallelism}")
    return errors
