"""GET /unistream/overview: one line for each job, with the figures that answer how it does.

Counters grow; who asks twice has rates. What nobody knows is null, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from fastapi import APIRouter, Response

from unistream.base.config import WEB_DAGSTER_URL
from unistream.base.errors import NotFound
from unistream.base.ids import JobId, OperatorUid, VertexId
from unistream.master.dispatcher import Dispatcher
from unistream.master.job_info import CheckpointInfo, JobInfo, JobSummary, in_one_line
from unistream.port.metrics import SECONDS_UNANSWERED
from unistream.rest.answers import json_answer

NowMs: TypeAlias = Callable[[], int]


class VertexName(msgspec.Struct, frozen=True, kw_only=True):
    """A vertex, for those who look for an operator by its name."""

    id: VertexId
    name: str


class SilentSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source that waits for a system which does not answer.

    `seconds`: for how long, of the subtask that has waited longest. `subtasks`: that wait, of `of`.
    """

    name: str
    seconds: int
    subtasks: int
    of: int


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How a running job does.

    Attributes:
        rows_read: By its sources, in the current attempts of their tasks.
        rows_committed: By all of its sinks; null: none of them counts rows.
        behind: Records that the sources know of and have not read; null: not all of them say so.
        watermark_ms: The smallest one; null: there is none yet.
        compiling: A worker makes machine code, and may read nothing meanwhile.
        busiest: Part of its time that the busiest subtask works, 0 to 1; `most_held_back`: that the one waits
            which waits most for room in its output.
        checkpoint: The newest that is complete.
        failed_since: Checkpoints that have failed since then.
        writes: Tables, topics and folders that it writes, as URIs.
        reads: The same that it reads.
        failure: Why it failed last, in one line.
        silent: Sources that wait for a system which does not answer; not all kinds of sources say so.
        vertices: Those that run, in the order of the graph; a name has those of the chained operators.
    """

    rows_read: int
    rows_committed: int | None
    behind: int | None
    watermark_ms: int | None
    compiling: bool
    busiest: float
    most_held_back: float
    checkpoint: CheckpointInfo | None
    failed_since: int
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    failure: str | None
    vertices: tuple[VertexName, ...]
    silent: tuple[SilentSource, ...] = ()


class JobInList(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and its figures while it runs."""

    summary: JobSummary
    figures: JobFigures | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs, the slots, and what a user should know.

    `now_ms`: by the clock of this cluster. `dagster_url`: where Dagster's pages are; null: nobody says it.
    """

    now_ms: int
    cluster: str
    version: str
    workers: int
    slots: int
    free_slots: int
    jobs: list[JobInList]
    notes: list[str]
    dagster_url: str | None = None


class FiguresApi:
    """The handler."""

    def __init__(self, dispatcher: Dispatcher, now_ms: NowMs, version: str) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._version = version

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/overview")(self.overview)

    def overview(self) -> Response:
        """Every job, with figures of those that run."""
        return json_answer(self.read())

    def read(self) -> Overview:
        workers = [worker for worker in self._dispatcher.task_managers() if worker.address is not None]
        return Overview(
            now_ms=self._now_ms(),
            cluster=self._dispatcher.cluster,
            version=self._version,
            workers=len(workers),
            slots=sum(worker.slots for worker in workers),
            free_slots=sum(worker.free_slots for worker in workers),
            jobs=[
                JobInList(summary=job, figures=self._figures(job, info))
                for job, info in self._dispatcher.shown_jobs()
            ],
            notes=self._dispatcher.metadata_health().sentences(),
            dagster_url=self._dispatcher.config.find(WEB_DAGSTER_URL),
        )

    def _figures(self, job: JobSummary, info: JobInfo | None) -> JobFigures | None:
        if job.ended_ms is not None:
            return None
        try:
            return figures_of(info or self._dispatcher.job(JobId(job.job)))
        except NotFound:
            return None  # it has ended, and was pruned, since the list was made


def figures_of(info: JobInfo) -> JobFigures:
    """The figures of a job. Pure."""
    metrics = [subtask.metrics for subtask in info.subtasks]
    complete = next((one for one in info.checkpoints if one.state == "completed"), None)
    newer = info.checkpoints if complete is None else info.checkpoints[: info.checkpoints.index(complete)]
    last = max(info.exceptions, key=lambda one: one.at_ms, default=None)
    return JobFigures(
        rows_read=sum(s.metrics.records_in for s in info.subtasks if s.source is not None),
        rows_committed=info.metrics.get("rows_committed"),
        behind=info.records_behind,
        watermark_ms=info.metrics.get("watermark"),
        compiling=info.is_compiling,
        busiest=max((_part(one.busy_per_s) for one in metrics), default=0.0),
        most_held_back=max((_part(one.backpressured_per_s) for one in metrics), default=0.0),
        checkpoint=complete,
        failed_since=sum(one.state == "failed" for one in newer),
        writes=_uris(info.writes),
        reads=_uris(info.reads),
        failure=None if last is None else in_one_line(last.kind, last.message),
        vertices=tuple(
            VertexName(id=id_, name=name)
            for id_, name in {s.vertex: s.vertex_name for s in info.subtasks}.items()
        ),
        silent=silent_sources(info),
    )


def silent_sources(info: JobInfo) -> tuple[SilentSource, ...]:
    """Those of a job that wait. Pure."""
    seconds: dict[str, list[int]] = {}
    for subtask in info.subtasks:
        if subtask.source is not None and subtask.state == "RUNNING":
            counter = f"{subtask.source}.{SECONDS_UNANSWERED}"
            seconds.setdefault(subtask.source, []).append(subtask.metrics.user.get(counter, 0))
    return tuple(
        SilentSource(name=name, seconds=max(each), subtasks=sum(map(bool, each)), of=len(each))
        for name, each in seconds.items()
        if any(each)
    )


def _uris(by_operator: Mapping[OperatorUid, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({uri for uris in by_operator.values() for uri in uris}))


def _part(ms_per_s: int) -> float:
    return min(1.0, max(0.0, ms_per_s / 1_000))
