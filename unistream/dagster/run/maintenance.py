"""Nothing starts a stream while a run of `build_drain_and_resume_schedule` works on its table.

    a run of the stream   says that it starts the job, then looks for a run that works on the table: it fails
    a run of the drain    says that it works on the table, then waits for the runs that start the job

Both say it, as a tag of their run, before they look, so that of two that come at once one sees the other. The
tags name the tables: two streams may have one name, and a stream that was renamed has two (`stream`).
Dagster's database has the tags, which all runs see on whatever machine they are, and the mark ends with the
run: a run whose host has died has it until it is reported, and the retry has a copy.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final

import dagster as dg
import msgspec

from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.client.remote.job_client import JobClient
from unistream.dagster.run.attached import POLL_S
from unistream.dagster.run.metadata import HIDDEN
from unistream.dagster.run.stream import AssetStream

STAGE_TAG: Final = "unistream/stage"
"""Tag of a run: how far it is, a `DrainStage`. A run that repeats another one has a copy."""

EARLIER_STAGE_TAG: Final = "unistream/drain_stage"
"""The tag that runs of earlier versions have instead of `STAGE_TAG`."""

MAINTAINS_TAG: Final = "unistream/maintains"
"""Tag of a run: name of the job of the stream that it drains, for people."""

STREAM_TAG: Final = "unistream/stream"
"""Tag of the same run: the `AssetStream`."""

STARTING_TAG: Final = f"{HIDDEN}starting"
"""Tag of a run, with the name of the job behind it: the job that it is about to start or to attach to, a
`Starting`; empty: it has done so. People have nothing of it."""

WORKING: Final = ("draining", "drained", "stopping", "stopped")
"""Values of `STAGE_TAG` while nothing may start the stream."""

_RUNS: Final = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_RUNS_OR_WILL: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    *_RUNS,
]

logger = logging.getLogger(__name__)


class Starting(msgspec.Struct, frozen=True):
    """A job that is about to be started. `name`: of it; `writes`: URIs by uid of its sinks."""

    name: str
    writes: dict[OperatorUid, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GuardedStart:
    """Starts the job of a run unless somebody works on its table.

    Attributes:
        instance: Of Dagster.
        run_id: Of the run.
        job: What is started.
        start: Starts it, or attaches to it.
    """

    instance: dg.DagsterInstance
    run_id: str
    job: Starting
    start: Callable[[], JobClient]

    def __call__(self) -> JobClient:
        """Raises ConfigError: a run works on the table; and as `start`."""
        self.instance.add_run_tags(self.run_id, {self._tag: msgspec.json.encode(self.job).decode()})
        try:
            check_no_maintenance(self.instance, self.job)
            return self.start()
        finally:
            self._is_over()

    @property
    def _tag(self) -> str:
        """The tag of this job alone: other steps of the run start others. Dagster has letters of its own for
        keys."""
        return f"{STARTING_TAG}.{hashlib.sha256(self.job.name.encode()).hexdigest()[:8]}"

    def _is_over(self) -> None:
        try:
            self.instance.add_run_tags(self.run_id, {self._tag: ""})
        except Exception:  # the job has started: a drain that waits for this run does so in vain, and says so
            logger.exception("event=start_not_ended run=%s", self.run_id)


def maintains(stream: AssetStream) -> dict[str, str]:
    """Tags of a run that works on the tables of a stream."""
    return {MAINTAINS_TAG: stream.name, STREAM_TAG: msgspec.json.encode(stream).decode()}


def check_no_maintenance(instance: dg.DagsterInstance, job: Starting) -> None:
    """Raises ConfigError: a run has stopped the stream that this job is, and works on its tables."""
    filters = [
        dg.RunsFilter(tags={tag: list(WORKING)}, statuses=_RUNS_OR_WILL)
        for tag in (STAGE_TAG, EARLIER_STAGE_TAG)
    ]
    for run in chain.from_iterable(map(instance.get_runs, filters)):
        stream = _maintained(run)
        if stream.is_written_by(job.name, job.writes):
            raise ConfigError(
                f"run {run.run_id} of {run.job_name} has stopped the stream {stream.name} to work on its "
                "table, and nothing may write meanwhile: the stream goes on by itself when that run has "
                "succeeded; terminate that run to start it before"
            )


def await_starts(instance: dg.DagsterInstance, stream: AssetStream, timeout_s: float) -> None:
    """Waits for the runs that are about to start the stream's job: each has a job then, or has seen this run.

    Raises:
        dg.Failure: one still is after `timeout_s`.
    """
    until_s = time.monotonic() + timeout_s
    while found := [run for run in instance.get_runs(dg.RunsFilter(statuses=_RUNS)) if _starts(run, stream)]:
        if time.monotonic() > until_s:
            raise dg.Failure(
                f"stream {stream.name}: run {found[0].run_id} is about to start it for {timeout_s:.0f} s; if "
                "its process is gone, terminate that run, and execute this one again"
            )
        time.sleep(POLL_S)


def _maintained(run: dg.DagsterRun) -> AssetStream:
    """The stream that a run works on; of a run of an earlier version its name alone."""
    known = run.tags.get(STREAM_TAG)
    return (
        msgspec.json.decode(known, type=AssetStream)
        if known
        else AssetStream(run.tags.get(MAINTAINS_TAG, ""), ())
    )


def _starts(run: dg.DagsterRun, stream: AssetStream) -> bool:
    jobs = [value for tag, value in run.tags.items() if tag.startswith(f"{STARTING_TAG}.") and value]
    return any(
        stream.is_written_by(job.name, job.writes)
        for job in (msgspec.json.decode(value, type=Starting) for value in jobs)
    )
