"""What a job in memory shows: its `JobInfo`, and how wide it would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from unistream.base.config import SCHEDULER
from unistream.base.ids import ClusterId, VertexId
from unistream.base.secrets import redacted
from unistream.core.contract import JobEnded, JobView
from unistream.core.job import with_parallelism
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import Journal, summed
from unistream.model.graph import JobGraph
from unistream.model.job_info import (
    JobInfo,
    JobSummary,
    SubtaskInfo,
    TaskManagerInfo,
    in_one_line,
)
from unistream.model.job_status import JobStatus
from unistream.model.stored_job import TotalsSoFar

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


def state_times_of(journal: Journal, ended: tuple[JobEnded, int] | None) -> dict[str, int]:
    """When the job came into each state, ms; into a last one only with the record of its result."""
    times = {state: at for state, at in journal.state_times.items() if state not in _BEFORE}
    return times if ended is None else times | {ended[0].state: ended[1]}


def live_info(
    setup: JobSetup,
    journal: Journal,
    view: JobView,
    ended: tuple[JobEnded, int] | None,
    *,
    target: str,
    workers: Iterable[TaskManagerInfo],
    cluster: ClusterId,
    since_ms: int,
) -> JobInfo:
    """The job as it is now. `ended`: how and when; `workers`: all workers of the cluster; `since_ms`: what
    the machine's clock lacks to the wall clock."""
    subtasks, sinks = journal.subtasks(view), journal.sinks
    end, ended_ms = ended or (None, None)
    return JobInfo(
        job=setup.job,
        name=setup.graph.name,
        lineage=setup.lineage,
        state=state_of(view, ended),
        target=target,
        submitted_ms=journal.submitted_ms,
        job_type=setup.graph.job_type.value,
        engine=setup.engine,
        stages=journal.stages,
        engine_page=journal.engine_page,
        ended_ms=ended_ms,
        state_times=state_times_of(journal, ended),
        restarts=view.restarts,
        restarts_at_ms=_wall(view.next_restart_ms if ended is None else None, since_ms),
        checkpoints_completed=view.checkpoints_completed,
        checkpoints_failed=view.checkpoints_failed,
        latest_checkpoint=journal.latest_checkpoint,
        savepoint=journal.savepoint,
        resumes_from=journal.resumes_from,
        checkpoints=journal.checkpoints,
        exceptions=journal.exceptions,
        subtasks=subtasks,
        sinks=sinks,
        metrics=summed(subtasks, sinks, view.unread),
        late_rows=journal.late_rows,
        out_of_order_rows=journal.out_of_order_rows,
        dead_letters=journal.dead_letters,
        skipped_rows=journal.skipped_rows,
        task_managers=_used(workers, subtasks),
        failure=view.failure if end is None else end.failure,
        cluster=cluster,
        digest=setup.digest,
        given=redacted(dict(setup.given)),
        writes=setup.graph.writes,
        reads=setup.graph.reads,
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
    journal: Journal,
    view: JobView,
    ended: tuple[JobEnded, int] | None,
    *,
    cluster: ClusterId,
) -> JobSummary:
    """One line of a list about a job in memory: its `JobInfo` without what a list does not show."""
    return JobSummary(
        job=setup.job,
        name=setup.graph.name,
        state=state_of(view, ended),
        submitted_ms=journal.submitted_ms,
        ended_ms=None if ended is None else ended[1],
        restarts=view.restarts,
        tasks=dict(Counter(attempt.state for attempt in view.attempts)),
        job_type=setup.graph.job_type.value,
        scheduler=scheduler_of(setup.graph),
        cluster=cluster,
        writes=setup.graph.writes,
        failure=_failure_of(ended),
    )


def _failure_of(ended: tuple[JobEnded, int] | None) -> str | None:
    failure = None if ended is None or ended[0].state != "FAILED" else ended[0].failure
    return None if failure is None else in_one_line(failure.kind, failure.message)


def totals_so_far(view: JobView, journal: Journal) -> TotalsSoFar:
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
