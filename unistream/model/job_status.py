"""The state of a job as people and clients see it."""

from __future__ import annotations

from enum import Enum


class JobStatus(Enum):
    """What people see of a job's state."""

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
