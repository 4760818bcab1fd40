"""GET /unistream/jobs/ID/commits: what each sink has made visible, what waits for it, and since when.

What waits is read in the newest complete snapshot: it lists the output that was staged when it was taken, and
of that nothing waits which the sink has committed since. Rows after it are in no snapshot yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base.errors import CorruptSnapshot, NotFound, ProtocolError
from unistream.base.ids import CheckpointId, JobId
from unistream.master.cluster import Dispatcher
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import JobInfo, SinkInfo
from unistream.port.metadata import CommitRecord
from unistream.rest.answers import json_answer
from unistream.rest.requests import job_id, whole_number
from unistream.rest.restore_points import RestorePoints
from unistream.savepoint.pending import PendingCommits, pending
from unistream.savepoint.reading import Savepoint

COMMITS_SHOWN: Final = 200
COMMITS_SHOWN_MAX: Final = 1_000

NowMs = Callable[[], int]


class StagedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output of one checkpoint of a sink that is written and not visible.

    Attributes:
        committables: Number of them. `size`: their bytes, not those of what they stand for.
        since_ms: When its checkpoint was taken; null: that is not known any more.
    """

    checkpoint_id: CheckpointId
    committables: int
    size: int
    since_ms: int | None


class SinkCommits(msgspec.Struct, frozen=True, kw_only=True):
    """One sink.

    Attributes:
        plain: It commits nothing, ever: rows are with its target when they are sent, at least once.
        writes: Its tables and topics, as URIs; empty: it does not say, or the job has no master now.
        info: Over all of its commits; null: it has none.
        newest: Its newest commit that is recorded; null: none is.
        staged: What waits for its commit, the oldest first; null: it is not known.
    """

    uid: str
    plain: bool
    writes: tuple[str, ...]
    info: SinkInfo | None
    newest: CommitRecord | None
    staged: tuple[StagedOutput, ...] | None


class JobCommits(msgspec.Struct, frozen=True, kw_only=True):
    """What the sinks of one job have committed, and what waits.

    Attributes:
        checkpoint_id: The newest complete snapshot, taken at `taken_ms`: rows that came later are in no
            commit yet. null: there is none.
        why_unknown: Why it is not known what is staged; null: it is.
        commits: The newest, newest first.
    """

    now_ms: int
    checkpoint_id: CheckpointId | None
    taken_ms: int | None
    why_unknown: str | None
    sinks: tuple[SinkCommits, ...]
    commits: tuple[CommitRecord, ...]


class JobCommitsApi:
    """The handler. `now_ms`: the wall clock."""

    def __init__(self, dispatcher: Dispatcher, now_ms: NowMs) -> None:
        self._dispatcher = dispatcher
        self._points = RestorePoints(dispatcher)
        self._now_ms = now_ms

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{id_}/commits")(self.commits)

    async def commits(self, id_: str, request: Request) -> Response:
        """`limit`: most commits of the answer."""
        limit = whole_number(request, "limit", COMMITS_SHOWN, COMMITS_SHOWN_MAX, least=1)
        return json_answer(await run_in_threadpool(self._commits, job_id(id_), limit))

    def _commits(self, job: JobId, limit: int) -> JobCommits:
        info, known = self._dispatcher.job(job), self._dispatcher.checkpoints(job)
        recorded = self._dispatcher.commits_of(job, limit)[::-1]
        staged: dict[str, tuple[StagedOutput, ...]] | None = {}
        savepoint, why = None, None
        try:
            savepoint = self._points.opened(job, None)
            staged = staged_outputs(_pending(savepoint), info.sinks, _times(known))
        except NotFound as error:  # nothing is staged before the first checkpoint, nor when all is done
            nothing = not known.completed or info.state == "FINISHED"
            staged, why = ({}, None) if nothing else (None, str(error))
        except (CorruptSnapshot, ProtocolError) as error:
            staged, why = None, str(error)
        return JobCommits(
            now_ms=self._now_ms(),
            checkpoint_id=None if savepoint is None else savepoint.checkpoint_id,
            taken_ms=None if savepoint is None else savepoint.taken_ms,
            why_unknown=why,
            sinks=sinks_of(info, recorded, staged),
            commits=tuple(recorded),
        )


def staged_outputs(
    found: Iterable[PendingCommits], sinks: Mapping[str, SinkInfo], taken_ms: Mapping[CheckpointId, int]
) -> dict[str, tuple[StagedOutput, ...]]:
    """The staged outputs by sink, without what it has committed: it commits checkpoints in their order.
    Pure."""
    staged = {}
    for one in found:
        uid = str(one.sink_uid or one.uid)
        committed = sinks[uid].checkpoint_id if uid in sinks else None
        staged[uid] = tuple(
            StagedOutput(
                checkpoint_id=due.checkpoint_id,
                committables=len(due.payloads),
                size=sum(map(len, due.payloads)),
                since_ms=taken_ms.get(due.checkpoint_id),
            )
            for due in one.due
            if committed is None or due.checkpoint_id > committed
        )
    return staged


def sinks_of(
    info: JobInfo,
    recorded: Iterable[CommitRecord],
    staged: Mapping[str, tuple[StagedOutput, ...]] | None,
) -> tuple[SinkCommits, ...]:
    """All sinks that are known of, by name. `recorded`: newest first. Pure."""
    newest: dict[str, CommitRecord] = {}
    for record in recorded:
        newest.setdefault(record.sink_uid, record)
    writes = {str(uid): uris for uid, uris in info.writes.items()}
    return tuple(
        SinkCommits(
            uid=uid,
            plain=uid in info.plain_sinks,
            writes=writes.get(uid, ()),
            info=info.sinks.get(uid),
            newest=newest.get(uid),
            staged=None if staged is None else staged.get(uid, ()),
        )
        for uid in sorted({*writes, *info.sinks, *newest, *(staged or ())})
    )


def _pending(savepoint: Savepoint) -> list[PendingCommits]:
    return pending(savepoint.committables, savepoint.manifest.restores_as)


def _times(known: CheckpointsInfo) -> dict[CheckpointId, int]:
    return {one.checkpoint_id: one.timestamp_ms for one in known.latest}
