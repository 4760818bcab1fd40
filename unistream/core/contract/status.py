"""States of a job, and the one table of its transitions (names as Flink's JobStatus).

`docs/reference/life-cycle.md` is drawn from the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from unistream.base.ids import JobId
from unistream.core.contract.story import StateLog


class JobStatus(Enum):
    """Where a job is in its life.

    INITIALIZING: accepted, its master is not up yet. CREATED: waits for slots and for its tasks to start.
    RUNNING: tasks run; some may wait, some may have finished. FAILING, CANCELLING: its tasks are being ended.
    RESTARTING: tasks wait for their restart; others may run. SUSPENDED: this leader gave it up for the next.
    RECONCILING: a new leader asks the workers what still runs.
    """

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

JOB_TRANSITIONS: Final[Mapping[JobStatus, Mapping[JobStatus, str]]] = {
    _J.INITIALIZING: {
        _J.CREATED: "its master is up",
        _J.RECONCILING: "an earlier leader has left tasks running",
        _J.CANCELLING: "a user cancels it",
        _J.FAILING: "it cannot be set up",
        _J.SUSPENDED: "its leader steps down",
    },
    _J.CREATED: {
        _J.RUNNING: "its first tasks are up",
        _J.RESTARTING: "something failed before that, and it may be tried again",
        _J.CANCELLING: "a user cancels it",
        _J.FAILING: "something failed for good",
        _J.SUSPENDED: "its leader steps down",
    },
    _J.RUNNING: {
        _J.FINISHED: "all tasks have finished",
        _J.RESTARTING: "tasks wait for their restart",
        _J.CANCELLING: "a user cancels it",
        _J.FAILING: "something failed for good",
        _J.SUSPENDED: "its leader steps down",
    },
    _J.RESTARTING: {
        _J.RUNNING: "what had to restart is up again",
        _J.CREATED: "it waits for slots, on which it may come up smaller or larger",
        _J.CANCELLING: "a user cancels it",
        _J.FAILING: "something failed for good",
        _J.SUSPENDED: "its leader steps down",
    },
    _J.FAILING: {
        _J.FAILED: "all tasks have ended",
        _J.CANCELLING: "a user cancels it",
        _J.SUSPENDED: "its leader steps down",
    },
    _J.CANCELLING: {
        _J.CANCELED: "all tasks have ended",
        _J.FAILING: "something failed for good",
        _J.SUSPENDED: "its leader steps down",
    },
    _J.RECONCILING: {
        _J.RUNNING: "its tasks have reported",
        _J.RESTARTING: "a task is missing",
        _J.CANCELLING: "a user cancels it",
        _J.FAILING: "something failed for good",
        _J.SUSPENDED: "its leader steps down",
    },
    _J.FAILED: {},
    _J.CANCELED: {},
    _J.FINISHED: {},
    _J.SUSPENDED: {},
}
"""State -> the states that may follow, each with what leads to it; what nothing follows is terminal."""


def job_state(job: JobId) -> StateLog[JobStatus]:
    """A new job's state: INITIALIZING."""
    return StateLog(f"job {job}", JobStatus.INITIALIZING, JOB_TRANSITIONS)
