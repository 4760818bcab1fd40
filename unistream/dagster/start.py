"""How a run comes to its job.

    the run repeats another one, whose job runs     it attaches to that job
    …, is a retry of Dagster's, and it has finished   it takes that job's result
    another job writes the same tables now          remote: it attaches to that job; else the run fails
    none of these                                   a new job, from the snapshot that `resume` names

A submission is named by its run, so that one whose answer was lost is found by the run that repeats it. Jobs
of clusters that live in the run's own process have ended with it: they leave only their snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

import dagster as dg

from unistream.api.environment import Environment
from unistream.base.errors import NotFound
from unistream.base.ids import JobId, job_of_request
from unistream.client.job_client import JobClient
from unistream.client.resume import LATEST, StillRuns
from unistream.client.submission import attach, connect

RESUME_TAG: Final = "unistream/resume"
"""Tag of a run, instead of the resource's `resume`."""

JOB_TAG: Final = "unistream/job_id"

BEGINNING: Final = "none"
"""`resume`: start without a snapshot."""

_RETRY_TAG: Final = "dagster/retry_number"
_REQUEST_CHARS_MAX: Final = 200


class Log(Protocol):
    """Takes a sentence for the run's log."""

    def note(self, text: str, *, is_error: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """See the module. Called on a thread of its own.

    Attributes:
        resume: "latest", "none", or the directory of a snapshot.
    """

    environment: Environment
    target: str
    run: dg.DagsterRun
    step: str
    name: str
    resume: str
    log: Log

    def __call__(self) -> JobClient:
        """Raises as `Environment.execute_async`."""
        if self.target == "remote":
            known = self._of_repeated_run()
            if known is not None:
                return self._attached(known, "which the run that this one repeats has started")
        try:
            savepoint = self._savepoint()
        except StillRuns as running:
            if self.target != "remote":
                raise
            return self._attached(running.job, "which writes the same tables already")
        begin = f"starts from {savepoint}" if savepoint else "starts from the beginning of its sources"
        self.log.note(f"job {self.name} {begin}", is_error=False)
        request = request_of(self.run.run_id, self.step) if self.target == "remote" else None
        return self.environment.execute_async(self.name, savepoint=savepoint, request_id=request)

    def _savepoint(self) -> str | None:
        """Raises StillRuns, as `Environment.latest_snapshot`."""
        if self.resume == BEGINNING:
            return None
        return self.environment.latest_snapshot() if self.resume == LATEST else self.resume

    def _of_repeated_run(self) -> JobId | None:
        parent, tags = self.run.parent_run_id, self.run.tags
        if parent is None:
            return None
        found = [job_of_request(request_of(parent, self.step))]
        if tags.get(JOB_TAG):  # copied: of a run further back, to whose job the repeated run had attached
            found.append(JobId(tags[JOB_TAG]))
        with connect(self.environment.config) as cluster:
            for job in found:
                try:
                    info = cluster.info(job)
                except NotFound:
                    continue
                if not info.is_terminal or (info.state == "FINISHED" and _RETRY_TAG in tags):
                    return job
        return None

    def _attached(self, job: JobId, why: str) -> JobClient:
        client = attach(job, self.environment.config)
        submitted = datetime.fromtimestamp(client.status().submitted_ms / 1000, UTC)
        text = f"attached to job {job}, {why}; it runs the code that was submitted at {submitted:%F %T} UTC"
        self.log.note(text, is_error=False)
        return client


def chosen_resume(run: dg.DagsterRun, resource: str) -> str:
    """What a run starts from: its tag, or what the resource says. A run that repeats another one has a copy
    of its tags, and the snapshot that was chosen there has been started from since."""
    chosen = run.tags.get(RESUME_TAG) or resource
    is_used = run.parent_run_id is not None and bool(run.tags.get(JOB_TAG))
    return LATEST if is_used and chosen != BEGINNING else chosen


def request_of(run_id: str, step: str) -> str:
    """The request id under which a step of a run submits its job.

    >>> request_of("5f0c", "orders")
    'dagster 5f0c orders'
    """
    return f"dagster {run_id} {step}"[:_REQUEST_CHARS_MAX]
