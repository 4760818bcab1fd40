"""GET /unistream/overview: one line for each job, with the figures that answer how it does.

Counters grow; who asks twice has rates. What nobody knows is null, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec
from fastapi import APIRouter, Response

from unistream.base.config import WEB_DAGSTER_URL
from unistream.base.errors import NotFound
from unistream.base.ids import JobId
from unistream.master.cluster import Dispatcher
from unistream.model.job_figures import JobFigures, figures_of
from unistream.model.job_info import JobInfo, JobSummary
from unistream.rest.answers import json_answer

NowMs: TypeAlias = Callable[[], int]


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
    """The handler of the overview."""

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
            notes=self._dispatcher.notes(),
            dagster_url=self._dispatcher.config.find(WEB_DAGSTER_URL),
        )

    def _figures(self, job: JobSummary, info: JobInfo | None) -> JobFigures | None:
        if job.ended_ms is not None:
            return None
        try:
            return figures_of(info or self._dispatcher.job(JobId(job.job)))
        except NotFound:
            return None  # it has ended, and was pruned, since the list was made
