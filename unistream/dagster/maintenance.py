"""Nothing starts a stream while a run of `build_drain_and_resume_schedule` works on its table.

    a run of the stream   says that it starts the job, then looks for a run that works on the table: it fails
    a run of the drain    says that it works on the table, then waits for the runs that start the job

Both say it, as a tag of their run, before they look, so that of two that come at once one sees the other.
Dagster's database has the tags, which all runs see on whatever machine they are, and the mark ends with the
run: a run whose host has died has it until it is reported, and the retry has a copy.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import dagster as dg

from unistream.base.errors import ConfigError
from unistream.client.job_client import JobClient
from unistream.dagster.attached import POLL_S

STAGE_TAG: Final = "unistream/drain_stage"
"""Tag of a run: how far it is, a `Stage`. A run that repeats another one has a copy."""

MAINTAINS_TAG: Final = "unistream/maintains"
"""Tag of a run: name of the job of the stream that it drains."""

STARTING_TAG: Final = "unistream/starting"
"""Tag of a run: name of the job that it is about to start or to attach to; empty: it has done so."""

WORKING: Final = ("draining", "drained")
"""Values of `STAGE_TAG` while nothing may start the stream."""

_RUNS: Final = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_RUNS_OR_WILL: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    *_RUNS,
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GuardedStart:
    """Starts the job of a run unless somebody works on its table.

    Attributes:
        instance: Of Dagster.
        run_id: Of the run.
        name: Of the job.
        start: Starts it, or attaches to it.
    """

    instance: dg.DagsterInstance
    run_id: str
    name: str
    start: Callable[[], JobClient]

    def __call__(self) -> JobClient:
        """Raises ConfigError: a run works on the table; and as `start`."""
        self.instance.add_run_tags(self.run_id, {STARTING_TAG: self.name})
        try:
            check_no_maintenance(self.instance, self.name)
            return self.start()
        finally:
            self._is_over()

    def _is_over(self) -> None:
        try:
            self.instance.add_run_tags(self.run_id, {STARTING_TAG: ""})
        except Exception:  # the job has started: a drain that waits for this run does so in vain, and says so
            logger.exception("event=start_not_ended run=%s", self.run_id)


def check_no_maintenance(instance: dg.DagsterInstance, name: str) -> None:
    """Raises ConfigError: a run has stopped the job of this name, and works on its table."""
    tags = {MAINTAINS_TAG: name, STAGE_TAG: list(WORKING)}
    for run in instance.get_runs(dg.RunsFilter(tags=tags, statuses=_RUNS_OR_WILL), limit=1):
        raise ConfigError(
            f"run {run.run_id} of {run.job_name} has stopped the stream {name} to work on its table, and "
            "nothing may write meanwhile: the stream goes on by itself when that run has succeeded; "
            "terminate that run to start it before"
        )


def await_starts(instance: dg.DagsterInstance, name: str, timeout_s: float) -> None:
    """Waits for the runs that are about to start the job: each has a job then, or has seen this run.

    Raises:
        dg.Failure: one still is after `timeout_s`.
    """
    until_s = time.monotonic() + timeout_s
    filters = dg.RunsFilter(tags={STARTING_TAG: name}, statuses=_RUNS)
    while found := instance.get_runs(filters, limit=1):
        if time.monotonic() > until_s:
            raise dg.Failure(
                f"stream {name}: run {found[0].run_id} is about to start it for {timeout_s:.0f} s; if its "
                "process is gone, terminate that run, and execute this one again"
            )
        time.sleep(POLL_S)
