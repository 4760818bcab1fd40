"""What a job in memory shows: its `JobInfo`, and how wide it would be."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from unistream.base.config import SCHEDULER
from unistream.base.ids import ClusterId, VertexId
from unistream.base.secrets import redacted
from unistream.core.contract import JobEnded, JobView
from unistream.core.job import with_parallelism
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import JobJournal
from unistream.master.job.pictures import Pictures
from unistream.master.service import ClusterServices
from unistream.master.shown import job_summary, one_line
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.graph import JobGraph
from unistream.model.job_info import JobInfo, JobSummary, SubtaskInfo, TaskManagerInfo
from unistream.model.job_status import JobStatus
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import TotalsSoFar
from unistream.port.metadata import JobRecord

_BEFORE: Final[Mapping[str, JobStatus]] = {
    JobStatus.FINISHED.value: JobStatus.RUNNING,
    JobStatus.CANCELED.value: JobStatus.CANCELLING,
    JobStatus.FAILED.value: JobStatus.FAILING,
}
"""What a job shows that is about to end so."""
NO_CHANGE: Final[Mapping[VertexId, int]] = {}


def state_of(view: JobView, ended: tuple[JobEnded, int] | None) -> str:
    """The state of a job as people see it, who take an end for final: it comes with the record of the result.
    A leader that dies before that may leave the job to run again. `ended`: how and when; None: not yet."""
    if ended is not None:
        return ended[0].state
    before = _BEFORE.get(view.state)
    return view.state if before is None else before.value


@dataclass(slots=True, eq=False)
class JobEnding:
    """How a job ends. Written by its own thread, read by any.

    Attributes:
        outcome: None: it runs.
        recorded_ms: When its result was recorded; None: it is not yet, and the outcome may still change.
        is_over: The result is recorded, and all who wait for the job have their answer.
    """

    outcome: JobEnded | None = None
    recorded_ms: int | None = None
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def known(self) -> JobEnded:
        """The outcome of a job that has one."""
        assert self.outcome is not None
        return self.outcome

    @property
    def recorded(self) -> tuple[JobEnded, int] | None:
        """The outcome that counts, and when."""
        outcome, at_ms = self.outcome, self.recorded_ms
        return None if outcome is None or at_ms is None else (outcome, at_ms)


class LiveJob:
    """What people see of one job in memory, while it runs and after its end. Any thread may ask."""

    def __init__(
        self,
        setup: JobSetup,
        journal: JobJournal,
        pictures: Pictures,
        ending: JobEnding,
        *,
        services: ClusterServices,
        cluster: ClusterId,
    ) -> None:
        self._setup = setup
        self._journal = journal
        self._pictures = pictures
        self._ending = ending
        self._clock = services.clock
        self._target = services.target
        self._cluster = cluster

    @property
    def state(self) -> str:
        """The job's state as last seen; exact once the job has ended."""
        return state_of(self._pictures.view, self._ending.recorded)

    @property
    def failure(self) -> TaskFailure | None:
        """The failure of a job that has ended as FAILED or SUSPENDED."""
        outcome = self._ending.outcome
        return None if outcome is None else outcome.failure

    def view(self) -> JobView:
        """The machine's view after all events posted before; after its end, the last one."""
        return self._pictures.new_view() if self._ending.outcome is None else self._pictures.view

    def checkpoints(self) -> CheckpointsInfo:
        """The statistics of its snapshots; kept after its end."""
        pictures = self._pictures
        return pictures.new_checkpoints() if self._ending.outcome is None else pictures.checkpoints

    def info(self, workers: Iterable[TaskManagerInfo]) -> JobInfo:
        """The job as it is now; `workers`: all workers of the cluster."""
        return self._info(self.view(), self._ending.recorded, workers)

    def info_at_end(self, end: JobEnded, ended_ms: int) -> JobInfo:
        """The job as its pages show it once it has ended so."""
        return self._info(self._pictures.view, (end, ended_ms), ())

    def summary(self) -> JobSummary:
        """The job's line in a list."""
        return self._summary(self.view(), self._ending.recorded)

    def summary_and_info(self, workers: Iterable[TaskManagerInfo]) -> tuple[JobSummary, JobInfo]:
        """The job's line and its `JobInfo`, of one moment: the job is asked once, and by many lists at the
        same time it costs half."""
        view, ended = self.view(), self._ending.recorded
        return self._summary(view, ended), self._info(view, ended, workers)

    def _record(self, view: JobView, ended: tuple[JobEnded, int] | None) -> JobRecord:
        """The job as it is now, in the form of the catalogue. `ended`: how and when."""
        setup = self._setup
        return JobRecord(
            job=setup.job,
            name=setup.graph.name,
            lineage=setup.lineage,
            state=state_of(view, ended),
            target=self._target,
            submitted_ms=self._journal.submitted_ms,
            ended_ms=None if ended is None else ended[1],
            restarts=view.restarts,
            cluster=self._cluster,
            job_type=setup.graph.job_type.value,
            scheduler=scheduler_of(setup.graph),
        )

    def _info(
        self, view: JobView, ended: tuple[JobEnded, int] | None, workers: Iterable[TaskManagerInfo]
    ) -> JobInfo:
        setup, record = self._setup, self._record(view, ended)
        info = self._journal.info(record, view, view.failure if ended is None else ended[0].failure)
        return structs.replace(
            info,
            engine=setup.engine,
            restarts_at_ms=self._wall(view.next_restart_ms if ended is None else None),
            task_managers=_used(workers, info.subtasks),
            digest=setup.digest,
            given=redacted(dict(setup.given)),
        )

    def _summary(self, view: JobView, ended: tuple[JobEnded, int] | None) -> JobSummary:
        record = self._record(view, ended)
        return job_summary(
            record,
            tasks=Counter(attempt.state for attempt in view.attempts),
            failure=None if ended is None else one_line(ended[0].failure, record.state),
            writes=self._setup.graph.writes,
        )

    def _wall(self, at_ms: int | None) -> int | None:
        """A time of the monotonic clock as wall time, in whole seconds: two clocks are never read at once,
        and what did not change shall look so."""
        if at_ms is None:
            return None
        return round(at_ms + self._clock.wall_ms() - self._clock.monotonic_ms(), -3)


def _used(workers: Iterable[TaskManagerInfo], subtasks: Iterable[SubtaskInfo]) -> tuple[TaskManagerInfo, ...]:
    used = {subtask.task_manager for subtask in subtasks}
    return tuple(worker for worker in workers if worker.id in used)


def totals_so_far(view: JobView, journal: JobJournal) -> TotalsSoFar:
    """The job's totals, with the snapshot that is about to be complete, which `view` does not have yet."""
    return TotalsSoFar(
        completed=view.checkpoints_completed + 1,
        failed=view.checkpoints_failed,
        restored=view.checkpoints_restored,
        sinks=journal.committed,
    )


def scheduler_of(graph: JobGraph) -> str:
    """The job's scheduler as Flink's `SchedulerType` names it."""
    return "Adaptive" if graph.config.get(SCHEDULER.key) == "adaptive" else "Default"


def widths(view: JobView, changed: Mapping[VertexId, int] = NO_CHANGE) -> dict[VertexId, int]:
    """The parallelism of every vertex of the job with enough slots, after a change of some: vertices that
    forward edges join to them follow. Raises ConfigError: it is impossible."""
    wanted = view.wanted or view.graph
    graph = with_parallelism(wanted, changed) if changed else wanted
    return {vertex.id: vertex.parallelism for vertex in graph.vertices}
