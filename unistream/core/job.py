"""States of a job, and the one table of its transitions (names as Flink's JobStatus)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from unistream.base.ids import JobId
from unistream.core.story import StateLog


class JobStatus(Enum):
    """Where a job is in its life. CREATED: waits for slots and for its tasks to start."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_globally_terminal(self) -> bool:
        """It never runs again, under no leader (SUSPENDED may)."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)


_J = JobStatus

JOB_TRANSITIONS: Final[Mapping[JobStatus, frozenset[JobStatus]]] = {
    _J.INITIALIZING: frozenset({_J.CREATED, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
    _J.CREATED: frozenset({_J.RUNNING, _J.RESTARTING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
    _J.RUNNING: frozenset({_J.FINISHED, _J.RESTARTING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
    _J.RESTARTING: frozenset({_J.RUNNING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
    _J.FAILING: frozenset({_J.FAILED, _J.CANCELLING, _J.SUSPENDED}),
    _J.CANCELLING: frozenset({_J.CANCELED, _J.FAILING, _J.SUSPENDED}),
    _J.RECONCILING: frozenset({_J.RUNNING, _J.RESTARTING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
    _J.FAILED: frozenset(),
    _J.CANCELED: frozenset(),
    _J.FINISHED: frozenset(),
    _J.SUSPENDED: frozenset(),
}


def job_state(job: JobId) -> StateLog[JobStatus]:
    """A new job's state: INITIALIZING."""
    return StateLog(f"job {job}", JobStatus.INITIALIZING, JOB_TRANSITIONS)
