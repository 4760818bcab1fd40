"""What was seen of a stream's job, and what it is at in one sentence: pure.

    a job                  it runs, or it has ended somehow
    that none is there     nobody has started it, or the cluster that had it has ended
    nothing                who knows the job does not answer

The last one is no state of the job: for a while nothing is said of it, and then that it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from unistream.base.ids import CheckpointId
from unistream.client.job.last_job import has_read_everything
from unistream.dagster.run.savepoints import savepoints_of, was_stopped
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.job_info import CheckpointInfo, JobInfo, in_one_line


class Complete(NamedTuple):
    """The newest complete checkpoint or savepoint of a job. `at_ms`: when it began."""

    checkpoint_id: CheckpointId
    at_ms: int


@dataclass(frozen=True, slots=True)
class SeenJob:
    """The job of a stream. `newest`: None: it has no complete checkpoint; `page`: of it in the web UI."""

    info: JobInfo
    newest: Complete | None = None
    page: str | None = None


@dataclass(frozen=True, slots=True)
class NoJob:
    """No job of the stream is there. `is_lost`: the cluster that had it has ended."""

    why: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class NotSeen:
    """Who knows the job does not answer."""

    why: str


Seen: TypeAlias = SeenJob | NoJob | NotSeen


def newest_of(figures: Iterable[CheckpointFigures | None]) -> Complete | None:
    """The newest of the snapshots that are complete; None: there is none."""
    known = [Complete(one.checkpoint_id, one.timestamp_ms) for one in figures if one is not None]
    return max(known, key=lambda one: one.at_ms, default=None)


def newest_in(checkpoints: Iterable[CheckpointInfo]) -> Complete | None:
    """The newest complete one of a job's recent snapshots; None: there is none."""
    done = [Complete(one.checkpoint_id, one.triggered_ms) for one in checkpoints if one.state == "completed"]
    return max(done, key=lambda one: one.at_ms, default=None)


def state_text(info: JobInfo) -> str:
    """What a job is at, and what it has left."""
    job = f"job {info.job}"
    if not info.is_terminal:
        return f"{job} is {info.state}{_since(info)}"
    if has_read_everything(info):
        return f"{job} has read all of its input, and is {info.state}"
    if was_stopped(info):
        left = savepoints_of(info)
        how = "drained" if left.terminal is not None else "stopped with a savepoint"
        then = (
            "no run can go on from it"
            if left.resumable is None
            else f"the next run goes on from {left.resumable}"
        )
        return f"{job} was {how}: {then}"
    if info.state == "CANCELED":
        return f"{job} was cancelled, without a savepoint"
    why = "" if info.failure is None else f": {in_one_line(info.failure.kind, info.failure.message)}"
    return f"{job} is {info.state}{why}"


def _since(info: JobInfo) -> str:
    """Why it is about to start again, or how often it has."""
    if info.state in {"RESTARTING", "FAILING"} and info.exceptions:
        newest = info.exceptions[0]
        return f": {in_one_line(newest.kind, newest.message)}"
    if not info.restarts:
        return ""
    return f", after {info.restarts} restart{'s' if info.restarts > 1 else ''}"
