"""What a job in memory shows: its `JobInfo`, and how wide it would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from unistream.base.config import SCHEDULER
from unistream.base.ids import ClusterId, VertexId
from unistream.base.secrets import redacted
from unistream.core.contract import JobEnded, JobView
from unistream.core.job import with_parallelism
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import JobJournal
from unistream.master.shown import job_summary, one_line
from unistream.model.graph import JobGraph
from unistream.model.job_info import JobInfo, JobSummary, SubtaskInfo, TaskManagerInfo
from unistream.model.job_status import JobStatus
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """What a master knows of the cluster that its job runs in.

    Attributes:
        workers: All of them.
        since_ms: What the machine's clock lacks to the wall clock.
    """

    id: ClusterId
    target: str
    workers: Iterable[TaskManagerInfo]
    since_ms: int


def live_record(
    setup: JobSetup,
    submitted_ms: int,
    view: JobView,
    ended: tuple[JobEnded, int] | None,
    *,
    target: str,
    cluster: ClusterId,
) -> JobRecord:
    """The job as it is now, in the form of the catalogue. `ended`: how and when."""
    return JobRecord(
        job=setup.job,
        name=setup.graph.name,
        lineage=setup.lineage,
        state=state_of(view, ended),
        target=target,
        submitted_ms=submitted_ms,
        ended_ms=None if ended is None else ended[1],
        restarts=view.restarts,
        cluster=cluster,
        job_type=setup.graph.job_type.value,
        scheduler=scheduler_of(setup.graph),
    )


def live_info(
    setup: JobSetup,
    journal: JobJournal,
    view: JobView,
    ended: tuple[JobEnded, int] | None,
    where: LiveCluster,
) -> JobInfo:
    """The job as it is now. `ended`: how and when."""
    record = live_record(setup, journal.submitted_ms, view, ended, target=where.target, cluster=where.id)
    info = journal.info(record, view, view.failure if ended is None else ended[0].failure)
    return structs.replace(
        info,
        engine=setup.engine,
        restarts_at_ms=_wall(view.next_restart_ms if ended is None else None, where.since_ms),
        task_managers=_used(where.workers, info.subtasks),
        digest=setup.digest,
        given=redacted(dict(setup.given)),
    )


def _used(workers: Iterable[TaskManagerInfo], subtasks: Iterable[SubtaskInfo]) -> tuple[TaskManagerInfo, ...]:
    used = {subtask.task_manager for subtask in subtasks}
    return tuple(worker for worker in workers if worker.id in used)


def _wall(at_ms: int | None, since_ms: int) -> int | None:
    """A time of the monotonic clock as wall time, in whole seconds: two clocks are never read at once, and
    what did not change shall look so."""
    return None if at_ms is None else round(at_ms + since_ms, -3)


def live_summary(
    setup: JobSetup,
    submitted_ms: int,
    view: JobView,
    ended: tuple[JobEnded, int] | None,
    cluster: ClusterId,
) -> JobSummary:
    """One line of a list about a job in memory."""
    record = live_record(setup, submitted_ms, view, ended, target="", cluster=cluster)
    return job_summary(
        record,
        tasks=Counter(attempt.state for attempt in view.attempts),
        failure=None if ended is None else one_line(ended[0].failure, record.state),
        writes=setup.graph.writes,
    )


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
