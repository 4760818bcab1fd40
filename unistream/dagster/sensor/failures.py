"""Jobs of a cluster that fail, also those for which no run of Dagster waits: a sensor calls somebody.

A detached run has succeeded when its stream fails at night, and a job that was submitted by hand has no run.
So each tick asks the cluster for its jobs, and calls `alert` once for each that has failed since the sensor
was turned on. If `alert` raises, the tick fails and the next one calls it again: at least once.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final, NamedTuple

import dagster as dg
import msgspec

from unistream.base.errors import UnistreamError
from unistream.client.job.submission import connect
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.sensor.commit_sensor import EVERY_S, impatient
from unistream.model.job_info import JobSummary
from unistream.model.time_range import time_text

LATE_MS: Final = 3_600_000  # a failure is listed this much later than another one, at most


class FailedJob(NamedTuple):
    """A job that has failed.

    Attributes:
        job: Its id.
        name: Its name.
        ended_ms: When, ms since 1970.
        why: One line.
        url: Of the REST API of its cluster.
    """

    job: str
    name: str
    ended_ms: int
    why: str
    url: str

    def __str__(self) -> str:
        return f"job {self.name} ({self.job}) has failed at {time_text(self.ended_ms)}: {self.why}"


class FailuresCursor(msgspec.Struct, frozen=True):
    """What the sensor knows. `since_ms`: failures before it are none of its own; `reported`: jobs since."""

    since_ms: int
    reported: tuple[str, ...] = ()


def newly_failed(
    jobs: Iterable[JobSummary], before: FailuresCursor
) -> tuple[list[JobSummary], FailuresCursor]:
    """The jobs that were not reported, the oldest first, and what is remembered when they are. Pure."""
    failed = [one for one in jobs if one.state == "FAILED" and (one.ended_ms or 0) >= before.since_ms]
    new = sorted((one for one in failed if one.job not in before.reported), key=lambda one: one.ended_ms or 0)
    newest = max((one.ended_ms or 0 for one in failed), default=before.since_ms)
    since_ms = max(before.since_ms, newest - LATE_MS)
    kept = {one.job for one in failed if (one.ended_ms or 0) >= since_ms}
    return new, FailuresCursor(since_ms, tuple(sorted(kept)))


def build_failed_job_sensor(
    alert: Callable[[FailedJob], None],
    *,
    name: str = "unistream_failed_jobs",
    resource: str = "unistream",
    minimum_interval_seconds: int = EVERY_S,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    clock: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """A sensor that calls `alert` for each job of a session cluster that fails from now on.

    Args:
        alert: Sends a message, say. What it raises fails the tick, and the next one calls it again.
        name: Of the sensor.
        resource: Key of the `UnistreamResource` that knows the cluster; its target is "remote".
        minimum_interval_seconds: Between two ticks.
        default_status: Of a new instance.
        clock: Seconds since the epoch.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource},
    )
    def failures(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        unistream: UnistreamResource = getattr(context.resources, resource)
        if unistream.target != "remote":
            return dg.SkipReason(
                f"with target {unistream.target!r} a job fails with its run, of which Dagster tells: this "
                "sensor is for the jobs of a session cluster, target remote"
            )
        known = context.cursor
        before = (
            msgspec.json.decode(known, type=FailuresCursor) if known else FailuresCursor(int(clock() * 1_000))
        )
        try:
            with closing(connect(impatient(unistream.configuration()))) as cluster:
                jobs, url = cluster.jobs(), cluster.url
        except UnistreamError as error:
            context.update_cursor(_written(before))
            return dg.SkipReason(f"the jobs are not known now: {error}")
        new, after = newly_failed(jobs, before)
        for one in new:
            failed = FailedJob(one.job, one.name, one.ended_ms or 0, one.failure or "nobody knows why", url)
            context.log.error("%s", failed)
            alert(failed)
        context.update_cursor(_written(after))
        return dg.SkipReason(f"{len(new)} jobs have failed" if new else "no job has failed")

    return failures


def _written(cursor: FailuresCursor) -> str:
    return msgspec.json.encode(cursor).decode()
