"""What is in the snapshots of this cluster's jobs, and SQL over it.

GET   /unistream/jobs/ID/state?checkpoint=N      operators, states, sizes: from the manifest
POST  /unistream/savepoints/query                rows, by DuckDB in a process of its own

A snapshot is named by its job and its id, never by a path: so nobody reaches one that is not of a job of this
cluster. Python objects in it are never read; they are bytes here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.config import SAVEPOINT_QUERIES
from unistream.base.errors import ConfigError, CorruptSnapshot, NotFound, Transient
from unistream.base.extras import is_installed
from unistream.base.ids import CheckpointId, JobId
from unistream.base.object_stores import store_options
from unistream.master.dispatcher import Dispatcher
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.rest.answers import json_answer
from unistream.rest.requests import body_of, job_id, whole_number
from unistream.savepoint.bounded_query import BoundedQuery, QueryLimits, Question, ResultRows
from unistream.savepoint.contents_shown import OperatorStates, operators_shown
from unistream.savepoint.inspection import inspection
from unistream.savepoint.reading import Savepoint, read_savepoint

AT_ONCE_MAX: Final = 2
PLACES: Final = threading.BoundedSemaphore(AT_ONCE_MAX)
"""Of this process, for queries."""

TRIED_MAX: Final = 5  # snapshots, until one is there: newer ones replace it all the time
LOOKS_EVERY_S: Final = 0.25  # whether somebody still waits for the answer
ID_MAX: Final = 2**53 - 1

NowMs = Callable[[], int]


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

    def __init__(self, dispatcher: Dispatcher, now_ms: NowMs, limits: QueryLimits | None = None) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._limits = limits or QueryLimits()

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{id_}/state")(self.state)
        router.post("/unistream/savepoints/query")(self.query)

    async def state(self, id_: str, request: Request) -> Response:
        """`checkpoint`: the id of a snapshot; without it, the newest one that is complete."""
        given = "checkpoint" in request.query_params
        wanted = CheckpointId(whole_number(request, "checkpoint", 0, ID_MAX)) if given else None
        return json_answer(await run_in_threadpool(self._state, job_id(id_), wanted))

    def _state(self, job: JobId, wanted: CheckpointId | None) -> SnapshotContents:
        savepoint = self._opened(job, wanted)
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
        job, began_ms = job_id(body.job), self._now_ms()
        wanted = None if body.checkpoint is None else CheckpointId(body.checkpoint)
        savepoint = await run_in_threadpool(self._opened, job, wanted)
        why = self._no_query(savepoint)
        if why is not None:
            raise ConfigError(why)
        store = store_options(self._dispatcher.config)
        question = Question(path=savepoint.path, sql=body.sql, limits=self._limits, store=store)
        rows = await self._rows(job, savepoint, BoundedQuery(question), request)
        return json_answer(
            QueryAnswer(
                checkpoint_id=savepoint.checkpoint_id,
                kind=savepoint.kind,
                taken_ms=savepoint.taken_ms,
                result=rows,
                limits=self._limits,
                took_ms=max(0, self._now_ms() - began_ms),
            )
        )

    async def _rows(
        self, job: JobId, savepoint: Savepoint, asked: BoundedQuery, request: Request
    ) -> ResultRows:
        """Stops the query when the client has gone."""
        if not PLACES.acquire(blocking=False):
            raise Transient(f"{AT_ONCE_MAX} queries of savepoints run already, and no more do at once")
        try:
            answer = asyncio.ensure_future(run_in_threadpool(asked.result))
            while not (await asyncio.wait([answer], timeout=LOOKS_EVERY_S))[0]:
                if await request.is_disconnected():
                    asked.stop()
            return await answer
        except CorruptSnapshot:
            self._check_kept(job, savepoint.checkpoint_id)
            raise
        finally:
            asked.stop()
            PLACES.release()

    # --- which snapshot ---------------------------------------------------------------------------

    def _opened(self, job: JobId, wanted: CheckpointId | None) -> Savepoint:
        """Raises NotFound: it is not one of this cluster's jobs, there is none, or it is not kept."""
        if self._dispatcher.job(job).cluster != self._dispatcher.cluster:
            raise NotFound(
                f"job {job} is of another cluster; `unistream savepoint query PATH` reads its savepoints"
            )
        for figures in list(self._complete(job, wanted))[:TRIED_MAX]:
            assert figures.path is not None, "it is complete"
            try:
                return read_savepoint(figures.path)
            except ConfigError:  # removed meanwhile: there is nothing at that path
                continue
        what = "complete checkpoint or savepoint" if wanted is None else f"checkpoint {wanted}"
        raise NotFound(f"job {job} has no {what} that is still kept; newer ones replace older ones")

    def _complete(self, job: JobId, wanted: CheckpointId | None) -> Iterator[CheckpointFigures]:
        """Those that are complete and kept, newest first."""
        info = self._dispatcher.checkpoints(job)
        newest = (*info.latest, info.latest_completed, info.latest_savepoint)
        for figures in newest if wanted is None else (info.find(wanted),):
            is_complete = figures is not None and figures.status is SnapshotStatus.COMPLETED
            if figures is not None and is_complete and not figures.discarded and figures.path is not None:
                yield figures

    def _check_kept(self, job: JobId, checkpoint: CheckpointId) -> None:
        """Raises NotFound: a newer one has replaced it while it was read."""
        if not list(self._complete(job, checkpoint)):
            raise NotFound(
                f"checkpoint {checkpoint} was replaced by a newer one while it was read: ask again, or take "
                "a savepoint, which stays"
            )

    def _no_query(self, savepoint: Savepoint) -> str | None:
        if not self._dispatcher.config.get(SAVEPOINT_QUERIES):
            return f"queries are turned off in this cluster ({SAVEPOINT_QUERIES.key})"
        if not is_installed("savepoint"):
            return "queries need DuckDB where the JobManager runs: pip install 'unistream[savepoint]'"
        if savepoint.path.startswith("memory:"):
            return "the snapshot is in the memory of the JobManager, where no other process can read it"
        return None
