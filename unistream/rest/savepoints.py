"""What is in the snapshots of this cluster's jobs, and SQL over it.

GET   /unistream/jobs/ID/state?checkpoint=N      operators, states, sizes: from the manifest
POST  /unistream/savepoints/query                rows, by DuckDB in a process of its own

A snapshot is named by its job and its id, never by a path: so nobody reaches one that is not of a job of this
cluster. Python objects in it are never read; they are bytes here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.config import SAVEPOINT_QUERIES
from unistream.base.errors import ConfigError, CorruptSnapshot, NotFound, Transient
from unistream.base.extras import is_installed
from unistream.base.ids import CheckpointId, JobId
from unistream.base.object_stores import store_options
from unistream.master.cluster import Dispatcher
from unistream.model.snapshot_kind import SnapshotKind
from unistream.rest.answers import json_answer
from unistream.rest.requests import body_of, job_id, whole_number
from unistream.rest.restore_points import RestorePoints
from unistream.rest.while_connected import while_connected
from unistream.savepoint.bounded_query import BoundedQuery, QueryLimits, ResultRows
from unistream.savepoint.contents_shown import OperatorStates, operators_shown
from unistream.savepoint.inspection import inspection
from unistream.savepoint.reading import Savepoint

AT_ONCE_MAX: Final = 2
PLACES: Final = threading.BoundedSemaphore(AT_ONCE_MAX)
"""The queries that run in this process at once."""

ATTEMPTS: Final = 3  # of a query over the newest snapshot, if newer ones replace it meanwhile
ID_MAX: Final = 2**53 - 1

NowMs = Callable[[], int]

logger = logging.getLogger(__name__)


class SnapshotContents(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint or a savepoint holds.

    Attributes:
        size: Of all its states, in bytes. `in_flight_bytes`: of rows that its barriers overtook, which are in
            no state.
        savepoint_format: "canonical" (tables) or "native" (files of its backend); null: it is a checkpoint.
        advice: What to know before a job starts from it; may be empty.
        limits: Of a query over it. `no_query`: why there can be none; null: there can.
    """

    job: JobId
    checkpoint_id: CheckpointId
    kind: SnapshotKind
    path: str
    taken_ms: int
    size: int
    in_flight_bytes: int
    savepoint_format: str | None
    can_resume: bool
    advice: str
    operators: tuple[OperatorStates, ...]
    limits: QueryLimits
    no_query: str | None


class QueryBody(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"checkpoint": "checkpointId"},
):
    """`checkpoint`: the id of a snapshot of the job; none: its newest one that is complete."""

    job: str
    sql: str
    checkpoint: int | None = None


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`result`: its rows, as far as the limits allow. `took_ms`: with the start of its process."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    taken_ms: int
    result: ResultRows
    limits: QueryLimits
    took_ms: int


class SavepointsApi:
    """The handlers. `now_ms`: the wall clock."""

    def __init__(self, dispatcher: Dispatcher, now_ms: NowMs) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._points = RestorePoints(dispatcher)
        self._limits = QueryLimits()

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{id_}/state")(self.state)
        router.post("/unistream/savepoints/query")(self.query)

    async def state(self, id_: str, request: Request) -> Response:
        """`checkpoint`: the id of a snapshot; without it, the newest one that is complete."""
        given = "checkpoint" in request.query_params
        wanted = CheckpointId(whole_number(request, "checkpoint", 0, ID_MAX)) if given else None
        return json_answer(await run_in_threadpool(self._state, job_id(id_), wanted))

    def _state(self, job: JobId, wanted: CheckpointId | None) -> SnapshotContents:
        savepoint = self._points.opened(job, wanted)
        found = inspection(savepoint, self._now_ms())
        return SnapshotContents(
            job=job,
            checkpoint_id=savepoint.checkpoint_id,
            kind=savepoint.kind,
            path=savepoint.path,
            taken_ms=savepoint.taken_ms,
            size=found.size,
            in_flight_bytes=sum(one.size for one in found.in_flight),
            savepoint_format=found.savepoint_format,
            can_resume=found.can_resume,
            advice=found.advice,
            operators=operators_shown(savepoint),
            limits=self._limits,
            no_query=self._no_query(savepoint),
        )

    async def query(self, request: Request) -> Response:
        """One SELECT over the states of one snapshot."""
        body = await body_of(request, QueryBody)
        began_ms = self._now_ms()
        wanted = None if body.checkpoint is None else CheckpointId(body.checkpoint)
        chosen = _Chosen(self._points, job_id(body.job), wanted)
        await run_in_threadpool(chosen.path)
        why = self._no_query(chosen.savepoint)
        if why is not None:
            raise ConfigError(why)
        rows = await self._rows(request, body.sql, chosen)
        took_ms = max(0, self._now_ms() - began_ms)
        checkpoint = chosen.savepoint.checkpoint_id
        logger.info("event=savepoint_query job=%s checkpoint=%s took_ms=%s", body.job, checkpoint, took_ms)
        return json_answer(
            QueryAnswer(
                checkpoint_id=checkpoint,
                kind=chosen.savepoint.kind,
                taken_ms=chosen.savepoint.taken_ms,
                result=rows,
                limits=self._limits,
                took_ms=took_ms,
            )
        )

    async def _rows(self, request: Request, sql: str, chosen: _Chosen) -> ResultRows:
        if not PLACES.acquire(blocking=False):
            raise Transient(f"{AT_ONCE_MAX} queries of savepoints run already, and no more do at once")
        try:
            for left in reversed(range(ATTEMPTS)):
                store = store_options(self._dispatcher.config)
                query = BoundedQuery(sql, chosen.path, limits=self._limits, store=store)
                try:
                    return await while_connected(request, query.result, query.stop)
                except CorruptSnapshot:
                    if await run_in_threadpool(chosen.is_kept):
                        raise
                    if left == 0 or chosen.wanted is not None:
                        raise NotFound(chosen.why_not) from None
        finally:
            PLACES.release()
        raise AssertionError("it returns or raises")

    def _no_query(self, savepoint: Savepoint) -> str | None:
        if not self._dispatcher.config.get(SAVEPOINT_QUERIES):
            return f"queries are turned off in this cluster ({SAVEPOINT_QUERIES.key})"
        if not is_installed("savepoint"):
            return "queries need DuckDB where the JobManager runs: pip install 'unistream[savepoint]'"
        if savepoint.path.startswith("memory:"):
            return "the snapshot is in the memory of the JobManager, where no other process can read it"
        return None


class _Chosen:
    """The snapshot of a query, which is looked up again whenever a process is ready to read it."""

    def __init__(self, points: RestorePoints, job: JobId, wanted: CheckpointId | None) -> None:
        self._points = points
        self._job = job
        self.wanted = wanted
        self.savepoint: Savepoint

    def path(self) -> str:
        """Raises NotFound, CorruptSnapshot."""
        self.savepoint = self._points.opened(self._job, self.wanted)
        return self.savepoint.path

    def is_kept(self) -> bool:
        return self._points.is_kept(self._job, self.savepoint.checkpoint_id)

    @property
    def why_not(self) -> str:
        return (
            f"checkpoint {self.savepoint.checkpoint_id} was replaced by a newer one while it was read: ask "
            "again, or take a savepoint, which stays"
        )
